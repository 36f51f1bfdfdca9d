"""`fairlead list`: lists all servers configured on this machine, with their last known state."""

import shutil
import sys
import time
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...config.discovery import DiscoveredServers
from ...config.trust import Trust
from ...protocol.revisions import Revision
from ...upstream.memory.tool_cache import MCPToolCache
from ..framework.command_errors import UsageError, styled
from ..framework.describe_entry import source_of
from ..framework.output import as_json, brief_error, columns, pluralize, visible, write_styled
from ..framework.parser import ERA, JSON, PROJECT, Parser, flag, option, wait_option
from ..framework.server_lookup import every_server, require_project
from ..framework.suggested_commands import suggest

if TYPE_CHECKING:
    from .server_check import ServerCheck

__all__ = ["run"]

Row = dict[str, Any]
Checks = dict[str, "ServerCheck"]


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "list",
        "List the MCP servers that are configured on this machine, with the number of tools and "
        "the protocol revision of their last connection. No server is started unless --connect is "
        "given; servers in project files are then started only if they are approved.",
        flag("--connect", help="connect to all servers at the same time, and show their state"),
        # Accepted for compatibility; it became the default when --connect was added.
        option("--no-connect", action="store_true", help=SUPPRESS),
        wait_option("limit for --connect, including the time to stop servers", 10),
        ERA,
        JSON,
        PROJECT,
        examples="  fairlead list\n  fairlead list --connect\n  fairlead list --json | jq",
    ).parse_args(argv)
    require_project(options)
    if not options.connect and (options.timeout is not None or options.era != "auto"):
        raise UsageError("--timeout and --era require --connect")
    found, trust = every_server(options.project), Trust()
    checks = _connect(options, found, trust) if options.connect else {}
    rows = _rows(found, trust, checks)
    problems = [str(problem) for problem in found.warnings]
    if not as_json(options, {"servers": rows, "problems": problems}):
        _show(rows, found)
    return 0


def _connect(options: Namespace, found: DiscoveredServers, trust: Trust) -> Checks:
    """Connect to the approved servers and return the outcomes by name."""
    # Imported here, because listing alone needs neither a client nor an event loop.
    from ..framework.client_connection import run_async, silence_warnings
    from .server_check import check_servers

    silence_warnings()
    approved = [one for _, one in sorted(found.found.items()) if trust.trusts(one)]
    checks: Checks = {}
    waiting = {one.name for one in approved}

    async def check() -> int:
        with _progress(lambda: _rows(found, trust, checks, waiting)) as draw:

            def done(checkup: "ServerCheck") -> None:
                checks[checkup.found.name] = checkup
                draw()

            await check_servers(approved, seconds=options.timeout, era=options.era, done=done)
        return 0

    run_async(check())
    return checks


def _rows(
    found: DiscoveredServers, trust: Trust, checks: Checks, waiting: Sequence[str] | set[str] = ()
) -> list[Row]:
    """Return a row for every name, including disabled servers and duplicate names."""
    rows = []
    cache = MCPToolCache()
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
        elif name in checks:
            row |= _state(checks[name])
        elif name in waiting:
            row["status"] = "connecting"
        elif (last := cache.last(name, one.entry)) is not None:
            row["lastStatus"] = "failed" if last.tools is None else "connected"
            row["lastSeen"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(last.saved))
            row |= {} if last.tools is None else {"tools": len(last.tools)}
            row |= _protocol(last.protocol_version)
        rows.append(row)
    return rows


def _state(checkup: "ServerCheck") -> Row:
    """Return the row members for a server that was connected or could not be reached."""
    failed = checkup.failed
    row: Row = {"status": "connected" if failed is None else "failed"}
    if version := checkup.facts.get("protocolVersion"):
        row |= _protocol(version)
        row["tools"] = checkup.facts.get("tools", 0)
        [took] = [step.seconds for step in checkup.steps if step.name == "connect"]
        row["latency_ms"] = round(took * 1000)
        if failed is not None:
            row["status"] = "tools unavailable"
    if failed is not None:
        row |= {"error": "\n".join((failed.sentence, *failed.details)), "hint": failed.hint}
    return row


def _protocol(version: str) -> Row:
    if not version:
        return {}
    era = "stateless" if Revision(version).stateless else "handshake"
    return {"protocolVersion": version, "era": era}


@contextmanager
def _progress(rows: Callable[[], list[Row]]) -> Iterator[Callable[[], None]]:
    """Yield a function that displays the table while it fills; the table is erased at the end.

    If stderr is not a terminal, nothing is displayed.
    """
    if not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield lambda: None
        return
    drawn = 0

    def draw(lines: Sequence[str]) -> None:
        nonlocal drawn
        width = shutil.get_terminal_size().columns
        fresh = "".join(f"{line[:width]}\n" for line in lines)
        # Move up over the lines that were drawn before.
        sys.stderr.write("\x1b[1A\x1b[2K" * drawn + fresh)
        sys.stderr.flush()
        drawn = len(lines)

    def draw_rows() -> None:
        draw(columns([[text for text, _ in row] for row in _table(rows())]))

    draw_rows()
    try:
        yield draw_rows
    finally:
        draw([])


def _show(rows: list[Row], found: DiscoveredServers) -> None:
    if not rows:
        write_styled(f"No servers are configured; add one with {suggest('mcp', 'add')}.")
    for line in columns(_table(rows)):
        write_styled(line)
    for row in rows:
        if row.get("error"):
            text = f"{visible(row['name'])}: {brief_error(row['error'])}"
            write_styled(styled(text, "31"))
            if row["hint"]:
                write_styled(f"  {styled('→', '36')} {row['hint']}")
    for problem in found.warnings:
        write_styled(styled(visible(str(problem)), "33"))
    well = ("connected", "configured", "disabled", "duplicate")
    if any(row["status"] not in well or row.get("lastStatus") == "failed" for row in rows):
        write_styled(styled(f"Run {suggest('doctor')} for suggested fixes.", "2"))


def _table(rows: list[Row]) -> list[list[tuple[str, str]]]:
    """Return the text and colour of each cell."""
    return [
        [
            (row["name"], "1"),
            _status(row),
            (row["transport"], "2"),
            (f"{row.get('protocolVersion') or ''} {row.get('era') or ''}".strip(), "2"),
            (pluralize(row["tools"], "tool") if "tools" in row else "", ""),
            (f"{row['latency_ms']} ms" if "latency_ms" in row else "", "2"),
            (source_of(row["source"], row["level"]), "2"),
        ]
        for row in rows
    ]


def _status(row: Row) -> tuple[str, str]:
    if "sameServerAs" in row:
        return f"same as {row['sameServerAs']}", "2"
    if row.get("lastStatus") == "failed":
        return f"{row['status']}, failed last time", "33"
    return row["status"], _COLOURS.get(row["status"], "31")


_COLOURS = {
    "connected": "32",
    "configured": "",
    "not approved": "33",
    "disabled": "2",
    "connecting": "2",
}
