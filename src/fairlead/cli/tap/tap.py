"""`fairlead tap -- COMMAND`: runs a server unchanged and observes its messages."""

import os
import shlex
import sys
from collections.abc import Sequence

from ..framework.command_errors import UsageError, print_message
from ..framework.connect_target import name_of_command, words_in
from ..framework.parser import RULES, Parser, option, seconds
from ..framework.suggested_commands import suggest

__all__ = ["run"]

_TAKE_A_VALUE = ("--name", "--tape", "--hangs-after", "--rules")


def run(argv: Sequence[str]) -> int:
    own, command = list(argv), []
    if "--" in own:
        index = own.index("--")
        own, command = own[:index], own[index + 1 :]
    # `tap` has no positional arguments, so the first word belongs to a command without `--`.
    first = next(iter(words_in(own, _TAKE_A_VALUE)), None)
    options = _parser().parse_args(own[:first])
    if first is not None:
        meant = shlex.join(["fairlead", "tap", *own[:first]])
        raise UsageError(
            "A server command must follow `--`",
            hint=f"`{meant} -- {shlex.join(argv[first:])}`",
        )
    if not command:
        raise UsageError(
            "Missing command: it must follow `--`",
            hint=f"for example {suggest('tap', '--', 'python', 'server.py')}",
        )
    if os.name != "posix":
        raise UsageError("`fairlead tap` requires POSIX pipes and signals")
    if sys.stdin is not None and sys.stdin.isatty():
        note = "expects MCP messages on stdin, one JSON object per line, as a client sends them"
        print_message("note", f"tap {note}; stop with Ctrl-D")
    name = options.name or name_of_command(command)
    tape = None if options.tape is None else os.path.abspath(options.tape)
    about = {
        "name": name,
        "pid": os.getpid(),
        "command": command,
        "tape": tape,
        "record": not options.no_tape,
        "hangs_after": options.hangs_after or 30.0,
    }
    if options.rules is not None:
        from .tap_rules import run_with_rules

        return run_with_rules(command, options.rules, about)
    from .tap_feed import TapFeed
    from .tap_pump import run_command

    return run_command(command, lambda: TapFeed(about))


def _parser() -> Parser:
    parser = Parser(
        "tap",
        "Run a stdio server and observe its messages. Put `fairlead tap --` before the command in\n"
        "the configuration of any program: all bytes, stderr, signals and the exit code are\n"
        "forwarded unchanged. `fairlead watch` shows the messages live in another terminal, and\n"
        "a tape is recorded without secrets. With --rules, messages pass through a relay that\n"
        "applies the rules.",
        option("--name", help="the name in `fairlead watch`"),
        option(
            "--hangs-after",
            type=seconds,
            metavar="SECONDS",
            help="flag a request without a response after this time (default: 30)",
        ),
        RULES,
        usage="[options] -- COMMAND ARGS...",
        examples="  fairlead tap -- uvx mcp-server-time\n"
        "  fairlead tap --name notes --tape ./notes -- python server.py\n"
        "  fairlead tap --rules rules.toml -- python server.py\n"
        "  fairlead watch notes",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--tape",
        metavar="PATH",
        help="record on this tape and replace an existing one (default: a new tape in the data "
        "folder; the last 20 are kept)",
    )
    where.add_argument("--no-tape", action="store_true", help="do not record")
    return parser
