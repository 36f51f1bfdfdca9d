"""Index of a tape for a player: the messages of a client, and the server's steps after each.

A tape may be larger than memory, so the index has only the kind and location of messages. Their
content is read from disk when they are played.
"""

import os
import sys
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, field

from ...client.connection.listen_request import ACKNOWLEDGED
from ...errors import ConfigError
from ...protocol.caller import SUBSCRIPTION_KEY, VERSION_KEY
from ...protocol.envelope import Direction
from ...wire.error_codes import INTERNAL_ERROR
from ...wire.json import read_json
from ..tape import TapeEntry, TapeReader, decode_entry
from ..tape.message_summary import MessageHeading, message_heading
from ..tape.tape_reader import LineIndex, LineLocation
from .request_identity import RequestIdentity

__all__ = ["LISTEN", "ScriptedCall", "ScriptedStep", "load_script", "read_refusal"]

LISTEN: Final = "subscriptions/listen"
NEAR: Final = 100  # number of pending requests that are searched for a related one
TRACKED: Final = 5000  # number of requests whose progress may arrive after their response
MOST: Final = 2_000_000  # number of messages; the index takes about half a kilobyte for each
SHORTEST: Final = 50  # bytes of the shortest possible line

_members = msgspec.json.Decoder(dict[str, Raw]).decode

StepKind = Literal["answer", "tell", "ask", "answered", "withdraw"]


class RecordedMessage(Struct):
    """A message of the tape."""

    lines: LineIndex
    line: int  # the number of its line in `lines`
    seq: int
    at: float

    def read(self) -> TapeEntry:
        """Read the entry from disk.

        Raises:
            ConfigError: The tape was overwritten.
        """
        return self.lines.read(self.line)

    @property
    def message(self) -> dict[str, Any]:
        """The decoded message, read from disk."""
        return decode_entry(self.read())


class ScriptedStep(RecordedMessage):
    """A message that the server sends, or one that it waits for."""

    kind: StepKind
    method: str | None = None
    # id of the server's request that the step sends, answers or cancels
    name: int | str | None = None
    related: bool = False  # True if the message belongs to the request of the client
    after: float = 0.0  # seconds since the previous step
    through: "ScriptedCall | None" = None  # the subscription through which a notification is sent

    def member(self, name: str) -> Raw | None:
        """Read a member of the message from disk, not decoded."""
        return self.members().get(name)

    def members(self) -> dict[str, Raw]:
        """Read all members of the message from disk, not decoded."""
        return _members(self.read().message)


class ScriptedCall(RecordedMessage):
    """A message of a client, and the server's steps after it."""

    session: str | None
    method: str
    is_request: bool
    stateless: bool  # the request was sent without a handshake
    asked: RequestIdentity
    steps: list[ScriptedStep] = field(default_factory=list)
    cancelled: int | None = None  # sequence number of the client's cancellation
    used: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """The params, read from disk."""
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def answer(self) -> ScriptedStep | None:
        """The step with the response."""
        return next((step for step in self.steps if step.kind == "answer"), None)


class _Error(Struct):
    code: int
    message: str


def read_refusal(raw: Raw | None) -> tuple[int, str, Raw | None]:
    """Return the code, the message and the raw form of an error; None for an invalid error."""
    error = read_json(raw, _Error, None)
    if error is None:
        return INTERNAL_ERROR, "The recorded response cannot be decoded", None
    return error.code, error.message, raw


def load_script(tape: str | os.PathLike[str] | TapeReader) -> list[ScriptedCall]:
    """Read the calls of a tape.

    Raises:
        ConfigError: The tape does not exist, or has no or too many messages to replay.
    """
    reader = tape if isinstance(tape, TapeReader) else TapeReader(tape)
    name = str(reader.parts[0])
    # The companion may be wrong, so the size of the tape must agree with it.
    if reader.info.entries > MOST and reader.size > MOST * SHORTEST:
        raise _too_many(name)  # Fail before the tape is read, which would take a minute.
    script = _ScriptReader(LineIndex(reader.parts))
    for count, (spot, _, entry) in enumerate(reader.lines()):
        if count >= MOST:
            raise _too_many(name)
        heading = message_heading(entry)
        if entry.stopped or (heading.method is None and heading.id is UNSET):
            continue
        if entry.dir is Direction.CLIENT_TO_SERVER:
            script.client(entry, heading, spot)
        elif entry.dir is Direction.SERVER_TO_CLIENT:
            script.server(entry, heading, spot)
    if not script.cues:
        raise ConfigError(f"{name} has no messages that can be replayed")
    return script.cues


def _too_many(name: str) -> ConfigError:
    return ConfigError(
        f"{name} has more than {MOST} messages, the limit for a replay: shorten it with "
        "`fairlead tape trim`, by numbers, session or method"
    )


class _ScriptReader:
    def __init__(self, lines: LineIndex) -> None:
        self.cues: list[ScriptedCall] = []
        self._lines = lines
        # pending requests of clients, by session and id
        self._open: dict[str | None, dict[Any, ScriptedCall]] = {}
        # Requests of the server, by session and id.
        self._asked: dict[tuple[str | None, Any], ScriptedCall] = {}
        # Requests by session and progress token.
        self._tracked: dict[tuple[str | None, Any], ScriptedCall] = {}
        self._most_tracked = 2 * TRACKED
        self._last: dict[str | None, ScriptedCall] = {}  # last message of a client, by session

    def client(self, entry: TapeEntry, heading: MessageHeading, spot: LineLocation) -> None:
        session = entry.session
        if heading.method is None:
            cue = self._asked.pop((session, heading.name), None)
            if cue is not None:
                self._add(cue, "answered", entry, heading, spot)
            return
        method = sys.intern(str(heading.method))
        if method == "notifications/cancelled":
            cue = self._open.get(session, {}).get(_cancelled(heading))
            if cue is not None:
                cue.cancelled = entry.seq
            return
        if method == "notifications/progress":
            # Progress that a client reports for a request of the server does not affect the
            # playback.
            return
        cue = self._cue(entry, heading, spot, method)
        self.cues.append(cue)
        self._last[cue.session] = self._last[None] = cue

    def _cue(
        self, entry: TapeEntry, heading: MessageHeading, spot: LineLocation, method: str
    ) -> ScriptedCall:
        params = heading.read_params()
        meta = _meta(params)
        cue = ScriptedCall(
            self._lines,
            self._lines.note(spot),
            entry.seq,
            entry.at,
            None if entry.session is None else sys.intern(entry.session),
            method,
            heading.is_request,
            VERSION_KEY in meta,
            RequestIdentity.of(method, params, request=heading.is_request, raw=heading.params),
        )
        if cue.is_request:
            opened = self._open.setdefault(cue.session, {})
            opened.pop(heading.name, None)  # a reused id belongs to the latest request
            opened[heading.name] = cue
            token = meta.get("progressToken")
            if isinstance(token, int | str):
                self._track((cue.session, token), cue)
        return cue

    def _track(self, token: tuple[str | None, Any], cue: ScriptedCall) -> None:
        self._tracked[token] = cue
        if len(self._tracked) <= self._most_tracked:
            return
        # Requests that were answered long ago receive no further progress.
        for old in list(islice(self._tracked, TRACKED)):
            if self._tracked[old].answer is not None:
                del self._tracked[old]
        self._most_tracked = len(self._tracked) + TRACKED

    def server(self, entry: TapeEntry, heading: MessageHeading, spot: LineLocation) -> None:
        session = entry.session
        if heading.method is None:
            opened = self._open.get(session, {})
            cue = opened.pop(heading.name, None)
            if not opened:
                self._open.pop(session, None)
            if cue is not None:
                self._add(cue, "answer", entry, heading, spot)
            return
        cue = self._related(entry, heading) or self._meant(session, heading)
        if cue is None:
            return
        if cue.method == LISTEN and heading.method != ACKNOWLEDGED:
            # A subscription has no end; the last message of a client is the likely cause of a
            # notification.
            self._add(self._last[None], "tell", entry, heading, spot, through=cue)
            return
        if heading.method == "notifications/cancelled":
            asked = self._asked.get((session, _cancelled(heading)))
            if asked is not None:
                self._add(asked, "withdraw", entry, heading, spot)
                return
        if heading.is_request:
            self._asked[session, heading.name] = cue
        self._add(cue, "ask" if heading.is_request else "tell", entry, heading, spot)

    def _related(self, entry: TapeEntry, heading: MessageHeading) -> ScriptedCall | None:
        """Return the request that a message names by its id, subscription or token."""
        params = heading.read_params()
        named = entry.related
        if named is None:
            named = _meta(params).get(SUBSCRIPTION_KEY)
        opened = self._open.get(entry.session, {})
        if isinstance(named, int | str) and (cue := opened.get(named)):
            return cue
        token = params.get("progressToken")
        return self._tracked.get((entry.session, token)) if isinstance(token, int | str) else None

    def _meant(self, session: str | None, heading: MessageHeading) -> ScriptedCall | None:
        """Return the call that probably caused a message without a reference: the latest one.

        A request or a log message belongs to the latest pending request, even if another call, such
        as a ping, was answered since. A change notification belongs to the latest message, which
        may have caused the change.
        """
        last = self._last.get(session)
        of_work = heading.is_request or heading.method == "notifications/message"
        if last is None or not last.is_request or not of_work:
            return last
        waiting = islice(reversed(self._open.get(session, {}).values()), NEAR)
        fitting = (cue for cue in waiting if cue.cancelled is None and cue.method != LISTEN)
        return next(fitting, last)

    def _add(
        self,
        cue: ScriptedCall,
        kind: StepKind,
        entry: TapeEntry,
        heading: MessageHeading,
        spot: LineLocation,
        through: ScriptedCall | None = None,
    ) -> None:
        before = cue.steps[-1].at if cue.steps else cue.at
        cue.steps.append(
            ScriptedStep(
                self._lines,
                self._lines.note(spot),
                entry.seq,
                entry.at,
                kind,
                None if heading.method is None else sys.intern(str(heading.method)),
                _cancelled(heading) if kind == "withdraw" else heading.name,
                entry.related is not None,
                max(0.0, entry.at - before),
                through,
            )
        )


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _cancelled(heading: MessageHeading) -> Any:
    named = heading.read_params().get("requestId")
    return named if isinstance(named, int | str) else None
