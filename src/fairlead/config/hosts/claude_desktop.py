"""Claude Desktop; on Windows also as it is packaged for the Store."""

from collections.abc import Iterable

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, servers_at, user
from ..paths import HostPaths

__all__ = ["DESKTOP"]

_FILE = "claude_desktop_config.json"
_PACKAGE = "Claude_pzs8sxrjxfjjc"


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    paths = [machine.join(machine.app_support, "Claude", _FILE)]
    if machine.is_windows:
        cache = machine.join(machine.local_app_data, "Packages", _PACKAGE, "LocalCache")
        paths.append(machine.join(cache, "Roaming", "Claude", _FILE))
    return user(*paths)


DESKTOP = Host(
    id="claude-desktop",
    title="Claude Desktop",
    places=places,
    servers=servers_at("mcpServers"),
    dialect="literal",
)
