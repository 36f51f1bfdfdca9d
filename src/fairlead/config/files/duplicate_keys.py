"""Keys that stand twice in one map: JSON and YAML let the last one win, and nobody notices."""

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
    """Raises `ConfigError` for the first key that stands twice; `text` is JSON that can be read."""
    open_maps: list[dict[str, int] | None] = []  # the keys of each, and where; None: a list
    expected = False  # a key, next
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
    """The same for the nodes of a YAML document, before anything is merged into them."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
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
        first = keys.setdefault(key.value, key)  # `1` and `"1"` are one
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
        f'"{key}" stands here (column {again[1]}) for the second time; the first is in line '
        f"{first[0]}, column {first[1]}: keep one of them, or give one another name",
        path=path,
        line=again[0],
    )


def _marked(node: Any) -> _Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return where a character stands in a text, both counted from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
