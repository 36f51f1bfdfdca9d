"""Discovery and connection of all configured servers, in one step."""

import logging
import os
from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..client.callbacks import Callbacks, client_keywords
from ..config.configured_servers import configured_servers, load_configured
from ..config.server_spec import ServerSpec
from ..config.trust import Trust
from ..keyword_arguments import require_known
from .tools.tool import MCPTool

__all__ = [
    "MANAGER_OPTIONS",
    "ConnectReport",
    "ServerConnector",
    "Startup",
    "check_discovery_options",
    "connect_configured",
]

log = logging.getLogger("fairlead.manager")

# keyword arguments of `MCPManager` that are not callbacks
MANAGER_OPTIONS = (
    "cwd",
    "startup",
    "lazy",
    "cache",
    "rules",
    "config",
    "max_starts",
    "auth_storage",
)
_FILE_OPTIONS = ("enable_project_config", "filter_exa", "filters", "trust", "inputs", "loading")

Startup: TypeAlias = Literal["wait", "background"]


class ConnectReport(Struct, frozen=True, kw_only=True):
    """The servers and errors at the time when the connecting function returned."""

    tools: list[MCPTool]
    errors: list[dict[str, str]]  # each {"path": ..., "error": ...}
    connected_servers: list[str]


class ServerConnector(Protocol):
    """The methods of a manager that are needed to connect servers."""

    async def connect_servers(
        self, configs: Mapping[str, ServerSpec], /, *, startup: Startup | None = None
    ) -> ConnectReport: ...


def check_discovery_options(given: Mapping[str, Any], *others: str) -> None:
    """Check the keyword arguments of a function that discovers servers and also accepts `others`.

    Raises:
        TypeError: A name is unknown; the message contains the closest known name.
    """
    known = (*Callbacks.__annotations__, *_FILE_OPTIONS, *MANAGER_OPTIONS, *others)
    require_known(given, known, client_keywords)


async def connect_configured(
    manager: ServerConnector,
    cwd: str | os.PathLike[str] | None,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[ConnectReport, list[str]]:
    """Find all configured servers and connect them. Never raises.

    Return a report and the Exa API keys that were found. Accepts the options of
    `discover_and_load_mcp_tools` and ignores those that do not affect files.
    """
    try:
        found = load_configured(cwd, **options)
    except Exception as exc:  # a malformed file must not raise here
        log.exception("the configured servers could not be found; none of them is connected")
        errors = [{"path": ".mcp.json", "error": str(exc)}]
        return ConnectReport(tools=[], errors=errors, connected_servers=[]), []
    for warning in found.warnings:
        log.warning("%s", warning)
    report = await manager.connect_servers(configured_servers(found, trust=trust, inputs=inputs))
    errors = [*({"path": w.path, "error": str(w)} for w in found.warnings), *report.errors]
    return replace(report, errors=errors), found.exa_api_keys
