"""Index of a tape for playback: each client message, and the server's messages after it.

A tape may be larger than memory, so the index contains only the kind and location of messages.
Their content is read from disk during playback.
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
NEAR: Final = 100  # maximum number of pending requests that are searched for a related request
TRACKED: Final = 5000  # maximum number of answered requests that may still receive progress
# Maximum number of messages; the index takes about half a kilobyte for each.
MOST: Final = 2_000_000
SHORTEST: Final = 50  # length of the shortest possible line, in bytes

_members = msgspec.json.Decoder(dict[str, Raw]).decode

StepKind = Literal["answer", "tell", "ask", "answered", "withdraw"]


class RecordedMessage(Struct):
    """A recorded message."""

    lines: LineIndex
    line: int  # line number in `lines`
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
    """A message that the server sends or waits for."""

    kind: StepKind
    method: str | None = None
    # id of the server's request that the step sends, answers or cancels
    name: int | str | None = None
    related: bool = False  # True if the message belongs to the client's request
    after: float = 0.0  # seconds since the previous step
    through: "ScriptedCall | None" = None  # the subscription through which a notification is sent

    def member(self, name: str) -> Raw | None:
        """Read a member of the message from disk, not decoded."""
        return self.members().get(name)

    def members(self) -> dict[str, Raw]:
        """Read all members of the message from disk, not decoded."""
        return _members(self.read().message)


class ScriptedCall(RecordedMessage):
    """A client's message, and the server's steps after it."""

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
        """The step that contains the response."""
        return next((step for step in self.steps if step.kind == "answer"), None)


class _Error(Struct):
    code: int
    message: str


def read_refusal(raw: Raw | None) -> tuple[int, str, Raw | None]:
    """Return the code, message and bytes of an error.

    If the error is invalid, the bytes are None.
    """
    error = read_json(raw, _Error, None)
    if error is None:
        return INTERNAL_ERROR, "The recorded response cannot be decoded", None
    return error.code, error.message, raw


def load_script(tape: str | os.PathLike[str] | TapeReader) -> list[ScriptedCall]:
    """Read the calls recorded on a tape.

    Raises:
        ConfigError: The tape does not exist, or the number of messages to replay is 0 or too large.
    """
    reader = tape if isinstance(tape, TapeReader) else TapeReader(tape)
    name = str(reader.parts[0])
    # The companion file may be wrong, so the size of the tape is checked too.
    if reader.info.entries > MOST and reader.size > MOST * SHORTEST:
        raise _too_many(name)  # Checked before the tape is read, which would take a minute.
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
        # pending client requests, by session and id
        self._open: dict[str | None, dict[Any, ScriptedCall]] = {}
        # Server requests, by session and id.
        self._asked: dict[tuple[str | None, Any], ScriptedCall] = {}
        # Requests, by session and progress token.
        self._tracked: dict[tuple[str | None, Any], ScriptedCall] = {}
        self._most_tracked = 2 * TRACKED
        self._last: dict[str | None, ScriptedCall] = {}  # the client's last message, by session

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
            # Progress notifications from clients do not affect the playback.
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
        # Requests that were answered long ago are not expected to receive further progress.
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
            # The last message of any client is the likely cause of a subscription's notification.
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
        """Return the request that a message refers to by its id, subscription or token."""
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
        """Return the latest call, which probably caused a message without a reference.

        A request or a log message belongs to the latest pending request, even if a later call, such
        as a ping, has been answered. A change notification belongs to the latest message, which may
        have caused the change.
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
