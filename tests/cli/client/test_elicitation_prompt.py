"""Tests of elicitation in `fairlead call`: prompted on a terminal, declined without one."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

from tests.support.cli_process import LIMIT, fairlead

QUESTIONS = str(Path(__file__).parents[3] / "examples" / "questions.py")
SERVER = ("--", sys.executable, QUESTIONS)


def test_without_a_terminal_elicitation_is_declined() -> None:
    done = fairlead("call", "book", "train=IC 5", *SERVER)
    assert done.returncode == 0
    assert done.stdout.endswith("no seats were booked\n")
    assert "declined: input request of the server: Which seats on IC 5?" in done.stderr


def test_on_a_terminal_each_field_is_prompted() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fairlead", "call", "book", "train=IC 5", *SERVER]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb"},
    )
    seen = b""

    def expect(text: bytes, answer: bytes) -> None:
        nonlocal seen
        while text not in seen:
            assert select.select([ours], [], [], LIMIT)[0], seen
            seen += os.read(ours, 65536)
        seen = seen.partition(text)[2]
        os.write(ours, answer)

    expect(b"seats (integer)", b"many\n")
    expect(b"invalid value", b"")
    expect(b"seats (integer)", b"2\n")
    expect(b"[window]", b"\n")
    expect(b"Book 2 seats?", b"true\n")
    assert process.stdout is not None
    output = process.stdout.read().decode()
    assert process.wait(LIMIT) == 0
    assert output.endswith("2 at the window on IC 5\n")
    process.stdout.close()
    os.close(ours)
    os.close(theirs)
