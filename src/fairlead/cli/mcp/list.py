"""`fairlead list`: all servers configured on this machine, and their state."""

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...config.configured_servers import configured_servers
from ...config.discovery import DiscoveredServers
from ...config.trust import Trust
from ...manager.manager import MCPManager
from ...protocol.revisions import Revision
from ...redaction.redact_text import redact
from ...upstream.memory.tool_cache import MCPToolCache
from ...upstream.status_events import StatusEvent
from ...upstream.upstream import Upstream
from ..framework.client_connection import run_async, silence_warnings
from ..framework.command_errors import styled
from ..framework.describe_entry import source_of
from ..framework.output import as_json, columns, first_line, pluralize, visible, write_styled
from ..framework.parser import JSON, PROJECT, Parser, flag
from ..framework.server_lookup import every_server, require_project

__all__ = ["run"]

Row = dict[str, Any]


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "list",
        "List the MCP servers that are configured on this machine, connect to each, and show its "
        "state. Servers of project files are started only if they are approved.",
        flag("--no-connect", help="only read the files"),
        JSON,
        PROJECT,
        examples="  fairlead list\n  fairlead list --no-connect\n  fairlead list --json | jq",
    ).parse_args(argv)
    require_project(options)
    silence_warnings()
    return run_async(_list(options))


async def _list(options: Namespace) -> int:
    found = every_server(options.project)
    trust = Trust()
    if options.no_connect:
        rows = _rows(found, None, trust)
    else:
        async with MCPManager(options.project, cache=MCPToolCache()) as manager:
            with _progress(manager, lambda: _rows(found, manager, trust)):
                approved = configured_servers(found, trust=trust)
                await manager.connect_servers(approved)
                await manager.settled()
            rows = _rows(found, manager, trust)
    problems = [str(problem) for problem in found.warnings]
    if not as_json(options, {"servers": rows, "problems": problems}):
        _show(rows, found)
    return 0


def _rows(found: DiscoveredServers, manager: MCPManager | None, trust: Trust) -> list[Row]:
    """Return a row for every name, including disabled servers and duplicates."""
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


def _add_state(row: Row, server: Upstream | None, before: Sequence[Any] | None) -> None:
    """Add the state of a connecting or connected server to its row. `before` are cached tools."""
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
def _progress(manager: MCPManager, rows: Callable[[], list[Row]]) -> Iterator[None]:
    """Show the table while it fills, and erase it at the end; only on a terminal."""
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield
        return
    drawn = 0

    def draw(lines: list[str]) -> None:
        nonlocal drawn
        width = shutil.get_terminal_size().columns
        fresh = "".join(f"{line[:width]}\n" for line in lines)
        sys.stderr.write("\x1b[1A\x1b[2K" * drawn + fresh)  # move up over the lines drawn before
        sys.stderr.flush()
        drawn = len(lines)

    def changed(event: StatusEvent) -> None:
        draw(columns([[text for text, _ in row] for row in _table(rows())]))

    unsubscribe = manager.add_status_listener(changed)
    try:
        yield
    finally:
        # Closing the manager changes the states of servers, and the table must not show these
        # changes.
        unsubscribe()
        draw([])


def _show(rows: list[Row], found: DiscoveredServers) -> None:
    if not rows:
        write_styled("No servers are configured; add one with `fairlead mcp add`.")
    for line in columns(_table(rows)):
        write_styled(line)
    for row in rows:
        if row.get("error"):
            text = f"{visible(row['name'])}: {first_line(row['error'])}"
            write_styled(styled(text, "31"))
    for problem in found.warnings:
        write_styled(styled(visible(str(problem)), "33"))
    well = ("connected", "configured", "idle", "disabled", "duplicate")
    if any(row["status"] not in well for row in rows):
        write_styled(styled("Run `fairlead doctor` for suggested fixes.", "2"))


def _table(rows: list[Row]) -> list[list[tuple[str, str]]]:
    """Return the text and colour of each cell."""
    return [
        [
            (row["name"], "1"),
            (f"same as {row['sameServerAs']}", "2")
            if "sameServerAs" in row
            else (row["status"], _COLOURS.get(row["status"], "31")),
            (row["transport"], "2"),
            (f"{row.get('protocolVersion') or ''} {row.get('era') or ''}".strip(), "2"),
            (pluralize(row["tools"], "tool") if "tools" in row else "", ""),
            (f"{row['latency_ms']} ms" if "latency_ms" in row else "", "2"),
            (source_of(row["source"], row["level"]), "2"),
        ]
        for row in rows
    ]


_COLOURS = {
    "connected": "32",
    "configured": "",
    "idle": "36",
    "not approved": "33",
    "disabled": "2",
    "connecting": "2",
}
