"""The official conformance suite: an npm package, installed once, run as a process."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
NODE = 22  # the oldest version that the package supports

HOME = Path(__file__).parents[2] / ".venv" / "conformance"
SECONDS = 30  # timeout in seconds for one scenario

Check = dict[str, Any]


class Unavailable(Exception):
    """The suite cannot be run on this machine; the message contains the reason."""


class Suite:
    """The installed suite, which runs scenarios and returns their checks.

    Raises:
        Unavailable: Node or npm is missing, or they cannot install the suite.
    """

    def __init__(self) -> None:
        self._entry = HOME / "node_modules" / PACKAGE / "dist" / "index.js"
        missing = []
        node = _good(shutil.which("node")) or _good(HOME / "node_modules" / ".bin" / "node")
        if node is None:
            missing.append(f"node@{NODE}")
        if self._installed() != VERSION:
            missing.append(f"{PACKAGE}@{VERSION}")
        if missing:
            _install(missing)
            node = node or _good(HOME / "node_modules" / ".bin" / "node")
        if node is None:
            raise Unavailable(f"Node {NODE} or newer is missing, and npm could not install it")
        self._node = node

    def _installed(self) -> str | None:
        try:
            about = json.loads((self._entry.parents[1] / "package.json").read_text())
        except FileNotFoundError:
            return None
        return str(about["version"])

    @cache  # noqa: B019 - there is one suite object for the whole run
    def required(self, leg: str, revision: str) -> list[str]:
        """Return the scenarios that the suite lists for a revision."""
        text = self._run("list", "--requirements", revision)
        return list(_listed(text, leg))

    def outside(self, leg: str) -> list[str]:
        """Return the scenarios that the suite lists for no revision."""
        everything = re.findall(r"^  - (\S+) \[", self._run("list", f"--{leg}"), re.MULTILINE)
        inside = {name for revision in REVISIONS for name in self.required(leg, revision)}
        return [name for name in everything if name not in inside]

    def run_all(self, url: str, revision: str, results: Path) -> tuple[dict[str, list[Check]], str]:
        """Run all server scenarios of a revision, and return the checks of each and the output.

        A single process is much faster than one for each scenario.
        """
        target = ("server", "--url", url, "--timeout", str(SECONDS * 1000))
        said = self._run(*target, "--requirements", revision, "-o", str(results), limit=SECONDS * 8)
        found = {}
        for file in results.glob("server-*/checks.json"):
            match = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", file.parent.name)
            if match is not None:
                found[match[1]] = json.loads(file.read_text())
        return found, said

    def run_one(
        self, leg: str, target: str, scenario: str, revision: str | None, results: Path
    ) -> tuple[list[Check], str]:
        """Run one scenario, and return its checks and the output of the suite."""
        where = ("--url", target) if leg == "server" else ("--command", target)
        which = () if revision is None else ("--spec-version", revision, "--force")
        limits = ("--timeout", str(SECONDS * 1000), "-o", str(results))
        said = self._run(leg, *where, "--scenario", scenario, *which, *limits, limit=SECONDS + 15)
        files = sorted(results.rglob("checks.json"))
        return (json.loads(files[-1].read_text()) if files else []), said

    def _run(self, *arguments: str, limit: float = SECONDS) -> str:
        """Run the suite and return its output. The exit code is ignored."""
        command = [str(self._node), str(self._entry), *arguments]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return f"the suite did not end within {limit} s"
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace"))


def _listed(text: str, leg: str) -> Iterator[str]:
    """Yield the scenarios of a leg in the output of `list --requirements`.

    The output has a section for each leg, and one for scenarios of both legs.
    """
    part = item = ""
    for line in text.splitlines():
        if line[:1].strip():
            part = line.partition(" ")[0].lower()
            item = rf"    - (\S+) \[{leg}\]" if part == "run" else r"  - (\S+)"
        elif part in (leg, "run") and (match := re.fullmatch(item, line)):
            yield match[1]


def _good(node: str | Path | None) -> Path | None:
    """Return the path of a Node executable if it exists and is new enough."""
    if node is None or not Path(node).exists():
        return None
    asked = subprocess.run([str(node), "--version"], capture_output=True, text=True)
    match = re.match(r"v(\d+)\.", asked.stdout)
    return Path(node) if match is not None and int(match[1]) >= NODE else None


def _install(packages: list[str]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    print("installing", " and ".join(packages), flush=True)
    HOME.mkdir(parents=True, exist_ok=True)
    if not (HOME / "package.json").exists():
        (HOME / "package.json").write_text('{"private": true}')
    # --force: the Node that runs npm may be older than the one that runs the package.
    command = [npm, "install", "--no-audit", "--no-fund", "--force", "--loglevel=error", *packages]
    try:
        subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=300, check=True)
    except subprocess.CalledProcessError as exc:
        raise Unavailable(f"npm could not install the suite: {exc.stderr[-500:]}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"npm could not install the suite: {exc}") from exc
