"""`fairlead mcp test`: connect to a configured server, and see each step."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from ...config.found_server import FoundServer
from ..framework.connection import run_async, silence_warnings
from ..framework.describe_entry import source_of
from ..framework.errors import print_message, styled
from ..framework.output import pretty, visible, write, write_styled
from ..framework.parser import INPUT, JSON, NAME, Parser, read_pairs, wait_option
from ..framework.server_lookup import ask_inputs, every_server, find_server
from .server_check import CheckStep, check_server

__all__ = ["mark", "run_test", "show_step"]


def run_test(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp test",
        "Connect to a configured server and show each step: whether it may run, what it needs, "
        "where its program is, what it answers, and how long each takes.",
        NAME,
        JSON,
        wait_option("for the connection"),
        INPUT,
        examples="  fairlead mcp test notes\n  fairlead mcp test notes --json",
    ).parse_args(argv)
    found = find_server(options.name, every_server())
    silence_warnings()
    return run_async(_test(found, options))


async def _test(found: FoundServer, options: Namespace) -> int:
    given = await ask_inputs(found, read_pairs(options.input, "--input"))
    if options.json:
        checkup = await check_server(found, inputs=given, timeout=options.timeout)
        write(pretty(checkup.plain()))
        return 0 if checkup.failed is None else checkup.failed.code
    source = source_of(found.host_title, found.level)
    write(visible(f"{found.name}, of {source}, {found.place}"))
    sys.stdout.flush()
    checkup = await check_server(found, inputs=given, timeout=options.timeout, tell=show_step)
    for warning in checkup.warnings:
        print_message("warning", warning)
    if checkup.failed is None:
        write("it works")
        return 0
    sys.stdout.flush()
    checkup.failed.show()
    return checkup.failed.code


def show_step(step: CheckStep) -> None:
    """One line for a step."""
    line = f"  {mark(step.ok)} {step.name.ljust(8)} {step.seconds * 1000:7.0f} ms  {step.text}"
    write_styled(line.rstrip())


def mark(ok: bool) -> str:
    return styled("✓", "32", sys.stdout) if ok else styled("✗", "31", sys.stdout)
