"""Tests of `fairlead record` and `fairlead tape`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.protocol.envelope import Direction
from fairlead.recording.tape import TapeWriter, read_tape
from tests.support.cli_host import visit
from tests.support.cli_process import LIMIT, fairlead, run_by, server_file

TOOLS = """
    @server.tool()
    def shout(text: str) -> str:
        return text.upper()
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"FAIRLEAD_HOME": str(tmp_path / "home")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return server_file(tmp_path, TOOLS)


def record(
    name: str, file: Path, home: dict[str, str], *texts: str, options: tuple[str, ...] = ()
) -> None:
    """Call a tool through `fairlead record`."""
    command = ("record", name, *options, *run_by(file))
    assert visit(*command, texts=texts, env=home) == [text.upper() for text in texts]


def run(home: dict[str, str], *args: str, code: int = 0) -> str:
    done = fairlead(*args, env=home)
    assert done.returncode == code, done.stderr
    return done.stdout if code in (0, 1) and done.stdout else done.stdout + done.stderr


@pytest.mark.covers("GTW-10")
def test_tapes_can_be_recorded_listed_and_shown_with_commands(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    assert "no tapes in" in run(home, "tape", "list")
    record("monday", file, home, "hello", options=("--tag", "week"))
    place = tmp_path / "home" / "data" / "tapes" / "monday.tape.jsonl"
    assert place.stat().st_mode & 0o077 == 0
    (tape,) = json.loads(run(home, "tape", "list", "--json"))
    assert tape["name"] == "monday"
    assert tape["status"] == "complete"
    assert tape["path"] == str(place)
    assert tape["entries"] == 7
    assert tape["tags"] == ["week"]
    assert tape["target"] == f"{sys.executable} {file}"
    assert "monday  complete" in run(home, "tape", "list", "--tag", "week")
    assert "monday" not in run(home, "tape", "list", "--tag", "month")
    shown = run(home, "tape", "show", "monday").splitlines()
    assert len(shown) == 7
    assert "→ tools/call shout #3" in shown[5]
    assert '"text": "HELLO"' in run(home, "tape", "show", "monday", "--full", "--from", "6")
    lines = run(home, "tape", "show", str(place), "--method", "tools/call", "--json").splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [6, 7]


def test_recording_does_not_overwrite_an_existing_tape_without_the_overwrite_option(
    home: dict[str, str], file: Path
) -> None:
    record("monday", file, home)
    done = fairlead("record", "monday", *run_by(file), input="", env=home)
    assert done.returncode == 1
    assert "tape 'monday' already exists" in done.stderr
    record("monday", file, home, "x", options=("--overwrite",))
    assert len(run(home, "tape", "show", "monday").splitlines()) == 7


def test_secrets_in_server_results_are_not_recorded(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    record("monday", file, home, "Bearer abcdef123456")
    for written in (tmp_path / "home" / "data" / "tapes").iterdir():
        assert b"abcdef123456" not in written.read_bytes()
    record("tuesday", file, home, "Bearer abcdef123456", options=("--keep-secrets",))
    assert "abcdef123456" in run(home, "tape", "show", "tuesday", "--json")


def test_tape_diff_reports_the_differences_of_two_tapes(home: dict[str, str], file: Path) -> None:
    record("one", file, home, "a", "b")
    record("two", file, home, "a", "c")
    record("three", file, home, "a")
    assert "no differences" in run(home, "tape", "diff", "one", "one")
    changes = json.loads(run(home, "tape", "diff", "one", "two", "--json", code=1))
    assert [[d["path"] for d in change["differences"]] for change in changes] == [
        ["params.arguments.text"],
        ["result.content.0.text", "result.structuredContent.result"],
    ]
    ignored = (
        "--ignore",
        "params.arguments",
        "--ignore",
        "result.content.*.text",
        "--ignore",
        "result.structuredContent",
    )
    assert "no differences" in run(home, "tape", "diff", "one", "two", *ignored)
    shown = run(home, "tape", "diff", "one", "three", code=1).splitlines()
    assert shown == ["- 8 tools/call shout", "- 9 result"]
    assert "invalid path" in run(home, "tape", "diff", "one", "two", "--ignore", "a..b", code=2)


def test_a_tape_can_be_trimmed_and_deleted(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    record("one", file, home, "a", "b")
    out = run(home, "tape", "trim", "one", "--from", "8", "-o", "short", "--json")
    assert json.loads(out)["entries"] == 5
    lines = run(home, "tape", "show", "short").splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "8", "9"]
    assert len(run(home, "tape", "show", "one").splitlines()) == 9
    assert "no entry of" in run(home, "tape", "trim", "one", "--session", "s9", code=1)
    assert len(run(home, "tape", "show", "one").splitlines()) == 9
    assert "Folder not found" in run(home, "tape", "list", str(tmp_path / "none"), code=1)
    assert run(home, "tape", "delete", "one", "short").count("deleted") == 4
    assert list((tmp_path / "home" / "data" / "tapes").iterdir()) == []
    assert "Tape not found" in run(home, "tape", "delete", "one", code=1)
    assert "did you mean `fairlead tape trim`?" in run(home, "tape", "trin", code=2)


def test_a_tape_that_is_being_recorded_is_not_replaced(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    record("one", file, home, "a")
    with TapeWriter(tmp_path / "live") as tape:
        said = run(home, "tape", "trim", "one", "-o", str(tmp_path / "live"), code=1)
        assert "is being recorded" in said
        tape.write(b"{}", Direction.CLIENT_TO_SERVER)
    assert len(read_tape(tmp_path / "live")) == 1


def test_a_tape_is_exported_as_har(tmp_path: Path, home: dict[str, str], file: Path) -> None:
    record("one", file, home, "a")
    archive = json.loads(run(home, "tape", "export", "one", "--har"))
    log = archive["log"]
    assert log["version"] == "1.2"
    assert [entry["comment"].split()[-1] for entry in log["entries"]] == [
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
    ]
    last = log["entries"][-1]
    assert json.loads(last["request"]["postData"]["text"])["params"]["name"] == "shout"
    assert json.loads(last["response"]["content"]["text"])["result"]["content"][0]["text"] == "A"
    # HAR 1.2 requires these members in every entry.
    for entry in log["entries"]:
        assert {"startedDateTime", "time", "request", "response", "cache", "timings"} <= set(entry)
        assert {"method", "url", "httpVersion", "cookies", "headers", "queryString"} <= set(
            entry["request"]
        )
        assert {"status", "statusText", "content", "redirectURL"} <= set(entry["response"])


@pytest.mark.slow
def test_a_tape_is_exported_as_a_pytest_test(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    record("one", file, home, "a")
    made = tmp_path / "tests" / "test_one.py"
    made.parent.mkdir()
    run(home, "tape", "export", "one", "--pytest", "-o", str(made))

    def passes() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )

    done = passes()
    assert done.returncode == 0, done.stdout
    server_file(tmp_path, TOOLS.replace("upper", "lower"))
    done = passes()
    assert done.returncode == 1
    assert "result.content.0.text: A -> a" in done.stdout


def test_recording_on_a_full_disk_does_not_interrupt_the_conversation(
    tmp_path: Path, home: dict[str, str], file: Path
) -> None:
    """Files are limited to 8 kB, so the tape becomes full; the client must not be affected."""
    command = [sys.executable, "-m", "fairlead", "record", "full", *run_by(file)]
    texts = [f"hello {n}" for n in range(60)]
    limited = ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *command]
    said: list[str] = []
    assert visit(program=limited, texts=texts, env=home, on_stderr=said.append) == [
        text.upper() for text in texts
    ]
    assert sum("could not be recorded" in line for line in said) == 1, said
    (tape,) = json.loads(run(home, "tape", "list", "--json"))
    assert tape["lost"] > 40
    assert tape["size"] <= 8192
    shown = fairlead("tape", "show", "full", env=home)
    assert f"{tape['lost']} messages were lost" in shown.stderr
    assert "could not be read" not in shown.stderr


@pytest.mark.parametrize("command", [("tape", "show"), ("tape", "export", "--har"), ("replay",)])
def test_a_file_that_is_not_a_tape_is_an_error(
    tmp_path: Path, home: dict[str, str], command: tuple[str, ...]
) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("Dear all,\nthis is not a tape.\n")
    said = run(home, *command[:2], str(other), *command[2:], code=1)
    assert f"{other} is not a tape" in said
