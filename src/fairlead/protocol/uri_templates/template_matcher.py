"""Matching of URIs against the parts of a template in linear time.

Between adjacent variables, it is ambiguous where the first ends and the second starts, and a
regular expression tries all combinations. This module first computes the positions at which the
rest of the template can match, from the end to the start, as the bits of one integer for each part.
A single pass then assigns as many characters as possible to each variable. The cost is always the
length of the template times the length of the URI, divided by the number of bits in a machine word.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

__all__ = ["OptionalVariable", "TemplateStep", "TemplateVariable", "match_steps"]


class TemplateVariable(Struct, frozen=True):
    """One or more characters that are not among `without`."""

    name: str
    without: str


class OptionalVariable(Struct, frozen=True):
    """Empty text, or `first` and any number of characters that are not among `without`."""

    name: str
    first: str
    without: str


_FEW = 8  # up to this number of positions, finding them one by one is faster

# A literal: the string matches itself.
TemplateStep: TypeAlias = str | TemplateVariable | OptionalVariable


def match_steps(steps: Sequence[TemplateStep], uri: str) -> dict[str, str] | None:
    """Return the text of each variable, earlier ones as long as possible;
    None if nothing matches.
    """
    text = _text(uri)
    # Bit q of rests[i]: the steps from i on can match the last q characters.
    rests = [1]
    for step in reversed(steps):
        rest = text.before(step, rests[-1])
        if not rest:
            return None
        rests.append(rest)
    rests.reverse()
    if not rests[0] >> len(uri) & 1:
        return None
    at, found = 0, dict[str, str]()
    for step, rest in zip(steps, rests[1:], strict=True):
        if isinstance(step, str):
            at += len(step)
            continue
        end = text.end(step, at, rest)
        found[step.name] = uri[at:end]
        at = end
    return found


@lru_cache(maxsize=4)
def _text(uri: str) -> "_Text":
    """Return a cached object, so that all templates compared with one URI share it."""
    return _Text(uri)


class _Text:
    """A URI with sets of character positions, counted from the end and stored as bits of integers.

    Bit q represents the character that has q characters after it.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._places: dict[str, int] = {}
        self._barriers: dict[str, int] = {}
        self._all = (1 << len(text)) - 1

    def before(self, step: TemplateStep, rests: int) -> int:
        """Return how many characters may remain before a step,
        given how many may remain after it.
        """
        if isinstance(step, str):
            return (rests & self._find(step)) << len(step)
        several = self._run(step.without, rests)
        if isinstance(step, TemplateVariable):
            return several
        return rests | (((rests | several) & self._place(step.first)) << 1)

    def end(self, step: TemplateVariable | OptionalVariable, at: int, rests: int) -> int:
        """Return the last end position that `rests` allows for a step that starts at `at`."""
        text, begin = self._text, at
        if isinstance(step, OptionalVariable):
            if not text.startswith(step.first, at):
                return at
            begin = at + 1
        limit = min((p for c in step.without if (p := text.find(c, begin)) >= 0), default=len(text))
        behind = len(text) - limit
        nearest = rests >> behind
        if not nearest:
            return at
        end = limit - ((nearest & -nearest).bit_length() - 1)
        # An optional step matches the empty text if the remaining steps cannot match otherwise.
        return end if end >= begin else at

    def _run(self, without: str, rests: int) -> int:
        """Return the positions from which a run of allowed characters leads to one of `rests`.

        Adding the bits where runs start to the bits of all allowed characters carries to the ends
        of the runs (as in Myers' algorithm for approximate matching).
        """
        allowed = self._all & ~self._barred(without)
        first = rests & allowed
        taken = (((first + allowed) ^ allowed) | first) & allowed
        return taken << 1

    def _barred(self, without: str) -> int:
        bits = self._barriers.get(without)
        if bits is None:
            bits = 0
            for character in without:
                bits |= self._place(character)
            self._barriers[without] = bits
        return bits

    def _find(self, literal: str) -> int:
        """Return the positions at which a literal ends."""
        text, bits, places = self._text, 0, 0
        at = text.find(literal)
        while at >= 0 and places < _FEW:
            bits |= 1 << (len(text) - at - len(literal))
            at, places = text.find(literal, at + 1), places + 1
        # With many occurrences, intersecting the characters' positions takes linear time.
        if at < 0:
            return bits
        bits = self._all
        for offset, character in enumerate(reversed(literal)):
            bits &= self._place(character) >> offset
            if not bits:
                break
        return bits

    def _place(self, character: str) -> int:
        bits = self._places.get(character)
        if bits is None:
            parts = self._text.split(character, _FEW + 1)
            if len(parts) <= _FEW:
                bits, left = 0, len(self._text)
                for part in parts[:-1]:
                    left -= len(part) + 1
                    bits |= 1 << left
            else:
                # Parsing a string of bits is faster than setting many bits one by one.
                marks = "1".join("0" * len(part) for part in self._text.split(character))
                bits = int(marks or "0", 2)
            self._places[character] = bits
        return bits
