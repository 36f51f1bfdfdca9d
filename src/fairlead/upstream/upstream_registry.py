"""All servers of a program, with a shared start limit and shared events."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..client import MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.server_entry import MCPServerEntry
from ..config.server_spec import ServerSpec
from ..config.upstream_settings import UpstreamSettings
from ..protocol.targets.list_kind import ListKind
from .connection_keeper import END_LIMIT
from .memory.server_memory import ServerMemory
from .starts.start_limiter import StartLimiter
from .status_events import NotificationListener, StatusListener, StatusReporter, added_listener
from .upstream import Upstream

if TYPE_CHECKING:
    from ..auth.storage.credential_store import CredentialStore

__all__ = ["ChangeListener", "UpstreamRegistry"]

ChangeListener: TypeAlias = Callable[[Upstream], None]


class UpstreamRegistry(Mapping[str, Upstream]):
    """The servers of one program by name, with one start limit and one source of status events."""

    def __init__(
        self,
        settings: UpstreamSettings | None = None,
        *,
        kinds: Iterable[ListKind] = ListKind,
        for_client: bool = False,
        config: MCPClientConfig | None = None,
        callbacks: Callbacks | None = None,
        max_starts: int | None = None,
        memory: ServerMemory | None = None,
        auth_storage: "CredentialStore | None" = None,
    ) -> None:
        """`settings` apply to servers without their own settings.

        `kinds` are the lists to keep of every server. If `for_client`, the default connections are
        used through their clients, which declare the capabilities that `callbacks` implement.
        `auth_storage` contains the logins; by default it is the user's own storage.
        """
        self.settings = settings or UpstreamSettings()
        self.starts = StartLimiter(max_starts)  # shared by all processes
        self._memory = memory or ServerMemory()
        self.events = StatusReporter()
        self._change_listeners: list[ChangeListener] = []
        self._entry_listeners: list[Callable[[MCPServerEntry], None]] = []
        self._new_upstream = partial(
            Upstream,
            starts=self.starts,
            kinds=tuple(kinds),
            for_client=for_client,
            config=config,
            callbacks=callbacks,
            changed=self._changed,
            told=self.events.report_notification,
            resolved=self._resolved,
            auth_storage=auth_storage,
        )
        self._upstreams: dict[str, Upstream] = {}

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._upstreams)

    def __len__(self) -> int:
        return len(self._upstreams)

    def connected(self) -> list[str]:
        """Return the names of the servers that are connected now."""
        return sorted(name for name, one in self._upstreams.items() if one.status == "connected")

    def add(self, name: str, spec: ServerSpec, *, lazy: bool = False) -> Upstream:
        """Add a server; call its `start` to connect it."""
        upstream = self._new_upstream(name, spec, self.settings, lazy=lazy or spec.entry.lazy)
        self._upstreams[name] = upstream
        upstream.pool.recall(self._memory.load(spec.entry))
        upstream.pool.on_facts = partial(self._memory.save, spec.entry)
        return upstream

    def remove(self, names: Iterable[str]) -> "list[asyncio.Task[None]]":
        """Remove servers and return the tasks that close their connections."""
        known = [name for name in names if name in self._upstreams]
        removed = [self._upstreams.pop(name) for name in known]
        ends = [upstream.halt() for upstream in removed]
        if removed:
            # The event has a path only for a single server: several may come from different files.
            path = removed[0].spec.source.path if len(removed) == 1 else None
            self.events.report_disconnected(known, path)
        return ends

    async def close(self) -> None:
        """Close all servers."""
        ends = self.remove(list(self._upstreams))
        if ends:
            await asyncio.wait(ends, timeout=END_LIMIT)

    def add_status_listener(self, listener: StatusListener) -> Callable[[], None]:
        """Register a listener for status events; return a function that removes it."""
        return self.events.add_status(listener)

    def add_notification_listener(self, listener: NotificationListener) -> Callable[[], None]:
        """Register a listener for notifications (server, method, params); return its removal
        function.
        """
        return self.events.add_notification(listener)

    def add_change_listener(self, listener: ChangeListener) -> Callable[[], None]:
        """Register a listener for new states and lists of servers; return its removal function."""
        return added_listener(self._change_listeners, listener)

    def on_resolved(self, listener: Callable[[MCPServerEntry], None]) -> Callable[[], None]:
        """Register a listener for entries of new connections, called before the first message.

        The entries contain resolved secrets. Return a function that removes the listener.
        """
        return added_listener(self._entry_listeners, listener)

    def _changed(self, upstream: Upstream) -> None:
        if self._upstreams.get(upstream.name) is not upstream:
            return  # changes of removed servers are not reported
        # A copy, because a listener may remove itself while it is called.
        for listener in tuple(self._change_listeners):
            listener(upstream)
        path = upstream.spec.source.path
        self.events.report_state(upstream.name, upstream.state, upstream.error, path)

    def _resolved(self, entry: MCPServerEntry) -> None:
        for listener in tuple(self._entry_listeners):
            listener(entry)
