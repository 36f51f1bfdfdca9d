"""What a command line looks like."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from .failed import USAGE, Failed

__all__ = [
    "TARGET",
    "Parser",
    "add_connection_options",
    "add_input_option",
    "read_pairs",
    "seconds",
    "two_ways",
]

_PROSE = 88  # as wide as descriptions that have their line breaks
TARGET = "(URL | -- COMMAND...)"  # how a server is named, if not by a first word


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

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Prose that was written without line breaks gets some; examples stay as they are."""
        if "\n" in text or len(text) <= _PROSE:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, _PROSE, indent)


def add_connection_options(parser: Parser) -> None:
    """The options of every command that talks to a server."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long to wait for the connection, and for each answer (default: 30; progress "
        "gives a call more)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show what the server writes to stderr"
    )
    configured = parser.add_argument_group(
        "a server that is configured",
        "Its name comes first, before everything else; `fairlead list` shows which\nthere are.",
    )
    add_input_option(configured)
    remote = parser.add_argument_group(
        "a server elsewhere",
        "Its URL begins with http, https, ws, wss or unix (unix:///path.sock#/mcp);\n"
        "without a path it means /mcp, or /ws of a WebSocket.",
    )
    remote.add_argument(
        "--token",
        metavar="TOKEN",
        help="say who you are (Authorization: Bearer); better in the environment, as "
        "FAIRLEAD_TOKEN, where no list of processes shows it",
    )
    remote.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="send this with each request; may be repeated",
    )
    remote.add_argument(
        "--sse", action="store_true", help="try HTTP+SSE of 2024-11-05 first, not last"
    )
    remote.add_argument(
        "--insecure-tls", action="store_true", help="believe any certificate; only for tests"
    )


def add_input_option(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="ID=VALUE",
        help="answer what its entry asks of a person (`${input:ID}`); may be repeated",
    )


def two_ways(command: str, words: str) -> str:
    """The usage of a command that talks to a server: its own words, and how a server is named."""
    first = " ".join(filter(None, ("SERVER", words, "[options]")))
    second = " ".join(filter(None, (words, "[options]", TARGET)))
    return f"{first}\n       fairlead {command} {second}"


def read_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """The `NAME=VALUE` texts of an option. Raises: Failed: for one that is none."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Failed(f"{option} is written NAME=VALUE", code=USAGE)
        pairs[name] = value
    return pairs


def seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds
