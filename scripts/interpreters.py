"""Find the supported Python interpreters of this machine: `interpreters.py [VERSION]`.

Without an argument, the versions that were found are printed to stdout, and a report to stderr.
With a version such as 3.12, the path of its interpreter is printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")

_CHECK = "import sys, venv; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"
_LIMIT = 20  # seconds for an interpreter to start


def main(*arguments: str) -> int:
    """Print one path, or all versions and the report; return 1 if no interpreter was found."""
    found = {version: find(version) for version in arguments or VERSIONS}
    for version, path in found.items():
        if path is not None:
            print(path if arguments else version)
        if not arguments:
            print(f"Python {version}: {path or 'not found'}", file=sys.stderr)
    if any(found.values()):
        return 0
    print(
        f"no interpreter found for Python {', '.join(found)}: looked in PATH, {pyenv_folder()} "
        f"and {uv_folder()}",
        file=sys.stderr,
    )
    return 1


def find(version: str) -> str | None:
    """Return the path of a working CPython with this version: in PATH, of pyenv, or of uv."""
    return next((path for path in _candidates(version) if _works(path, version)), None)


def pyenv_folder() -> Path:
    """Return the folder in which pyenv installs interpreters."""
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def uv_folder() -> Path:
    """Return the folder in which uv installs interpreters."""
    if chosen := os.environ.get("UV_PYTHON_INSTALL_DIR"):
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "uv" / "python"


def _candidates(version: str) -> Iterator[str]:
    if in_path := shutil.which(f"python{version}"):
        yield in_path
    for folder in (
        *_newest_first(pyenv_folder().glob(f"{version}.*")),
        # Folders of other builds, for example without the global lock, have a `+` in their names.
        *_newest_first(uv_folder().glob(f"cpython-{version}.*")),
    ):
        if "+" not in folder.name:
            yield str(folder / "bin" / "python3")


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    def release(folder: Path) -> list[int]:
        return [int(digits) for digits in re.findall(r"\d+", folder.name)[:3]]

    return sorted(folders, key=release, reverse=True)


def _works(path: str, version: str) -> bool:
    """Return True if the program runs: a shim of pyenv may exist without its interpreter."""
    try:
        done = subprocess.run(
            [path, "-c", _CHECK], capture_output=True, text=True, timeout=_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.split() == ["cpython", version]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
