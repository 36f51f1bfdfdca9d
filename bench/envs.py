"""The peers' environments: made once under `bench/.env/`, every version pinned here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["BENCH", "NPM", "PYPI", "ROOT", "SUPERGATEWAY", "Missing", "faster", "node", "python"]

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
_ENV = BENCH / ".env"

PYPI = {
    "mcp": ("mcp==2.3.0",),
    "fastmcp": ("fastmcp==4.1.2",),
    "mcp-proxy": ("mcp-proxy==0.13.0",),
}
FASTER = ("uvloop==0.23.0", "httptools==0.9.0")  # not among the peers' dependencies
NPM = (
    "@modelcontextprotocol/server@2.4.0",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/node@2.1.2",
    "zod@4.6.7",
)
SUPERGATEWAY = ("supergateway@4.0.0",)


class Missing(Exception):
    """A peer cannot be set up on this machine; the message says why."""


def python(name: str) -> Path:
    """The interpreter of a Python peer, with its packages installed.

    Raises: Missing, when pip cannot install them.
    """
    home = _ENV / name
    interpreter = home / "bin" / "python"

    def build() -> None:
        _run([sys.executable, "-m", "venv", str(home)])
        pip = [str(interpreter), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, *PYPI[name]])

    _once(home, PYPI[name], build)
    return interpreter


def faster() -> Path:
    """The folder with `FASTER`, for the path of peers that run tuned.

    It is apart from their environments, where it would also change how they run by default.

    Raises: Missing, when pip cannot install them.
    """
    home = _ENV / "faster"

    def build() -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--target", str(home), *FASTER])

    _once(home, FASTER, build)
    return home


def node(name: str = "node", pins: tuple[str, ...] = NPM) -> Path:
    """The folder whose `node_modules` holds the TypeScript SDK, or other packages.

    Raises: Missing, when there is no node or npm, or npm cannot install.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        raise Missing("node and npm are not on PATH")
    home = _ENV / name

    def build() -> None:
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true, "type": "module"}\n')
        quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        _run(["npm", "install", "--prefix", str(home), *quiet, *pins])

    _once(home, pins, build)
    return home


def _once(home: Path, pins: tuple[str, ...], build: Callable[[], None]) -> None:
    """Build `home` unless its stamp already names exactly these pins."""
    stamp, wanted = home / ".stamp", "\n".join(pins)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"setting up {home.name}: {', '.join(pins)}", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    build()
    stamp.write_text(wanted)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise Missing(f"`{' '.join(command[:4])} ...` failed:\n{output[-2000:]}")
