"""Reloading a gateway's servers when its files change."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from ...config.server_spec import ServerSpec
from ...config.stored_logins import login_folder
from ...errors import ConfigError, FairleadError, LoginRequired
from ...gateway import Gateway
from ...gateway.clients.admission import ClientAccess
from ...gateway.gateway_file import GatewayFile
from ...manager.config_watch import follow_files
from ...transport.stdio.child_environment import withhold
from ...upstream.upstream import Upstream
from ...upstream.upstream_registry import UpstreamRegistry
from .choose_servers import ChosenServers, ReadServers

__all__ = ["GatewayReloader", "follow_logins"]

INTERVAL = 0.5  # seconds between checks of the files


class GatewayReloader:
    """A reloader that updates the servers of a gateway when its configuration files change."""

    def __init__(
        self,
        gateway: Gateway,
        read: ReadServers,
        *,
        changed: Callable[[ChosenServers], None],
        failed: Callable[[str], None],
        warned: Callable[[str], None],
        admission: ClientAccess | None = None,
    ) -> None:
        """Create a reloader for a gateway.

        `changed` is called with all servers after a change was applied, `failed` with the reason if
        a change cannot be applied or requires a restart, and `warned` with each new problem in
        changed files. `admission` applies changes of the access of clients.
        """
        self._admission = admission
        self._gateway = gateway
        self._read = read
        self._changed = changed
        self._failed = failed
        self._warned = warned
        self._problems: Sequence[str] | None = None  # None before the first files are applied
        self._have: dict[str, list[ServerSpec]] = {}
        self._fixed: dict[str, Any] | None = None  # settings that are applied only at start-up
        self._applying = asyncio.Lock()
        gateway.reload = self.reload

    async def apply(self, now: ChosenServers) -> bool:
        """Connect new servers and disconnect removed ones; return True if anything changed.

        If a file cannot be read, perhaps because it is being written, its servers are kept.

        Raises:
            ConfigError: A change requires a restart of the gateway; no server is changed.
        """
        async with self._applying:
            admitted = False
            if now.file is not None:
                withhold(now.file.secrets)  # before servers are started
            if self._admission is not None and now.file is not None:
                # Clients are updated first: a rejected file must leave the servers unchanged.
                admitted = await self._admission.follow(now.file, self._gateway)
            self._check_fixed(now.file)
            self._report_problems(now.problems)
            wanted, have = now.servers, self._have
            gone = [
                name
                for name, old in have.items()
                if not any(one.source.path in now.broken for one in old)
                and _digests(wanted.get(name, ())) != _digests(old)
            ]
            new = {name: list(wanted[name]) for name in wanted if name in gone or name not in have}
            for name in gone:
                del have[name]
            have.update(new)
            kept = [name for name in have if name not in new and name in wanted]
            relay = (self._gateway if now.file is None else now.file).settings.relay
            self._gateway.update_settings(relay, {name: list(wanted[name]) for name in kept})
            await asyncio.gather(*(self._gateway.disconnect(name) for name in gone))
            if new:
                await self._gateway.connect({name: [*entries] for name, entries in new.items()})
            self._gateway.arrange(wanted)
            return bool(gone or new or admitted)

    def _report_problems(self, now: Sequence[str]) -> None:
        """Report new problems; the program reports the problems of the first files itself."""
        before, self._problems = self._problems, now
        for problem in now:
            if before is not None and problem not in before:
                self._warned(problem)

    def _check_fixed(self, file: GatewayFile | None) -> None:
        """Report changed settings that the gateway applies only after a restart."""
        if file is None:
            return
        fixed = {**structs.asdict(file.settings), **structs.asdict(file)}
        known = None if self._fixed is None else self._fixed["public_url"]
        # Without a section `[auth]`, the URL is not used.
        fixed["public_url"] = known if file.auth is None else file.auth.public_url
        for name in _FOLLOWED:
            del fixed[name]
        before, self._fixed = self._fixed, fixed
        changed = [name for name in fixed if before is not None and fixed[name] != before[name]]
        if changed:
            names = ", ".join("path" if name == "endpoint" else name for name in sorted(changed))
            self._failed(f"restart the gateway to apply {names} of {file.path}")

    async def reload(self) -> None:
        """Read the files immediately. Raises `ConfigError`."""
        wanted = await asyncio.to_thread(self._read)
        if await self.apply(wanted):
            self._changed(wanted)

    async def follow(self, files: Sequence[str]) -> None:
        """Watch the files, and the files that they refer to, until cancelled."""
        await follow_files(files, self._look, INTERVAL)

    async def _look(self, files: Sequence[str]) -> Sequence[str]:
        try:
            wanted = await asyncio.to_thread(self._read)
            files = wanted.files
            if await self.apply(wanted):
                self._changed(wanted)
        except ConfigError as exc:
            self._failed(str(exc))
        return files


async def follow_logins(upstreams: UpstreamRegistry) -> None:
    """Connect servers that require a login once one is stored, until cancelled."""

    async def look(files: Sequence[str]) -> Sequence[str]:
        waiting = [one for one in upstreams.values() if isinstance(one.error, LoginRequired)]
        await asyncio.gather(*(_reconnect(one) for one in waiting))
        return files

    # Logins are replaced atomically, so their folder changes as well.
    await follow_files([login_folder()], look, INTERVAL)


async def _reconnect(upstream: Upstream) -> None:
    with suppress(FairleadError):
        await upstream.reconnect()


# Members of the file that are applied while the gateway runs, or that are not settings.
_FOLLOWED = (
    *("path", "settings", "servers", "named_views", "clients", "token", "discovered", "warnings"),
    *("view", "relay", "auth"),
)


def _digests(entries: Iterable[ServerSpec]) -> list[str]:
    return [one.digest for one in entries]
