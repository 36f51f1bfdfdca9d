"""How a command fails: one clear sentence, a hint, and an exit code that scripts can tell apart."""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

from ...observe.safe_display import safe, visible

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "NO_CONNECTION",
    "TIMEOUT",
    "USAGE",
    "CommandError",
    "UsageError",
    "print_message",
    "styled",
]

FAILED = 1  # the server said no, or the tool failed
USAGE = 2  # the command line is wrong
NO_CONNECTION = 3  # the server could not be reached, or went away
TIMEOUT = 4  # no answer in time
INTERRUPTED = 130  # Ctrl-C, as shells count it


class CommandError(Exception):
    """Ends a command. `details` are lines of somebody else: a traceback, a server's last words."""

    def __init__(
        self, sentence: str, *, hint: str = "", details: Sequence[str] = (), code: int = FAILED
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.details = tuple(details)
        self.code = code

    def without(self, secrets: Sequence[str]) -> "CommandError":
        """The same, with what must not be seen replaced."""

        def hidden(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, "[REDACTED]")
            return text

        details = [hidden(line) for line in self.details]
        return CommandError(
            hidden(self.sentence), hint=hidden(self.hint), details=details, code=self.code
        )

    def show(self) -> None:
        """Write it to stderr."""
        print_message("error", self.sentence)
        for line in self.details:
            sys.stderr.write(f"  {styled('|', '2', sys.stderr)} {visible(line.expandtabs(4))}\n")
        if self.hint:
            print_message("hint", self.hint)


class UsageError(CommandError):
    """Ends a command whose command line is wrong."""

    def __init__(self, sentence: str, *, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(sentence, hint=hint, details=details, code=USAGE)


_COLOURS = {"error": "31", "hint": "36", "left out": "33", "serving": "32", "warning": "33"}


def print_message(label: str, text: str, colour: str = "") -> None:
    """One labelled line on stderr; further lines of the text cannot pass for another label."""
    colour = colour or _COLOURS.get(label, "2")
    first, *more = safe(text).split("\n")
    sys.stderr.write(f"{styled(visible(label) + ':', colour, sys.stderr)} {first}\n")
    for line in more:
        sys.stderr.write(f"  {line}\n" if line.strip() else "\n")


def styled(text: str, code: str, stream: TextIO) -> str:
    """The text in a colour, where the stream is a terminal that wants colours.

    Errors need no more than this, and it does not cost the import of a rendering library.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not code or not stream.isatty():
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
