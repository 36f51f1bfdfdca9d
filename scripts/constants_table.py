"""Table for docs/limits.md: the numbers in the source that no setting changes."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from settings_tables import amount

__all__ = ["Constant", "constants", "constants_table"]

_SOURCES = Path(__file__).resolve().parent.parent / "src" / "fairlead"
_UNITS = ("seconds", "bytes")  # units that a comment may begin with
# Error codes, character tables and user interfaces are not limits.
_LEFT_OUT = ("wire/error_codes.py", "wire/json.py", "cli/", "demo/")


class Constant(NamedTuple):
    """One or more numbers assigned to an upper-case name in a module or class."""

    module: str
    name: str
    values: tuple[float, ...]
    about: str


def constants() -> Iterator[Constant]:
    """Yield the numeric constants of all modules, in the order of the source."""
    for path in sorted(_SOURCES.rglob("*.py")):
        module = str(path.relative_to(_SOURCES))
        if not module.startswith(_LEFT_OUT):
            yield from constants_of(module, path.read_text())


def constants_of(module: str, text: str) -> Iterator[Constant]:
    """Yield the numeric constants of one module, with the comment behind or above each."""
    lines = text.splitlines()
    comments = _comments(text)
    for name, value, node in _assignments(ast.parse(text).body):
        members = value.elts if isinstance(value, ast.Tuple) else [value]
        numbers = tuple(one for one in map(_number, members) if one is not None)
        if not numbers or len(numbers) < len(members):
            continue
        about = comments.get(node.end_lineno or node.lineno, "")
        first = node.lineno - 1
        above = []
        while not about and lines[first - 1].startswith("#"):
            above.insert(0, comments[first])
            first -= 1
        yield Constant(module, name, numbers, about or " ".join(above))


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, ast.stmt]]:
    """Yield names in upper case with their values, those of classes as well."""
    for node in body:
        pairs: list[tuple[ast.expr, ast.expr]] = []
        match node:
            case ast.ClassDef() if "Enum" not in "".join(map(ast.unparse, node.bases)):
                for name, value, inner in _assignments(node.body):
                    yield f"{node.name}.{name}", value, inner
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                pairs = list(zip(targets, values, strict=True))
            case ast.Assign([target], value):
                pairs = [(target, value)]
            case ast.AnnAssign(target, _, ast.expr() as value):
                pairs = [(target, value)]
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id.lstrip("_").isupper():
                yield target.id, value, node


def constants_table() -> str:
    """Return the constants of all modules as a table."""
    lines = ["| Module | Name | Value | Meaning |", "|---|---|---|---|"]
    for one in constants():
        unit, about = _unit(one.about)
        # Whole numbers without a fraction, so that `:g` does not round a long one.
        whole = (int(value) if value == int(value) else value for value in one.values)
        values = ", ".join(amount(value, unit) for value in whole)
        lines.append(f"| `{one.module}` | `{one.name}` | {values} | {about} |")
    return "\n".join(lines) + "\n"


def _unit(about: str) -> tuple[str, str]:
    """Return the unit with which a comment begins, and the comment without a separate unit."""
    for unit in _UNITS:
        rest = about.removeprefix(unit)
        if rest != about and not rest[:1].isalpha():
            # "seconds; 0: never" loses its unit, "seconds between two checks" needs it.
            return unit, about if rest.startswith(" ") else rest.lstrip(" ;,:")
    return "", about


def _comments(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = (token for token in tokens if token.type == tokenize.COMMENT)
    return {token.start[0]: token.string.lstrip("# ") for token in found}


def _number(node: ast.expr) -> float | None:
    """Return the value of an expression that consists of numbers; None for other expressions."""
    match node:
        case ast.Constant(bool()):
            return None
        case ast.Constant(int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), inner):
            value = _number(inner)
            return None if value is None else -value
        case ast.BinOp(left, _, right):
            if _number(left) is None or _number(right) is None:
                return None
            return _evaluate(node)
    return None


def _evaluate(node: ast.expr) -> float:
    """Compute an expression that consists of numbers and operators only."""
    value: float = eval(compile(ast.Expression(node), "constant", "eval"), {})
    return value
