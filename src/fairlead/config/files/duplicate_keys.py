"""Detection of duplicate keys; JSON and YAML parsers silently keep only the last value."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from ...errors import ConfigError

__all__ = ["line_and_column", "nodes_of", "nodes_of_json", "reject_duplicate_keys"]

_MERGE: Final = "tag:yaml.org,2002:merge"

_Place = tuple[int, int]  # line and column, starting at 1


@lru_cache(maxsize=2)
def nodes_of(text: str) -> Any:
    """Return the root node of a YAML or JSON text; None if the text is invalid."""
    import yaml  # type: ignore[import-untyped]  # the package has no type annotations

    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return None


def nodes_of_json(text: str) -> Any:
    """Parse JSON as YAML and return the root node; None if YAML does not accept the text."""
    # YAML forbids tabs between tokens. Valid JSON strings contain none.
    return nodes_of(text.replace("\t", " "))


def reject_duplicate_keys(path: str, root: Any) -> None:
    """Raise `ConfigError` for the first duplicate key in a YAML or JSON document.

    `root` is the composed node, in which merge keys (`<<`) are not resolved yet.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        # Aliases can make a node reachable more than once, even from within itself.
        if id(node) in seen or not isinstance(getattr(node, "value", None), list):
            continue
        seen.add(id(node))
        if node.id == "mapping":
            _refuse_in_mapping(path, node)
        waiting += reversed([*_inside(node)])


def _refuse_in_mapping(path: str, node: Any) -> None:
    keys: dict[str, Any] = {}
    for key, _ in node.value:
        if key.id != "scalar" or key.tag == _MERGE:
            continue
        first = keys.setdefault(key.value, key)  # `1` and `"1"` are the same key
        if first is not key:
            raise _twice(path, key.value, _marked(first), _marked(key))


def _inside(node: Any) -> Iterator[Any]:
    if node.id == "mapping":
        for key, value in node.value:
            yield key
            yield value
    else:
        yield from node.value


def _twice(path: str, key: str, first: _Place, again: _Place) -> ConfigError:
    return ConfigError(
        f'duplicate key "{key}" (column {again[1]}): first used in line '
        f"{first[0]}, column {first[1]}; remove or rename one of them",
        path=path,
        line=again[0],
    )


def _marked(node: Any) -> _Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return the line and column of an offset in a text, both starting at 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
