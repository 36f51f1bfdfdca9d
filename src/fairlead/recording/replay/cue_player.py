"""Player for the server's messages during one recorded call."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import UNSET

from ...errors import FairleadError
from ...interceptor import Exchange
from ...peer import Peer
from ...protocol.result_fragments import FRAGMENT, fragment_content
from ...server.results.encode_fragment import FragmentSender
from ...upstream.connection.relayed_call import with_progress_token, with_subscription_id
from ...wire import Notification
from .pace import Pace
from .script import LISTEN, ScriptedCall, ScriptedStep

__all__ = ["CuePlayer"]

log = logging.getLogger("fairlead.gateway")


class CuePlayer:
    """Player of the recorded steps of a call for one client."""

    def __init__(
        self,
        cue: ScriptedCall,
        pace: Pace,
        exchange: Exchange | None,
        peer: Peer | None,
        listening: Mapping[int, Exchange],
    ) -> None:
        """Set the call and its client.

        `exchange` is the request to answer; None if the recorded message is a notification. `peer`
        is the client, if it can receive unrelated messages. `listening` maps recorded calls to open
        subscriptions.
        """
        self._cue = cue
        self._pace = pace
        self._exchange = exchange
        self._peer = peer
        self._listening = listening
        self._asked: dict[Any, asyncio.Task[None]] = {}
        self._steps = iter(cue.steps)

    async def play_until_response(self) -> ScriptedStep:
        """Play the steps before the response, and return the response.

        Wait forever if none was recorded.
        """
        try:
            for step in self._steps:
                if step.kind == "answer":
                    await self._pace.wait(step.after)
                    return step
                await self._do(step)
            # waits until the client cancels the request
            await asyncio.get_running_loop().create_future()
            raise AssertionError("unreachable")
        except BaseException:
            self._withdraw_all()
            raise

    def rest(self) -> Coroutine[Any, Any, None] | None:
        """Return a coroutine that plays the steps after the response; None if there are none."""
        if not self._cue.steps or self._cue.steps[-1].kind == "answer":
            return None
        # The request has ended, so later messages are sent without relation to it.
        self._exchange = None
        return self.all()

    async def all(self) -> None:
        """Play the remaining steps."""
        try:
            for step in self._steps:
                await self._do(step)
        finally:
            self._withdraw_all()

    async def _do(self, step: ScriptedStep) -> None:
        stateless = self._exchange is not None and self._exchange.caller.stateless
        if step.kind == "tell":
            await self._pace.wait(step.after)
            await self._tell(step)
        elif stateless:
            # Stateless servers send no requests to clients: results contain the input requests.
            return
        elif step.kind == "ask":
            await self._pace.wait(step.after)
            work = self._ask(step)
            self._asked[step.name] = asyncio.get_running_loop().create_task(work)
        elif (task := self._asked.get(step.name)) is not None:
            if step.kind == "withdraw":
                task.cancel()
            await asyncio.wait((task,))
            # Removed only after the wait: if that is cancelled, `_withdraw_all` needs the task.
            self._asked.pop(step.name, None)

    async def _tell(self, step: ScriptedStep) -> None:
        exchange, related = self._exchange, step.related
        note = Notification(step.method or "", step.member("params") or UNSET)
        if step.through is not None:
            exchange, related = self._listening.get(id(step.through)), True
            if exchange is None:
                return  # The client does not have this subscription.
        if note.method == FRAGMENT:
            await self._send_part(note)
            return
        if note.method == "notifications/progress":
            token = None if exchange is None else exchange.progress_token
            if token is None:
                return
            note = with_progress_token(note, token)
        if exchange is None or (not related and self._peer is not None):
            if self._peer is not None:
                self._peer.channel.send(with_subscription_id(note, None))
            return
        listens = exchange.method == LISTEN
        await exchange.edge.notify_caller(
            exchange, with_subscription_id(note, exchange.request_id if listens else None)
        )

    async def _send_part(self, note: Notification) -> None:
        """Send a result fragment, if the client supports fragments.

        The result contains the content of all fragments again.
        """
        exchange, content = self._exchange, fragment_content(note)
        if (
            exchange is not None
            and content is not None
            and isinstance(exchange.edge, FragmentSender)
        ):
            await exchange.edge.fragment(exchange, content)

    async def _ask(self, step: ScriptedStep) -> None:
        exchange, method = self._exchange, step.method or ""
        given = step.member("params")
        try:
            if exchange is not None and step.related:
                await exchange.edge.request_caller(exchange, method, given)
            elif self._peer is not None:
                await self._peer.request(method, given, timeout=0)
        except FairleadError as exc:
            log.debug("no response to %s: %s", method, exc)

    def _withdraw_all(self) -> None:
        for task in self._asked.values():
            task.cancel()
        self._asked.clear()
