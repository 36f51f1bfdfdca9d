"""HTTP headers of a client's requests: configured headers and headers of the protocol.

`http1/pool.py` adds `Host`, `User-Agent` and the headers for framing.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, TypeAlias

from msgspec import UnsetType

from ....errors import FairleadError, HttpError
from ....protocol.caller import ParamsHead
from ....protocol.headers import ParamHeader, encode_value, mirrored_name, param_values
from ....wire import Request
from ....wire.json import read_json
from .http1.header_fields import merge_headers

__all__ = ["OnAuthError", "ParamHeadersOf", "RequestHeaders"]

log = logging.getLogger("fairlead.transport")

_POST = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
# Events are needed immediately, and compression would delay them.
_GET = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-store"}

ParamHeadersOf = Callable[[str], tuple[ParamHeader, ...]]

_Headers: TypeAlias = Mapping[str, str] | None
# Hook for 401 and 403; the request is repeated once with the headers that it returns.
OnAuthError: TypeAlias = Callable[[HttpError], _Headers | Awaitable[_Headers]]


class RequestHeaders:
    """Headers for each kind of request, prepared once and copied if a request needs other headers.

    Generated headers replace configured ones, regardless of case.
    """

    def __init__(
        self, configured: Mapping[str, str] | None = None, authorization: str | None = None
    ) -> None:
        """`authorization` comes from the URL; a configured `Authorization` replaces it."""
        self.param_headers_of: ParamHeadersOf | None = None
        self.on_auth_error: OnAuthError | None = None
        self.generation = 0  # number of `configure` calls so far
        self.session_id: str | None = None
        self.version: str | None = None  # the revision that a handshake negotiated
        ours = {} if authorization is None else {"Authorization": authorization}
        self._configured = merge_headers(ours, configured or {})
        self._prepare()

    def configure(self, fresh: Mapping[str, str]) -> None:
        """Add configured headers, and replace existing ones of the same name."""
        self._configured = merge_headers(self._configured, fresh)
        self.generation += 1
        self._prepare()

    def opened(self, session_id: str | None, version: str | None) -> None:
        """Set the session and its revision; both are None without a session."""
        self.session_id, self.version = session_id, version
        self._prepare()

    def _prepare(self) -> None:
        session: dict[str, str] = {}
        if self.session_id is not None:
            session["Mcp-Session-Id"] = self.session_id
        if self.version is not None:
            session["MCP-Protocol-Version"] = self.version
        # Configured values of these headers could contradict the message.
        ours = ("mcp-method", "mcp-name", "mcp-session-id", "mcp-protocol-version")
        theirs = {
            name: value
            for name, value in self._configured.items()
            if name.lower() not in ours and not name.lower().startswith("mcp-param-")
        }
        self._stateless = merge_headers(theirs, _POST)
        self.post = merge_headers(theirs, {**_POST, **session})
        self._get = merge_headers(theirs, {**_GET, **session})
        self._delete = merge_headers(theirs, session)

    def listening(self, last_event_id: str | None = None) -> dict[str, str]:
        """Return the headers for an event stream, resumed after `last_event_id` if given."""
        if last_event_id:
            return merge_headers(self._get, {"Last-Event-ID": last_event_id})
        return self._get

    def ending(self, session_id: str) -> dict[str, str]:
        """Return the headers of the DELETE for a session, which need not be the current one."""
        return merge_headers(self._delete, {"Mcp-Session-Id": session_id})

    def told(self, version: str | None) -> dict[str, str]:
        """Return the headers for a notification or response.

        `version` is the revision of the last stateless request, or None if there was none.
        """
        if version is None or self.version is not None:
            return self.post
        return {**self._stateless, "MCP-Protocol-Version": version}

    def asked(
        self, request: Request, head: ParamsHead, extra: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the headers for a request. A request that declares its revision is stateless.

        `extra` are headers of this request only, which replace configured ones.
        """
        headers = self._asked(request, head)
        if extra:
            made = {name.lower() for name in headers}
            kept = {n: v for n, v in extra.items() if not _is_generated(n.lower(), made)}
            headers = merge_headers(headers, kept)
        return headers

    def _asked(self, request: Request, head: ParamsHead) -> dict[str, str]:
        meta = head.meta
        if isinstance(meta, UnsetType) or isinstance(meta.protocol_version, UnsetType):
            return self._stateless if request.method == "initialize" else self.post
        headers = {
            **self._stateless,
            "MCP-Protocol-Version": meta.protocol_version,
            "Mcp-Method": request.method,
        }
        name = mirrored_name(request.method, head, request.params)
        if name is not None:
            headers["Mcp-Name"] = encode_value(name)
            if self.param_headers_of is not None and request.method == "tools/call":
                marks = self.param_headers_of(name)
                if marks:
                    _mirror_arguments(headers, marks, head)
        return headers

    async def refreshed(self, error: HttpError, generation: int) -> bool:
        """Return True if the request can be repeated with newer credentials.

        `generation` identifies the credentials that the server refused with `error`.

        Raises:
            HttpError: The hook failed; `error` is raised again.
            FairleadError: Raised by the hook itself.
        """
        if error.status not in (401, 403):
            return False
        if generation != self.generation:
            return True  # another request has already obtained new credentials
        if self.on_auth_error is None:
            return False
        try:
            fresh = self.on_auth_error(error)
            headers = await fresh if inspect.isawaitable(fresh) else fresh
        except FairleadError:
            raise
        # The hook is user code. The caller gets the refusal, which is the error it can act on.
        except Exception as exc:
            log.exception("on_auth_error failed")
            raise error from exc
        if not headers:
            return False
        self.configure(headers)
        return True


def _mirror_arguments(
    headers: dict[str, str], marks: tuple[ParamHeader, ...], head: ParamsHead
) -> None:
    given = read_json(head.arguments, dict[str, Any], None)
    for mark, value in param_values(marks, given):
        if value is not None:
            headers[f"Mcp-Param-{mark.header}"] = encode_value(value)


def _is_generated(name: str, made: Container[str]) -> bool:
    if name.startswith("mcp-param-"):
        # A relay has no tool definitions, so it forwards these headers from its client.
        return name in made
    return name in ("accept", "content-type", "last-event-id") or name.startswith("mcp-")
