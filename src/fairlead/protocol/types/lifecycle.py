"""How two peers meet: the handshake, and its stateless successor."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import CacheableResult, Implementation, RequestParams

__all__ = [
    "DiscoverParams",
    "DiscoverResult",
    "InitializeParams",
    "InitializeResult",
    "UnsupportedVersion",
]

DiscoverParams = RequestParams


class InitializeParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client introduces itself and names the newest revision it speaks."""

    protocol_version: str
    capabilities: Raw  # a ClientCapabilities; kept whole, because others may be in it
    client_info: Implementation
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class InitializeResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The server introduces itself and settles the revision."""

    protocol_version: str
    capabilities: Raw  # a ServerCapabilities
    server_info: Implementation
    instructions: str | UnsetType = UNSET  # text for the model
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class DiscoverResult(CacheableResult, frozen=True, kw_only=True, rename="camel"):
    """What a stateless server speaks and offers; who it is stands in `meta`."""

    supported_versions: list[str]
    capabilities: Raw  # a ServerCapabilities
    instructions: str | UnsetType = UNSET


class UnsupportedVersion(Struct, frozen=True, kw_only=True, rename="camel"):
    """Data of error -32022 (and of a refused `initialize`): what would have been accepted."""

    supported: list[str]
    requested: str | UnsetType = UNSET
