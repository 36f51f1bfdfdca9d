"""What a command line looks like: parsing, and the server's command after `--`."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from .failed import USAGE, Failed

__all__ = ["Parser", "add_connection_options", "required_command", "split_command"]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that fails like everything else here, and leaves examples as written."""

    def __init__(self, command: str, description: str, *, usage: str, examples: str = "") -> None:
        super().__init__(
            prog=f"fairlead {command}",
            description=description,
            usage=f"fairlead {command} {usage}".rstrip(),
            epilog=examples and f"examples:\n{examples}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        raise Failed(sentence, hint=f"`{self.prog} --help` shows how", code=USAGE)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help of one width: to ask the terminal for its own, argparse imports five more modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80, max_help_position=24)


def add_connection_options(parser: Parser) -> None:
    """The options of every command that talks to a server."""
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long to wait for the connection, and for each answer (default: 30; progress "
        "gives a call more)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show what the server writes to stderr"
    )


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the server's command after the first `--`."""
    if "--" not in argv:
        return list(argv), []
    index = argv.index("--")
    return list(argv[:index]), list(argv[index + 1 :])


def required_command(command: list[str], example: str) -> None:
    """Raises `Failed` if there is no command to start the server with."""
    if not command:
        raise Failed(
            "There is no server to talk to: its command goes after `--`",
            hint=f"for example `{example} -- python server.py`",
            code=USAGE,
        )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
