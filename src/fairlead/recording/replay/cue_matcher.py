"""Matching of a client's messages to recorded messages."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from ..compare.json_diff import JsonDifference, json_differences
from ..tape.message_summary import summary
from .request_identity import comparable_params, digest, target_params
from .script import LISTEN, ScriptedCall

__all__ = ["INTRODUCTIONS", "StrictMatcher", "TolerantMatcher", "closest_call"]

# Clients describe themselves in the params of these methods, so the params are not compared.
INTRODUCTIONS: Final = ("initialize", "server/discover")


# Maximum number of recorded calls that an unrecorded request is compared with.
_COMPARED: Final = 50


def closest_call(
    cues: Sequence[ScriptedCall], method: str, params: dict[str, Any]
) -> tuple[dict[str, Any], list[JsonDifference]] | None:
    """Return the params of the recorded call with the fewest differences, and the differences.

    Only calls of the same tool, prompt or resource are compared. None if there is no such call.
    """

    def aim(of: dict[str, Any]) -> tuple[Any, Any]:
        return of.get("name"), of.get("uri")

    wanted = comparable_params(params)
    near: tuple[dict[str, Any], list[JsonDifference]] | None = None
    same = (cue for cue in cues if cue.method == method and cue.is_request)
    for cue in islice(same, _COMPARED):
        recorded = comparable_params(cue.params)
        if aim(recorded) != aim(wanted):
            continue
        differences = list(json_differences(recorded, wanted))
        if near is None or len(differences) < len(near[1]):
            near = recorded, differences
    return near


class TolerantMatcher:
    """Matcher that finds calls by method, target and arguments, in any order and repeatedly.

    Equal requests get the recorded responses in turn; after the last response, it is repeated.
    """

    def __init__(self, cues: Sequence[ScriptedCall]) -> None:
        self._cues = cues
        self._said: dict[bytes, list[ScriptedCall]] = {}
        self._aimed: dict[bytes | None, list[ScriptedCall]] = {}  # by target
        # Redacted params have no digest, so such calls must be compared one by one.
        self._loose: dict[str, list[ScriptedCall]] = {}  # by method
        for cue in cues:
            if cue.asked.said is None:
                self._loose.setdefault(cue.method, []).append(cue)
            else:
                self._said.setdefault(cue.asked.said, []).append(cue)
                self._aimed.setdefault(cue.asked.target, []).append(cue)

    def find(self, method: str, params: dict[str, Any], *, request: bool) -> ScriptedCall | None:
        """Return the recorded call for a message, or None."""
        if method in INTRODUCTIONS:
            return _next([*self._known(method, request=request)])
        wanted = comparable_params(params)
        known = self._said.get(digest(method, wanted, request=request) or b"", [])
        exact = self._with_loose(known, method, wanted, request=request)
        if exact:
            return _next(exact)
        # Any recorded subscription matches, even one to other notifications.
        if method == LISTEN:
            return _next([*self._known(method, request=request)])
        aim = target_params(params)
        found = self._aimed.get(digest(method, aim, request=request) or b"", [])
        return _next(self._with_loose(found, method, aim, request=request, aimed=True))

    def expected(self) -> str | None:
        return None

    def seek(self, seq: int) -> None:
        """Continue at an entry; earlier calls are treated as used."""
        for cue in self._cues:
            cue.used = cue.seq < seq

    def _known(self, method: str, *, request: bool) -> Iterator[ScriptedCall]:
        return (cue for cue in self._cues if cue.method == method and cue.is_request is request)

    def _with_loose(
        self,
        found: list[ScriptedCall],
        method: str,
        wanted: dict[str, Any],
        *,
        request: bool,
        aimed: bool = False,
    ) -> list[ScriptedCall]:
        """Add matching calls that have no digest to the calls found by digest."""
        chosen = target_params if aimed else comparable_params
        loose = [
            cue
            for cue in self._loose.get(method, ())
            if cue.is_request is request and not any(json_differences(chosen(_params(cue)), wanted))
        ]
        return sorted([*found, *loose], key=lambda cue: cue.seq) if loose else found


class StrictMatcher:
    """Matcher that requires the tape's order and exact params."""

    def __init__(self, cues: Sequence[ScriptedCall]) -> None:
        self._cues = list(cues)
        self._at = 0

    def find(self, method: str, params: dict[str, Any], *, request: bool) -> ScriptedCall | None:
        """Return the next recorded call if it matches, else None; the client may then try again."""
        cue = self._next()
        if cue is None or cue.method != method or cue.is_request is not request:
            # A relay sends its own `initialize` or `server/discover` besides those of its clients.
            known = (one for one in self._cues if one.method == method in INTRODUCTIONS)
            return next(known, None)
        if method not in INTRODUCTIONS and not _is(cue, comparable_params(params)):
            return None
        self._at += 1
        cue.used = True
        return cue

    def expected(self) -> str | None:
        """Describe the next recorded message, for an error message."""
        cue = self._next()
        return "the end of the tape" if cue is None else summary(cue.read())

    def seek(self, seq: int) -> None:
        later = (n for n, cue in enumerate(self._cues) if cue.seq >= seq)
        self._at = next(later, len(self._cues))

    def _next(self) -> ScriptedCall | None:
        return self._cues[self._at] if self._at < len(self._cues) else None


def _is(cue: ScriptedCall, wanted: dict[str, Any]) -> bool:
    if cue.asked.said is not None:
        return cue.asked.said == digest(cue.method, wanted, request=cue.is_request)
    return not any(json_differences(comparable_params(_params(cue)), wanted))


def _params(cue: ScriptedCall) -> dict[str, Any]:
    return cue.params if cue.asked.params is None else cue.asked.params


def _next(cues: Sequence[ScriptedCall]) -> ScriptedCall | None:
    found = next((cue for cue in cues if not cue.used), None)
    if found is None:
        return cues[-1] if cues else None
    found.used = True
    return found
