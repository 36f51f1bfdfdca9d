"""Reloading of a gateway's servers when its files change."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import structs

from ...config.server_spec import ServerSpec
from ...errors import ConfigError
from ...gateway import Gateway
from ...gateway.clients.admission import ClientAccess
from ...gateway.gateway_file import GatewayFile
from ...manager.config_watch import follow_files
from .choose_servers import ChosenServers, ReadServers

__all__ = ["GatewayReloader"]

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
        admission: ClientAccess | None = None,
    ) -> None:
        """Create a reloader for a gateway.

        `changed` is called with the new servers, `failed` with the reason why files could not be
        read.
        """
        self._admission = admission
        self._gateway = gateway
        self._read = read
        self._changed = changed
        self._failed = failed
        self._have: dict[str, list[ServerSpec]] = {}
        self._fixed: dict[str, Any] | None = None  # settings that apply only at the start
        self._applying = asyncio.Lock()
        gateway.reload = self.reload

    async def apply(self, now: ChosenServers) -> bool:
        """Connect new servers and disconnect removed ones; return True if anything changed.

        Servers of a file that cannot be read, perhaps because it is being written, are kept.

        Raises:
            ConfigError: A change needs a restart of the gateway; nothing is changed.
        """
        async with self._applying:
            admitted = False
            if self._admission is not None and now.file is not None:
                # Clients are updated first: a rejected file must leave the servers unchanged.
                admitted = await self._admission.follow(now.file, self._gateway)
            self._check_fixed(now.file)
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
            if now.file is not None:
                self._gateway.upstreams.settings = now.file.settings.relay
            kept = [name for name in have if name not in new and name in wanted]
            self._gateway.update_settings({name: list(wanted[name]) for name in kept})
            await asyncio.gather(*(self._gateway.disconnect(name) for name in gone))
            if new:
                await self._gateway.connect({name: [*entries] for name, entries in new.items()})
            self._gateway.arrange(wanted)
            return bool(gone or new or admitted)

    def _check_fixed(self, file: GatewayFile | None) -> None:
        """Report changed settings that a running gateway does not apply."""
        if file is None:
            return
        fixed = {**structs.asdict(file.settings), **structs.asdict(file)}
        for name in _FOLLOWED:
            del fixed[name]
        before, self._fixed = self._fixed, fixed
        changed = [name for name in fixed if before is not None and fixed[name] != before[name]]
        if changed:
            names = ", ".join("path" if name == "endpoint" else name for name in sorted(changed))
            self._failed(f"restart the gateway to apply {names} of {file.path}")

    async def reload(self) -> None:
        """Read the files now. Raises `ConfigError`."""
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


# Members of a file and its settings that are applied while the gateway runs, or that are no
# settings.
_FOLLOWED = (
    *("path", "settings", "servers", "named_views", "clients", "token", "discovered", "warnings"),
    *("view", "relay"),
)


def _digests(entries: Iterable[ServerSpec]) -> list[str]:
    return [one.digest for one in entries]
