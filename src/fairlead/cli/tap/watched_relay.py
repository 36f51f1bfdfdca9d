"""A relay whose journal `fairlead watch` can find."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ...errors import FairleadError
from ...gateway import Relay
from ...interceptor import Interceptor
from ...recording.journal import Journal
from ...recording.journal.journal_interceptor import Journaling
from ...recording.journal.watch_socket import announce_journal
from ..framework.command_errors import print_message

__all__ = ["WatchedRelay", "watchable"]


@asynccontextmanager
async def watchable(journal: Journal, *about: str, pid: int | None = None) -> AsyncIterator[None]:
    """Announce a journal to `fairlead watch`; if that fails, only log a warning."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(announce_journal(journal, *about, pid=pid))
        except (OSError, FairleadError) as exc:
            print_message("warning", f"`fairlead watch` is not available: {exc}")
        yield


class WatchedRelay(Relay):
    """A relay that announces its journal while it serves."""

    def __init__(
        self,
        target: Any,
        *,
        kind: str = "proxy",
        journal: Journal | None = None,
        interceptors: Sequence[Interceptor] = (),
        **options: Any,
    ) -> None:
        """Create a relay; `kind` is shown by `fairlead watch`."""
        self._kind = kind
        # Compared with None, because an empty journal is falsy.
        self._journal = Journal() if journal is None else journal
        super().__init__(target, interceptors=[Journaling(self._journal), *interceptors], **options)

    async def run_stdio(self) -> None:
        async with watchable(self._journal, self.name, self._kind):
            await super().run_stdio()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with watchable(self._journal, self.name, self._kind), super().running():
            yield None
