"""Tests of locks on folders."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.config.files import file_lock as locking
from fairlead.config.files.file_lock import lock_folder

HOLDER = """
import sys
from pathlib import Path
from fairlead.config.files.file_lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_until_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "LIMIT", 0.05)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(OSError, match="another process has locked"),
            lock_folder(tmp_path),
        ):
            pass
        other.kill()
        other.wait(30)
    with lock_folder(tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_locking_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), lock_folder(tmp_path / "none"):
        pass


def test_waiting_for_a_lock_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = 1000.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += 1.0

    monkeypatch.setattr(locking.time, "monotonic", lambda: now)
    monkeypatch.setattr(locking.time, "sleep", sleep)
    with (
        lock_folder(tmp_path),
        pytest.raises(TimeoutError, match="another process has locked"),
        lock_folder(tmp_path),
    ):
        pytest.fail("the lock was acquired twice")
    assert len(waits) == locking.LIMIT + 1
    waits.clear()
    with lock_folder(tmp_path):
        assert waits == []
