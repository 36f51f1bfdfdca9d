"""Server that answers clients with the recorded responses on a tape."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw

from ...client.connection.listen_request import ACKNOWLEDGED
from ...errors import FairleadError, RpcError
from ...interceptor import Answer, Exchange, Handler
from ...peer import Peer
from ...protocol.caller import ANONYMOUS, SUBSCRIPTION_KEY, Caller, Principal
from ...protocol.conversation.conversation import Conversation, ConversationRole
from ...protocol.envelope import TransportContext
from ...protocol.headers import ParamHeader
from ...protocol.outgoing_params import Identity
from ...server.http_app.http_runnable import StandInServer
from ...transport.background_tasks import BackgroundTasks
from ...transport.channel import Channel
from ...wire import Notification
from ...wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from ...wire.json import read_json
from ...wire.quote_text import shortened
from ..compare.json_diff import ABSENT
from ..tape import TapeReader
from .cue_matcher import INTRODUCTIONS, StrictMatcher, TolerantMatcher, closest_call
from .cue_player import CuePlayer
from .pace import Pace
from .script import LISTEN, ScriptedCall, load_script, read_refusal
from .synthetic_introduction import synthetic_discover_result

if TYPE_CHECKING:
    from ...relay.relay import Relay

__all__ = ["TapeServer"]

Matching = Literal["tolerant", "strict"]

MISSED: Final = 1000  # maximum number of unrecorded requests that are remembered
_SHOWN: Final = 5  # maximum number of reported differences from the closest recorded request

log = logging.getLogger("fairlead.gateway")


class TapeServer(StandInServer):
    """Server that plays a tape to clients of the recorded era.

    server = TapeServer("weather.tape.jsonl")
    await server.for_both_eras().run_http(port=8080)
    """

    def __init__(
        self,
        tape: str | os.PathLike[str] | TapeReader | Sequence[ScriptedCall],
        *,
        matching: Matching = "tolerant",
        pace: Pace | None = None,
        input_timeout: float = 600.0,
    ) -> None:
        """Set the tape and the matching of requests.

        `tolerant` matches by method, target and arguments, in any order and repeatedly. `strict`
        requires the recorded order and params.

        Raises:
            ConfigError: The tape does not exist, or has no or too many messages to replay.
        """
        cues = load_script(tape) if isinstance(tape, str | os.PathLike | TapeReader) else list(tape)
        self.cues: list[ScriptedCall] = _in_eras_that_were_used(cues)
        self.pace = pace or Pace()
        self.missed: list[str] = []  # client requests that the tape does not contain
        # The closest recorded call for each of these requests, or "".
        self.nearest: dict[str, str] = {}
        self.handler: Handler = self._handle
        self._input_timeout = input_timeout
        self._matching: Matching = matching
        self._alone = self._matcher([cue for cue in self.cues if cue.stateless])
        self._sessions = _sessions(self.cues)
        self._has_listened = any(cue.method == LISTEN for cue in self.cues)
        self._begun = 0  # number of recorded sessions that clients have opened again
        self._from = 0  # sequence number of the entry at which playback continues
        self._pool = TolerantMatcher([cue for cue in self.cues if not cue.stateless])
        self._listening: dict[int, Exchange] = {}  # open subscriptions by their recorded calls
        self._peers: dict[object, StrictMatcher | TolerantMatcher] = {}
        self._background = BackgroundTasks()
        self._loop: asyncio.AbstractEventLoop | None = None

    def for_both_eras(self, name: str = "tape", **options: Any) -> "Relay":
        """Return a relay that serves clients of either era; `options` are passed to `Relay`."""
        from ...relay.relay import Relay

        return Relay(self, name, **options)

    def seek(self, seq: int) -> None:
        """Continue at an entry on the tape; earlier entries count as played."""
        self._from = seq
        later = (n for n, cues in enumerate(self._sessions) if cues[-1].seq >= seq)
        self._begun = next(later, len(self._sessions))
        for matcher in {self._alone, self._pool, *self._peers.values()}:
            matcher.seek(seq)

    def soon(self, do: Callable[[], None]) -> None:
        """Call a function in the event loop that serves clients. Thread-safe."""
        if self._loop is None:
            do()
        else:
            self._loop.call_soon_threadsafe(do)

    # Serving

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        self._loop = asyncio.get_running_loop()
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER,
                Identity({"name": "tape", "version": "0"}),
                principal=principal,
            ),
            handler=self.handler,
            on_notification=lambda note: self._told(peer, note),
            on_close=lambda _: self._left(peer),
            input_timeout=self._input_timeout,
        )
        peer.start()
        return peer

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ...transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel, self.running():
            peer = self.attach(channel, ANONYMOUS)
            try:
                await peer.wait_closed()
            finally:
                await peer.close()

    async def close(self) -> None:
        """Stop all playback."""
        await self._background.close()

    # Methods that HTTP endpoints call

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        return ()

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """Ignore the notification, because a stateless client cannot receive messages after it."""

    async def end_streams(self) -> None:
        for task in list(self._background):
            task.cancel()

    # Playing

    async def _handle(self, exchange: Exchange) -> Answer:
        matcher = self._matcher_of(exchange)
        params = read_json(exchange.message.params, dict[str, Any], {})
        cue = matcher.find(exchange.method, params, request=True)
        if cue is None:
            if exchange.method == LISTEN and not self._has_listened:
                await _without_news(exchange)
            return self._not_there(exchange, matcher)
        if cue.answer is None and cue.cancelled is None and cue.method != LISTEN:
            raise RpcError(METHOD_NOT_FOUND, f"the tape has no response to {cue.method}")
        if cue.method == LISTEN:
            self._listening[id(cue)] = exchange
        peer = exchange.edge if isinstance(exchange.edge, Peer) else None
        playing = CuePlayer(cue, self.pace, exchange, peer, self._listening)
        try:
            answer = await playing.play_until_response()
        finally:
            if self._listening.get(id(cue)) is exchange:
                del self._listening[id(cue)]
        rest = playing.rest()
        if rest is not None:
            self._play(rest)
        members = answer.members()
        if "error" in members or "result" not in members:
            code, why, whole = read_refusal(members.get("error"))
            raise RpcError(code, why, raw=None if whole is None else bytes(whole))
        return members["result"]

    def _left(self, peer: Peer) -> None:
        self._peers.pop(peer, None)

    def _told(self, peer: Peer, note: Notification) -> None:
        caller = peer.conversation.peer
        stateless = caller is None or caller.stateless
        matcher = self._alone if stateless else self._peers.get(peer, self._pool)
        params = read_json(note.params, dict[str, Any], {})
        cue = matcher.find(note.method, params, request=False)
        if cue is not None and cue.steps:
            self._play(CuePlayer(cue, self.pace, None, peer, self._listening).all())

    def _play(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.start(_quietly(work))

    def _matcher_of(self, exchange: Exchange) -> StrictMatcher | TolerantMatcher:
        if exchange.caller.stateless:
            return self._alone
        if exchange.method == "initialize" and self._matching == "strict":
            number, self._begun = self._begun, self._begun + 1
            session = self._sessions[number] if number < len(self._sessions) else []
            self._peers[exchange.edge] = matcher = StrictMatcher(session)
            matcher.seek(self._from)
        return self._peers.get(exchange.edge, self._pool)

    def _matcher(self, cues: list[ScriptedCall]) -> StrictMatcher | TolerantMatcher:
        return StrictMatcher(cues) if self._matching == "strict" else TolerantMatcher(cues)

    @cached_property
    def _introduction(self) -> Raw | None:
        return synthetic_discover_result(self.cues)

    def _not_there(self, exchange: Exchange, matcher: StrictMatcher | TolerantMatcher) -> Answer:
        method = exchange.method
        if method in ("ping", "logging/setLevel") and not exchange.caller.stateless:
            return b"{}"  # clients and relays send these even if they are not on the tape
        if method == "server/discover" and (about := self._introduction) is not None:
            return about
        if method in INTRODUCTIONS:
            # The error makes the client fall back to the other era.
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        what = method if exchange.target is None else f"{method} {exchange.target!r}"
        expected = matcher.expected()
        more = "" if expected is None else f"; expected {expected}"
        near = self._nearest(exchange)
        more += f"; {near}" if near else ""
        if len(self.missed) < MISSED:
            self.missed.append(what)
            self.nearest[what] = near
        log.warning("%s is not on the tape%s", what, more)
        raise RpcError(INVALID_PARAMS, f"{what} is not on the tape{more}")

    def _nearest(self, exchange: Exchange) -> str:
        """Describe the recorded call that is most similar to a request; "" if there is none."""
        params = read_json(exchange.message.params, dict[str, Any], {})
        near = closest_call(self.cues, exchange.method, params)
        if near is None or not near[1]:
            return ""
        recorded = near[0].get("arguments", near[0])
        differences = ", ".join(
            f"{one.path.removeprefix('arguments.')}: {_short(one.recorded)} -> {_short(one.given)}"
            for one in near[1][:_SHOWN]
        )
        return f"the closest recorded arguments are {_short(recorded)}; differences: {differences}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode() if value != ABSENT else ABSENT
    return shortened(text, 200)


def _in_eras_that_were_used(cues: list[ScriptedCall]) -> list[ScriptedCall]:
    """Return the calls of those eras in which clients sent requests after `initialize` or
    `server/discover`.

    A client may probe both eras at once. The era that it did not use must not be offered, because
    other clients could choose it and would get no responses.
    """
    used = {cue.stateless for cue in cues if cue.is_request and cue.method not in INTRODUCTIONS}
    return [cue for cue in cues if cue.stateless in used] if len(used) == 1 else cues


def _sessions(cues: list[ScriptedCall]) -> list[list[ScriptedCall]]:
    """Return the calls of each handshake session, in the order of the sessions."""
    found: dict[str | None, list[ScriptedCall]] = {}
    for cue in cues:
        if not cue.stateless:
            found.setdefault(cue.session, []).append(cue)
    return list(found.values())


async def _without_news(exchange: Exchange) -> None:
    """Acknowledge a subscription that is not on the tape, and keep it open.

    Otherwise clients and relays that always subscribe could not use the tape.
    """
    params = {"notifications": {}, "_meta": {SUBSCRIPTION_KEY: exchange.request_id}}
    note = Notification(ACKNOWLEDGED, Raw(msgspec.json.encode(params)))
    await exchange.edge.notify_caller(exchange, note)
    # waits until the client cancels the subscription
    await asyncio.get_running_loop().create_future()


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)  # the client has disconnected
