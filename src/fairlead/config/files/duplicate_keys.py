"""Detection of duplicate keys, of which JSON and YAML parsers silently keep the last."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ...errors import ConfigError

__all__ = ["line_and_column", "reject_duplicate_json_keys", "reject_duplicate_yaml_keys"]

_TOKEN: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],]', re.DOTALL)
_MERGE: Final = "tag:yaml.org,2002:merge"

_Place = tuple[int, int]  # line and column, from 1


def reject_duplicate_json_keys(path: str, text: str) -> None:
    """Raise `ConfigError` for the first duplicate key of a text that is valid JSON."""
    open_maps: list[dict[str, int] | None] = []  # key positions of each open map; None for a list
    expected = False  # whether the next string is a key
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in "{[":
            open_maps.append({} if sign == "{" else None)
            expected = sign == "{"
        elif sign in "}]":
            open_maps.pop()
            expected = False
        elif sign == ",":
            expected = open_maps[-1] is not None
        elif expected:
            keys, key = open_maps[-1], str(json.loads(sign))
            assert keys is not None
            if key in keys:
                raise _twice(
                    path,
                    key,
                    line_and_column(text, keys[key]),
                    line_and_column(text, token.start()),
                )
            keys[key] = token.start()
            expected = False


def reject_duplicate_yaml_keys(path: str, root: Any) -> None:
    """Raise `ConfigError` for the first duplicate key of a YAML document.

    `root` is the composed node, because merge keys (`<<`) are not resolved in it yet.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        # Aliases make the same node reachable more than once, also from within itself.
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
        first = keys.setdefault(key.value, key)  # `1` and `"1"` become the same key
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
    """Return the line and column of an offset in a text, both counted from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
