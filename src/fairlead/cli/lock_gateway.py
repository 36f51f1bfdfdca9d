"""The tools of a gateway's servers, as the servers themselves list them."""

import os
from collections.abc import Collection
from typing import Any

from ..errors import ConfigError, FairleadError
from ..manager.manager import MCPManager
from .connection import be_quiet
from .failed import USAGE, Failed
from .gateway_servers import Address, of_file
from .output import safe

__all__ = ["gateway_tools", "lock_of"]


def lock_of(path: str) -> str | None:
    """The lock file that a gateway's file names. Raises `Failed` for what is wrong with it."""
    try:
        return of_file(path, os.curdir, Address(), {})[0].lock
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc


async def gateway_tools(
    path: str, names: Collection[str]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, str]]:
    """The tools of the servers with these names, or of all; and why some did not answer.

    Raises:
        Failed: the file is wrong, or has no such server.
    """
    be_quiet()
    try:
        servers = of_file(path, os.curdir, Address(), {})[1].servers
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc
    if unknown := [name for name in names if name not in servers]:
        there = ", ".join(sorted(servers)) or "none"
        raise Failed(f"There is no server {unknown[0]!r} in {path}; there are {there}", code=USAGE)
    # Equal servers share a name; what one of them says is what all of them are.
    wanted = {name: several[0] for name, several in servers.items() if not names or name in names}
    tools: dict[str, list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    async with MCPManager(os.curdir, on_roots=None) as manager:
        await manager.connect_servers(wanted, startup="wait")
        for name in wanted:
            connection = manager.connections.get(name)
            supervisor = manager.describe().get(name)
            if connection is None:
                error = None if supervisor is None else supervisor.error
                failed[name] = safe(str(getattr(error, "summary", None) or error or "no answer"))
                continue
            try:
                tools[name] = [dict(tool) for tool in await connection.client.list_tools()]
            except FairleadError as exc:
                failed[name] = safe(str(exc))
    return {name: tools[name] for name in sorted(tools)}, failed
