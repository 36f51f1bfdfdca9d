"""Which era does this server speak? What a client concludes from its first answers.

The era is a property of the server, so it is asked with `server/discover`, which has no side
effects: a server of the other era never runs anything twice. Falling back to the handshake is not
keyed to one error code.
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

# Refusals that say nothing about the era: authorize first, or come back later.
_NO_VERDICT = frozenset((401, 403, 407, 408, 425, 429))
# Answers to `initialize` of servers that do not know the method, or check a message of the
# stateless era first. None of them is a refusal that a server with a handshake has.
_NO_HANDSHAKE_CODES = frozenset(
    (METHOD_NOT_FOUND, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
)
_NO_HANDSHAKE_STATUSES = frozenset((400, 404, 405, 406, 415, 422))
# A stateless server misses `_meta`; a server with a handshake refuses a version or a client.
_UNCLEAR_CODES = frozenset((INVALID_REQUEST, INVALID_PARAMS))


class NeedsHandshake(Struct, frozen=True):
    """The server wants `initialize`; `why` is for the log."""

    why: str


class Incompatible(Struct, frozen=True):
    """A stateless server with which we share no version, or that wants what we do not have."""

    why: str


class RefusedInitialize(Enum):
    """What a refused `initialize` says about the server."""

    NO_HANDSHAKE = auto()  # it knows none
    UNCLEAR = auto()  # its answer to `server/discover` tells
    FOR_THIS_CLIENT = auto()  # it knows the handshake, and the refusal is its answer


EraVerdict: TypeAlias = Agreement | NeedsHandshake | Incompatible


def judge_discover(answer: Success | Failure) -> EraVerdict:
    """What the answer to `server/discover` says about the server."""
    if isinstance(answer, Failure):
        return _judge_refusal(answer)
    try:
        result = msgspec.json.decode(answer.result, type=_DiscoverResult)
    except (msgspec.DecodeError, RecursionError):
        return NeedsHandshake("its answer to server/discover is no DiscoverResult")
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
    if shared or not result.supported_versions:
        return NeedsHandshake("it offers only revisions with a handshake")
    return Incompatible(f"it offers only {', '.join(result.supported_versions)}")


def offers_our_version(refusal: Failure) -> bool:
    """Whether a server refuses our version and names a stateless one that we speak: ask again."""
    return refusal.code == UNSUPPORTED_VERSION and any(
        (revision := find_revision(name)) is not None and revision.stateless
        for name in _supported(refusal.error)
    )


def judge_lost_probe(error: FairleadError) -> NeedsHandshake | None:
    """What it says about the server that `server/discover` was lost, as a request over HTTP can be.

    None means no verdict: whatever is wrong would be wrong for `initialize` too, so raise it.
    """
    if isinstance(error, RemoteProtocolError):
        return NeedsHandshake(f"its answer to server/discover is no message: {error}")
    if isinstance(error, HttpError):
        if 400 <= error.status < 500 and error.status not in _NO_VERDICT:
            return NeedsHandshake(f"it answers server/discover with HTTP status {error.status}")
        return None
    if isinstance(error, NoAnswer):
        return NeedsHandshake("it does not answer server/discover")
    return None


def judge_refused_initialize(error: RpcError | HttpError) -> RefusedInitialize:
    """Judge a refused `initialize`.

    The code that a stateless server answers with is up to the server. Most do not know the method,
    or miss the version in `_meta` or the headers. A server with a handshake may also answer -32602
    and name the versions that it supports, as the specification of the handshake era shows.
    """
    if isinstance(error, HttpError):
        if error.status in _NO_HANDSHAKE_STATUSES:
            return RefusedInitialize.NO_HANDSHAKE
        return RefusedInitialize.FOR_THIS_CLIENT
    if error.code in _NO_HANDSHAKE_CODES:
        return RefusedInitialize.NO_HANDSHAKE
    raw = error.raw or msgspec.json.encode({"data": error.data})
    if error.code in _UNCLEAR_CODES and not _names_handshake(_supported(raw)):
        return RefusedInitialize.UNCLEAR
    return RefusedInitialize.FOR_THIS_CLIENT


def lacks_handshake(refusal: RpcError | HttpError, found: Agreement) -> bool:
    """Return True if a server with this refusal and this answer to `server/discover` has none.

    A server of both eras may refuse one client or its version; the client is to see that.
    """
    match judge_refused_initialize(refusal):
        case RefusedInitialize.NO_HANDSHAKE:
            return True
        case RefusedInitialize.UNCLEAR:
            return not found.offers_handshake
        case RefusedInitialize.FOR_THIS_CLIENT:
            return False


def means_http_sse(error: FairleadError) -> bool:
    """Whether a server that refuses `initialize` so may be one of HTTP+SSE (2024-11-05).

    An error of the protocol in the body is an `RpcError` and means that it is none.
    """
    return isinstance(error, HttpError) and error.status in (400, 404, 405)


def judge_initialize(answer: Success) -> Agreement:
    """What the answer to `initialize` settles.

    Raises:
        RemoteProtocolError: if it is no InitializeResult, or names a version we cannot use.
    """
    try:
        result = msgspec.json.decode(answer.result, type=_InitializeResult)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RemoteProtocolError(
            f"The answer to initialize is malformed: {exc}", code=INVALID_REQUEST
        ) from exc
    revision = find_revision(result.protocol_version)
    if revision is None or revision.stateless:
        raise RemoteProtocolError(
            f"The server insists on protocol version {result.protocol_version!r}, "
            "which is not one with a handshake that we speak",
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
    """The data of an UnsupportedProtocolVersion error."""

    supported: list[str] = []


class _RefusalError(Struct):
    data: _Refusal = field(default_factory=_Refusal)


def _judge_refusal(answer: Failure) -> NeedsHandshake | Incompatible:
    if answer.code in (HEADER_MISMATCH, MISSING_CAPABILITY):
        return Incompatible(f"it refuses server/discover: {answer.message}")
    if answer.code != UNSUPPORTED_VERSION:
        return NeedsHandshake(f"it answers server/discover with error {answer.code}")
    supported = _supported(answer.error)
    # The text says never to fall back on a stateless error, but a handshake revision that both
    # sides speak can only be spoken through `initialize`.
    if _names_handshake(supported):
        return NeedsHandshake("it shares only revisions with a handshake")
    return Incompatible(f"it supports only {', '.join(supported) or 'other versions'}")


def _supported(error: bytes | Raw) -> list[str]:
    """Return the versions that an error object names."""
    return read_json(error, _RefusalError, _RefusalError()).data.supported


def _names_handshake(versions: list[str]) -> bool:
    return any((r := find_revision(name)) is not None and not r.stateless for name in versions)


def _server_info(meta: Raw | UnsetType) -> bytes | None:
    info = read_json(meta, dict[str, Raw], {}).get(SERVER_INFO_KEY)
    return None if info is None else bytes(info)
