"""Tests of elicitation in `fairlead call`: prompts, `--answer` and `--decline`."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import LIMIT, fairlead

QUESTIONS = str(Path(__file__).parents[3] / "examples" / "questions.py")
SERVER = ("--", sys.executable, QUESTIONS)


def test_without_a_terminal_an_elicitation_is_an_error_that_names_the_options() -> None:
    done = fairlead("call", "book", "train=IC 5", *SERVER)
    assert (done.returncode, done.stdout) == (5, "")
    assert "error: The server asks: Which seats on IC 5?" in done.stderr
    assert "hint: pass --answer seats=INTEGER, or --decline" in done.stderr


def test_answer_values_are_converted_to_the_types_of_the_form() -> None:
    answers = ("--answer", "seats=2", "--answer", "where=aisle", "--answer", "value=yes")
    done = fairlead("call", "book", "train=IC 5", *answers, *SERVER)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("2 at the aisle on IC 5\n")


def test_form_defaults_apply_without_an_answer_and_unused_answers_are_reported() -> None:
    answers = ("--answer", "seats=2", "--answer", "value=true", "--answer", "seat=3")
    done = fairlead("call", "book", "train=IC 5", *answers, *SERVER)
    assert done.stdout.endswith("2 at the window on IC 5\n")
    assert "warning: no question has the field seat of --answer" in done.stderr


TWO_QUESTIONS = """
from fairlead import Context, MCPServer
server = MCPServer("s")
@server.tool
async def register(ctx: Context) -> str:
    name = await ctx.elicit("Name?", str)
    age = await ctx.elicit("Age?", int)
    city = await ctx.elicit("City?", str)
    return f"{name.data}, {age.data}, {city.data}"
server.run()
"""


def test_repeated_answers_for_a_field_are_given_to_its_questions_in_order(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(TWO_QUESTIONS)
    answers = ("--answer", "value=Ann", "--answer", "value=7", "--answer", "value=Rome")
    done = fairlead("call", str(program), "register", *answers)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Ann, 7, Rome\n", "")
    last = fairlead("call", str(program), "register", *answers[:4])
    assert (last.returncode, last.stdout, last.stderr) == (0, "Ann, 7, 7\n", "")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("seats=many", "Invalid value 'many' for seats: expected integer"),
        ("where=roof", "Invalid value 'roof' for where: expected aisle | middle | window"),
    ],
)
def test_an_answer_that_the_form_does_not_allow_is_invalid_usage(answer: str, error: str) -> None:
    done = fairlead("call", "book", "train=IC 5", "--answer", answer, *SERVER)
    assert (done.returncode, done.stdout) == (2, "")
    assert error in done.stderr


def test_a_required_form_field_without_an_answer_is_an_error() -> None:
    done = fairlead("call", "book", "train=IC 5", "--answer", "where=aisle", *SERVER)
    assert done.returncode == 5
    assert "hint: pass --answer seats=INTEGER, or --decline" in done.stderr


def test_the_decline_option_declines_an_elicitation_and_excludes_answers() -> None:
    done = fairlead("call", "book", "train=IC 5", "--decline", *SERVER)
    assert done.returncode == 0
    assert done.stdout.endswith("no seats were booked\n")
    assert "declined: Which seats on IC 5?" in done.stderr
    both = fairlead("call", "book", "train=IC 5", "--decline", "--answer", "seats=1", *SERVER)
    assert both.returncode == 2
    assert "cannot be combined" in both.stderr


def test_on_a_terminal_the_user_is_prompted_for_each_field() -> None:
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
    expect(b"Book 2 seats?", b"")
    expect(b"(y/n)", b"maybe\n")
    expect(b"invalid value", b"")
    expect(b"(y/n)", b"y\n")
    assert process.stdout is not None
    output = process.stdout.read().decode()
    assert process.wait(LIMIT) == 0
    assert output.endswith("2 at the window on IC 5\n")
    process.stdout.close()
    os.close(ours)
    os.close(theirs)
