"""Node.js and npm packages, for tests that run JavaScript programs."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

CACHE = Path(__file__).parents[3] / ".venv"  # packages are installed here once


def unavailable(why: str) -> NoReturn:
    """Skip the test, or fail it in CI, where all tools are installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def packages(folder: str, versions: Mapping[str, str]) -> Path:
    """Return a `node_modules` folder with exactly these versions; install them if necessary."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        unavailable("node and npm are not installed")
    home = CACHE / folder
    modules = home / "node_modules"
    with alone(folder):
        if any(_installed(modules / name) != version for name, version in versions.items()):
            home.mkdir(parents=True, exist_ok=True)
            (home / "package.json").write_text('{"private": true}')
            wanted = [f"{name}@{version}" for name, version in versions.items()]
            run([npm, "install", "--no-audit", "--no-fund", *wanted], home)
    return modules


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """Hold a lock, so that only one test process installs packages."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f".{what.replace('/', '-')}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(command: list[str], folder: Path) -> None:
    """Run an installer to its end, within two minutes."""
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    except subprocess.CalledProcessError as exc:
        unavailable(f"{exc}: {exc.stderr[-500:]}")
    except (OSError, subprocess.TimeoutExpired) as exc:
        unavailable(str(exc))


def _installed(package: Path) -> str | None:
    try:
        return str(json.loads((package / "package.json").read_text())["version"])
    except FileNotFoundError:
        return None
