"""`fairlead watch` at a terminal, while a conversation goes on, until somebody presses Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from .living import Person, person
from .running import LIMIT
from .test_watch import conversation

__all__ = ["person"]


class Terminal:
    """Somebody's terminal with a program in it, as a shell would start it."""

    def __init__(self, person: Person, *args: str) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(100)
        self.before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *args],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**_plain_environment(), **person.env, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - no threads
        )
        self.shown = ""

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def until(self, words: str) -> str:
        """The line with these words, as it is seen."""
        while not (found := [line for line in self.lines() if words in line]):
            assert select.select([self._ours], [], [], LIMIT)[0], self.shown
            self.shown += os.read(self._ours, 65536).decode()
        return found[-1]

    def lines(self) -> list[str]:
        whole = self.shown.rpartition("\n")[0]
        return re.sub(r"\x1b\[[0-9;]*m", "", whole).splitlines()

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT)
        os.close(self._ours)
        os.close(self._theirs)


@contextmanager
def terminal(person: Person, *args: str) -> Iterator[Terminal]:
    it = Terminal(person, *args)
    try:
        yield it
    finally:
        it.close()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is for this program
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _plain_environment() -> dict[str, str]:
    hidden = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def test_a_terminal_is_left_as_it_was(person: Person) -> None:
    long = "describe_everything_there_is_about_one_of_the_notes"
    with conversation(person, "--hangs-after", "0.5") as talk, terminal(person, "watch") as it:
        assert "[no message]" in it.until("stray: ")
        talk.ask(1, "tools/call", {"id": 1, "result": {}}, name=long)
        wide = it.until("tools/call")
        talk.ask(2, "ping", {"id": 99, "result": {}})
        assert it.until("answer to id 99").endswith("[nobody asked]")
        assert it.until("→  ping").endswith("pending  [hangs]")
        it.resize(80)
        talk.ask(3, "tools/call", {"id": 3, "result": {}}, name=long)
        narrow = it.until("#5  ")
        assert (long in wide, long in narrow, len(narrow) <= 80) == (True, False, True)
        assert all(line.endswith("ok") for line in (wide, narrow))
        assert "\x1b[32mok\x1b[0m" in it.shown
        it.press(b"\x03")
        assert it.process.wait(LIMIT) == 130
        assert it.settings() == it.before
        assert "Traceback" not in it.shown
        assert not re.search(r"\x1b\[\?", it.shown)  # no mode of a terminal was changed
