"""Replay of a tape against a server, with a comparison of the responses."""

import asyncio
import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from ...client.mcp_transport.inprocess import Attachable
from ...client.server_entry import MCPServerEntry
from ...errors import ChannelClosed, ConnectFailed, FairleadError, HttpError
from ...peer.connection_state import LAST_WORDS
from ...protocol.result_fragments import FRAGMENT
from ...transport import timeouts
from ...transport.channel import Channel, Incoming, RequestLost
from ...upstream.server_target import ServerTarget, target_for
from ...wire import (
    Failure,
    Message,
    Notification,
    Params,
    Request,
    RequestId,
    Success,
    encode,
    failure,
)
from ...wire.error_codes import METHOD_NOT_FOUND
from ..compare.json_diff import JsonDifference, JsonPath, json_differences, read_path
from ..tape import TapeReader
from ..tape.message_summary import summary
from .script import LISTEN, ScriptedCall, ScriptedStep, load_script, read_refusal

__all__ = ["ComparedCall", "ReplayReport", "replay_tape"]

PLACES: Final = 100  # maximum number of differences reported for one response
# Maximum length of a reported value in characters, because a report must fit into memory.
LONGEST: Final = 10_000
# HTTP statuses of an endpoint that does not serve this client
NOT_THERE: Final = (401, 403, 404, 405)
# Opaque values that the server creates and the client returns. They differ in each run, so they are
# replaced and not compared.
_OPAQUE: Final = {"requestState": "requestState", "nextCursor": "cursor"}


class ComparedCall(Struct):
    """A recorded request, and the differences between the recorded and the new response."""

    seq: int
    what: str
    differences: list[JsonDifference] = field(default_factory=list)
    error: str | None = None  # reason why no response can be compared

    @property
    def same(self) -> bool:
        return not self.differences and self.error is None

    @property
    def lines(self) -> list[str]:
        """The report lines about this call."""
        heading = f"{self.seq} {self.what}: {self.error or 'different response'}"
        return [heading, *(f"    {one}" for one in self.differences)]


class ReplayReport(Struct):
    """The result of a replay."""

    compared: list[ComparedCall] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return all(each.same for each in self.compared)

    def __str__(self) -> str:
        wrong = [each for each in self.compared if not each.same]
        count = f"{len(self.compared)} compared, {len(wrong)} differ"
        return "\n".join([count, *(line for each in wrong for line in each.lines)])


async def replay_tape(
    tape: str | os.PathLike[str] | TapeReader,
    target: "ServerTarget | MCPServerEntry | dict[str, Any] | Attachable",
    *,
    ignore: Iterable[str] = (),
    notifications: bool = False,
    timeout: float = 30.0,
    on_compared: Callable[[ComparedCall], None] | None = None,
) -> ReplayReport:
    """Send the requests of a tape to a server and compare its responses.

    `ignore` lists paths that may differ (`result.content.*.text`). Requests from the server get the
    recorded responses. If `notifications`, notifications are compared too. Each response must
    arrive within `timeout` seconds.

    Raises:
        ConfigError: The tape does not exist, or the target is invalid.
        FairleadError: The server cannot be reached, or disconnected before its first response.
        ValueError: A path is invalid.
    """
    paths = [read_path(text) for text in ignore]
    way = target if isinstance(target, ServerTarget) else target_for(target)
    report = ReplayReport()

    def compared(one: ComparedCall) -> None:
        report.compared.append(one)
        if on_compared is not None:
            on_compared(one)

    for session in _sessions(load_script(tape)):
        visit = _Visit(session, paths, timeout, compared, notifications=notifications)
        await visit.run(await way.open())
    return report


def _sessions(cues: list[ScriptedCall]) -> list[list[ScriptedCall]]:
    """Group the calls by session, because each session needs a connection.

    Stateless requests are one group.
    """
    found: dict[str | None, list[ScriptedCall]] = {}
    for cue in cues:
        session = cue.session
        alone = cue.stateless and session is not None and session.startswith("r")
        found.setdefault(None if alone else session, []).append(cue)
    return list(found.values())


class _Visit:
    """Replay of one recorded session."""

    def __init__(
        self,
        cues: list[ScriptedCall],
        ignore: list[JsonPath],
        timeout: float,
        compared: Callable[[ComparedCall], None],
        *,
        notifications: bool,
    ) -> None:
        self._cues = cues
        self._ignore = ignore
        self._timeout = timeout
        self._compared = compared
        self._notifications = notifications
        self._answers: dict[int, asyncio.Future[Success | Failure]] = {}
        self._opaque: dict[str, str] = {}  # new opaque values, by recorded value
        self._told: list[Notification] = []
        self._heard = asyncio.Event()  # set when a notification arrives
        self._has_answered = False
        self._has_gone = False  # True once a call reported that the server disconnected
        self._end: ChannelClosed | None = None
        asked = ((cue, step) for cue in cues for step in cue.steps if step.kind == "ask")
        self._questions = [(step, _answer_of(cue, step)) for cue, step in asked]
        self._channel: Channel

    async def run(self, channel: Channel) -> None:
        self._channel = channel
        reading = asyncio.get_running_loop().create_task(self._read(channel))
        try:
            await self._play()
        finally:
            await channel.close()
            await asyncio.wait((reading,))
            reading.exception()

    async def _play(self) -> None:
        waiting: list[tuple[int, ScriptedCall]] = []
        # requests that will be cancelled as recorded on the tape
        unwanted: list[tuple[int, ScriptedCall]] = []
        for number, cue in enumerate(self._cues, 1):
            for asked, before in [(n, c) for n, c in unwanted if self._ends(c) < cue.seq]:
                unwanted.remove((asked, before))
                self._cancel(asked)
            # Responses that were recorded before this message must arrive before it is sent.
            for asked, before in [(n, c) for n, c in waiting if _end(c) < cue.seq]:
                waiting.remove((asked, before))
                await self._compare(asked, before)
            if not cue.is_request:
                self._send(Notification(cue.method, self._params(cue, None)))
                continue
            # Requests without a recorded response (cancelled, or subscriptions) are not compared.
            if cue.answer is not None:
                self._answers[number] = asyncio.get_running_loop().create_future()
                waiting.append((number, cue))
            elif cue.cancelled is not None:
                unwanted.append((number, cue))
            self._send(Request(number, cue.method, self._params(cue, number)))
        for asked, cue in waiting:
            await self._compare(asked, cue)
        if self._notifications:
            await self._compare_told()
        for asked, _ in unwanted:
            self._cancel(asked)

    async def _compare(self, number: int, cue: ScriptedCall) -> None:
        result = ComparedCall(cue.seq, summary(cue.read()))
        try:
            async with timeouts.timeout(self._timeout):
                answer = await self._answers[number]
        except TimeoutError:
            result.error = f"no response within {self._timeout:g} s"
        except FairleadError as exc:
            if not self._has_answered and _is_away(exc):
                raise  # The server was never available, so no responses can be compared.
            over = isinstance(exc, ChannelClosed)
            result.error = "the server had disconnected" if over and self._has_gone else str(exc)
            self._has_gone = self._has_gone or over
        else:
            recorded = {} if cue.answer is None else cue.answer.message
            given = msgspec.json.decode(encode(answer))
            recorded["id"] = given["id"]
            self._learn(recorded.get("result"), given.get("result"))
            found = islice(json_differences(recorded, given, self._ignore), PLACES)
            result.differences = [_brief(one) for one in found]
        if not result.same and cue.asked.said is None:
            result.what += " (sent without its secrets, which are redacted on the tape)"
        del self._answers[number]
        self._compared(result)

    def _learn(self, recorded: Any, given: Any) -> None:
        if isinstance(recorded, dict) and isinstance(given, dict):
            for name in _OPAQUE:
                before, now = recorded.get(name), given.get(name)
                if isinstance(before, str) and isinstance(now, str):
                    self._opaque[before] = recorded[name] = now

    async def _compare_told(self) -> None:
        """Compare notifications in any order, because their times may differ from the recording."""
        told = (s for cue in self._cues for s in cue.steps if s.kind == "tell")
        # Result fragments are repeated in the response.
        wanted = [step for step in told if step.method != FRAGMENT]
        try:
            async with timeouts.timeout(self._timeout):
                while len(self._told) < len(wanted):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            pass
        left = [_without_token(msgspec.json.decode(encode(note))) for note in self._told]
        for step in wanted:
            message = _without_token(step.message)
            found = next(
                (n for n in left if not any(json_differences(message, n, self._ignore))), None
            )
            if found is not None:
                left.remove(found)
            one = ComparedCall(step.seq, summary(step.read()))
            one.error = "the notification was not received" if found is None else None
            self._compared(one)

    def _params(self, cue: ScriptedCall, number: int | None) -> Params:
        """Return the recorded params with the new progress token and the new opaque values."""
        message = cue.message
        if "params" not in message:
            return UNSET
        params = message["params"]
        if not isinstance(params, dict):
            return Raw(msgspec.json.encode(params))
        meta = params.get("_meta")
        if number is not None and isinstance(meta, dict) and "progressToken" in meta:
            params["_meta"] = {**meta, "progressToken": number}
        for name in _OPAQUE.values():
            if isinstance(params.get(name), str):
                params[name] = self._opaque.get(params[name], params[name])
        return Raw(msgspec.json.encode(params))

    async def _read(self, channel: Channel) -> None:
        end = ChannelClosed()
        try:
            await channel.run(self._take)
        except ChannelClosed as exc:
            end = exc
        self._over(end)

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed as exc:
            # Writing fails first; the reason, such as the exit code, becomes known shortly later.
            wait = LAST_WORDS if self._end is None else 0.0
            asyncio.get_running_loop().call_later(wait, self._over, self._end or exc)

    def _ends(self, cue: ScriptedCall) -> float:
        """Return the number of the entry at which a call is cancelled; infinity means after the
        last entry.

        A call that may still send notifications to compare is cancelled after the last entry.
        """
        if cue.cancelled is None or cue.method == LISTEN or self._notifications:
            return float("inf")
        return cue.cancelled

    def _cancel(self, number: int) -> None:
        params = {"requestId": number, "reason": "cancelled on the tape"}
        self._send(Notification("notifications/cancelled", Raw(msgspec.json.encode(params))))

    def _over(self, end: ChannelClosed) -> None:
        self._end = self._end or end
        for number in self._answers:
            self._settle(number, end)

    def _settle(self, request_id: RequestId | None, outcome: Success | Failure | Exception) -> None:
        future = self._answers.get(request_id)  # type: ignore[arg-type]  # None: unknown id
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
            future.exception()  # Marks the exception as retrieved: not every future is awaited.
        else:
            future.set_result(outcome)

    def _take(self, item: Incoming) -> None:
        match item:
            case Success() | Failure():
                self._has_answered = True
                self._settle(item.id, item)
            case RequestLost():
                self._settle(item.request_id, item.error)
            case Notification():
                if self._notifications:
                    self._told.append(item)
                    self._heard.set()
            case Request():
                self._reply(item)

    def _reply(self, request: Request) -> None:
        """Send the recorded response to an equal request,
        otherwise to a request with the same method.
        """
        params = msgspec.json.decode(request.params) if isinstance(request.params, Raw) else {}
        kind = [q for q in self._questions if q[0].method == request.method]
        same = [
            q for q in kind if not any(json_differences(q[0].message.get("params", {}), params))
        ]
        chosen = next(iter(same or kind), None)
        answer: Success | Failure
        if request.method == "ping":
            answer = Success(request.id, Raw(b"{}"))
        elif chosen is None or chosen[1] is None:
            answer = failure(request.id, METHOD_NOT_FOUND, f"Method not found: {request.method}")
        else:
            if len(kind) > 1:
                self._questions.remove(chosen)
            answer = _again(request, chosen[1])
        self._send(answer)


def _is_away(exc: FairleadError) -> bool:
    if isinstance(exc, HttpError):
        return exc.status in NOT_THERE
    return isinstance(exc, ConnectFailed | ChannelClosed)


def _again(request: Request, answer: ScriptedStep) -> Success | Failure:
    members = answer.members()
    if (result := members.get("result")) is not None:
        return Success(request.id, result)
    code, why, whole = read_refusal(members.get("error"))
    return (
        failure(request.id, code, why) if whole is None else Failure(request.id, code, why, whole)
    )


def _answer_of(cue: ScriptedCall, question: ScriptedStep) -> ScriptedStep | None:
    found = (s for s in cue.steps if s.kind == "answered" and s.name == question.name)
    return next(found, None)


def _end(cue: ScriptedCall) -> float:
    return float("inf") if cue.answer is None else cue.answer.seq


def _without_token(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    if isinstance(params, dict):
        message = {**message, "params": {k: v for k, v in params.items() if k != "progressToken"}}
    return message


def _brief(one: JsonDifference) -> JsonDifference:
    return JsonDifference(one.path, _cut(one.recorded), _cut(one.given))


def _cut(value: Any) -> Any:
    """Return a value for display, truncated if it is too long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
