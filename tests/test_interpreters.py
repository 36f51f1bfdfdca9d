"""Tests of the script that finds the interpreters for `make test-versions`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "interpreters.py"
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHERS = sorted({"3.11", "3.12", "3.13", "3.14"} - {THIS})


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def working(path: Path) -> Path:
    """Create a program that starts the interpreter that runs the tests."""
    return program(path, f'exec {sys.executable} "$@"')


def search(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script for a user with this home directory, with `home/bin` as the PATH."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env={"HOME": str(home), "PATH": str(home / "bin"), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


PLACES = {
    "PATH": f"bin/python{THIS}",
    "pyenv": f".pyenv/versions/{THIS}.7/bin/python3",
    "uv": f".local/share/uv/python/cpython-{THIS}.9-linux-x86_64-gnu/bin/python3",
}


@pytest.mark.parametrize("place", PLACES)
def test_an_interpreter_is_found_in_the_path_and_in_the_folders_of_pyenv_and_uv(
    tmp_path: Path, place: str
) -> None:
    path = working(tmp_path / PLACES[place])
    done = search(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{THIS}\n")
    assert f"Python {THIS}: {path}\n" in done.stderr
    for version in OTHERS:
        assert f"Python {version}: not found\n" in done.stderr
    assert search(tmp_path, THIS).stdout == f"{path}\n"


def test_the_folders_of_pyenv_and_uv_can_be_set_by_their_variables(tmp_path: Path) -> None:
    pyenv = working(tmp_path / f"a/versions/{THIS}.1/bin/python3")
    assert search(tmp_path, THIS, PYENV_ROOT=str(tmp_path / "a")).stdout == f"{pyenv}\n"
    uv = working(tmp_path / f"b/cpython-{THIS}.1-linux/bin/python3")
    assert search(tmp_path, THIS, UV_PYTHON_INSTALL_DIR=str(tmp_path / "b")).stdout == f"{uv}\n"


def test_a_shim_without_an_interpreter_is_skipped(tmp_path: Path) -> None:
    program(tmp_path / f"bin/python{THIS}", "exit 127")
    path = working(tmp_path / PLACES["pyenv"])
    assert search(tmp_path, THIS).stdout == f"{path}\n"


def test_the_newest_release_of_a_version_is_used(tmp_path: Path) -> None:
    working(tmp_path / f".pyenv/versions/{THIS}.9/bin/python3")
    newest = working(tmp_path / f".pyenv/versions/{THIS}.10/bin/python3")
    assert search(tmp_path, THIS).stdout == f"{newest}\n"


def test_a_machine_without_an_interpreter_is_an_error_that_names_the_places(tmp_path: Path) -> None:
    done = search(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no interpreter found for Python 3.11, 3.12, 3.13, 3.14: looked in PATH" in done.stderr
    assert str(tmp_path / ".pyenv/versions") in done.stderr
    assert str(tmp_path / ".local/share/uv/python") in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_test_versions_runs_the_tests_on_each_version_that_is_found(tmp_path: Path) -> None:
    working(tmp_path / PLACES["uv"])
    done = subprocess.run(
        [shutil.which("make") or "", "-n", "test-versions", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        env={"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f".cache/python{THIS}/bin/python -m pytest" in done.stdout
    assert not any(f".cache/python{version}/" in done.stdout for version in OTHERS)
