"""`fairlead list`: every server that some program on this machine has configured, and how it is."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..manager.cache import MCPToolCache
from ..manager.discovering import configured
from ..manager.load import Loaded
from ..manager.manager import MCPManager
from ..manager.supervisor import Supervisor
from ..manager.trust import Trust
from ..observe.redact import redact
from ..protocol.revisions import Revision
from .connection import be_quiet, run_async
from .described import source_of
from .failed import USAGE, Failed
from .named import every_server
from .output import counted, pretty, safe, visible, write
from .usage import Parser

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["run"]

Row = dict[str, Any]

_ONE_LINE = 10_000  # columns: what no terminal shows, a program such as `grep` looks for in lines


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
    if not os.path.isdir(options.project):
        raise Failed(f"There is no folder {visible(options.project)}", code=USAGE)
    be_quiet()
    return run_async(_list(options))


async def _list(options: Namespace) -> int:
    found = every_server(options.project)
    trust = Trust()
    if options.no_connect:
        rows = _rows(found, None, trust)
    else:
        async with MCPManager(options.project, cache=MCPToolCache()) as manager:
            with _progress(lambda: _rows(found, manager, trust)) as changed:
                manager.add_status_listener(lambda event: changed())
                approved = configured(found, trust=trust)
                await manager.connect_servers(approved)
                await manager.settled()
            rows = _rows(found, manager, trust)
    if options.json:
        problems = [str(problem) for problem in found.warnings]
        write(pretty({"servers": rows, "problems": problems}))
    else:
        _show(rows, found)
    return 0


def _rows(found: Loaded, manager: MCPManager | None, trust: Trust) -> list[Row]:
    """Every name, also those that are switched off or mean the server of another name."""
    servers = {} if manager is None else manager.describe()
    rows = []
    for name in sorted({*found.found, *found.disabled, *found.duplicates}):
        one = found.found.get(name) or found.places[name][0][0]
        row: Row = {
            "name": name,
            "source": one.host_title,
            "level": one.level,
            "path": one.place,
            "transport": one.entry.type,
            "status": "configured" if trust.trusts(one) else "not approved",
        }
        if name in found.disabled:
            row["status"] = "disabled"
        elif name in found.duplicates:
            row |= {"status": "duplicate", "sameServerAs": found.duplicates[name]}
        elif manager is not None and row["status"] != "not approved":
            _add_state(row, servers.get(name), manager.remembered(name))
        rows.append(row)
    return rows


def _add_state(row: Row, server: Supervisor | None, before: Sequence[Any] | None) -> None:
    """What is known about a server that is being connected, or was; `before` are its old tools."""
    if server is None:
        return
    if server.state == "connected" and server.client is not None:
        row["status"] = "connected" if server.tools_error is None else "tools unavailable"
        row["protocolVersion"] = version = server.client.protocol_version or ""
        row["era"] = "stateless" if Revision(version).stateless else "handshake"
        row["tools"] = len(server.tools or ())
        row["latency_ms"] = round((server.latency or 0) * 1000)
        if server.tools_error is not None:
            row["error"] = redact(str(server.tools_error))
        return
    row["status"] = server.state
    if server.state == "idle" and before is not None:
        row["tools"] = len(before)
    if server.error is not None:
        row["error"] = redact(str(server.error))


@contextmanager
def _progress(rows: Callable[[], list[Row]]) -> Iterator[Callable[[], None]]:
    """The table as it fills, for a person who waits; gone when everything is known."""
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, transient=True, get_renderable=lambda: _table(rows())) as live:
        yield live.refresh


def _show(rows: list[Row], found: Loaded) -> None:
    from rich.text import Text

    from .rendering import Page

    page = Page(width=_ONE_LINE)
    if not rows:
        page.print("No servers are configured. `fairlead mcp add` adds one.")
    else:
        page.print(_table(rows))
        for row in rows:
            if row.get("error"):
                first = safe(row["error"]).strip().partition("\n")[0]
                first = first.removesuffix(". Its last words on stderr:")
                page.print(Text(f"{visible(row['name'])}: {first}", "red"))
    for problem in found.warnings:
        page.print(Text(visible(str(problem)), "yellow"))
    well = ("connected", "configured", "idle", "disabled", "duplicate")
    if any(row["status"] not in well for row in rows):
        page.print(Text("`fairlead doctor` says what to do about it.", "dim"))


def _table(rows: list[Row]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        version, era = row.get("protocolVersion") or "", row.get("era") or ""
        table.add_row(
            Text(visible(row["name"]), "bold"),
            _status(row),
            Text(row["transport"], "dim"),
            Text(f"{visible(version)} {era}".strip(), "dim"),
            Text(counted(row["tools"], "tool") if "tools" in row else ""),
            Text(f"{row['latency_ms']} ms" if "latency_ms" in row else "", "dim"),
            Text(visible(source_of(row["source"], row["level"])), "dim"),
        )
    return table


def _status(row: Row) -> "Text":
    from rich.text import Text

    if "sameServerAs" in row:
        return Text(f"is {visible(row['sameServerAs'])}", "dim")
    quiet = dict.fromkeys(("disabled", "connecting"), "dim")
    colours = {"connected": "green", "configured": "", "idle": "cyan", "not approved": "yellow"}
    return Text(row["status"], (colours | quiet).get(row["status"], "red"))
