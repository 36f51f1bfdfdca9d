"""Closing of streams once requests with the access token that opened them would be refused."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

from ....errors import AuthorizationError
from ....protocol.caller import Principal
from ....protocol.identity.scoped_name import ScopedName
from ....protocol.identity.token_principal import TokenPrincipal, TokenStanding

__all__ = ["expiring"]

LONGEST_WAIT = 300.0  # seconds between two checks of a token, at most
SHORTEST_WAIT = 1.0  # seconds between two checks of a token, at least
RETRY_AFTER = 10.0  # seconds until a check is repeated if the authorization server is unreachable
MAX_OUTAGE = 300.0  # seconds for which streams stay open although their tokens cannot be checked


@contextlib.contextmanager
def expiring(principal: Callable[[], Principal], expired: Callable[[], object]) -> Iterator[None]:
    """Call `expired` once if the token of the principal becomes invalid before the context ends.

    The token is verified again when the result of its last verification expires or is withdrawn.
    `principal` is called before each check, because the client may have sent a newer token.
    """
    watch = _TokenWatch(principal, expired)
    watch.look()
    try:
        yield
    finally:
        watch.stop()


class _TokenWatch:
    __slots__ = (
        *("_expired", "_failing", "_next", "_principal", "_standing", "_stopped", "_task"),
        *("_timer", "_unwatch"),
    )

    def __init__(self, principal: Callable[[], Principal], expired: Callable[[], object]) -> None:
        self._principal = principal
        self._expired = expired
        self._standing: TokenStanding | None = None
        self._unwatch: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._next = 0.0  # earliest time of the next check
        self._failing: float | None = None  # time of the first of the checks that failed
        self._stopped = False

    def look(self) -> None:
        """Check the token if that is due, and set a timer for the next look."""
        if self._stopped or self._task is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        who, now = self._principal(), time.time()
        if not isinstance(who, TokenPrincipal | ScopedName):
            return
        if isinstance(who, TokenPrincipal) and who.has_expired():
            self._end()
            return
        self._follow(who.standing)
        end = who.expires if isinstance(who, TokenPrincipal) else None
        due = None if who.standing is None else max(who.standing.due(), self._next)
        if who.standing is not None and due is not None and now >= due:
            self._task = asyncio.get_running_loop().create_task(self._check(who, who.standing))
            return
        times = [moment - now for moment in (end, due) if moment is not None]
        if times:
            wait = min(max(min(times), 0.0), LONGEST_WAIT)
            self._timer = asyncio.get_running_loop().call_later(wait, self.look)

    def stop(self) -> None:
        self._stopped = True
        self._follow(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _follow(self, standing: TokenStanding | None) -> None:
        if standing is self._standing:
            return
        if self._unwatch is not None:
            self._unwatch()
        self._standing = standing
        self._unwatch = None if standing is None else standing.watch(self.look)

    async def _check(self, who: TokenPrincipal | ScopedName, standing: TokenStanding) -> None:
        is_valid = True
        try:
            is_valid = await standing.check() == who
            self._failing, wait = None, SHORTEST_WAIT
        # The failure is logged where it happens, as for requests with the token.
        except AuthorizationError:
            # An outage must not end all streams, but a revoked token must not stay valid for ever.
            self._failing, wait = self._failing or time.time(), RETRY_AFTER
            is_valid = time.time() - self._failing < MAX_OUTAGE
        self._next = time.time() + wait
        self._task = None
        if is_valid:
            self.look()
        elif not self._stopped:
            self._end()

    def _end(self) -> None:
        self.stop()
        self._expired()
