"""Detection of a server's era from its first responses.

The client sends `server/discover` first, because this request has no side effects in either era.
Several error codes and failures lead to the fallback to the handshake.
"""

from enum import Enum, auto
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...errors import FairleadError, HttpError, NoAnswer, RemoteProtocolError, RpcError
from ...wire import Failure, Success
from ...wire.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from ...wire.json import read_json
from ..caller import SERVER_INFO_KEY
from ..revisions import find_revision
from .conversation import Agreement

__all__ = [
    "EraVerdict",
    "Incompatible",
    "NeedsHandshake",
    "RefusedInitialize",
    "judge_discover",
    "judge_initialize",
    "judge_lost_probe",
    "judge_refused_initialize",
    "lacks_handshake",
    "means_http_sse",
    "offers_our_version",
]

# HTTP statuses that do not indicate an era: the client must authorize first, or retry later.
_NO_VERDICT = frozenset((401, 403, 407, 408, 425, 429))
# Errors that refuse `initialize` because the server does not know the method, or because it first
# checks for a stateless message. A server with a handshake refuses with other errors.
_NO_HANDSHAKE_CODES = frozenset(
    (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
)
_NO_HANDSHAKE_STATUSES = frozenset((400, 404, 405, 406, 415, 422))
# Ambiguous codes: stateless servers use them if `_meta` is missing, and servers with a handshake
# if they refuse a version or client.
_UNCLEAR_CODES = frozenset((INVALID_REQUEST, INVALID_PARAMS))


class NeedsHandshake(Struct, frozen=True):
    """Verdict that the server needs `initialize`; `why` is the reason, for the log."""

    why: str


class Incompatible(Struct, frozen=True):
    """Verdict that the server is stateless and this client cannot use it; `why` is the reason."""

    why: str


class RefusedInitialize(Enum):
    """Reasons why a server may have refused `initialize`."""

    NO_HANDSHAKE = auto()  # the server has no handshake
    UNCLEAR = auto()  # ambiguous; the response to `server/discover` decides
    FOR_THIS_CLIENT = auto()  # the server has a handshake and refuses this client


EraVerdict: TypeAlias = Agreement | NeedsHandshake | Incompatible


def judge_discover(answer: Success | Failure) -> EraVerdict:
    """Determine a server's era from its response to `server/discover`."""
    if isinstance(answer, Failure):
        return _judge_refusal(answer)
    try:
        result = msgspec.json.decode(answer.result, type=_DiscoverResult)
    except (msgspec.DecodeError, RecursionError):
        return NeedsHandshake("the response to server/discover is not a DiscoverResult")
    shared = [r for name in result.supported_versions if (r := find_revision(name)) is not None]
    stateless = [r for r in shared if r.stateless]
    if stateless:
        return Agreement(
            revision=max(stateless),
            capabilities=bytes(result.capabilities),
            server_info=_server_info(result.meta),
            instructions=result.instructions,
            offers_handshake=len(stateless) < len(shared),
        )
    # An empty list names no stateless revision; the handshake may still work.
    if shared or not result.supported_versions:
        return NeedsHandshake("the server offers only revisions with a handshake")
    return Incompatible(f"the server offers only {', '.join(result.supported_versions)}")


def offers_our_version(refusal: Failure) -> bool:
    """Return True if the server refused the version but named another stateless version that this
    client supports.

    The client then repeats the request with that version.
    """
    return refusal.code == UNSUPPORTED_VERSION and any(
        (revision := find_revision(name)) is not None and revision.stateless
        for name in _supported(refusal.error)
    )


def judge_lost_probe(error: FairleadError) -> NeedsHandshake | None:
    """Determine a server's era if `server/discover` failed without a response.

    None means that the era stays unknown: `initialize` would fail in the same way, so the caller
    should raise the error.
    """
    if isinstance(error, RemoteProtocolError):
        return NeedsHandshake(f"the response to server/discover is invalid: {error}")
    if isinstance(error, HttpError):
        if 400 <= error.status < 500 and error.status not in _NO_VERDICT:
            return NeedsHandshake(f"the status of server/discover is HTTP {error.status}")
        return None
    if isinstance(error, NoAnswer):
        return NeedsHandshake("the server does not respond to server/discover")
    return None


def judge_refused_initialize(error: RpcError | HttpError) -> RefusedInitialize:
    """Determine why a server refused `initialize`.

    Stateless servers may choose any error code. Most report that the method is unknown, or that the
    version is missing in `_meta` or in the headers. A server with a handshake may respond with
    -32602 and name the versions that it supports, as the specification of the handshake era shows.
    Over HTTP, a server without a handshake responds with 400 (2026-07-28
    basic/transports/streamable-http), so an error with 200 comes from a server that has a
    handshake.
    """
    if isinstance(error, HttpError):
        if error.status in _NO_HANDSHAKE_STATUSES:
            return RefusedInitialize.NO_HANDSHAKE
        return RefusedInitialize.FOR_THIS_CLIENT
    if error.code in _NO_HANDSHAKE_CODES:
        return RefusedInitialize.NO_HANDSHAKE
    raw = error.raw or msgspec.json.encode({"data": error.data})
    unclear = error.code in _UNCLEAR_CODES and not error.executed
    if unclear and not _names_handshake(_supported(raw)):
        return RefusedInitialize.UNCLEAR
    return RefusedInitialize.FOR_THIS_CLIENT


def lacks_handshake(refusal: RpcError | HttpError, found: Agreement) -> bool:
    """Return True if this refusal and this `server/discover` response show that the server has no
    handshake.

    A server that supports both eras may refuse this client or its version; then the client must see
    the error.
    """
    match judge_refused_initialize(refusal):
        case RefusedInitialize.NO_HANDSHAKE:
            return True
        case RefusedInitialize.UNCLEAR:
            return not found.offers_handshake
        case RefusedInitialize.FOR_THIS_CLIENT:
            return False


def means_http_sse(error: FairleadError) -> bool:
    """Return True if a server that refuses `initialize` this way may use HTTP+SSE (2024-11-05).

    A JSON-RPC error in the body is an `RpcError`; such a server does not use HTTP+SSE.
    """
    return isinstance(error, HttpError) and error.status in (400, 404, 405)


def judge_initialize(answer: Success) -> Agreement:
    """Return the revision and capabilities that the response to `initialize` contains.

    Raises:
        RemoteProtocolError: The result is malformed, or its version is not supported.
    """
    try:
        result = msgspec.json.decode(answer.result, type=_InitializeResult)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RemoteProtocolError(
            f"The response to initialize is malformed: {exc}", code=INVALID_REQUEST
        ) from exc
    revision = find_revision(result.protocol_version)
    if revision is None or revision.stateless:
        raise RemoteProtocolError(
            f"The server requires protocol version {result.protocol_version!r}, "
            "which is not a supported version with a handshake",
            code=INVALID_PARAMS,
        )
    info = result.server_info
    return Agreement(
        revision=revision,
        capabilities=bytes(result.capabilities),
        server_info=None if isinstance(info, UnsetType) else bytes(info),
        instructions=result.instructions,
    )


class _DiscoverResult(Struct):
    supported_versions: list[str] = field(name="supportedVersions")
    capabilities: Raw
    instructions: str | None = None
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class _InitializeResult(Struct):
    protocol_version: str = field(name="protocolVersion")
    capabilities: Raw = Raw(b"{}")
    server_info: Raw | UnsetType = field(default=UNSET, name="serverInfo")
    instructions: str | None = None


class _Refusal(Struct):
    """Data of an UnsupportedProtocolVersion error."""

    supported: list[str] = []


class _RefusalError(Struct):
    data: _Refusal = field(default_factory=_Refusal)


def _judge_refusal(answer: Failure) -> NeedsHandshake | Incompatible:
    if answer.code in (HEADER_MISMATCH, MISSING_CAPABILITY):
        return Incompatible(f"the server refuses server/discover: {answer.message}")
    if answer.code != UNSUPPORTED_VERSION:
        return NeedsHandshake(
            f"the server refuses server/discover with error {answer.code}: {answer.message}"
        )
    supported = _supported(answer.error)
    # The specification forbids the fallback after a stateless error. An exception is made if both
    # sides speak a handshake revision, because only `initialize` can select it.
    if _names_handshake(supported):
        return NeedsHandshake("only revisions with a handshake are shared")
    return Incompatible(f"the server supports only {', '.join(supported) or 'other versions'}")


def _supported(error: bytes | Raw) -> list[str]:
    """Return the versions that an error object names."""
    return read_json(error, _RefusalError, _RefusalError()).data.supported


def _names_handshake(versions: list[str]) -> bool:
    return any((r := find_revision(name)) is not None and not r.stateless for name in versions)


def _server_info(meta: Raw | UnsetType) -> bytes | None:
    info = read_json(meta, dict[str, Raw], {}).get(SERVER_INFO_KEY)
    return None if info is None else bytes(info)
