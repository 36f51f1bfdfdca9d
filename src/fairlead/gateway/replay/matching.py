"""Which cue of a tape a message of a client is."""

from collections.abc import Sequence
from typing import Any, Final

from ...observe.redact import REDACTED
from ..tape.redacted import is_redacted_form
from .cues import Cue

__all__ = ["Strict", "Tolerant", "fits"]

# What a client says about itself is its own business.
_INTRODUCTIONS: Final = ("initialize", "server/discover")
# What makes a request another one, besides its method.
_TARGET: Final = ("name", "uri", "arguments", "ref", "argument", "cursor", "requestState", "level")


class Tolerant:
    """By method, target and arguments; in any order, and again and again.

    The same thing asked several times gets the recorded answers in turn, then the last one.
    """

    def __init__(self, cues: Sequence[Cue]) -> None:
        self._cues: dict[str, list[Cue]] = {}
        for cue in cues:
            self._cues.setdefault(cue.method, []).append(cue)

    def find(self, method: str, params: dict[str, Any], *, request: bool) -> Cue | None:
        """The cue that was meant, if it is on the tape."""
        known = [cue for cue in self._cues.get(method, ()) if cue.is_request is request]
        if method in _INTRODUCTIONS:
            return _next(known)
        exact = [cue for cue in known if fits(_said(cue.params), _said(params))]
        if exact:
            return _next(exact)
        if method == "subscriptions/listen":
            return _next(known)
        wanted = _target(params)
        return _next([cue for cue in known if fits(_target(cue.params), wanted)])

    def expected(self) -> str | None:
        return None

    def seek(self, seq: int) -> None:
        """Go on from an entry: what stands before counts as played."""
        for cues in self._cues.values():
            for cue in cues:
                cue.used = cue.entry.seq < seq


class Strict:
    """In the order of the tape, with exactly its params."""

    def __init__(self, cues: Sequence[Cue]) -> None:
        self._cues = list(cues)
        self._at = 0

    def find(self, method: str, params: dict[str, Any], *, request: bool) -> Cue | None:
        """The next cue, if it is that one. Who is wrong once may try again."""
        cue = self._next()
        if cue is None or cue.method != method or cue.is_request is not request:
            # Relays introduce themselves too, and then pass on how clients do.
            known = (one for one in self._cues if one.method == method in _INTRODUCTIONS)
            return next(known, None)
        if method not in _INTRODUCTIONS and not fits(_said(cue.params), _said(params)):
            return None
        self._at += 1
        cue.used = True
        return cue

    def expected(self) -> str | None:
        """What comes next, for whoever said something else."""
        cue = self._next()
        return "nothing more" if cue is None else cue.method

    def seek(self, seq: int) -> None:
        later = (n for n, cue in enumerate(self._cues) if cue.entry.seq >= seq)
        self._at = next(later, len(self._cues))

    def _next(self) -> Cue | None:
        return self._cues[self._at] if self._at < len(self._cues) else None


def fits(recorded: Any, given: Any) -> bool:
    """Whether a value is the recorded one; what was taken out of the tape may be anything."""
    if isinstance(recorded, str) and REDACTED in recorded:
        return is_redacted_form(recorded, given)
    if isinstance(recorded, dict) and isinstance(given, dict):
        return recorded.keys() == given.keys() and all(fits(recorded[k], given[k]) for k in given)
    if isinstance(recorded, list) and isinstance(given, list):
        return len(recorded) == len(given) and all(map(fits, recorded, given))
    return type(recorded) is type(given) and bool(recorded == given)


def _next(cues: Sequence[Cue]) -> Cue | None:
    found = next((cue for cue in cues if not cue.used), None)
    if found is None:
        return cues[-1] if cues else None
    found.used = True
    return found


def _said(params: dict[str, Any]) -> dict[str, Any]:
    """What was meant: tokens, and what a client says about itself, are not compared."""
    return {name: held for name, held in params.items() if name != "_meta"}


def _target(params: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in _TARGET if name in params}
