"""`fairlead list`: every server that some program on this machine has configured, and how it is."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ..manager.cache import MCPToolCache
from ..manager.discovering import configured
from ..manager.load import Loaded, load_all_mcp_configs
from ..manager.manager import MCPManager
from ..manager.supervisor import Supervisor
from ..manager.trust import Trust
from .connection import run_async
from .output import pretty, safe, write
from .usage import Parser

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    parser = Parser(
        "list",
        "List the MCP servers that programs on this machine have configured, connect to each, and "
        "say how it is. Servers of project files are not started before they are approved.",
        usage="[options]",
        examples="  fairlead list\n  fairlead list --no-connect\n  fairlead list --json | jq",
    )
    parser.add_argument("--no-connect", action="store_true", help="only read the files")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--project", metavar="FOLDER", default=os.curdir, help="whose project files count, too"
    )
    options = parser.parse_args(argv)
    return run_async(_list(options))


async def _list(options: Namespace) -> int:
    found = load_all_mcp_configs(options.project)
    trust = Trust()
    rows = []
    if options.no_connect:
        rows = [_row(found, name, None, trust) for name in sorted(found.found)]
    else:
        async with MCPManager(options.project, cache=MCPToolCache()) as manager:
            with _progress(len(found.found)):
                await manager.connect_servers(configured(found, trust=trust))
                await manager.settled()
            servers = manager.describe()
            rows = [_row(found, name, servers.get(name), trust) for name in sorted(found.found)]
    if options.json:
        problems = [str(problem) for problem in found.warnings]
        write(pretty({"servers": rows, "problems": problems}))
    else:
        _show(rows, found)
    return 0


def _row(found: Loaded, name: str, server: Supervisor | None, trust: Trust) -> dict[str, Any]:
    one = found.found[name]
    row: dict[str, Any] = {
        "name": name,
        "source": one.host_title,
        "level": one.level,
        "path": one.place,
        "transport": one.entry.type,
        "status": "configured" if trust.trusts(one) else "not approved",
    }
    if server is None:
        return row
    if server.state == "connected" and server.client is not None:
        row["status"] = "connected" if server.tools_error is None else "tools unavailable"
        row["protocolVersion"] = server.client.protocol_version
        row["tools"] = len(server.tools or ())
        row["latency_ms"] = round((server.latency or 0) * 1000)
        if server.tools_error is not None:
            row["error"] = str(server.tools_error)
    elif row["status"] != "not approved":
        row["status"] = server.state
        row["error"] = str(server.error or "")
    return row


def _progress(count: int) -> Any:
    """Something that moves while servers start, for a person who waits."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"connecting to {count} servers")


def _show(rows: list[dict[str, Any]], found: Loaded) -> None:
    from rich.table import Table
    from rich.text import Text

    from .rendering import Page

    page = Page()
    if not rows:
        page.print("No servers are configured.")
    else:
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(
                Text(safe(row["name"]), "bold"),
                _status(row),
                Text(row["transport"], "dim"),
                Text(str(row.get("protocolVersion", "")), "dim"),
                Text(f"{row['tools']} tools" if "tools" in row else ""),
                Text(f"{row['latency_ms']} ms" if "latency_ms" in row else "", "dim"),
                Text(f"{row['source']} ({row['level']})", "dim"),
            )
        page.print(table)
        for row in rows:
            if row.get("error"):
                first = safe(row["error"]).strip().partition("\n")[0]
                page.print(Text(f"{safe(row['name'])}: {first}", "red"))
    for problem in found.warnings:
        page.print(Text(safe(str(problem)), "yellow"))


def _status(row: dict[str, Any]) -> "Text":
    from rich.text import Text

    colours = {"connected": "green", "configured": "", "idle": "cyan", "not approved": "yellow"}
    return Text(row["status"], colours.get(row["status"], "red"))
