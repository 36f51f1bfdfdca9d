"""Validation of values against JSON Schemas at bounded cost.

Both the schema and the value may come from another program. Two features can make a validation
expensive:

* Regular expressions. They run on a linear-time engine, which does not support look-around and
  backreferences. A pattern that needs them is ignored in a peer's schema, and runs with a small
  backtracking limit in a schema of the program itself.
* Paths. References and unions (`allOf`, `anyOf`, `oneOf`) can make the validator check one position
  of a value many times, in the worst case exponentially often with growing depth. The number of
  paths is computed from the schema alone, before any value is validated.
"""

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from ...limits import (
    EXPLAINED_PATHS,
    EXPLAINED_VALUES,
    SCHEMA_BYTES,
    SCHEMA_PATHS,
    SCHEMA_PATTERN_BYTES,
    SCHEMA_PATTERNS,
)
from ...wire import to_json

__all__ = ["SchemaValidator"]

BACKTRACKING: Final = 1000  # maximum number of backtracking steps for a pattern with look-around
DEEPEST: Final = 256  # maximum nesting of a value, above which the validator itself refuses it
EFFORT: Final = 500_000  # limit on nodes times levels when paths are counted
TOO_MANY: Final = 1e12  # number of paths at which counting stops


class SchemaValidator:
    """Compiled JSON Schema.

    Raises (when created):
        ValueError: The schema is invalid, too large or too complex. The message names the location
            and the reason.
    """

    def __init__(self, schema: Any, *, foreign: bool = False) -> None:
        """Compile a schema. `foreign` means that it comes from a peer; then its size is limited."""
        import jsonschema_rs

        if foreign and len(to_json(schema)) > SCHEMA_BYTES.value:
            SCHEMA_BYTES.hit()
            raise ValueError(f"the schema is larger than {SCHEMA_BYTES.value} bytes")
        try:
            self._paths = _Paths(schema)
            paths = self._paths.at_once()
        except RecursionError:
            raise ValueError("the schema is nested too deeply") from None
        if foreign and self._paths.patterns > SCHEMA_PATTERNS.value:
            SCHEMA_PATTERNS.hit()
            raise ValueError(f"the schema has more than {SCHEMA_PATTERNS.value} patterns")
        if paths > SCHEMA_PATHS.value:
            SCHEMA_PATHS.hit()
            raise ValueError("the references of the schema lead to too many paths")
        # maximum depth at which a value's problems are explained; computed on first use
        self._deepest: int | None = None
        try:
            self._validator = _compile(schema, foreign)
        except jsonschema_rs.ValidationError as exc:
            where = ".".join(str(part) for part in exc.instance_path)
            raise ValueError(f"{exc.message} (at {where})" if where else exc.message) from exc
        # Checked after compiling, because an invalid schema has a more specific error.
        if foreign and self._paths.unknown:
            raise ValueError("the target of a reference cannot be determined")

    def is_valid(self, value: Any) -> bool:
        """Return True if a value is valid, False if it is invalid or nested too deeply."""
        try:
            return bool(self._validator.is_valid(value))
        except ValueError:
            return False

    def errors(self, value: Any) -> list[Any] | None:
        """Return the problems found in a value, as `jsonschema_rs.ValidationError` objects.

        None means that the value is invalid but too large to explain, or too deep for the number of
        paths.
        """
        # Validity is checked first: this is cheaper than listing problems, also for large values.
        if self.is_valid(value):
            return []
        if self._deepest is None:
            try:
                self._deepest = self._paths.deepest(EXPLAINED_PATHS.value)
            except RecursionError:
                self._deepest = 0
        depth, size = _extent(value, self._deepest)
        if depth > self._deepest:
            EXPLAINED_PATHS.hit()
            return None
        if size > EXPLAINED_VALUES.value:
            EXPLAINED_VALUES.hit()
            return None
        try:
            return list(self._validator.iter_errors(value))
        except ValueError:
            return None


def _compile(schema: Any, foreign: bool) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema, retriever=_refuse_reference, pattern_options=_linear_engine()
        )
    except jsonschema_rs.ValidationError as exc:
        # The linear engine reports a pattern it cannot compile as an invalid format.
        if getattr(exc.kind, "name", "") != "format":
            raise
    if foreign:
        schema = _without_patterns(schema)
    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKING)
    return jsonschema_rs.validator_for(schema, retriever=_refuse_reference, pattern_options=options)


def _linear_engine() -> Any:
    import jsonschema_rs

    # A short pattern such as `(a{1000}){300}` takes many megabytes when compiled.
    size = SCHEMA_PATTERN_BYTES.value
    return jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=size)


def _refuse_reference(uri: str) -> Any:
    """Refuse to load a schema: a peer must not make this process open a connection or a file."""
    raise ValueError(f"references to {uri} are not followed")


def _without_patterns(schema: Any) -> Any:
    """Return a copy of a schema without the patterns that the linear engine cannot run."""
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_patterns(inner) for name, inner in schema.items()}
    if isinstance(schema.get("pattern"), str) and not _is_linear(schema["pattern"]):
        del kept["pattern"]
    if isinstance(named := schema.get("patternProperties"), dict):
        kept["patternProperties"] = {
            name: inner for name, inner in kept["patternProperties"].items() if _is_linear(name)
        }
        if len(kept["patternProperties"]) < len(named):
            # Otherwise it would apply to the members that the removed patterns match.
            kept.pop("additionalProperties", None)
    return kept


def _is_linear(pattern: str) -> bool:
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=_linear_engine())
    except (jsonschema_rs.ValidationError, ValueError):
        return False
    return True


def _extent(value: Any, deepest: int) -> tuple[int, int]:
    """Return the depth of nested arrays and objects, and the number of values in them.

    Counting stops one level below `deepest`.
    """
    level, size = [value], 1
    for depth in range(deepest + 1):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return depth, size
        size += len(level)
    return deepest + 1, size


class _Paths:
    """Counter for the paths through a schema that lead to one position in a value.

    Keywords apply to the value itself ("in place": `allOf`, `$ref`), to items of an array, or to
    members of an object. Each keyword for items reaches an item at most once, and all of
    `properties` and `additionalProperties` together reach a member at most once.
    """

    def __init__(self, schema: Any) -> None:
        self.patterns = 0
        self._root = schema
        self._nodes: list[_Node] = []
        self._numbers: dict[int, int] = {}  # indexes of nodes, by the identity of their schema
        self._anchors: dict[str, Any] = {}
        # True if a reference cannot be resolved here; then paths cannot be counted.
        self.unknown = False
        self._collect_anchors(schema, True)
        self._add(schema)
        at = 0
        while at < len(self._nodes):
            self._connect(self._nodes[at])
            at += 1
        self._here = self._count_here()

    def at_once(self) -> float:
        """Return the maximum number of paths to one position.

        Recursive references are not counted, because the validator caches its results for them.
        """
        if self.unknown:
            return max(self._here, default=1)
        cyclic = self._cyclic()
        before = list(self._here)
        for _ in range(self._steps()):
            after = self._step(before, cyclic)
            if after == before or max(after) > SCHEMA_PATHS.value:
                return max(after)
            before = after
        return TOO_MANY

    def deepest(self, most: int) -> int:
        """Return the maximum depth of values in which each position has at most `most` paths."""
        before = list(self._here)
        if self.unknown:
            return 1
        if before[0] > most:
            return 0
        for depth in range(1, self._steps()):
            after = self._step(before, frozenset())
            if after[0] > most:
                return depth - 1
            if after == before:
                return DEEPEST
            before = after
        return self._steps()

    def _steps(self) -> int:
        """Return the number of levels to examine, which is smaller for a large schema."""
        return max(8, min(DEEPEST, EFFORT // len(self._nodes)))

    def _step(self, before: list[float], skipped: frozenset[int]) -> list[float]:
        """Return the number of paths to positions one level deeper, by node."""
        size = len(self._nodes)
        items: list[float | None] = [None] * size
        members: list[float | None] = [None] * size

        def sums(at: int, table: list[float | None], arrays: bool) -> float:
            known = table[at]
            if known is not None:
                return known
            table[at] = 0.0  # a cycle of in-place keywords adds no paths
            node = self._nodes[at]
            total = 0.0
            for group in node.items if arrays else node.members:
                total += max((before[one] for one in group if one not in skipped), default=0.0)
            for one in node.here:
                if one not in skipped:
                    total += sums(one, table, arrays)
            table[at] = min(total, TOO_MANY)
            return table[at] or 0.0

        return [
            max(before[at], self._here[at], sums(at, items, True), sums(at, members, False))
            for at in range(size)
        ]

    def _count_here(self) -> list[float]:
        counts: list[float | None] = [None] * len(self._nodes)

        def count(at: int) -> float:
            known = counts[at]
            if known is not None:
                return known
            counts[at] = 1.0
            total = 1.0 + sum(count(one) for one in self._nodes[at].here)
            counts[at] = min(total, TOO_MANY)
            return counts[at] or 1.0

        return [count(at) for at in range(len(self._nodes))]

    def _cyclic(self) -> frozenset[int]:
        """Return the nodes that contain a reference to themselves."""
        # An explicit stack, because a chain of references may exceed the recursion limit.
        found: set[int] = set()
        state: dict[int, int] = {}  # 1: in progress, 2: done
        for start in range(len(self._nodes)):
            stack: list[tuple[int, Iterator[int]]] = []
            if start not in state:
                state[start] = 1
                stack.append((start, iter(self._nodes[start].all())))
            while stack:
                at, rest = stack[-1]
                for one in rest:
                    if state.get(one) == 1:
                        found.add(one)
                    elif one not in state:
                        state[one] = 1
                        stack.append((one, iter(self._nodes[one].all())))
                        break
                else:
                    state[at] = 2
                    stack.pop()
        return frozenset(found)

    def _add(self, schema: Any) -> int:
        # Compared by identity, because equal schemas in different positions have different paths.
        number = self._numbers.get(id(schema))
        if number is None:
            number = self._numbers[id(schema)] = len(self._nodes)
            self._nodes.append(_Node(schema))
        return number

    def _connect(self, node: "_Node") -> None:
        schema = node.schema
        if not isinstance(schema, dict):
            return
        for name in ("allOf", "anyOf", "oneOf"):
            node.here += [self._add(one) for one in _list(schema.get(name))]
        for name in ("not", "if", "then", "else"):
            if name in schema:
                node.here.append(self._add(schema[name]))
        for name in ("dependentSchemas", "dependencies"):
            node.here += [self._add(one) for one in _values(schema.get(name))]
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(reference := schema.get(name), str):
                self._refer(node, reference)
        positions = _list(schema.get("prefixItems")) + _list(schema.get("items"))
        others = [
            schema[name]
            for name in ("additionalItems", "unevaluatedItems", "items")
            if isinstance(schema.get(name), dict)
        ]
        node.items.append([self._add(one) for one in [*positions, *others]])
        if isinstance(schema.get("contains"), dict):
            node.items.append([self._add(schema["contains"])])
        named = _values(schema.get("properties"))
        others = [
            schema[name]
            for name in ("additionalProperties", "unevaluatedProperties")
            if isinstance(schema.get(name), dict)
        ]
        node.members.append([self._add(one) for one in [*named, *others]])
        by_pattern = _values(schema.get("patternProperties"))
        node.members += [[self._add(one)] for one in by_pattern]
        self.patterns += len(by_pattern) + ("pattern" in schema)

    def _refer(self, node: "_Node", reference: str) -> None:
        identity = self._root.get("$id") if isinstance(self._root, dict) else None
        if isinstance(identity, str) and reference.startswith(identity.rstrip("#")):
            reference = reference[len(identity.rstrip("#")) :] or "#"
        if reference.startswith("#/"):
            target: Any = self._root
            for step in reference[2:].split("/"):
                step = step.replace("~1", "/").replace("~0", "~")
                if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                    target = target[int(step)]
                elif isinstance(target, dict) and step in target:
                    target = target[step]
                else:
                    self.unknown = True
                    return
        elif reference in ("#", ""):
            target = self._root
        elif reference.startswith("#") and reference[1:] in self._anchors:
            target = self._anchors[reference[1:]]
        else:
            self.unknown = True
            return
        node.here.append(self._add(target))

    def _collect_anchors(self, schema: Any, top: bool) -> None:
        if isinstance(schema, list):
            for one in schema:
                self._collect_anchors(one, False)
        elif isinstance(schema, dict):
            for name in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(name), str):
                    self._anchors[schema[name]] = schema
            if not top and isinstance(schema.get("$id"), str):
                # A nested `$id` changes the base URI of the references below it.
                self.unknown = True
            for one in schema.values():
                self._collect_anchors(one, False)


class _Node(Struct):
    """A subschema, and the indexes of the subschemas that it applies."""

    schema: Any
    here: list[int] = []
    items: list[list[int]] = []  # at most one schema of each group applies to an item
    members: list[list[int]] = []

    def all(self) -> list[int]:
        groups = [*self.items, *self.members]
        return [*self.here, *(one for group in groups for one in group)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
