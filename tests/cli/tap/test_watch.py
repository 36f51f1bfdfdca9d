"""Tests of `fairlead watch`."""

import contextlib
import fcntl
import json
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
from pathlib import Path
from typing import Any

from tests.cli.tap.test_tap import SECRET, read_until, script, tapped
from tests.support.cli_process import LIMIT, on_terminal, talk
from tests.support.cli_user import Person, person

__all__ = ["person"]

# A server that responds with the messages in the request.
SERVER = """
    print("Starting up \\x1b[31m", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        for answer in message.get("params", {}).get("say", ()):
            print(json.dumps({"jsonrpc": "2.0", **answer}), flush=True)
"""


@contextlib.contextmanager
def conversation(person: Person, *options: str) -> Iterator["Talk"]:
    file = script(person.folder, SERVER)
    with tapped(person, file, "--no-tape", "--name", "notes", *options) as process:
        read_until(process, b"\n")
        yield Talk(process)


class Talk:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def ask(self, number: Any, method: str, *answers: Any, **params: Any) -> None:
        """Send a request that makes the server write the given messages."""
        assert self._process.stdin is not None
        asked = {"id": number, "method": method, "params": {**params, "say": answers}}
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **asked}).encode() + b"\n")
        left = len(answers)
        while left > 0:
            left -= read_until(self._process, b"\n").count(b"\n")

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        self._process.wait(LIMIT)


class Watching:
    """A running `fairlead watch` process."""

    def __init__(self, person: Person, *args: str) -> None:
        self.process = person.begins("watch", *args)
        self.said = self.heard = ""

    def until(self, words: str) -> str:
        assert self.process.stdout is not None
        while words not in self.said:
            assert select.select([self.process.stdout], [], [], LIMIT)[0], self.said
            some = os.read(self.process.stdout.fileno(), 65536).decode()
            assert some, self.said
            self.said += some
        return self.said

    def __enter__(self) -> "Watching":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
            _, self.heard = self.process.communicate(timeout=LIMIT)


def remembered(person: Person, last: int) -> list[dict[str, Any]]:
    """Return the records up to the one with this id."""
    with Watching(person, "notes", "--json") as watching:
        said = watching.until(f'"id":{last},')
    return [json.loads(line) for line in said.splitlines() if line.endswith("}")]


def test_watch_shows_each_exchange_as_one_line(person: Person) -> None:
    with conversation(person) as talk:
        talk.ask(1, "tools/call", {"id": 1, "result": {}}, name="add", password=SECRET)
        talk.ask(2, "tools/call", {"id": 2, "result": {"isError": True}}, name="sub")
        talk.ask(3, "prompts/get", {"id": 3, "error": {"code": -32602, "message": "no such"}})
        with Watching(person) as watching:
            watching.until("no such")
            talk.ask(4, "tools/list", {"id": 4, "result": {"tools": []}})
            watching.until("tools/list")
            talk.ask(5, "ping", {"method": "notifications/message", "params": {"data": "x"}})
            watching.until("notifications/message")
            talk.end()
            out, err = watching.process.communicate(timeout=LIMIT)
            assert watching.process.returncode == 0
    lines = (watching.said + out).splitlines()
    assert "stray: Starting up \\x1b[31m  [not a message]" in lines[0]
    assert "→  tools/call add  " in lines[1]
    assert lines[1].endswith(" ms ok")
    assert lines[2].endswith(" ms failed")
    assert lines[3].endswith(" ms refused -32602 no such")
    assert "←  notifications/message" in lines[5]
    assert "→  ping  " in lines[6]
    assert "lost the conversation ended before a response" in lines[6]
    assert SECRET not in watching.said
    assert "\x1b" not in watching.said
    assert "watching: notes (tap" in err
    assert "ended: notes" in err


def test_watch_flags_hanging_malformed_and_unmatched_messages(person: Person) -> None:
    with conversation(person, "--hangs-after", "0.05") as talk:
        talk.ask(1, "tools/list", {"id": 1, "result": {}}, {"id": 1, "result": {}})
        talk.ask(2, "ping", {"id": "2", "result": {}}, {"id": None, "error": {"code": 1}})
        talk.ask(2, "ping")
        with Watching(person, "notes") as watching:
            watching.until("hangs")
        flags = [one.get("flags") for one in remembered(person, 6)][:6]
    odd = ["unmatched"]
    assert flags[:2] == [["not a message"], None]
    assert flags[2] == odd
    assert sorted(map(str, flags[3:])) == sorted(map(str, [["hangs"], odd, odd]))


def test_watch_details_show_whole_messages_without_secrets(person: Person) -> None:
    with conversation(person) as talk:
        talk.ask(1, "tools/call", {"id": 1, "result": {"n": 7}}, name="add", token=SECRET)
        remembered(person, 2)
        one = person.runs("watch", "notes", "--id", "2")
        assert one.code == 0
        assert '"n": 7' in one.out
        assert '"token": "[REDACTED]"' in one.out
        assert SECRET not in one.out
        everything = person.runs("watch", "notes", "--once", "--details")
        assert one.out in everything.out
        missing = person.runs("watch", "notes", "--id", "99")
        assert (missing.code, "Exchange 99 is not in the journal" in missing.err) == (1, True)
        shown = on_terminal("watch", "notes", "--once", env=person.env)
        assert "\x1b[32mok\x1b[0m" in shown
        listed = json.loads(person.runs("watch", "--list", "--json").out)
        assert [(one["hello"], one["kind"]) for one in listed] == [("notes", "tap")]


def test_watch_waits_until_a_tap_starts(person: Person) -> None:
    assert person.runs("watch", "--once").code == 1
    with Watching(person, "notes") as watching:
        assert watching.process.stderr is not None
        assert "waiting" in watching.process.stderr.readline()
        with conversation(person) as talk:
            talk.ask(1, "ping", {"id": 1, "result": {}})
            watching.until("ping")


def test_watch_shows_a_tap_that_exits_at_once(person: Person) -> None:
    with Watching(person) as watching:
        assert watching.process.stderr is not None
        assert "waiting" in watching.process.stderr.readline()
        with conversation(person) as talk:
            talk.ask(1, "ping", {"id": 1, "result": {}})
            talk.end()
        watching.until("ping")
        watching.process.communicate(timeout=LIMIT)
        assert watching.process.returncode == 0
    assert list((person.folder).rglob("*.waiting")) == []


def test_tap_on_a_terminal_prints_what_it_expects_on_stdin() -> None:
    shown = on_terminal("tap", "--no-tape", "--", "true")
    assert "tap expects MCP messages on stdin" in shown


def test_watch_removes_the_socket_of_an_ended_process(person: Person) -> None:
    import socket

    from fairlead.recording.journal.watch_socket import watch_folder

    place: Path = watch_folder()
    path = place / "dead-1.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert place.stat().st_mode & 0o077 == 0
    assert person.runs("watch", "--list").out == ""
    assert not path.exists()
    place.rmdir()


def test_the_messages_of_a_proxy_can_be_watched(person: Person) -> None:
    entry = person.server()
    command = [entry["command"], *entry["args"]]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "proxy", "--journal", "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=person.project,
        env={**os.environ, **person.env},
        bufsize=0,
    )
    try:
        assert process.stdin is not None
        arguments = {"a": 1, "b": 2, "password": SECRET}
        call = {"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": arguments}}
        process.stdin.write(talk(call).encode())
        said = read_until(process, b"\n")
        while b'"id":1' not in said:
            said += read_until(process, b"\n")
        with Watching(person) as watching:
            shown = watching.until("tools/call add")
        assert "initialize" in shown
        assert "(proxy" in watching.heard
        assert SECRET not in shown
        process.stdin.close()
        process.stdin = None
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


# `fairlead watch` on a terminal during a conversation, ended by Ctrl-C.


class Terminal:
    """A terminal with a program that is started like by a shell."""

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
        """Return the visible text of the line that contains the given words."""
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
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C must reach this program
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _plain_environment() -> dict[str, str]:
    hidden = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def test_ctrl_c_ends_watch_and_leaves_the_terminal_unchanged(person: Person) -> None:
    long = "describe_everything_there_is_about_one_of_the_notes"
    with conversation(person, "--hangs-after", "0.5") as talk, terminal(person, "watch") as it:
        assert "[not a message]" in it.until("stray: ")
        talk.ask(1, "tools/call", {"id": 1, "result": {}}, name=long)
        wide = it.until("tools/call")
        talk.ask(2, "ping", {"id": 99, "result": {}})
        assert it.until("answer to id 99").endswith("[unmatched]")
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
        assert not re.search(r"\x1b\[\?", it.shown)  # the terminal modes are unchanged
