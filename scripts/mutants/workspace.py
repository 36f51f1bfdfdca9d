"""Copy of the repository with an environment that imports the copy, also in child processes."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CACHE", "ROOT", "Finished", "Workspace"]

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "mutants"
_MEMORY = 6 << 30  # bytes; a mutant with unlimited allocations must not exhaust the machine


@dataclass(frozen=True)
class Finished:
    """The outcome of a command. `code` is None when the time limit ended it."""

    code: int | None
    output: str
    seconds: float


class Workspace:
    """A copy of the working tree below `.cache/mutants`, for one process at a time."""

    def __init__(self, name: str) -> None:
        self.root = CACHE / "workspaces" / name
        self.sources = self.root / "src" / "fairlead"
        self._environment = self.root / ".venv"
        self.python = self._environment / "bin" / "python"
        self.temporary = CACHE / "tmp" / name
        self._written = int(time.time())

    def prepare(self) -> None:
        """Copy the working tree and build the environment. Existing copies are updated."""
        self.root.mkdir(parents=True, exist_ok=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
        wanted = {name for name in names.decode().split("\0") if name and (ROOT / name).is_file()}
        for name in wanted:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
                shutil.copy2(ROOT / name, target)
        for folder in ("src", "tests"):
            for path in (self.root / folder).rglob("*.py"):
                if str(path.relative_to(self.root)) not in wanted:
                    path.unlink()
        self._build_environment()
        self._check_import()

    def _build_environment(self) -> None:
        if not self.python.exists():
            command = [sys.executable, "-m", "venv", "--without-pip", str(self._environment)]
            subprocess.run(command, check=True)
        base = sysconfig.get_path("purelib")
        # The copy comes before the packages of the real environment, whose editable install
        # names the real sources. A `.pth` file works without environment variables.
        lines = [str(self.root / "src"), f"import site; site.addsitedir({base!r})"]
        (self.site_packages / "workspace.pth").write_text("\n".join(lines) + "\n")
        for script in (Path(sys.executable).parent).iterdir():
            target = self.python.with_name(script.name)
            if script.is_file() and not target.exists() and script.read_bytes()[:2] == b"#!":
                text = script.read_bytes().replace(
                    str(Path(sys.executable).parent).encode(), str(self.python.parent).encode()
                )
                target.write_bytes(text)
                target.chmod(0o755)

    @property
    def site_packages(self) -> Path:
        """The directory for packages and `.pth` files of this environment."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self._environment / "lib" / version / "site-packages"

    def _check_import(self) -> None:
        command = [str(self.python), "-c", "import fairlead; print(fairlead.__file__)"]
        found = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=True)
        if not found.stdout.startswith(str(self.sources)):
            raise SystemExit(f"the workspace imports {found.stdout.strip()}, not its own copy")

    @contextlib.contextmanager
    def changed(self, module: str, text: bytes) -> Iterator[None]:
        """Replace one source file while the context lasts."""
        path = self.sources / module
        original = path.read_bytes()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, original)

    def _write(self, path: Path, text: bytes) -> None:
        path.write_bytes(text)
        # Cached byte code is keyed by size and whole seconds, which two mutants may share.
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            cached.unlink()
        self._written += 1
        os.utime(path, (self._written, self._written))

    def run(self, arguments: Sequence[str], limit: float, **variables: str) -> Finished:
        """Run Python in the copy; kill it and all its child processes after `limit` seconds."""
        shutil.rmtree(self.root / ".hypothesis", ignore_errors=True)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV", "COV", "FAIRLEAD_", "MAKE"))
        }
        environment |= {"TMPDIR": str(self.temporary), **variables}
        output = self.temporary / "output"
        begun = time.monotonic()
        with output.open("wb") as stream:
            child = subprocess.Popen(
                [str(self.python), *arguments],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            resource.prlimit(child.pid, resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            code: int | None
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                self._end_leftovers()
        seconds = time.monotonic() - begun
        return Finished(code, output.read_text(errors="replace"), seconds)

    def _end_leftovers(self) -> None:
        """Kill processes that run from this workspace and left the process group of their test."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                program = (entry / "cmdline").read_bytes().split(b"\0")[0]
                place = os.readlink(entry / "cwd")
                if program.startswith(bytes(self.python.parent)) or place.startswith(
                    (f"{self.root}/", f"{self.temporary}/")
                ):
                    os.kill(int(entry.name), signal.SIGKILL)
