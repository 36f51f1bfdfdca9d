"""The time between the signal to stop and the end of an HTTP server, in which requests finish."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, field

from ...transport import timeouts

__all__ = ["GRACE", "DrainPlan", "DrainedApp", "StopSignals", "drain_requests"]

GRACE = 3.0  # seconds that running requests may take during shutdown
INTERVAL = 0.05  # seconds between two counts of the running requests

log = logging.getLogger("fairlead.server")


class StopSignals:
    """The signals that told a program to stop."""

    def __init__(self) -> None:
        self._received: list[int] = []
        # Set by the second signal: the program stops without waiting for running requests.
        self.repeated = asyncio.Event()

    def receive(self, number: int) -> None:
        if self._received:
            self.repeated.set()
        self._received.append(number)

    @property
    def by_hand(self) -> bool:
        """True if the first signal was Ctrl-C; a service manager sends SIGTERM."""
        return self._received[:1] == [signal.SIGINT]


def _log(text: str) -> None:
    log.info("%s", text)


class DrainPlan(Struct):
    """Settings that determine how long a server continues after the signal to stop.

    Running requests get up to `limit` seconds. With `keeps_listening`, the server listens for the
    whole time after a SIGTERM, so that load balancers notice that it is not ready; otherwise, and
    after Ctrl-C, only until no request is running. `report` receives lines for the operator.
    """

    limit: float = GRACE
    keeps_listening: bool = False
    signals: StopSignals = field(default_factory=StopSignals)
    report: Callable[[str], None] = _log


class DrainedApp(Protocol):
    """An application that can finish its requests before it stops."""

    @property
    def requests_in_sessions(self) -> int:
        """The number of running requests in sessions and on WebSockets."""

    def begin_drain(self) -> None:
        """Report that the application is not ready, and refuse new sessions."""


async def drain_requests(app: DrainedApp, runner: Any, settings: DrainPlan) -> float:
    """Wait until running requests have ended or the time is over; return the seconds left.

    `runner` is the uvicorn server, which listens meanwhile.
    """
    app.begin_drain()
    began = time.monotonic()
    signals, limit = settings.signals, settings.limit
    listens_on = settings.keeps_listening and not signals.by_hand
    running = _count(app, runner)
    waits = bool(running) or listens_on
    if waits:
        when = "after" if listens_on else "at the latest after"
        settings.report(
            f"draining: {_requests(running)}, new sessions are refused, "
            f"the process stops {when} {limit:g} s; a second signal stops it at once"
        )
    while (
        (running or listens_on)
        and (left := began + limit - time.monotonic()) > 0
        and not signals.repeated.is_set()
        and not runner.should_exit
    ):
        try:
            async with timeouts.timeout(min(left, INTERVAL)):
                await signals.repeated.wait()
        except TimeoutError:
            running = _count(app, runner)
    spent = time.monotonic() - began
    if running:
        settings.report(f"drained for {spent:.1f} s: {_requests(running)} and cannot finish")
    elif waits:
        settings.report(f"drained for {spent:.1f} s: all requests have finished")
    return 0.0 if signals.repeated.is_set() else max(limit - spent, 0.0)


def _requests(count: int) -> str:
    if not count:
        return "no request is running"
    return f"{count} {'request is' if count == 1 else 'requests are'} running"


def _count(app: DrainedApp, runner: Any) -> int:
    """Return the number of running requests, without streams that only listen."""
    connections = runner.server_state.connections
    return app.requests_in_sessions + sum(map(_runs_request, connections))


def _runs_request(connection: Any) -> bool:
    """Return True if a connection has a request outside a session that is not answered yet."""
    cycle = getattr(connection, "cycle", None)  # WebSocket connections have none
    if cycle is None or cycle.response_complete or cycle.disconnected:
        return False
    scope = getattr(cycle, "scope", None)  # absent on the fast path, which handles POST only
    if scope is not None and scope["method"] != "POST":
        return False
    headers = cycle.headers if scope is None else dict(scope["headers"])
    return (
        b"mcp-session-id" not in headers and headers.get(b"mcp-method") != b"subscriptions/listen"
    )
