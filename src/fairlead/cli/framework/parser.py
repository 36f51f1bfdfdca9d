"""What a command line looks like.

It uses `argparse` and no framework: `fairlead serve` is what hosts have configured, so the time it
takes to start is added to the start of every server.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from .command_errors import UsageError

__all__ = [
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

_PROSE = 88  # as wide as descriptions that have their line breaks
TARGET = "(URL | -- COMMAND...)"  # how a server is named, if not by a first word

Option = tuple[tuple[str, ...], dict[str, Any]]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` that fails like everything else here, and leaves examples as written."""

    def __init__(
        self,
        command: str,
        description: str,
        *options: Option,
        usage: str | None = None,
        examples: str = "",
    ) -> None:
        """`usage` is what follows the command; without one argparse writes it."""
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
        """Add options under a heading of their own."""
        group = self.add_argument_group(title, description)
        for names, facts in options:
            group.add_argument(*names, **facts)

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        raise UsageError(sentence, hint=f"`{self.prog} --help` shows how")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help of one width: to ask the terminal for its own, argparse imports five more modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80, max_help_position=24)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Prose that was written without line breaks gets some; examples stay as they are."""
        if "\n" in text or len(text) <= _PROSE:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, _PROSE, indent)


# Types of values


def seconds(text: str) -> float:
    return _above_zero(text, "seconds")


def _above_zero(text: str, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of {unit} above 0")
    return value


def milliseconds(text: str) -> float:
    value = _above_zero(text, "milliseconds")
    return int(value) if value == int(value) else value


def port(text: str) -> int:
    return number(text, 0, 65535)


def number(text: str, least: int, most: int) -> int:
    """Read a whole number in a range. Raises `ArgumentTypeError`."""
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
    return int(text)


# Options that several commands have


def option(*names: str, **facts: Any) -> Option:
    """An option or a word, with what `add_argument` wants to know about it."""
    return names, facts


def flag(*names: str, help: str) -> Option:
    return names, {"action": "store_true", "help": help}


def repeated(name: str, metavar: str, help: str | None = None) -> Option:
    about = help and f"{help}; may be repeated"
    return (name,), {"action": "append", "default": [], "metavar": metavar, "help": about}


def wait_option(what: str, default: int = 30) -> Option:
    return option("--timeout", type=seconds, metavar="SECONDS", help=f"{what} (default: {default})")


JSON = flag("--json", help="print JSON, for programs")
NAME = option("name", metavar="NAME")
TAPE = option("tape", metavar="TAPE", help="its name, or its path")
INPUT = repeated("--input", "ID=VALUE", "answer what its entry asks of a person (`${input:ID}`)")
PROJECT = option("--project", metavar="FOLDER", default=".", help="whose project files count, too")
JOURNAL = flag("--journal", help="let `fairlead watch` show what passes")
HEADER = repeated("--header", "'NAME: VALUE'", "send this with each request")
SSE = flag("--sse", help="try HTTP+SSE of 2024-11-05 first, not last")
IGNORE = repeated("--ignore", "PATH", "what may differ; `*` is any member, `**` any number of them")
RULES = option(
    "--rules",
    metavar="FILE",
    help="what happens to messages: TOML, YAML or JSON; it may change while this runs "
    "(`fairlead rules check FILE`)",
)


def add_connection_options(parser: Parser) -> None:
    """The options of every command that talks to a server."""
    parser.add(
        wait_option(
            "how long to wait for the connection, and for each answer; progress gives a call more"
        ),
        JSON,
        flag("-v", "--verbose", help="also show what the server writes to stderr"),
    )
    parser.add_group(
        "a server that is configured",
        "Its name comes first, before everything else; `fairlead list` shows which\nthere are.",
        INPUT,
    )
    parser.add_group(
        "a server elsewhere",
        "Its URL begins with http, https, ws, wss or unix (unix:///path.sock#/mcp);\n"
        "without a path it means /mcp, or /ws of a WebSocket.",
        option(
            "--token",
            metavar="TOKEN",
            help="say who you are (Authorization: Bearer); better in the environment, as "
            "FAIRLEAD_TOKEN, where no list of processes shows it",
        ),
        HEADER,
        SSE,
        flag("--insecure-tls", help="believe any certificate; only for tests"),
    )


def add_url_options(parser: Parser) -> None:
    """The options of commands that carry or compare what others say."""
    parser.add_group(
        "a server elsewhere",
        "FAIRLEAD_TOKEN in the environment says to it who you are.",
        HEADER,
        SSE,
    )


def add_record_options(parser: Parser, *, named: bool = True) -> None:
    """`named`: whether a tape has to be given a name."""
    text = "write all that passes to a tape of this name, or path"
    more = "; without one, to a new tape, of which the last 20 are kept"
    facts = {"help": text} if named else {"help": text + more, "nargs": "?", "const": ""}
    parser.add_group(
        "on a tape",
        "`fairlead tape` lists and shows them, `fairlead replay` plays them.",
        option("--record", metavar="NAME", **facts),
        flag("--overwrite", help="even if there is one already"),
        repeated("--tag", "TAG", "to find it by"),
        flag("--keep-secrets", help="do not take out what looks like one"),
    )


def server_command_usage(command: str, words: str) -> str:
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
            raise UsageError(f"{option} is written NAME=VALUE")
        pairs[name] = value
    return pairs
