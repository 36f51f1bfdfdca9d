"""The sender of a request: its principal, its capabilities, and the params that describe it.

In the handshake era a `Caller` is stored after `initialize`; in the stateless era it is read from
the `_meta` of each request and never inferred from an earlier request.

An entry point (an HTTP request, a WebSocket, a pipe) determines the principal once, before any
other code reads the message, and every layer above passes it on. `ANONYMOUS` is a separate value
that equals no name, not even `""`. Parameters that take a principal have no default, so a missing
principal is a type error.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ..errors import RpcError
from ..limits import DECLARATION_BYTES
from ..wire import Params
from ..wire.error_codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from ..wire.json import read_json
from .identity.client_names import UNNAMED
from .identity.scoped_name import ScopedName
from .identity.token_principal import TokenPrincipal
from .revisions import HANDSHAKE, STATELESS, Revision

__all__ = [
    "ANONYMOUS",
    "CAPABILITIES_KEY",
    "CLIENT_INFO_KEY",
    "LOG_LEVELS",
    "LOG_LEVEL_KEY",
    "ROUND_MEMBERS",
    "SERVER_INFO_KEY",
    "SUBSCRIPTION_KEY",
    "UNNAMED",
    "VERSION_KEY",
    "Caller",
    "Meta",
    "ParamsHead",
    "Principal",
    "cached_if_short",
    "can_be_asked",
    "check_declaration",
    "has_capability",
    "has_roots",
    "needed_capability",
    "nested_capability",
    "principal_from",
    "principal_key",
    "principal_name",
    "read_params_head",
    "stateless_caller",
    "target_of",
]

P = ParamSpec("P")
T = TypeVar("T")

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

# Params that a client adds when it repeats a call with the requested input.
ROUND_MEMBERS = frozenset({"inputResponses", "requestState"})


class Anonymous(Enum):
    """Principal of a client that was not authenticated."""

    ANONYMOUS = "anonymous"

    # `Enum.__hash__` is a slow Python function, and hot paths use principals as dictionary keys.
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Return False, so that `if not principal` in an interceptor rejects anonymous clients."""
        return False


ANONYMOUS: Final = Anonymous.ANONYMOUS
Principal: TypeAlias = str | TokenPrincipal | Anonymous


def principal_name(principal: Principal) -> str | None:
    """Return the principal's name for display, JSON and files; None if it is anonymous."""
    return None if isinstance(principal, Anonymous) else str(principal)


def principal_key(principal: Principal) -> str | None:
    """Return a text that only equal principals share, for sealed states.

    It contains the role that a gateway assigns to a token, because a token of the same user with
    another role cannot continue what this principal began.
    """
    if isinstance(principal, TokenPrincipal) and principal.role is not None:
        return f"{principal.role}\0{principal.name}"
    return principal_name(principal)


def principal_from(name: str | None) -> Principal:
    """Return the principal whose name is `name`; the inverse of `principal_name`."""
    if name is None:
        return ANONYMOUS
    return UNNAMED if name == UNNAMED else name


class Caller(Struct, frozen=True):
    """The peer that sends requests: its revision, identity and declared capabilities."""

    revision: Revision
    # Copied from the revision, because every call reads it.
    stateless: bool
    # The identity on whose behalf requests are sent; set by the entry point.
    principal: Principal
    capabilities: bytes = b"{}"  # capabilities that the peer declared, as sent
    info: bytes | None = None  # name and version of the peer, as sent
    # Least severe log level that the peer requested; None if it requested none.
    log_level: str | None = None

    def can(self, capability: str) -> bool:
        """Return True if the peer declared a capability,
        given as a dotted path (`elicitation.url`).
        """
        return has_capability(self.declared, capability)

    @property
    def declared(self) -> Mapping[str, Any]:
        """Return the declared capabilities, decoded."""
        return _decode_object(self.capabilities)

    @property
    def issuer(self) -> str | None:
        """The issuer of the access token; None if the peer did not send one."""
        return self._token.issuer if self._token is not None else None

    @property
    def subject(self) -> str | None:
        """The user or program that the access token identifies; unique only per issuer."""
        return self._token.subject if self._token is not None else None

    @property
    def client_id(self) -> str | None:
        """The OAuth client that obtained the access token; None if the token does not name it."""
        return self._token.client if self._token is not None else None

    @property
    def claims(self) -> Mapping[str, Any]:
        """All claims of the access token."""
        return self._token.claims if self._token is not None else {}

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the access token that was sent with the request."""
        who = self.principal
        return who.scopes if isinstance(who, TokenPrincipal | ScopedName) else frozenset()

    @property
    def _token(self) -> TokenPrincipal | None:
        return self.principal if isinstance(self.principal, TokenPrincipal) else None

    @property
    def name(self) -> str:
        """Return the name that the peer sent. Use it for display and logs, never for decisions."""
        info = _decode_object(self.info) if self.info else {}
        return str(info.get("name", "unknown"))


class Meta(Struct, gc=False):
    """The `_meta` members of a request that the protocol itself reads."""

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
        """Return True if the request names a trace that it belongs to."""
        return self.traceparent is not UNSET or self.baggage is not UNSET


class ParamsHead(Struct, gc=False):
    """The params members that routing and execution need for any request, read in one pass."""

    meta: Meta | UnsetType = field(default=UNSET, name="_meta")
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    arguments: Raw | UnsetType = UNSET
    request_state: str | UnsetType = field(default=UNSET, name="requestState")

    @property
    def is_self_describing(self) -> bool:
        """True if the message has its own protocol metadata, as in the stateless era."""
        meta = self.meta
        return not isinstance(meta, UnsetType) and (
            meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET
        )


_decode_head = msgspec.json.Decoder(ParamsHead).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
NO_HEAD = ParamsHead()
_TOKEN: Any = int | float | str


def read_params_head(params: Params) -> ParamsHead:
    """Read the `ParamsHead` of params. Never fails: a member of the wrong type counts as absent."""
    if isinstance(params, UnsetType):
        return NO_HEAD
    try:
        return _decode_head(params)
    except (msgspec.DecodeError, RecursionError):
        return _read_head_carefully(params)


def target_of(method: str, head: ParamsHead) -> str | None:
    """Return the tool, prompt or resource that a message names, if any.

    A server reads a resource by its URI, so a `name` in the same params must not hide the URI from
    policies.
    """
    name, uri = head.name, head.uri
    if uri is UNSET:
        return None if name is UNSET else name
    return uri if name is UNSET or "resources/" in method else name


def has_capability(capabilities: Mapping[str, Any], path: str) -> bool:
    """Return True if a capability, given as a dotted path (`resources.subscribe`), was declared.

    A member declares a capability unless it is `false` or `null`; peers send `{}`, `true` and other
    values. Elicitation without a mode means form, the only mode before 2025-11-25.
    """
    value: Any = capabilities
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or value is False:
            return path == "elicitation.form" and _names_no_mode(capabilities)
    return True


def needed_capability(method: str, mode: str | None) -> str | None:
    """Return the client capability that an input request needs; None if the request is unknown."""
    if method == "elicitation/create":
        return "elicitation.url" if mode == "url" else "elicitation.form"
    return {"sampling/createMessage": "sampling", "roots/list": "roots"}.get(method)


def nested_capability(path: str) -> dict[str, Any]:
    """Return capabilities that contain only the capability with this dotted path."""
    nested: dict[str, Any] = {}
    for step in reversed(path.split(".")):
        nested = {step: nested}
    return nested


def _names_no_mode(capabilities: Mapping[str, Any]) -> bool:
    if not has_capability(capabilities, "elicitation"):
        return False
    elicitation = capabilities["elicitation"]
    if not isinstance(elicitation, Mapping):
        return True
    return elicitation.get("form") is None and elicitation.get("url") is None


def cached_if_short(
    maxsize: int,
) -> Callable[[Callable[Concatenate[bytes, P], T]], Callable[Concatenate[bytes, P], T]]:
    """Return a decorator for functions of bytes that a client chooses: short ones are cached.

    Long ones are not, so that clients cannot fill the memory with a cache.
    """

    def decorate(
        function: Callable[Concatenate[bytes, P], T],
    ) -> Callable[Concatenate[bytes, P], T]:
        cached: Any = lru_cache(maxsize)(function)

        @wraps(function)
        def call(raw: bytes, /, *others: P.args, **options: P.kwargs) -> T:
            chosen = cached if len(raw) < _LONGEST_CACHED else function
            return cast(T, chosen(raw, *others, **options))

        return call

    return decorate


@cached_if_short(256)  # because every call reads it
def can_be_asked(capabilities: bytes) -> bool:
    """Return True if a server may send requests to a client with these capabilities."""
    return _declares(capabilities, ("elicitation", "sampling", "roots"))


def has_roots(capabilities: bytes) -> bool:
    """Return True if a server may request the roots of a client with these capabilities."""
    return _declares(capabilities, ("roots",))


def _declares(capabilities: bytes, names: tuple[str, ...]) -> bool:
    declared = read_json(capabilities, dict[str, Any], {})
    return any(has_capability(declared, name) for name in names)


def stateless_caller(meta: Meta, principal: Principal) -> Caller:
    """Return the caller that a stateless request describes.

    Raises:
        RpcError: -32602 if a required member is missing or malformed, -32022 if the version is not
            served without a handshake.
    """
    version, capabilities = meta.protocol_version, meta.client_capabilities
    if isinstance(version, UnsetType):
        raise RpcError(INVALID_PARAMS, f"_meta must contain {VERSION_KEY} (a string)")
    if isinstance(capabilities, UnsetType) or memoryview(capabilities)[0] != _OPENING_BRACE:
        raise RpcError(INVALID_PARAMS, f"_meta must contain {CAPABILITIES_KEY} (an object)")
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
    """Check the size of a client's capabilities and clientInfo, which are kept in memory.

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
    """Build the error for an unsupported version; it lists the supported versions."""
    supported = [revision.value for revision in (*STATELESS, *HANDSHAKE)]
    return RpcError(
        UNSUPPORTED_VERSION,
        f"Protocol version {requested!r} is not served without a handshake; "
        f"supported: {', '.join(STATELESS)}",
        {"supported": supported, "requested": requested},
    )


_LONGEST_CACHED = 4096  # bytes
_OPENING_BRACE = ord("{")
_STATELESS_BY_NAME = {revision.value: revision for revision in STATELESS}


# Clients send the same capabilities and clientInfo in every stateless request.
@lru_cache(maxsize=64)
def _decode_object(raw: bytes) -> Mapping[str, Any]:
    return read_json(raw, dict[str, Any], {})


def _read_head_carefully(params: Raw) -> ParamsHead:
    try:
        members = _decode_members(params)
    except (msgspec.DecodeError, RecursionError):
        # The codec accepted this nesting depth, but the call stack is a few frames deeper here.
        return NO_HEAD
    head = ParamsHead()
    for attribute, member in _TEXTS_OF_HEAD.items():
        value = read_json(members.get(member), str, None)
        if isinstance(value, str):
            setattr(head, attribute, value)
    if (arguments := members.get("arguments")) is not None:
        head.arguments = arguments
    meta = read_json(members.get("_meta"), dict[str, Raw], None)
    if isinstance(meta, dict):
        head.meta = _read_meta_carefully(meta)
    return head


# Members of the params that are strings, by attribute name.
_TEXTS_OF_HEAD = {"name": "name", "uri": "uri", "request_state": "requestState"}
# `_meta` members that are strings, by attribute name.
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
        # A version of the wrong type still marks a stateless request. Capabilities that cannot
        # be used cause it to be refused instead of being treated as a handshake-era request.
        meta.client_capabilities = Raw(b"null")
    if (info := members.get(CLIENT_INFO_KEY)) is not None:
        meta.client_info = info
    return meta
