"""Visits to pages that a server requires before it accepts a request (error -32042, handshake era).

The user is asked once for each page, however often the server names it. If the user agrees, the
visit may still take time. A server may notify the client when the visit is complete; otherwise the
request is repeated with growing delays until the server accepts it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import Raw, Struct

from ...errors import RpcError, UrlElicitationRequired
from ...observe.log_filter import ABOUT
from ...transport import timeouts
from ..connection.shared_task import SharedTask
from .answers import InputCallbacks

__all__ = ["COMPLETED", "UrlElicitations"]

log = logging.getLogger("fairlead.client")

COMPLETED = "notifications/elicitation/complete"
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds of the first and the longest pause before a retry


class UrlElicitations(Struct):
    """Requests to the user to visit pages, for all calls of a client."""

    answers: InputCallbacks
    limit: int = 20  # rounds
    input_timeout: float = 600.0  # seconds
    # Pending questions to the user, by URL, because two calls may require the same page.
    _asking: dict[str, SharedTask[str]] = {}
    # For each waiting request: the names of its pages, and an event that is set when the visit to
    # one of them is complete.
    _waiting: list[tuple[set[str], asyncio.Event]] = []

    def completed(self, elicitation_id: Any) -> None:
        """Process the server's notification that the visit with this id is complete."""
        for names, over in self._waiting:
            if f"#{elicitation_id}" in names:
                over.set()

    async def finish(
        self, refusal: UrlElicitationRequired, ask: Callable[[], Awaitable[Raw]]
    ) -> Raw:
        """Return the result of a rejected request after the page visits. `ask` sends the request
        again.

        Raises:
            UrlElicitationRequired: Pages were not visited; the error lists them and the reason.
        """
        # Registered before the first visit, because the server may report its completion early.
        seen: set[str] = set()
        over = asyncio.Event()
        waiting = (seen, over)
        self._waiting.append(waiting)
        try:
            return await self._finish(refusal, ask, seen, over)
        finally:
            self._waiting.remove(waiting)

    async def _finish(
        self,
        refusal: UrlElicitationRequired,
        ask: Callable[[], Awaitable[Raw]],
        seen: set[str],
        over: asyncio.Event,
    ) -> Raw:
        deadline = asyncio.get_running_loop().time() + self.input_timeout
        rounds, pause = 0, FIRST_PAUSE
        while True:
            new = [page for page in refusal.pages if not seen.intersection(_names(page))]
            rounds += bool(new)
            if not refusal.pages or rounds > self.limit:
                raise refusal
            try:
                async with timeouts.timeout_at(deadline if self.input_timeout else None):
                    if new:
                        seen.update(name for page in new for name in _names(page))
                        await self._visit(new, refusal)
                        pause = FIRST_PAUSE
                    else:
                        await _first_of(over, pause)
                        pause = min(pause * 2, LONGEST_PAUSE)
            except TimeoutError as exc:
                why = f"not done within {self.input_timeout:g} seconds"
                raise UrlElicitationRequired(refusal, why) from exc
            over.clear()
            try:
                return await ask()
            except UrlElicitationRequired as again:
                refusal = again

    async def _visit(
        self, pages: Iterable[dict[str, Any]], refusal: UrlElicitationRequired
    ) -> None:
        """Ask the user to open these pages, one after the other."""
        if self.answers.on_elicit is None or not self.answers.elicit_url:
            why = "this client does not open pages"
            raise UrlElicitationRequired(refusal, why, capability="elicitation.url") from refusal
        for page in pages:
            try:
                action = await self._ask(page)
            except RpcError as exc:
                raise UrlElicitationRequired(refusal, exc.message) from exc
            # The callback is user code and may raise any exception.
            except Exception as exc:
                log.exception("the callback for a page failed", extra={ABOUT: page})
                why = str(exc) or type(exc).__name__
                raise UrlElicitationRequired(refusal, why) from exc
            if action != "accept":
                why = f"the user chose {action}"
                raise UrlElicitationRequired(refusal, why) from refusal

    async def _ask(self, page: dict[str, Any]) -> str:
        url = page["url"]
        shared = self._asking.get(url)
        if shared is None:
            shared = self._asking[url] = SharedTask(self._action({**page, "mode": "url"}))
        try:
            return await shared.join()
        finally:
            if shared.over and self._asking.get(url) is shared:
                del self._asking[url]

    async def _action(self, params: dict[str, Any]) -> str:
        return str((await self.answers.answer("elicitation/create", params))["action"])


async def _first_of(over: asyncio.Event, seconds: float) -> None:
    """Wait until the server reports a completed visit, for at most `seconds`."""
    announced = asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait((announced,), timeout=seconds)
    finally:
        announced.cancel()


def _names(page: dict[str, Any]) -> tuple[str, ...]:
    """Return the values that identify a page: its URL, and its id, which the server may change."""
    number = page.get("elicitationId")
    return (page["url"], f"#{number}") if isinstance(number, str) else (page["url"],)
