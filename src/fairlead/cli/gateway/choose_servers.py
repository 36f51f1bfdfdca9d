"""Selection of a gateway's servers, without unapproved entries and the gateway itself."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from ...client.server_entry import MCPStdioServerConfig
from ...config.configured_servers import configured_servers
from ...config.discovery import DiscoveredServers, load_all_mcp_configs
from ...config.found_server import FoundServer, Source
from ...config.server_spec import ServerSpec
from ...config.trust import Trust
from ...config.variables.variable_syntax import VariableScope, substitute
from ...errors import ConfigError
from ...gateway.gateway_file import GatewayFile, read_gateway_file
from ..framework.output import visible
from ..framework.suggested_commands import suggest_any

__all__ = [
    "ChosenServers",
    "OwnAddress",
    "ReadServers",
    "SkippedServer",
    "demo_servers",
    "discovered_servers",
    "servers_of_file",
]

_DEMO = Source(provider="demo", provider_name="Fairlead's demo")


class SkippedServer(Struct, frozen=True):
    """A configured server that the gateway skips."""

    name: str
    reason: str
    hint: str = ""


class ChosenServers(Struct, frozen=True, kw_only=True):
    """The servers selected by a gateway's files, and the problems in these files."""

    servers: Mapping[str, list[ServerSpec]]
    left_out: Sequence[SkippedServer] = ()
    problems: Sequence[str] = ()
    files: Sequence[str] = ()  # files to watch, including missing files that may be created later
    broken: frozenset[str] = frozenset()  # files that could not be read
    demo: bool = False
    file: GatewayFile | None = None  # the gateway file


ReadServers = Callable[[], ChosenServers]


class OwnAddress(Struct, frozen=True):
    """The gateway's own address, which must not become one of its servers."""

    host: str = ""
    port: int = 0
    unix: str | None = None

    def is_in(self, found: FoundServer) -> bool:
        """Return True if an entry's URL, or an argument of its command, is this address."""
        entry = found.entry
        texts = (
            [entry.command, *entry.args] if isinstance(entry, MCPStdioServerConfig) else [entry.url]
        )
        scope = VariableScope(env=os.environ, home=found.home, workspace=found.workspace)
        return any(self._is(_filled(text, found.dialect, scope)) for text in texts)

    def _is(self, text: str) -> bool:
        try:
            parts = urlsplit(text)
            port = parts.port or {"https": 443, "wss": 443}.get(parts.scheme, 80)
        except ValueError:
            return False
        if parts.scheme == "unix":
            return self.unix is not None and os.path.realpath(parts.path) == self.unix
        if parts.scheme not in ("http", "https", "ws", "wss") or self.unix is not None:
            return False
        host = parts.hostname or ""
        return port == self.port and (host == self.host or _is_here(host))


def discovered_servers(
    project: str, address: OwnAddress, inputs: Mapping[str, str], *, or_demo: bool = False
) -> ChosenServers:
    """Return the approved servers configured on this machine,
    or the demo servers if there are none.
    """
    found = load_all_mcp_configs(project, filter_exa=False)
    trust = Trust()
    usable: dict[str, FoundServer] = {}
    left_out: list[SkippedServer] = []
    for name, one in sorted(found.found.items()):
        if address.is_in(one):
            left_out.append(SkippedServer(name, f"the entry is this gateway ({one.place})"))
        # `#` separates a server's name from the replica number.
        elif "#" in name:
            left_out.append(SkippedServer(name, f"the name contains # ({one.place})"))
        elif not trust.trusts(one):
            hint = suggest_any("fairlead", "mcp", "approve", operands=[name])
            left_out.append(SkippedServer(name, f"{one.place} {trust.rejection_reason(one)}", hint))
        else:
            usable[name] = one
    # Each entry keeps its own input defaults: a file must not set values for other files' entries.
    ready = configured_servers(DiscoveredServers(found=usable), trust=trust, inputs=inputs)
    return ChosenServers(
        servers={name: [one] for name, one in ready.items()} or (demo_servers() if or_demo else {}),
        left_out=left_out,
        problems=[visible(str(problem)) for problem in found.warnings],
        files=[*found.looked_for, str(trust.path)],
        broken=frozenset(found.unreadable),
        demo=or_demo and not ready,
    )


def servers_of_file(
    path: str, project: str, address: OwnAddress, inputs: Mapping[str, str]
) -> ChosenServers:
    """Return the servers of a gateway file and of the files it includes. Raises `ConfigError`."""
    file = read_gateway_file(path)
    if not file.discovered:
        return ChosenServers(
            servers=file.servers, problems=file.warnings, files=[file.path], file=file
        )
    more = discovered_servers(project, address, inputs)
    return ChosenServers(
        servers={**more.servers, **file.servers},
        left_out=[one for one in more.left_out if one.name not in file.servers],
        problems=[*file.warnings, *more.problems],
        files=[file.path, *more.files],
        broken=more.broken,
        file=file,
    )


def demo_servers() -> dict[str, list[ServerSpec]]:
    """Return two demo servers, one for each protocol era."""
    commands = {
        "harbour": ["-m", "fairlead.demo.harbour"],
        "notebook": ["-m", "fairlead.demo", "stateless"],
    }
    return {
        name: [
            ServerSpec(
                entry=MCPStdioServerConfig(command=sys.executable, args=args),
                source=_DEMO,
                digest=f"demo {name}",
            )
        ]
        for name, args in commands.items()
    }


def _filled(text: str, dialect: str, scope: VariableScope) -> str:
    try:
        return substitute(text, dialect, scope)
    except ConfigError:
        return text


def _is_here(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified
