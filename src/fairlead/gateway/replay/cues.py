"""What is on a tape, the way a player needs it: what a client says, and what happens upon it."""

import os
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct, field

from ...errors import ConfigError
from ...protocol.caller import SUBSCRIPTION_KEY, VERSION_KEY
from ...protocol.envelope import Direction
from ..tape import Entry, TapeReader, plain

__all__ = ["LISTEN", "Cue", "Step", "cues_of", "load"]

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
MOST: Final = 1 << 30  # bytes; a player has the whole tape in memory

_members = msgspec.json.Decoder(dict[str, Raw]).decode

Kind = Literal["answer", "tell", "ask", "answered", "withdraw"]


class Step(Struct):
    """One thing that a server does, or waits for."""

    kind: Kind
    entry: Entry
    message: dict[str, Any]
    after: float = 0.0  # seconds since the step before
    through: "Cue | None" = None  # the subscription that it is news of

    def member(self, name: str) -> Raw | None:
        """A member of the message, as the text it was recorded as."""
        return _members(self.entry.message).get(name)


class Cue(Struct):
    """Something that a client says, and what the server does upon it."""

    entry: Entry
    message: dict[str, Any]
    steps: list[Step] = field(default_factory=list)
    cancelled: bool = False  # by the client
    used: bool = False

    @property
    def method(self) -> str:
        return str(self.message["method"])

    @property
    def params(self) -> dict[str, Any]:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def is_request(self) -> bool:
        return "id" in self.message

    @property
    def stateless(self) -> bool:
        """Whether it stands without a handshake."""
        return VERSION_KEY in _meta(self.message)

    @property
    def answer(self) -> dict[str, Any] | None:
        """The message that answers it."""
        return next((step.message for step in self.steps if step.kind == "answer"), None)


def load(path: str | os.PathLike[str]) -> list[Cue]:
    """The cues of a tape.

    Raises:
        ConfigError: there is no such tape, or nothing on it that could be played.
    """
    reader = TapeReader(path)
    if reader.size > MOST:
        raise ConfigError(
            f"{path} has {reader.size >> 20} MiB; up to {MOST >> 20} can be played: trim it first"
        )
    cues = cues_of(reader)
    if not cues:
        raise ConfigError(f"There is nothing on {path} that could be played")
    return cues


def cues_of(entries: Iterable[Entry]) -> list[Cue]:
    """In the order of the tape."""
    reading = _Reading()
    for entry in entries:
        message = plain(entry)
        if entry.stopped or not message:
            continue
        if entry.dir is Direction.CLIENT_TO_SERVER:
            reading.client(entry, message)
        elif entry.dir is Direction.SERVER_TO_CLIENT:
            reading.server(entry, message)
    return reading.cues


class _Reading:
    def __init__(self) -> None:
        self.cues: list[Cue] = []
        self._open: dict[tuple[str | None, Any], Cue] = {}  # requests, by session and id
        self._asked: dict[tuple[str | None, Any], Cue] = {}  # those of the server, by the same
        self._tracked: dict[tuple[str | None, Any], Cue] = {}  # requests by their progress token
        self._last: dict[str | None, Cue] = {}  # what was said last in a session
        self._ends: dict[int, float] = {}  # when the last step of a cue was

    def client(self, entry: Entry, message: dict[str, Any]) -> None:
        session = entry.session
        if "method" not in message:
            cue = self._asked.pop((session, message.get("id")), None)
            if cue is not None:
                self._add(cue, "answered", entry, message)
            return
        if message["method"] == "notifications/cancelled":
            cue = self._open.get((session, _cancelled(message)))
            if cue is not None:
                cue.cancelled = True
            return
        if message["method"] == "notifications/progress":
            return  # of an answer that we do not wait for in a special way
        cue = Cue(entry, message)
        self.cues.append(cue)
        self._last[session] = self._last[None] = cue
        if cue.is_request:
            self._open[session, message["id"]] = cue
            token = _meta(message).get("progressToken")
            if isinstance(token, int | str):
                self._tracked[session, token] = cue

    def server(self, entry: Entry, message: dict[str, Any]) -> None:
        session = entry.session
        if "method" not in message:
            cue = self._open.pop((session, message.get("id")), None)
            if cue is not None:
                self._add(cue, "answer", entry, message)
            return
        cue = self._related(entry, message) or self._last.get(session)
        if cue is None:
            return
        if cue.method == LISTEN and message["method"] != ACKNOWLEDGED:
            # It goes on for ever; what makes the server tell news is what was said last.
            self._add(self._last[None], "tell", entry, message, through=cue)
            return
        if message["method"] == "notifications/cancelled":
            asked = self._asked.get((session, _cancelled(message)))
            if asked is not None:
                self._add(asked, "withdraw", entry, message)
                return
        if "id" in message:
            self._asked[session, message["id"]] = cue
        self._add(cue, "ask" if "id" in message else "tell", entry, message)

    def _related(self, entry: Entry, message: dict[str, Any]) -> Cue | None:
        """The request that a message belongs to, if it says so in any way."""
        named = entry.related
        if named is None:
            named = _meta(message).get(SUBSCRIPTION_KEY)
        if isinstance(named, int | str) and (cue := self._open.get((entry.session, named))):
            return cue
        params = message.get("params")
        token = params.get("progressToken") if isinstance(params, dict) else None
        return self._tracked.get((entry.session, token)) if isinstance(token, int | str) else None

    def _add(
        self,
        cue: Cue,
        kind: Kind,
        entry: Entry,
        message: dict[str, Any],
        through: Cue | None = None,
    ) -> None:
        before = self._ends.get(id(cue), cue.entry.at)
        self._ends[id(cue)] = entry.at
        cue.steps.append(Step(kind, entry, message, max(0.0, entry.at - before), through))


def _meta(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _cancelled(message: dict[str, Any]) -> Any:
    params = message.get("params")
    named = params.get("requestId") if isinstance(params, dict) else None
    return named if isinstance(named, int | str) else None
