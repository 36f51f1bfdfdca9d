"""The fixed table of mutation operators and the list of all mutants of a source file."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["OPERATORS", "Mutant", "Source", "compiles", "mutants_of", "what_must_run"]


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of one source file, in byte offsets."""

    module: str  # relative to src/fairlead
    line: int
    start: int
    end: int
    operator: str
    replacement: str
    # The first and last line of the code that must run for the change to have an effect.
    extent: tuple[int, int]
    # First and last line of the function that contains the change.
    function: tuple[int, int]
    # Names bound by a statement that runs on import; lines that mention them select the tests.
    names: tuple[str, ...] = ()

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change made."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


_NEGATED = {"==": "!=", "is": "is not", "in": "not in", "<": ">=", "<=": ">"}
_NEGATED |= {new: old for old, new in _NEGATED.items()}
_BOUNDARY = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_ARITHMETIC = {"+": "-", "-": "+", "*": "//", "//": "*", "/": "*", "%": "*", "&": "|", "|": "&"}
_ARITHMETIC |= {"<<": ">>", ">>": "<<"}
_COMPARISON_TOKEN = re.compile(r"==|!=|<=|>=|<|>|\bis\s+not\b|\bis\b|\bnot\s+in\b|\bin\b")
_ARITHMETIC_TOKEN = re.compile(r"\*\*|//|<<|>>|[-+*/%&|]")
_WITHOUT_VALUE = ("return", "return None", "return False")
_LOGIC_TOKEN = re.compile(r"\b(?:and|or)\b")

# Start and end offset in bytes, and the replacement.
_Change = tuple[int, int, str]
_Lines = tuple[int, int]  # first and last line number


class Source:
    """A parsed file with byte offsets, parents and the code that is not mutated marked."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the byte offsets of the start and end of a node."""
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def code(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        start, end = self.span(node)
        return self.text[start:end].decode()

    def line_of(self, offset: int) -> int:
        """Return the number of the line at a byte offset."""
        return self.text.count(b"\n", 0, offset) + 1

    def token_between(
        self, left: ast.AST, right: ast.AST, token: re.Pattern[str], swaps: dict[str, str]
    ) -> Iterator[_Change]:
        """Yield the change that swaps the operator between two operands."""
        begin, end = self.span(left)[1], self.span(right)[0]
        gap = self.text[begin:end].decode()
        found = token.search(gap)
        if found is None or "#" in gap:
            return
        new = swaps.get(" ".join(found[0].split()))
        if new is not None:
            at = begin + len(gap[: found.start()].encode())
            yield at, at + len(found[0].encode()), new

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the enclosing nodes, innermost first."""
        while (found := self.parents.get(node)) is not None:
            yield found
            node = found


def _compare(source: Source, node: ast.AST, swaps: dict[str, str]) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            yield from source.token_between(left, right, _COMPARISON_TOKEN, swaps)


def _negate_comparison(source: Source, node: ast.AST) -> Iterator[_Change]:
    return _compare(source, node, _NEGATED)


def _move_boundary(source: Source, node: ast.AST) -> Iterator[_Change]:
    return _compare(source, node, _BOUNDARY)


def _negate_condition(source: Source, node: ast.AST) -> Iterator[_Change]:
    """Yield `if not x` for `if x`; comparisons and `not` have operators of their own."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        test = node.test
        if not isinstance(test, ast.Compare | ast.UnaryOp | ast.BoolOp | ast.Constant):
            yield (*source.span(test), f"not ({source.code(test)})")


def _remove_not(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield (*source.span(node), f"({source.code(node.operand)})")


def _swap_and_or(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.BoolOp):
        swaps = {"and": "or", "or": "and"}
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from source.token_between(left, right, _LOGIC_TOKEN, swaps)


def _swap_arithmetic(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.BinOp):
        yield from source.token_between(node.left, node.right, _ARITHMETIC_TOKEN, _ARITHMETIC)
    elif isinstance(node, ast.AugAssign):
        yield from source.token_between(node.target, node.value, _ARITHMETIC_TOKEN, _ARITHMETIC)


def _add_one(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield (*source.span(node), f"{node.value + 1}")


def _flip_boolean(source: Source, node: ast.AST) -> Iterator[_Change]:
    """Flip booleans, except in `class A(Struct, frozen=True, gc=False)`: these are declarations."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        if any(isinstance(one, ast.ClassDef) for one in list(source.ancestors(node))[:2]):
            return
        yield (*source.span(node), f"{not node.value}")


def _change_default(source: Source, node: ast.AST) -> Iterator[_Change]:
    """Change a default that is a string; other operators change numbers and booleans."""
    if isinstance(node, ast.arguments):
        for default in [*node.defaults, *node.kw_defaults]:
            if isinstance(default, ast.Constant) and isinstance(default.value, str):
                yield (*source.span(default), repr(default.value + "mutated"))


def _remove_call(source: Source, node: ast.AST) -> Iterator[_Change]:
    """Remove statements that call something, except those that only write to the log."""
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not ast.unparse(value.func).startswith("log."):
            yield (*source.span(node), "pass")


def _return_none(source: Source, node: ast.AST) -> Iterator[_Change]:
    """Return None instead of a value, except for `False`: both are false in a condition."""
    if isinstance(node, ast.Return) and ast.unparse(node) not in _WITHOUT_VALUE:
        yield (*source.span(node), "return None")


def _remove_raise(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Raise):
        yield (*source.span(node), "pass")


def _swap_loop_exit(source: Source, node: ast.AST) -> Iterator[_Change]:
    if isinstance(node, ast.Break):
        yield (*source.span(node), "continue")
    elif isinstance(node, ast.Continue):
        yield (*source.span(node), "break")


OPERATORS: dict[str, Callable[[Source, ast.AST], Iterator[_Change]]] = {
    "negate-comparison": _negate_comparison,
    "move-boundary": _move_boundary,
    "negate-condition": _negate_condition,
    "remove-not": _remove_not,
    "swap-and-or": _swap_and_or,
    "swap-arithmetic": _swap_arithmetic,
    "add-one": _add_one,
    "flip-boolean": _flip_boolean,
    "change-default": _change_default,
    "remove-call": _remove_call,
    "return-none": _return_none,
    "remove-raise": _remove_raise,
    "swap-loop-exit": _swap_loop_exit,
}


def mutants_of(module: str, text: bytes) -> list[Mutant]:
    """Return every mutant of a file, in the order of the source."""
    source = Source(text)
    found = []
    for node in ast.walk(source.tree):
        if _is_left_alone(source, node):
            continue
        for operator, changes in OPERATORS.items():
            for start, end, replacement in changes(source, node):
                line, where = source.line_of(start), what_must_run(source, node)
                found.append(Mutant(module, line, start, end, operator, replacement, *where))
    return sorted(found)


def compiles(mutant: Mutant, text: bytes) -> bool:
    """Return False for a mutant that is not valid Python."""
    try:
        compile(mutant.apply(text), "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _is_left_alone(source: Source, node: ast.AST) -> bool:
    """Return True for code without an effect at run time: annotations and typing constructs."""
    child = node
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    for parent in source.ancestors(node):
        match parent:
            case ast.AnnAssign() if child is parent.annotation:
                return True
            case ast.arg() if child is parent.annotation:
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef() if child is parent.returns:
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef() if any(
                ast.unparse(one) in ("overload", "typing.overload") for one in parent.decorator_list
            ):
                return True
            case ast.If() if ast.unparse(parent.test) == "TYPE_CHECKING":
                return True
            case ast.Assign() if ast.unparse(parent.targets[0]) == "__all__":
                return True
        child = parent
    # `int | None` at module level is a type, not arithmetic.
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and _is_type(node)


def _is_type(node: ast.BinOp) -> bool:
    for side in (node.left, node.right):
        if isinstance(side, ast.Constant) and side.value is None:
            return True
        if isinstance(side, ast.Name) and (side.id[:1].isupper() or side.id in _BUILTIN_TYPES):
            return True
        if isinstance(side, ast.BinOp) and isinstance(side.op, ast.BitOr) and _is_type(side):
            return True
    return False


_BUILTIN_TYPES = frozenset({"int", "str", "float", "bool", "bytes", "dict", "list", "object"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def what_must_run(source: Source, node: ast.AST) -> tuple[_Lines, _Lines, tuple[str, ...]]:
    """Return the lines that must run for a change to have an effect, their function, and bound
    names.
    """
    child = node
    statement: ast.stmt | None = node if isinstance(node, ast.stmt) else None
    for parent in source.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(child, ast.arguments) or child in parent.decorator_list:
                return (body := _lines(parent.body[0], parent.body[-1])), body, ()
            function = _lines(parent.body[0], parent.body[-1])
            break
        if statement is None and isinstance(parent, ast.stmt):
            statement = parent
        child = parent
    else:
        whole = _lines(statement, statement) if statement else (1, 1)
        return whole, whole, _names(statement)
    assert statement is not None
    return _header(statement), function, ()


def _lines(first: ast.AST, last: ast.AST) -> _Lines:
    return first.lineno, last.end_lineno  # type: ignore[attr-defined]


def _header(statement: ast.stmt) -> _Lines:
    """Return the lines of a statement without those of its body."""
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if not body:
        return statement.lineno, statement.end_lineno or statement.lineno
    first = body[0].pattern.lineno if isinstance(body[0], ast.match_case) else body[0].lineno
    return statement.lineno, max(statement.lineno, first - 1)


def _names(statement: ast.stmt | None) -> tuple[str, ...]:
    match statement:
        case ast.Assign():
            targets: list[ast.expr] = statement.targets
        case ast.AnnAssign() | ast.AugAssign():
            targets = [statement.target]
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return (statement.name,)
        case _:
            return ()
    return tuple(
        one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
    )
