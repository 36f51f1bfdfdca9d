"""`fairlead doctor` and `fairlead mcp test`: step-by-step checks of servers, with remedies."""

import os
import platform
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...client.server_entry import MCPStdioServerConfig
from ...config.discovery import DiscoveredServers
from ...config.found_server import FoundServer
from ...config.paths import local_host_paths
from ...config.trust import Trust
from ..framework.client_connection import keep_known_eras, run_async, silence_warnings
from ..framework.command_errors import FAILED, print_message, styled
from ..framework.describe_entry import source_of
from ..framework.output import (
    StatusLine,
    as_json,
    pluralize,
    pretty,
    safe,
    visible,
    write,
    write_styled,
)
from ..framework.parser import ERA, INPUT, JSON, NAME, Parser, option, read_pairs, wait_option
from ..framework.remedies import INSTALL
from ..framework.server_lookup import ask_inputs, every_server, find_server
from ..framework.suggested_commands import suggest_any
from .server_check import ALL_LIMIT, CheckStep, ServerCheck, check_server, check_servers

__all__ = ["run", "run_test"]


@dataclass(frozen=True)
class DoctorFinding:
    """A finding about the machine; `hint` is the remedy."""

    ok: bool
    text: str
    hint: str = ""
    odd: bool = False  # a setting that works but is unusual


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "doctor",
        "Check configuration files, required programs and all servers, and suggest a fix for each "
        "problem. The servers are checked concurrently; servers in project files are checked only "
        "if they are approved. The exit code is 1 if there is a problem.",
        option("names", metavar="NAME", nargs="*", help="servers to check (default: all)"),
        JSON,
        wait_option(
            "limit for all servers together, including the time to stop them; the `timeout` of an "
            "entry also applies",
            ALL_LIMIT,
        ),
        ERA,
        INPUT,
        examples="  fairlead doctor\n  fairlead doctor notes\n  fairlead doctor --json",
    ).parse_args(argv)
    loaded = every_server()
    names = options.names or sorted(loaded.found)
    servers = {name: find_server(name, loaded) for name in names}
    silence_warnings()
    return run_async(_examine(options, loaded, list(servers.values())))


async def _examine(
    options: Namespace, loaded: DiscoveredServers, servers: list[FoundServer]
) -> int:
    findings = _machine(loaded, servers)
    if not options.json:
        _show_machine(findings)
    checkups = await _check_all(options, servers)
    # An unapproved server is not a problem, unless it was named on the command line.
    ill = [c for c in checkups if c.failed and (c.approved or options.names)]
    broken = len(ill) + sum(not finding.ok for finding in findings)
    if not as_json(options, _plain(findings, checkups, broken)):
        _sum_up(checkups, broken)
    return FAILED if broken else 0


async def _check_all(options: Namespace, servers: list[FoundServer]) -> list[ServerCheck]:
    """Check the servers concurrently, and show each result when its check ends."""
    waiting = {found.name: None for found in servers}
    line = StatusLine() if sys.stderr.isatty() and not options.json else None

    def show_waiting() -> None:
        if line is not None and waiting:
            line.show(f"checking {pluralize(len(waiting), 'server')}: {', '.join(waiting)}")

    def done(checkup: ServerCheck) -> None:
        waiting.pop(checkup.found.name)
        if line is not None:
            line.clear()
        if not options.json:
            _show(checkup)
        show_waiting()

    show_waiting()
    given = read_pairs(options.input, "--input")
    try:
        return await check_servers(
            servers, seconds=options.timeout, inputs=given, era=options.era, done=done
        )
    finally:
        if line is not None:
            line.clear()


def _machine(loaded: DiscoveredServers, servers: list[FoundServer]) -> list[DoctorFinding]:
    version = platform.python_version()
    findings = [DoctorFinding(True, f"Python {version} on {platform.system()}, {sys.executable}")]
    for problem in loaded.warnings:
        text, odd = visible(str(problem)), problem.harmless
        hint = "rename the server for full compatibility" if odd else "correct the file"
        findings.append(DoctorFinding(odd, text, hint, odd=odd))
    trust = Trust()
    for found in servers[:1]:
        # A server check reads the file of approvals and collects its warnings.
        trust.trusts(found)
    findings += [DoctorFinding(False, safe(warning)) for warning in trust.warnings]
    findings += _folders()
    return [*findings, *_programs(servers)]


def _folders() -> list[DoctorFinding]:
    """Return findings for Fairlead's folders that exist but are not writable."""
    machine = local_host_paths()
    folders = (machine.own_config[0], machine.own_cache, machine.own_data)
    return [
        DoctorFinding(
            False,
            f"{visible(folder)} is not writable",
            f"`{suggest_any('ls', '-ld', operands=[folder])}` shows its permissions",
        )
        for folder in dict.fromkeys(folders)
        if os.path.exists(folder) and not os.access(folder, os.W_OK | os.X_OK)
    ]


def _programs(servers: list[FoundServer]) -> list[DoctorFinding]:
    """Return findings for programs such as npx and uvx,
    one for all entries that need the program.
    """
    needed: dict[str, list[str]] = {}
    for found in servers:
        entry = found.entry
        if not isinstance(entry, MCPStdioServerConfig) or "PATH" in entry.env:
            continue
        if entry.command in INSTALL:
            needed.setdefault(entry.command, []).append(found.name)
    findings = []
    for program, names in needed.items():
        place = shutil.which(program)
        if place is not None:
            findings.append(DoctorFinding(True, f"{program} is {visible(place)}"))
            continue
        text = f"{program} is missing, but required by {visible(', '.join(names))}"
        findings.append(DoctorFinding(False, text, INSTALL[program]))
    return findings


def _show_machine(findings: list[DoctorFinding]) -> None:
    write_styled(styled("this machine", "1"))
    for finding in findings:
        sign = _mark(finding.ok, odd=finding.odd)
        write_styled(f"  {sign} {finding.text}")
        if finding.hint:
            write_styled(f"    {styled('→', '36')} {finding.hint}")


def _show(checkup: ServerCheck) -> None:
    found, failed = checkup.found, checkup.failed
    where = f"{source_of(found.host_title, found.level)}, {found.place}"
    write_styled(f"\n{styled(visible(found.name), '1')}  {visible(where)}")
    for step in checkup.steps:
        _show_step(step)
    for warning in checkup.warnings:
        write_styled(f"  {styled('!', '33')} {warning}")
    if failed is not None:
        colour = "31" if checkup.approved else "33"
        write_styled(f"  {styled(failed.sentence, colour)}")
        for line in failed.details:
            write_styled(f"  {styled('|', '2')} {line}")
        if failed.hint:
            write_styled(f"  {styled('→', '36')} {failed.hint}")


def _sum_up(checkups: list[ServerCheck], broken: int) -> None:
    well = sum(checkup.failed is None for checkup in checkups)
    waiting = sum(not checkup.approved for checkup in checkups)
    parts = [f"{well} of {len(checkups)} servers work"]
    parts += [f"{waiting} not approved"] if waiting else []
    parts += [f"{pluralize(broken, 'problem')} to fix"] if broken else []
    write_styled(f"\n{', '.join(parts)}")


def _plain(
    findings: list[DoctorFinding], checkups: list[ServerCheck], broken: int
) -> dict[str, Any]:
    return {
        "ok": broken == 0,
        "machine": [{"ok": f.ok, "text": f.text, "hint": f.hint} for f in findings],
        "servers": [checkup.plain() for checkup in checkups],
    }


# Checking one server


def run_test(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp test",
        "Connect to a configured server and show each step with its duration: approval, variables, "
        "program, connection and tools.",
        NAME,
        JSON,
        wait_option("limit for the connection and the tools"),
        ERA,
        INPUT,
        examples="  fairlead mcp test notes\n  fairlead mcp test notes --json",
    ).parse_args(argv)
    found = find_server(options.name, every_server())
    silence_warnings()
    return run_async(_test(found, options))


async def _test(found: FoundServer, options: Namespace) -> int:
    keep_known_eras()
    given = await ask_inputs(found, read_pairs(options.input, "--input"))
    chosen: dict[str, Any] = {"inputs": given, "timeout": options.timeout, "era": options.era}
    if options.json:
        checkup = await check_server(found, **chosen)
        write(pretty(checkup.plain()))
        return 0 if checkup.failed is None else checkup.failed.code
    source = source_of(found.host_title, found.level)
    write(visible(f"{found.name}, of {source}, {found.place}"))
    sys.stdout.flush()
    checkup = await check_server(found, **chosen, tell=_show_step)
    for warning in checkup.warnings:
        print_message("warning", warning)
    if checkup.failed is None:
        write("the server works")
        return 0
    sys.stdout.flush()
    checkup.failed.show()
    return checkup.failed.code


def _show_step(step: CheckStep) -> None:
    """Print the result of a step."""
    mark = _mark(step.ok, odd=step.odd)
    line = f"  {mark} {step.name.ljust(8)} {step.seconds * 1000:7.0f} ms  {step.text}"
    write_styled(line.rstrip())


def _mark(ok: bool, *, odd: bool = False) -> str:
    if odd:
        return styled("!", "33")
    return styled("✓", "32") if ok else styled("✗", "31")
