"""The reference of the command line: the `--help` text of every command."""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from unittest.mock import patch

from fairlead.cli.main import main

__all__ = ["cli_reference"]

_COMMAND_LINE = re.compile(r"^  (\S+)  +\S", re.MULTILINE)
# `replay` has a second help text, for its use with `--against`.
_FURTHER = (("replay", "TAPE", "--against"),)


def cli_reference() -> str:
    """Return a section with the help text of each command and subcommand."""
    sections = [_section(words, text) for words, text in _all_commands()]
    return "\n".join(sections)


def _all_commands(*words: str) -> Iterator[tuple[tuple[str, ...], str]]:
    text = _help_of(words)
    yield words, text
    _, found, commands = text.partition("\ncommands:\n")
    if found:
        for name in _COMMAND_LINE.findall(commands.partition("\n\n")[0]):
            yield from _all_commands(*words, name)
    for further in _FURTHER:
        if further[: len(words)] == words and len(words) == 1:
            yield further, _help_of(further)


def _help_of(words: tuple[str, ...]) -> str:
    output = io.StringIO()
    # argparse wraps at the width of the terminal.
    with patch.dict(os.environ, {"COLUMNS": "88"}), contextlib.redirect_stdout(output):
        code = main([*words, "--help"])
    if code != 0:
        raise RuntimeError(f"`fairlead {' '.join(words)} --help` exits with {code}")
    return output.getvalue()


def _section(words: tuple[str, ...], text: str) -> str:
    heading = "#" * (2 if len(words) < 2 else 3)
    title = " ".join(("fairlead", *words))
    return f"{heading} `{title}`\n\n```text\n{text.strip()}\n```\n"
