"""Command-line parser and the options that several commands share.

The parser uses `argparse` instead of a framework, because its start-up time is added to the start
of every server that a host runs with `fairlead serve`.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from .command_errors import UsageError

__all__ = [
    "ERA",
    "IGNORE",
    "INPUT",
    "JOURNAL",
    "JSON",
    "NAME",
    "PROJECT",
    "RULES",
    "TAPE",
    "Option",
    "Parser",
    "add_connection_options",
    "add_record_options",
    "add_url_options",
    "flag",
    "milliseconds",
    "number",
    "option",
    "port",
    "read_pairs",
    "repeated",
    "seconds",
    "server_command_usage",
    "wait_option",
]

_PROSE = 88  # width of descriptions that contain their own line breaks
TARGET = "(URL | -- COMMAND...)"  # usage text for commands that do not accept a configured name

Option = tuple[tuple[str, ...], dict[str, Any]]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` and keeps the formatting of examples."""

    def __init__(
        self,
        command: str,
        description: str,
        *options: Option,
        usage: str | None = None,
        examples: str = "",
    ) -> None:
        """Create a parser.

        `usage` is the text after the command name; by default argparse generates it.
        """
        super().__init__(
            prog=f"fairlead {command}",
            description=description,
            usage=usage and f"fairlead {command} {usage}",
            epilog=examples and f"examples:\n{examples}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        self.add(*options)

    def add(self, *options: Option) -> None:
        for names, facts in options:
            self.add_argument(*names, **facts)

    def add_group(self, title: str, description: str, *options: Option) -> None:
        """Add options under a separate heading."""
        group = self.add_argument_group(title, description)
        for names, facts in options:
            group.add_argument(*names, **facts)

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        raise UsageError(sentence, hint=f"run `{self.prog} --help` for usage")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter with a fixed width: querying the terminal would import five more modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80, max_help_position=24)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap prose without line breaks; keep examples unchanged."""
        if "\n" in text or len(text) <= _PROSE:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, _PROSE, indent)


# Types of option values


def seconds(text: str) -> float:
    return _above_zero(text, "seconds")


def _above_zero(text: str, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit} greater than 0")
    return value


def milliseconds(text: str) -> float:
    value = _above_zero(text, "milliseconds")
    return int(value) if value == int(value) else value


def port(text: str) -> int:
    return number(text, 0, 65535)


def number(text: str, least: int, most: int) -> int:
    """Parse a whole number in a range. Raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


# Shared options


def option(*names: str, **facts: Any) -> Option:
    """Return an option or positional argument, with its keyword arguments for `add_argument`."""
    return names, facts


def flag(*names: str, help: str) -> Option:
    return names, {"action": "store_true", "help": help}


def repeated(name: str, metavar: str, help: str | None = None) -> Option:
    about = help and f"{help}; may be repeated"
    return (name,), {"action": "append", "default": [], "metavar": metavar, "help": about}


def wait_option(what: str, default: int = 30) -> Option:
    return option("--timeout", type=seconds, metavar="SECONDS", help=f"{what} (default: {default})")


JSON = flag("--json", help="print JSON")
ERA = option(
    "--era",
    choices=("auto", "handshake", "stateless"),
    default="auto",
    help="the protocol era used with the server (default: auto, which tries both)",
)
RELAY_ERA = option(
    "--era",
    choices=("auto", "handshake", "stateless"),
    default="auto",
    help="the protocol era used with the server; by default the client's era, if the server "
    "supports it",
)
SERVERS_ERA = option(
    "--era",
    choices=("auto", "handshake", "stateless"),
    help="the protocol era used with servers whose entry does not set one (default: the "
    "client's era, if the server supports it)",
)
NAME = option("name", metavar="NAME")
TAPE = option("tape", metavar="TAPE", help="name or path of a tape")
INPUT = repeated("--input", "ID=VALUE", "value for an input of the entry (`${input:ID}`)")
PROJECT = option("--project", metavar="FOLDER", default=".", help="read project files from here")
JOURNAL = flag("--journal", help="show the messages in `fairlead watch`")
HEADER = repeated("--header", "'NAME: VALUE'", "send this header with each request")
SSE = flag("--sse", help="try HTTP+SSE (revision 2024-11-05) first instead of last")
IGNORE = repeated(
    "--ignore", "PATH", "ignore this path; `*` is any member, `**` any number of members"
)
RULES = option(
    "--rules",
    metavar="FILE",
    help="apply the rules in this TOML, YAML or JSON file, and reload it when it changes "
    "(`fairlead rules check FILE` validates it)",
)


def add_connection_options(parser: Parser) -> None:
    """Add the options that all commands for connecting to a server share."""
    parser.add(
        wait_option("limit for connecting and for each response; progress notifications extend it"),
        JSON,
        ERA,
        flag("-v", "--verbose", help="also show the server's stderr"),
    )
    parser.add_group(
        "a configured server",
        "Its name comes first, before all other arguments; `fairlead list` shows the\nnames.",
        INPUT,
    )
    parser.add_group(
        "a server with a URL",
        "The scheme is http, https, ws, wss or unix (unix:///path.sock#/mcp). The default\n"
        "path is /mcp, or /ws for a WebSocket.",
        option(
            "--token",
            metavar="TOKEN",
            help="send this token (Authorization: Bearer); prefer the environment variable "
            "FAIRLEAD_TOKEN, which process lists do not show",
        ),
        HEADER,
        SSE,
        flag("--insecure-tls", help="accept any certificate; only for tests"),
    )


def add_url_options(parser: Parser) -> None:
    """Add the options of commands that forward or compare messages and accept a server URL."""
    parser.add_group(
        "a server with a URL",
        "The token in the environment variable FAIRLEAD_TOKEN is sent to it.",
        HEADER,
        SSE,
    )


def add_record_options(parser: Parser, *, named: bool = True) -> None:
    """Add the recording options; `named` is True if the tape must be named."""
    text = "record all messages on a tape with this name or path"
    more = "; without NAME, on a new tape (the last 20 are kept)"
    facts = {"help": text} if named else {"help": text + more, "nargs": "?", "const": ""}
    parser.add_group(
        "recording",
        "`fairlead tape` lists and shows tapes, `fairlead replay` replays them.",
        option("--record", metavar="NAME", **facts),
        flag("--overwrite", help="replace an existing tape"),
        repeated("--tag", "TAG", "a tag for the tape"),
        flag("--keep-secrets", help="do not redact secrets in the recording"),
    )


def server_command_usage(command: str, words: str) -> str:
    """Return the usage text of a command that connects to a server."""
    first = " ".join(filter(None, ("SERVER", words, "[options]")))
    second = " ".join(filter(None, (words, "[options]", TARGET)))
    return f"{first}\n       fairlead {command} {second}"


def read_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Parse the `NAME=VALUE` values of an option. Raises `UsageError` for an invalid value."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"Invalid {option}: expected NAME=VALUE")
        pairs[name] = value
    return pairs
