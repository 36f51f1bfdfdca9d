"""Sender of a request, and the members of a request that describe it.

In the handshake era a `Caller` is stored after `initialize`; in the stateless era it is read from
the `_meta` of each request and never inferred from an earlier request.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ..errors import RpcError
from ..limits import DECLARATION_BYTES
from ..wire import Params
from ..wire.error_codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from ..wire.json import read_json
from .identity.principal import Principal
from .methods import has_capability
from .revisions import HANDSHAKE, STATELESS, Revision

__all__ = [
    "CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "LOG_LEVEL_KEY",
    "ROUND_MEMBERS",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_KEY",
    "VERSION_KEY",
    "Caller",
    "Meta",
    "ParamsHead",
    "check_declaration",
    "read_params_head",
    "stateless_caller",
    "target_of",
]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

# Members of params that a client adds when it repeats a call with the input that was requested.
ROUND_MEMBERS = frozenset({"inputResponses", "requestState"})


class Caller(Struct, frozen=True):
    """Description of the peer that sends requests: revision, identity and declared capabilities."""

    revision: Revision
    # Copied from the revision, because every call reads it.
    stateless: bool
    # The identity on whose behalf requests are sent; set by the entry point, never by a default.
    principal: Principal
    capabilities: bytes = b"{}"  # capabilities that the peer declared, as sent
    info: bytes | None = None  # name and version of the peer, as sent
    log_level: str | None = None  # least severe level that the peer wants; None if it set none

    def can(self, capability: str) -> bool:
        """Return True if the peer declared a capability, given as a dotted path
        (`elicitation.url`).
        """
        return has_capability(self.declared, capability)

    @property
    def declared(self) -> Mapping[str, Any]:
        """Return the declared capabilities, decoded."""
        return _decode_object(self.capabilities)

    @property
    def name(self) -> str:
        """Return the name that the peer gave itself. For people and logs, never for decisions."""
        info = _decode_object(self.info) if self.info else {}
        return str(info.get("name", "unknown"))


class Meta(Struct, gc=False):
    """Members of the `_meta` of a request that the protocol itself reads."""

    progress_token: int | str | UnsetType = field(default=UNSET, name="progressToken")
    protocol_version: str | UnsetType = field(default=UNSET, name=VERSION_KEY)
    client_capabilities: Raw | UnsetType = field(default=UNSET, name=CAPABILITIES_KEY)
    client_info: Raw | UnsetType = field(default=UNSET, name=CLIENT_INFO_KEY)
    log_level: str | UnsetType = field(default=UNSET, name=LOG_LEVEL_KEY)
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET
    baggage: str | UnsetType = UNSET

    @property
    def names_trace(self) -> bool:
        """Return True if the request names the trace it belongs to."""
        return self.traceparent is not UNSET or self.baggage is not UNSET


class ParamsHead(Struct, gc=False):
    """Members of the params of any request that routing and execution need, read in one pass."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET


_decode_head = msgspec.json.Decoder(ParamsHead).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
NO_HEAD = ParamsHead()
_TOKEN: Any = int | float | str


def read_params_head(params: Params) -> ParamsHead:
    """Read the head of params. Never fails: a member of the wrong type counts as absent."""
    if isinstance(params, UnsetType):
        return NO_HEAD
    try:
        return _decode_head(params)
    except (msgspec.DecodeError, RecursionError):
        return _read_head_carefully(params)


def target_of(method: str, head: ParamsHead) -> str | None:
    """Return the tool, prompt or resource that a message names, if any.

    A server uses the URI of a resource, so a name beside the URI must not hide it from policies.
    """
    name, uri = head.name, head.uri
    if uri is UNSET:
        return None if name is UNSET else name
    return uri if name is UNSET or "resources/" in method else name


def stateless_caller(meta: Meta, principal: Principal) -> Caller:
    """Return the caller that a stateless request describes.

    Raises:
        RpcError: -32602 if a required member is missing or malformed, -32022 if the version is not
            served without a handshake.
    """
    version, capabilities = meta.protocol_version, meta.client_capabilities
    if isinstance(version, UnsetType):
        raise RpcError(INVALID_PARAMS, f"_meta lacks {VERSION_KEY} (a string)")
    if isinstance(capabilities, UnsetType) or memoryview(capabilities)[0] != _OPENING_BRACE:
        raise RpcError(INVALID_PARAMS, f"_meta lacks {CAPABILITIES_KEY} (an object)")
    revision = _STATELESS_BY_NAME.get(version)
    if revision is None:
        raise unsupported_version(version)
    check_declaration(capabilities, meta.client_info)
    return Caller(
        revision,
        True,
        principal,
        bytes(capabilities),
        None if isinstance(meta.client_info, UnsetType) else bytes(meta.client_info),
        None if isinstance(meta.log_level, UnsetType) else meta.log_level,
    )


def check_declaration(capabilities: Raw, info: Raw | UnsetType) -> None:
    """Check the size of the declaration of a client, which is kept.

    Raises:
        RpcError: -32602 if capabilities and clientInfo are too large.
    """
    size = memoryview(capabilities).nbytes
    if not isinstance(info, UnsetType):
        size += memoryview(info).nbytes
    if size > DECLARATION_BYTES.value:
        DECLARATION_BYTES.hit()
        limit = DECLARATION_BYTES.value
        raise RpcError(INVALID_PARAMS, f"capabilities and clientInfo have more than {limit} bytes")


def unsupported_version(requested: str) -> RpcError:
    """Return the error for an unsupported version, with the versions that are supported."""
    supported = [revision.value for revision in (*STATELESS, *HANDSHAKE)]
    return RpcError(
        UNSUPPORTED_VERSION,
        f"Protocol version {requested!r} is not served without a handshake; "
        f"supported: {', '.join(STATELESS)}",
        {"supported": supported, "requested": requested},
    )


_OPENING_BRACE = ord("{")
_STATELESS_BY_NAME = {revision.value: revision for revision in STATELESS}


# Clients repeat the same declaration in every stateless request.
@lru_cache(maxsize=64)
def _decode_object(raw: bytes) -> Mapping[str, Any]:
    return read_json(raw, dict[str, Any], {})


def _read_head_carefully(params: Raw) -> ParamsHead:
    try:
        members = _decode_members(params)
    except (msgspec.DecodeError, RecursionError):
        # The codec accepted this depth, but the stack is a few frames deeper here.
        return NO_HEAD
    head = ParamsHead()
    for attribute in ("name", "uri"):
        value = read_json(members.get(attribute), str, None)
        if isinstance(value, str):
            setattr(head, attribute, value)
    if (arguments := members.get("arguments")) is not None:
        head.arguments = arguments
    meta = read_json(members.get("_meta"), dict[str, Raw], None)
    if isinstance(meta, dict):
        head.meta = _read_meta_carefully(meta)
    return head


# Members of `_meta` that are strings, by attribute.
_TEXTS = {
    one.name: one.encode_name for one in msgspec.structs.fields(Meta) if one.type == str | UnsetType
}


def _read_meta_carefully(members: dict[str, Raw]) -> Meta:
    meta = Meta()
    token = read_json(members.get("progressToken"), _TOKEN, None)
    if type(token) is int or type(token) is str:
        meta.progress_token = token
    for attribute, key in _TEXTS.items():
        if isinstance(said := read_json(members.get(key), str, None), str):
            setattr(meta, attribute, said)
    if (capabilities := members.get(CAPABILITIES_KEY)) is not None:
        meta.client_capabilities = capabilities
    elif VERSION_KEY in members and meta.protocol_version is UNSET:
        # A version of the wrong type marks a stateless request. Unusable capabilities make sure
        # that it is refused instead of being treated as a request of the handshake era.
        meta.client_capabilities = Raw(b"null")
    if (info := members.get(CLIENT_INFO_KEY)) is not None:
        meta.client_info = info
    return meta
