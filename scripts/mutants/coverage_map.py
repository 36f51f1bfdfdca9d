"""Map from source lines to the tests that execute them, stored in an SQLite file.

Each test file is recorded once, and again when its text changes. Sources may change in between: the
recorded text of a module is stored, and line numbers are translated to the current text.
"""

import difflib
import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from coverage.numbits import num_in_numbits, numbits_to_nums, nums_to_numbits

from .operators import Mutant
from .workspace import CACHE, ROOT, Workspace

__all__ = ["CoverageMap", "Test"]

# Tests that need Node, nginx or the network, or that run for minutes.
_EXCLUDED = (
    "tests/conformance/",
    "tests/interop/test_nginx",
    "tests/interop/test_http_typescript",
    "tests/interop/test_public_servers",
    "tests/interop/test_replay_everything",
    "tests/interop/test_tap_typescript",
    "tests/interop/test_typescript",
    "tests/interop/test_wheel",
)
_CHUNK = 6  # test files per process: a recording can be interrupted and continued
_LIMIT = 1200.0  # seconds for one chunk
_HERE = Path(__file__).parent

_SCHEMA = """
create table if not exists file(path text primary key, digest text);
create table if not exists test(id integer primary key, file text, name text, seconds real);
create table if not exists text(id integer primary key, module text, digest text, text blob,
                                unique(module, digest));
create table if not exists hit(test integer, text integer, module text, lines blob);
create index if not exists hit_module on hit(module);
create index if not exists test_file on test(file);
"""


@dataclass(frozen=True)
class Test:
    """A test that passes, with the time it took while it was recorded."""

    file: str
    name: str
    seconds: float


class CoverageMap:
    """Tests by source line."""

    def __init__(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self._store = sqlite3.connect(CACHE / "map.sqlite", check_same_thread=False)
        self._store.executescript(_SCHEMA)

    def stale(self, only: Sequence[str] = ()) -> list[str]:
        """Return the test files whose current text was not recorded."""
        known = dict(self._store.execute("select path, digest from file"))
        found = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
        return [
            path
            for path in found
            if not path.startswith(_EXCLUDED)
            and (not only or path.startswith(tuple(only)))
            and known.get(path) != _digest((ROOT / path).read_bytes())
        ]

    def record(self, files: Sequence[str], workspaces: Sequence[Workspace]) -> None:
        """Run test files and store the lines that they execute."""
        chunks = [files[at : at + _CHUNK] for at in range(0, len(files), _CHUNK)]
        idle: SimpleQueue[Workspace] = SimpleQueue()
        for workspace in workspaces:
            idle.put(workspace)

        def one(chunk: Sequence[str]) -> tuple[Sequence[str], Path]:
            workspace = idle.get()
            try:
                return chunk, _record(workspace, chunk)
            finally:
                idle.put(workspace)

        with ThreadPoolExecutor(len(workspaces)) as pool:
            for number, (chunk, output) in enumerate(pool.map(one, chunks), 1):
                self._store_chunk(chunk, output, workspaces[0].root)
                shutil.rmtree(output)
                print(f"  recorded {number} of {len(chunks)}: {', '.join(chunk)}", flush=True)

    def _store_chunk(self, chunk: Sequence[str], output: Path, root: Path) -> None:
        told = json.loads((output / "tests.json").read_text())
        with self._store as store:
            for path in chunk:
                store.execute(
                    "delete from hit where test in (select id from test where file = ?)", [path]
                )
                store.execute("delete from test where file = ?", [path])
                text = (root / path).read_bytes()
                store.execute("insert or replace into file values(?, ?)", [path, _digest(text)])
            ids = {}
            unusable = {*told["failed"], *told["skipped"]}
            for name, seconds in told["seconds"].items():
                if name not in unusable:
                    row = [name.partition("::")[0], name, seconds]
                    added = store.execute(
                        "insert into test(file, name, seconds) values(?,?,?)", row
                    )
                    ids[name] = added.lastrowid
            for (module, name), lines in _hits(output, list(ids)).items():
                text_id = self._text_id(module, (root / "src" / "fairlead" / module).read_bytes())
                row = [ids[name], text_id, module, nums_to_numbits(lines)]
                store.execute("insert into hit values(?, ?, ?, ?)", row)

    def _text_id(self, module: str, text: bytes) -> int:
        row = [module, _digest(text)]
        add = "insert or ignore into text(module, digest, text) values(?, ?, ?)"
        self._store.execute(add, [*row, text])
        query = "select id from text where module = ? and digest = ?"
        return int(self._store.execute(query, row).fetchone()[0])

    def tests_for(self, mutant: Mutant) -> list[Test]:
        """Return the tests that execute the changed line, in no particular order."""
        if not mutant.names:
            return self._tests_at(mutant.module, range(mutant.extent[0], mutant.extent[1] + 1))
        # The statement runs on import, so the tests of the lines that use its names are selected.
        found: set[Test] = set()
        for module, lines in _mentions(mutant.names).items():
            found.update(self._tests_at(module, lines))
        return list(found or self._tests_at(mutant.module, None))

    def tests_in(self, wanted: Callable[[str], bool]) -> list[Test]:
        """Return the tests of some files."""
        rows = self._store.execute("select file, name, seconds from test")
        return [Test(*row) for row in rows if wanted(row[0])]

    def tests_near(self, mutant: Mutant) -> list[Test]:
        """Return the tests of the function, or else of the file, around a line.

        Not every executed line is recorded: Python 3.11 traces nothing in a coroutine after an
        exception was thrown into what it awaits, and a process that is killed saves nothing.
        """
        first, last = mutant.function
        found = self._tests_at(mutant.module, range(first, last + 1))
        return found or self._tests_at(mutant.module, None)

    def _tests_at(self, module: str, lines: Iterable[int] | None) -> list[Test]:
        query = (
            "select file, name, seconds, hit.text, lines from hit join test on test.id = hit.test"
            " where module = ?"
        )
        wanted: dict[int, set[int] | None] = {}
        found = []
        for file, name, seconds, text, bits in self._store.execute(query, [module]):
            if text not in wanted:
                wanted[text] = None if lines is None else self._then(text, module, set(lines))
            then = wanted[text]
            if then is None or any(num_in_numbits(line, bits) for line in then):
                found.append(Test(file, name, seconds))
        return found

    def _then(self, text: int, module: str, lines: set[int]) -> set[int]:
        """Translate line numbers of the current source to those of a recorded version."""
        query = "select text from text where id = ?"
        then = bytes(self._store.execute(query, [text]).fetchone()[0])
        now = (ROOT / "src" / "fairlead" / module).read_bytes()
        if then == now:
            return lines
        found = set()
        matcher = difflib.SequenceMatcher(None, now.splitlines(), then.splitlines(), autojunk=False)
        for tag, a1, a2, b1, b2 in matcher.get_opcodes():
            if tag == "equal":
                found |= {line - a1 + b1 for line in lines if a1 < line <= a2}
            elif any(a1 < line <= a2 for line in lines):
                # For a changed line, take the block that it replaced, or the lines around an
                # insertion.
                found |= set(range(b1, b2 + 2))
        return found


def _record(workspace: Workspace, chunk: Sequence[str]) -> Path:
    output = CACHE / "recordings" / hashlib.sha256("".join(chunk).encode()).hexdigest()[:12]
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    environment = workspace.python.parents[1]
    shutil.copy(_HERE / "child_recorder.py", workspace.site_packages)
    (environment / "recording").write_text(f"{output}\n{workspace.sources}")
    hook = workspace.site_packages / "child_recorder.pth"
    (environment / "current_test").write_text("")
    hook.write_text("import child_recorder\n")
    common = ["-m", "pytest", "-p", "no:cacheprovider", "-q", "--hypothesis-seed=0"]
    variables = {
        "PYTHONPATH": str(_HERE),
        "MUTANTS_OUTPUT": str(output),
        "MUTANTS_SOURCES": str(workspace.sources),
    }
    try:
        run = workspace.run(
            [*common, "-p", "recorder", *chunk], _LIMIT, MUTANTS_MAIN="1", **variables
        )
    finally:
        hook.unlink()
        (environment / "recording").unlink()
    (output / "output.txt").write_text(run.output)
    if not (output / "tests.json").exists():
        told: dict[str, object] = {"seconds": {}, "failed": [], "skipped": []}
        (output / "tests.json").write_text(json.dumps(told))
        print(f"  no result for {' '.join(chunk)}:\n{run.output[-2000:]}")
        return output
    told = json.loads((output / "tests.json").read_text())
    failed = told["failed"]
    # Some tests count frames or modules, which the recorder changes: run these without it.
    if failed:
        again = workspace.run([*common, "-rfE", *failed], _LIMIT)
        still = set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", again.output, re.M))
        told["failed"] = [name for name in failed if name in still]
        (output / "tests.json").write_text(json.dumps(told))
        for name in told["failed"]:
            print(f"  fails without a mutant, not used: {name}")
    return output


def _hits(output: Path, tests: list[str]) -> dict[tuple[str, str], set[int]]:
    """Read the lines by module and test from the files of coverage."""
    known = set(tests)
    found: dict[tuple[str, str], set[int]] = {}
    for path in output.glob("*.coverage*"):
        if path.suffix == ".shared":
            continue
        shared = path.with_name(path.name + ".shared").exists()
        with sqlite3.connect(path) as store:
            query = (
                "select file.path, context.context, numbits from line_bits"
                " join file on file.id = file_id join context on context.id = context_id"
            )
            try:
                rows = list(store.execute(query))
            except sqlite3.DatabaseError:
                continue  # a child that was killed while it wrote
        for name, context, bits in rows:
            module = name.partition("/src/fairlead/")[2]
            file = context.partition("::")[0]
            names = [context] if not shared else [one for one in tests if one.startswith(file)]
            for one in names:
                if one in known:
                    found.setdefault((module, one), set()).update(numbits_to_nums(bits))
    return found


def _mentions(names: tuple[str, ...]) -> dict[str, set[int]]:
    """Return the lines of all modules that mention one of the names."""
    word = re.compile(rb"\b(?:" + b"|".join(re.escape(name).encode() for name in names) + rb")\b")
    sources = ROOT / "src" / "fairlead"
    found: dict[str, set[int]] = {}
    for path in sources.rglob("*.py"):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            if word.search(line):
                found.setdefault(str(path.relative_to(sources)), set()).add(number)
    return found


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
