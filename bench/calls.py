"""Calls of bursts: built before the clock starts, checked after it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from .child import Failed
from .requests import Era

__all__ = ["LARGE", "SMALL", "Describe", "Echo", "Order", "Work"]

SMALL = 50
LARGE = 64 * 1024

# Lines of prose, as tools return them; the newline must be escaped in JSON.
_PROSE = "The quick brown fox jumps over the lazy dog and runs along the quiet river bank.\n"


class Work(Protocol):
    """A numbered request that is sent repeatedly."""

    @property
    def most(self) -> int:
        """The largest burst, which must fit into memory."""
        ...

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        """Return `count` requests, numbered from `first`."""
        ...

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        """Check that each request has exactly one correct response.

        Raises:
            Failed: A response is wrong; the first one is named.
        """
        ...


@dataclass(frozen=True)
class Echo:
    """Calls of `echo`, each with its own text of `size` bytes."""

    size: int = SMALL
    tool: str = "echo"  # its name; a gateway puts the server's in front

    @property
    def most(self) -> int:
        return 400 if self.size == LARGE else 50_000  # 26 MB of lines

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        filler = msgspec.json.encode(self._filler).strip(b'"')
        arguments = b'{"text":"%010d%b"}'
        numbers = range(first, first + count)
        return [_call(era, n, self.tool.encode(), arguments % (n, filler)) for n in numbers]

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        filler = self._filler
        _check(answers, first, count, lambda number: f"{number:010d}{filler}")

    @property
    def _filler(self) -> str:
        need = self.size - 10  # the number at the start of each text
        return (_PROSE * (need // len(_PROSE) + 1))[:need]


class Order:
    """Calls of `order`: ten items of four fields each, the quantity of the last its own.

    The answer tells all fields of the last item, and so does no work to speak of.
    """

    most = 10_000  # 10 MB of lines

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        *others, last = (msgspec.json.encode(item) for item in _ITEMS)
        before, after = last.split(b'"quantity":9')
        arguments = b'{"items":[%b,%b"quantity":%%d%b]}' % (b",".join(others), before, after)
        numbers = range(first, first + count)
        return [_call(era, n, b"order", arguments % n) for n in numbers]

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        last = _ITEMS[-1]
        rest = f"of {last.name} at {last.price:.2f}, {last.labels[-1]}"
        _check(answers, first, count, lambda number: f"{number} {rest}")


class Describe:
    """Calls of `describe`, whose result is an object: structured, and once more as a text."""

    most = 50_000

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        numbers = range(first, first + count)
        return [_call(era, n, b"describe", b'{"text":"%b"}' % _text(n).encode()) for n in numbers]

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        missing = set(range(first, first + count))
        for line in answers:
            try:
                answer = _decode_description(line)
                [block] = answer.result.content
                repeated = msgspec.json.decode(block.text, type=_Description)
            except (msgspec.MsgspecError, ValueError):
                raise Failed(f"not an answer to a call: {line[:300]!r}") from None
            found = answer.result.structured_content
            wanted = _Description(_text(answer.id), SMALL, ["short", "plain"])
            if answer.id not in missing or not found == repeated == wanted:
                raise Failed(f"a wrong answer: {line[:300]!r}")
            missing.discard(answer.id)
        if missing:
            raise Failed(f"{len(missing)} calls without an answer, {min(missing)} the first")


def _text(number: int) -> str:
    return f"{number:010d}".ljust(SMALL, "x")


class _Item(msgspec.Struct):
    name: str
    quantity: int
    price: float
    labels: list[str]


_ITEMS = [
    _Item(f"Brass cleat, {100 + 25 * n} mm", n, 4.25 + 1.5 * n, ["deck", "brass", f"shelf {n}"])
    for n in range(10)
]


def _call(era: Era, number: int, name: bytes, arguments: bytes) -> bytes:
    meta = era.meta and b"," + era.meta
    return (
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
        b'{"name":"%b","arguments":%b%b}}\n' % (number, name, arguments, meta)
    )


def _check(
    answers: Iterable[bytes], first: int, count: int, expected: Callable[[int], str]
) -> None:
    missing = set(range(first, first + count))
    for line in answers:
        try:
            answer = _decode(line)
        except msgspec.MsgspecError:
            raise Failed(f"not an answer to a call: {line[:300]!r}") from None
        texts = [block.text for block in answer.result.content]
        if answer.id not in missing or answer.result.is_error or texts != [expected(answer.id)]:
            raise Failed(f"a wrong answer: {line[:300]!r}")
        missing.discard(answer.id)
    if missing:
        raise Failed(f"{len(missing)} calls without an answer, {min(missing)} the first")


class _Text(msgspec.Struct):
    text: str


class _Result(msgspec.Struct, rename="camel"):
    content: list[_Text]
    is_error: bool = False


class _Answer(msgspec.Struct):
    id: int
    result: _Result


class _Description(msgspec.Struct):
    text: str
    size: int
    labels: list[str]


class _DescribedResult(msgspec.Struct, rename="camel"):
    content: list[_Text]
    structured_content: _Description


class _DescribedAnswer(msgspec.Struct):
    id: int
    result: _DescribedResult


_decode = msgspec.json.Decoder(_Answer).decode
_decode_description = msgspec.json.Decoder(_DescribedAnswer).decode
