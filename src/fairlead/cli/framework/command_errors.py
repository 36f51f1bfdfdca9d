"""Errors that end a command: a message, a hint and an exit code."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from ...observe.safe_display import safe, visible
from ...suggestions import close_matches, did_you_mean

__all__ = [
    "FAILED",
    "INPUT_NEEDED",
    "INTERRUPTED",
    "NO_CONNECTION",
    "TIMEOUT",
    "USAGE",
    "CommandError",
    "UsageError",
    "event_time",
    "print_event",
    "print_message",
    "styled",
    "unknown_name_error",
]

FAILED = 1  # the server returned an error, or the tool failed
USAGE = 2  # the command line is invalid
NO_CONNECTION = 3  # the server could not be reached, or the connection was lost
TIMEOUT = 4  # no response in time
INPUT_NEEDED = 5  # the server asks a question that the command line does not answer
INTERRUPTED = 130  # exit code that shells use for a program ended by Ctrl-C


class CommandError(Exception):
    """An error that ends a command. `details` are quoted lines, such as a traceback or stderr."""

    def __init__(
        self, sentence: str, *, hint: str = "", details: Sequence[str] = (), code: int = FAILED
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.details = tuple(details)
        self.code = code

    def without(self, secrets: Sequence[str]) -> "CommandError":
        """Return a copy in which secrets are masked."""

        def hidden(text: str) -> str:
            for secret in secrets:
                text = text.replace(secret, "[REDACTED]")
            return text

        details = [hidden(line) for line in self.details]
        return CommandError(
            hidden(self.sentence), hint=hidden(self.hint), details=details, code=self.code
        )

    def show(self) -> None:
        """Write the error to stderr."""
        print_message("error", self.sentence)
        for line in self.details:
            sys.stderr.write(f"  {styled('|', '2', sys.stderr)} {visible(line.expandtabs(4))}\n")
        if self.hint:
            print_message("hint", self.hint)


class UsageError(CommandError):
    """An invalid command line."""

    def __init__(self, sentence: str, *, hint: str = "", details: Sequence[str] = ()) -> None:
        super().__init__(sentence, hint=hint, details=details, code=USAGE)


def unknown_name_error(
    kind: str, name: str, known: Iterable[str], *, place: str = ""
) -> UsageError:
    """Build the error for a name that does not exist in `place`, with the closest names."""
    names = list(known)
    near = close_matches(name, names, most=3)
    hint = did_you_mean(map(visible, near))
    if not near and names:
        hint = f"expected one of {visible(', '.join(names))}"
    where = f" in {visible(place)}" if place else ""
    return UsageError(f"Unknown {kind} {visible(name)!r}{where}", hint=hint)


_COLOURS = {"error": "31", "hint": "36", "skipped": "33", "serving": "32", "warning": "33"}


def print_message(label: str, text: str, colour: str = "") -> None:
    """Write a labelled message to stderr.

    Its further lines are indented, so that untrusted text cannot imitate a label.
    """
    colour = colour or _COLOURS.get(label, "2")
    first, *more = safe(text).split("\n")
    sys.stderr.write(f"{styled(visible(label) + ':', colour, sys.stderr)} {first}\n")
    for line in more:
        sys.stderr.write(f"  {line}\n" if line.strip() else "\n")


def print_event(label: str, text: str, colour: str = "") -> None:
    """Write a labelled message about an event in a running server to stderr, with its time."""
    sys.stderr.write(event_time(sys.stderr))
    print_message(label, text, colour)


def event_time(stream: TextIO) -> str:
    """Return the current time and a space for a line in a log; empty on a terminal.

    The journal of systemd records the times of lines itself.
    """
    if stream.isatty() or "JOURNAL_STREAM" in os.environ:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z ")


def styled(text: str, code: str, stream: TextIO | None = None) -> str:
    """Return coloured text if the stream (default: stdout) is a terminal that supports colours.

    No rendering library is used, because importing it would delay every command.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not code or not (stream or sys.stdout).isatty():
        return text
    return f"\x1b[{code}m{text}\x1b[0m"
