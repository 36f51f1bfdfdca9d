"""Configured servers, converted to the specifications with which a manager connects to them."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ..errors import ConfigError
from ..suggestions import close_matches, did_you_mean
from ..transport.address_hint import shown_url, url_of_address
from .discovery import UNUSED, DiscoveredServers, load_all_mcp_configs
from .found_server import FoundServer
from .server_filters import ServerFilter
from .server_spec import ServerSpec
from .trust import Trust
from .variables.resolve import resolve_in_thread

__all__ = ["configured_entry", "configured_servers", "headers_renewal", "load_configured"]

log = logging.getLogger("fairlead.manager")


def load_configured(
    cwd: str | os.PathLike[str] | None,
    *,
    enable_project_config: bool = True,
    filter_exa: bool = True,
    filters: Sequence[ServerFilter] = (),
    loading: Mapping[str, Any] | None = None,
    **_: Any,
) -> DiscoveredServers:
    """Discover servers with the file options of `discover_and_load_mcp_tools`;
    ignore its other options.
    """
    return load_all_mcp_configs(
        cwd,
        enable_project_config=enable_project_config,
        filter_exa=filter_exa,
        filters=filters,
        **(loading or {}),
    )


def configured_servers(
    found: DiscoveredServers, *, trust: Trust | None = None, inputs: Mapping[str, str] | None = None
) -> dict[str, ServerSpec]:
    """Return specifications of the discovered servers;
    their values are resolved on each connection.
    """
    approvals = trust or Trust()
    return {name: _configured(one, approvals, inputs) for name, one in found.found.items()}


async def configured_entry(
    name: str,
    cwd: str | os.PathLike[str] | None = None,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
) -> MCPServerEntry:
    """Return a configured server's entry with its variables resolved.

    Raises:
        NotApproved: The entry comes from a project file and is not approved.
        ConfigError: The name is unknown or disabled, or the entry is invalid.
    """
    found = await asyncio.to_thread(load_all_mcp_configs, cwd, filter_exa=False)
    name = found.duplicates.get(name, name)
    if name in found.disabled:
        [(_, why), *_] = found.places[name]
        raise ConfigError(f"server {name!r} is disabled: {why.removeprefix(UNUSED)}")
    if name not in found.found:
        raise ConfigError(_unknown(name, found))
    return await _resolve(found.found[name], trust or Trust(), inputs)


def _unknown(name: str, found: DiscoveredServers) -> str:
    if (url := url_of_address(name)) is not None:
        url = shown_url(url)
        return (
            f"unknown server {url.partition('://')[2]!r}\n"
            f"  hint: an address needs its scheme: {url}"
        )
    question = did_you_mean(close_matches(name, found.places))
    return (
        f"unknown server {name!r}: {question or 'it is not in any configuration file'}\n"
        "  hint: `fairlead list` shows the configured servers; to start a program, pass a list, "
        f"for example [{name!r}]"
    )


async def _resolve(
    one: FoundServer, trust: Trust, inputs: Mapping[str, str] | None
) -> MCPServerEntry:
    """Return the entry with its variables resolved, and log warnings."""
    resolved = await resolve_in_thread(one, trust=trust, inputs=inputs)
    for warning in resolved.warnings:
        log.warning("%s: %s", one.name, warning)
    return resolved.entry


def headers_renewal(
    one: FoundServer, *, trust: Trust | None = None, inputs: Mapping[str, str] | None = None
) -> Callable[[], Awaitable[Mapping[str, str]]] | None:
    """Return a function that runs the server's `headersHelper` again; None if it has none."""
    if one.headers_helper is None or isinstance(one.entry, MCPStdioServerConfig):
        return None

    async def renew() -> Mapping[str, str]:
        entry = await _resolve(one, trust or Trust(), inputs)
        return {} if isinstance(entry, MCPStdioServerConfig) else entry.headers

    return renew


def _configured(one: FoundServer, trust: Trust, inputs: Mapping[str, str] | None) -> ServerSpec:
    return ServerSpec(
        entry=one.entry,
        resolve=partial(_resolve, one, trust, inputs),
        renew_headers=headers_renewal(one, trust=trust, inputs=inputs),
        source=one.source,
        only_tools=one.only_tools,
        without_tools=one.without_tools,
        startup_timeout=one.startup_timeout,
        digest=one.digest,
        settings=one.settings,
    )
