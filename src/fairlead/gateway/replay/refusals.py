"""The error of an answer on a tape, which may have been written by anybody."""

import msgspec
from msgspec import Raw, Struct

from ...wire.codes import INTERNAL_ERROR

__all__ = ["read_refusal"]


class _Error(Struct):
    code: int
    message: str


def read_refusal(raw: Raw | None) -> tuple[int, str, Raw | None]:
    """Its code, its message, and the whole of it; the last is None for what is no error."""
    try:
        error = msgspec.json.decode(Raw(b"null") if raw is None else raw, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return INTERNAL_ERROR, "What was answered cannot be read from the tape", None
    return error.code, error.message, raw
