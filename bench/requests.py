"""Request lines made before the clock starts, and answers checked after it has stopped."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from .child import Failed

__all__ = ["INITIALIZE", "INITIALIZED", "LARGE", "SMALL", "Era", "check", "echoes", "list_tools"]

SMALL = 50
LARGE = 64 * 1024

# Lines of prose, as tools return them; the newline is what makes JSON escape something.
_PROSE = "The quick brown fox jumps over the lazy dog and runs along the quiet river bank.\n"

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}\n'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


class Era(Enum):
    """The two shapes of a request; the value is the revision it is written for."""

    HANDSHAKE = "2025-11-25"
    STATELESS = "2026-07-28"

    @property
    def meta(self) -> bytes:
        """What each request's params carry besides their own fields."""
        if self is Era.HANDSHAKE:
            return b""
        return (
            b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
            b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{}}'
        )


def list_tools(era: Era, number: int) -> bytes:
    """A `tools/list` line."""
    line = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{%b}}\n'
    return line % (number, era.meta)


def echoes(era: Era, first: int, count: int, size: int) -> list[bytes]:
    """`count` calls of echo, numbered from `first`, each with a text of its own of `size` bytes."""
    line = (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
        b'{"name":"echo","arguments":{"text":"%b"}%b}}\n'
    )
    meta = era.meta and b"," + era.meta
    filler = msgspec.json.encode(_filler(size)).strip(b'"')
    return [line % (n, b"%010d" % n + filler, meta) for n in range(first, first + count)]


def check(answers: Iterable[bytes], first: int, count: int, size: int) -> None:
    """See that each of these calls was answered once, with its own text.

    Raises: Failed, naming the first answer that is wrong.
    """
    filler = _filler(size)
    missing = set(range(first, first + count))
    for line in answers:
        try:
            answer = _decode(line)
        except msgspec.MsgspecError:
            raise Failed(f"not an answer to a call: {line[:300]!r}") from None
        texts = [block.text for block in answer.result.content]
        if (
            answer.id not in missing
            or answer.result.is_error
            or texts != [f"{answer.id:010d}{filler}"]
        ):
            raise Failed(f"a wrong answer: {line[:300]!r}")
        missing.discard(answer.id)
    if missing:
        raise Failed(f"{len(missing)} calls without an answer, {min(missing)} the first")


def _filler(size: int) -> str:
    need = size - 10  # the number at the start of each text
    return (_PROSE * (need // len(_PROSE) + 1))[:need]


class _Text(msgspec.Struct):
    text: str


class _Result(msgspec.Struct, rename="camel"):
    content: list[_Text]
    is_error: bool = False


class _Answer(msgspec.Struct):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Answer).decode
