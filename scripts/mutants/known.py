"""Named mutants from `known_mutants.toml`, found by their text instead of their line."""

import ast
import tomllib

from .operators import Mutant, Source, what_must_run
from .workspace import ROOT

__all__ = ["known_mutants"]

_FILE = ROOT / "scripts" / "known_mutants.toml"


def known_mutants() -> list[Mutant]:
    """Return the mutants of the file.

    Raises:
        SystemExit: A text to replace is missing or occurs more than once.
    """
    found = []
    for entry in tomllib.loads(_FILE.read_text())["mutant"]:
        module, old, new = entry["module"], entry["old"], entry["new"]
        text = (ROOT / "src" / "fairlead" / module).read_bytes()
        if text.count(old.encode()) != 1:
            raise SystemExit(f"{_FILE.name}: {old!r} must occur exactly once in {module}")
        start = text.index(old.encode())
        end = start + len(old.encode())
        source = Source(text)
        line, where = source.line_of(start), what_must_run(source, _innermost(source, start))
        found.append(Mutant(module, line, start, end, "known", new, *where))
    return found


def _innermost(source: Source, offset: int) -> ast.AST:
    """Return the smallest node that contains or begins at a byte offset."""
    nodes = [node for node in ast.walk(source.tree) if hasattr(node, "lineno")]
    around = [node for node in nodes if source.span(node)[0] <= offset < source.span(node)[1]]
    if not around:
        around = [min(nodes, key=lambda node: abs(source.span(node)[0] - offset))]
    return min(around, key=lambda node: source.span(node)[1] - source.span(node)[0])
