"""Params of outgoing requests, with the era's metadata and the progress token."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..errors import LocalProtocolError
from ..wire import Params, RequestId, to_json
from ..wire.error_codes import INVALID_PARAMS
from .caller import CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, VERSION_KEY
from .revisions import NEWEST

__all__ = ["Identity", "with_meta"]


class Identity:
    """This side's name, version, capabilities and requested log level."""

    def __init__(
        self,
        info: Mapping[str, Any] | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.info = to_json(info or {"name": "fairlead", "version": "0"})
        self.capabilities = to_json(capabilities or {})
        self.request_log_level(None)

    def request_log_level(self, level: str | None) -> None:
        """Set the log level that later stateless requests will contain."""
        members = b'"%b":"%b","%b":%b,"%b":%b' % (
            *(VERSION_KEY.encode(), NEWEST.encode()),
            *(CAPABILITIES_KEY.encode(), self.capabilities),
            *(CLIENT_INFO_KEY.encode(), self.info),
        )
        if level is not None:
            members += b',"%b":%b' % (LOG_LEVEL_KEY.encode(), to_json(level))
        self.stamp = members  # `_meta` members of every stateless request, without the braces


def with_meta(
    params: Mapping[str, Any] | Raw | None,
    token: RequestId | None,
    stamp: bytes,
    trace: bytes = b"",
) -> Params:
    """Encode params, and add a progress token and a stamp to their `_meta`.

    `stamp` contains the encoded members that describe this client (`Identity.stamp`). `trace` is
    added unless the params already name a trace.

    Raises:
        LocalProtocolError: -32602 if params or `_meta` are not objects.
    """
    if token is not None:
        shown = b"%d" % token if type(token) is int else to_json(token)
        stamp = (
            b'"progressToken":%b,%b' % (shown, stamp) if stamp else b'"progressToken":%b' % shown
        )
    if trace:
        return _merged({} if params is None else params, stamp, trace)
    if not stamp:
        if params is None:
            return UNSET
        return params if isinstance(params, Raw) else Raw(to_json(params))
    if not params:
        return Raw(b'{"_meta":{%b}}' % stamp)
    if isinstance(params, Raw) or "_meta" in params:
        return _merged(params, stamp)
    # Appended to the encoded text, which is faster than encoding a copy of the mapping.
    body = to_json(params)
    return Raw(b'%b,"_meta":{%b}}' % (body[:-1], stamp))


def _merged(params: Mapping[str, Any] | Raw, stamp: bytes, trace: bytes = b"") -> Params:
    """Merge the stamp into the params' `_meta`; for equal keys, the stamp takes precedence."""
    raw = params if isinstance(params, Raw) else to_json(params)
    try:
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        own = msgspec.json.decode(members.pop("_meta", b"null"), type=dict[str, Raw] | None)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise LocalProtocolError(
            f"params and _meta must be objects: {exc}", code=INVALID_PARAMS
        ) from exc
    meta = msgspec.json.decode(b"{%b}" % trace, type=dict[str, Raw]) if trace else {}
    if own:
        # Members of two different traces must not be mixed.
        traced = any(name in own for name in ("traceparent", "tracestate", "baggage"))
        meta = own if traced else {**meta, **own}
    meta.update(msgspec.json.decode(b"{%b}" % stamp, type=dict[str, Raw]))
    return Raw(msgspec.json.encode({**members, "_meta": meta}))
