"""Environments of the peers, created once below `bench/.env/` with pinned versions."""

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
    """A peer cannot be installed on this machine; the message has the reason."""


def python(name: str) -> Path:
    """Return the interpreter of a Python peer with its packages.

    Raises:
        Missing: pip cannot install them.
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
    """Return the directory with `FASTER`, for the path of tuned peers.

    It is separate from their environments, where it would change their default configuration.

    Raises:
        Missing: pip cannot install them.
    """
    home = _ENV / "faster"

    def build() -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "--no-deps", "--target", str(home), *FASTER])

    _once(home, FASTER, build)
    return home


def node(name: str = "node", pins: tuple[str, ...] = NPM) -> Path:
    """Return the directory whose `node_modules` has the TypeScript SDK or other packages.

    Raises:
        Missing: node or npm is missing, or npm cannot install.
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
    """Build `home` unless its stamp has the same pinned versions."""
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
