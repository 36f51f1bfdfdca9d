"""Who asks, and what a request says about itself.

In the handshake era a `Caller` is remembered from `initialize`; in the stateless era it is read
from the `_meta` of each request and never inferred from an earlier one.
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

# What params have beside those of the call, when a client comes back to it with answers.
ROUND_MEMBERS = frozenset({"inputResponses", "requestState"})


class Caller(Struct, frozen=True):
    """The peer that sends requests, as far as it has introduced itself."""

    revision: Revision
    stateless: bool  # of the revision; kept here because every call asks
    principal: Principal  # on whose behalf; determined by the entry point, never by a default
    capabilities: bytes = b"{}"  # what the peer declared, as it was sent
    info: bytes | None = None  # its name and version, as they were sent
    log_level: str | None = None  # the least severe level it wants to hear; None: nothing asked

    def can(self, capability: str) -> bool:
        """Whether the peer declared a capability, named by its dotted path (`elicitation.url`)."""
        return has_capability(self.declared, capability)

    @property
    def declared(self) -> Mapping[str, Any]:
        """The declared capabilities, decoded."""
        return _decode_object(self.capabilities)

    @property
    def name(self) -> str:
        """How the peer calls itself; for people and logs, never for decisions."""
        info = _decode_object(self.info) if self.info else {}
        return str(info.get("name", "unknown"))


class Meta(Struct, gc=False):
    """The members of a request's `_meta` that the protocol itself reads."""

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
        """Whether the request says which trace it belongs to."""
        return self.traceparent is not UNSET or self.baggage is not UNSET


class ParamsHead(Struct, gc=False):
    """What routing and execution read of any request's params, in one pass over its bytes."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET


_decode_head = msgspec.json.Decoder(ParamsHead).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
NO_HEAD = ParamsHead()
_TOKEN: Any = int | float | str


def read_params_head(params: Params) -> ParamsHead:
    """Read the head of some params. Never fails: a member of the wrong type counts as absent."""
    if isinstance(params, UnsetType):
        return NO_HEAD
    try:
        return _decode_head(params)
    except (msgspec.DecodeError, RecursionError):
        return _read_head_carefully(params)


def target_of(method: str, head: ParamsHead) -> str | None:
    """The tool, prompt or resource that a message is about, when it is about one.

    A server goes by the URI of a resource; a name beside it must not hide that from anybody.
    """
    name, uri = head.name, head.uri
    if uri is UNSET:
        return None if name is UNSET else name
    return uri if name is UNSET or "resources/" in method else name


def stateless_caller(meta: Meta, principal: Principal) -> Caller:
    """The caller that a stateless request describes.

    Raises:
        RpcError: -32602 when a required member is missing or malformed, -32022 when we do not
        speak that
            version without a handshake.
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
    """Raise `RpcError` if what a client declares about itself is too large to be kept."""
    size = memoryview(capabilities).nbytes
    if not isinstance(info, UnsetType):
        size += memoryview(info).nbytes
    if size > DECLARATION_BYTES.value:
        DECLARATION_BYTES.hit()
        limit = DECLARATION_BYTES.value
        raise RpcError(INVALID_PARAMS, f"capabilities and clientInfo have more than {limit} bytes")


def unsupported_version(requested: str) -> RpcError:
    """The refusal of a version, with those that would work."""
    supported = [revision.value for revision in (*STATELESS, *HANDSHAKE)]
    return RpcError(
        UNSUPPORTED_VERSION,
        f"Protocol version {requested!r} is not served without a handshake; "
        f"supported: {', '.join(STATELESS)}",
        {"supported": supported, "requested": requested},
    )


_OPENING_BRACE = ord("{")
_STATELESS_BY_NAME = {revision.value: revision for revision in STATELESS}


@lru_cache(maxsize=64)
def _decode_object(raw: bytes) -> Mapping[str, Any]:
    return read_json(raw, dict[str, Any], {})


def _read_head_carefully(params: Raw) -> ParamsHead:
    try:
        members = _decode_members(params)
    except (msgspec.DecodeError, RecursionError):
        # As deep as the codec allows, but our stack is a few frames deeper: nothing can be read.
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


def _read_meta_carefully(members: dict[str, Raw]) -> Meta:
    meta = Meta()
    token = read_json(members.get("progressToken"), _TOKEN, None)
    if type(token) is int or type(token) is str:
        meta.progress_token = token
    version = read_json(members.get(VERSION_KEY), str, None)
    if isinstance(version, str):
        meta.protocol_version = version
    if (capabilities := members.get(CAPABILITIES_KEY)) is not None:
        meta.client_capabilities = capabilities
    elif VERSION_KEY in members and not isinstance(version, str):
        meta.client_capabilities = Raw(
            b"null"
        )  # present but unusable: stateless, and to be refused
    if (info := members.get(CLIENT_INFO_KEY)) is not None:
        meta.client_info = info
    level = read_json(members.get(LOG_LEVEL_KEY), str, None)
    if isinstance(level, str):
        meta.log_level = level
    for name in ("traceparent", "tracestate", "baggage"):
        if isinstance(said := read_json(members.get(name), str, None), str):
            setattr(meta, name, said)
    return meta
