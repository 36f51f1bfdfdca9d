"""Tests of the output files of `fairlead tape`, which are replaced only with --force."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.protocol.envelope import Direction
from fairlead.recording.tape import TapeWriter, read_tape
from fairlead.recording.tape.tape_reader import TapeReader
from fairlead.recording.tape.trim import EntrySelection, trim
from tests.support.cli_process import LIMIT, fairlead, talk

CALL = {
    "id": 1,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"text": "x" * 900}},
}
EXPORT = ("tape", "export", "./one", "--har", "-o")
TRIM = ("tape", "trim", "./one", "-o")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TapeWriter(tmp_path / "one", about={"command": ["true"]}) as tape:
        for line in talk(CALL).splitlines():
            tape.write(line.encode(), Direction.CLIENT_TO_SERVER, "s1")
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@pytest.mark.parametrize("kind", ["--har", "--pytest"])
def test_an_export_replaces_a_file_only_with_force(folder: Path, kind: str) -> None:
    out = folder / "out"
    out.write_text("somebody's work")
    command = ("tape", "export", "./one", kind, "-o", "out")
    refused = fairlead(*command, cwd=folder)
    assert refused.returncode == 1
    assert "File exists: out" in refused.stderr
    assert "--force" in refused.stderr
    assert out.read_text() == "somebody's work"
    for word in ("--force", "--overwrite"):
        done = fairlead(*command, word, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "somebody" not in out.read_text()
        assert out.stat().st_mode & 0o077 == 0
    assert names(folder) == ["one.tape.json", "one.tape.jsonl", "out"]


@pytest.mark.parametrize("there", ["two.tape.jsonl", "two.tape.json"])
def test_a_trimmed_tape_replaces_another_only_with_force(folder: Path, there: str) -> None:
    old = folder / there
    old.write_text("somebody's work")
    refused = fairlead(*TRIM, "./two", cwd=folder)
    assert refused.returncode == 1
    assert f"File exists: {there}" in refused.stderr
    assert "--force" in refused.stderr
    assert old.read_text() == "somebody's work"
    assert len(names(folder)) == 3
    done = fairlead(*TRIM, "./two", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(read_tape(folder / "two")) == 3
    # the tape itself may be replaced
    again = fairlead("tape", "trim", "./two", "--to", "2", cwd=folder)
    assert (again.returncode, len(read_tape(folder / "two"))) == (0, 2), again.stderr


def test_the_help_text_describes_the_force_option(folder: Path) -> None:
    for command in ("trim", "export"):
        assert "replace an existing file" in fairlead("tape", command, "--help").stdout


def test_trimming_replaces_all_files_of_a_tape(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "one", max_bytes=300) as tape:
        for line in talk(CALL, CALL, CALL).splitlines():
            tape.write(line.encode(), Direction.CLIENT_TO_SERVER, "s1")
    assert tape.info.parts > 2
    assert trim(TapeReader(tmp_path / "one"), EntrySelection(last=4), tmp_path / "one") == 4
    assert [entry.seq for entry in read_tape(tmp_path / "one")] == [1, 2, 3, 4]
    assert names(tmp_path) == ["one.tape.json", "one.tape.jsonl"]


@pytest.mark.parametrize("command", [(*EXPORT, "out.tape.jsonl"), (*TRIM, "./out")])
def test_an_output_file_stays_unchanged_if_the_disk_is_full(
    folder: Path, command: tuple[str, ...]
) -> None:
    old = {name: (folder / name) for name in ("out.tape.json", "out.tape.jsonl")}
    for place in old.values():
        place.write_text("{}")
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", *command, "--force"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        # Larger files cannot be written, as on a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert [place.read_text() for place in old.values()] == ["{}", "{}"]
    assert names(folder) == ["one.tape.json", "one.tape.jsonl", *old]


def test_export_writes_through_symbolic_links_and_into_pipes(folder: Path) -> None:
    (folder / "real.har").write_text("old")
    (folder / "link.har").symlink_to("real.har")
    assert fairlead(*EXPORT, "link.har", cwd=folder).returncode == 1
    done = fairlead(*EXPORT, "link.har", "--force", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "link.har").is_symlink()
    assert json.loads((folder / "real.har").read_text())["log"]["version"] == "1.2"
    shown = fairlead(*EXPORT, "/dev/stdout", cwd=folder)
    assert json.loads(shown.stdout)["log"]["version"] == "1.2", shown.stderr
    refused = fairlead(*EXPORT, ".", "--force", cwd=folder)
    assert (refused.returncode, "the path is a directory" in refused.stderr) == (1, True), (
        refused.stderr
    )
