"""Line and column of a key or an item in a configuration file."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from .duplicate_keys import line_and_column, nodes_of, nodes_of_json
from .formats import Document

__all__ = ["SourceLocation", "location_of"]

SourceLocation = tuple[str | int, ...]  # keys and list indexes that lead from the root to a value

_HEADER: Final = re.compile(r"(?m)^[ \t]*(\[\[?)[ \t]*([^\[\]\r\n]+?)[ \t]*\]\]?[ \t]*(?:#.*)?$")
_PART: Final = re.compile(r'"([^"]*)"|\'([^\']*)\'|([\w-]+)')
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)


def location_of(document: Document, where: SourceLocation) -> tuple[int, int] | None:
    """Return the line and column of a value, counted from 1.

    If the value does not exist, return the position of its nearest existing parent, or None.
    """
    if document.format == "toml":
        return _in_toml(document.text, where)
    read = nodes_of if document.format == "yaml" else nodes_of_json
    return _in_nodes(read(document.text), where)


# YAML and JSON


def _in_nodes(node: Any, where: SourceLocation) -> tuple[int, int] | None:
    mark: Any = None
    for step in where:
        found = next(_children(node, step), None)
        if found is None:
            break
        mark, node = found
    return None if mark is None else (mark.line + 1, mark.column + 1)


def _children(node: Any, step: str | int) -> Iterator[tuple[Any, Any]]:
    held = getattr(node, "value", None)
    if isinstance(step, int):
        if isinstance(held, list) and node.id == "sequence" and step < len(held):
            yield held[step].start_mark, held[step]
    elif isinstance(held, list) and node.id == "mapping":
        for key, value in held:
            if key.value == step:
                yield key.start_mark, value


# TOML: `tomllib` does not report the positions of values


def _in_toml(text: str, where: SourceLocation) -> tuple[int, int] | None:
    plain, sections = _outline(text)
    # number of matching path steps, and offsets of header, body and end
    best: tuple[int, int, int, int] | None = None
    for path, header, body, end in sections:
        if path == where[: len(path)] and (best is None or len(path) >= best[0]):
            best = len(path), header, body, end
    if best is None:
        return None
    steps, at, body, end = best
    found: int | None = at if steps else None
    cursor = body
    for step in where[steps:]:
        if isinstance(step, int):
            item = _item(plain, cursor, end, step)
            if item is None:
                break
            found = cursor = item
            continue
        key = rf"(?:{re.escape(step)}|\"{re.escape(step)}\"|'{re.escape(step)}')"
        match = re.compile(rf"(?:(?<=[\s{{,.])|^)({key})\s*[=.]", re.MULTILINE).search(
            text, cursor, end
        )
        if match is None:
            break
        found = match.start(1)
        cursor = match.end()
    # A table may exist only as the parent of other tables, without its own header.
    if found is None:
        inner = (header for path, header, *_ in sections if path[: len(where)] == where)
        found = next(inner, None)
    return None if found is None else line_and_column(text, found)


@lru_cache(maxsize=2)
def _outline(text: str) -> tuple[str, list[tuple[SourceLocation, int, int, int]]]:
    """Return the text with strings and comments blanked out, and its tables."""
    plain = _STRING.sub(lambda found: _blank(found[0]), text)
    return plain, list(_sections(plain, text))


def _sections(plain: str, text: str) -> Iterator[tuple[SourceLocation, int, int, int]]:
    """Yield the path, header offset, body offset and end of each table."""
    headers = list(_HEADER.finditer(plain))
    counts: dict[SourceLocation, int] = {}
    end = headers[0].start() if headers else len(text)
    yield (), 0, 0, end
    for number, header in enumerate(headers):
        path: list[str | int] = []
        parts = [a or b or c for a, b, c in _PART.findall(text[header.start(2) : header.end(2)])]
        for position, part in enumerate(parts):
            path.append(part)
            key = tuple(path)
            if header[1] == "[[" and position == len(parts) - 1:
                counts[key] = counts.get(key, -1) + 1
            if key in counts:
                path.append(counts[key])
        after = headers[number + 1].start() if number + 1 < len(headers) else len(text)
        start = header.start() + len(header[0]) - len(header[0].lstrip())
        yield tuple(path), start, header.end(), after


def _item(plain: str, start: int, end: int, number: int) -> int | None:
    """Return the offset of item `number` in the list that starts after `start`."""
    opening = plain.find("[", start, end)
    if opening < 0:
        return None
    depth, seen = 0, 0
    for at in range(opening, end):
        sign = plain[at]
        if sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
            if depth == 0:
                return None
        elif sign == "," and depth == 1:
            seen += 1
            continue
        if seen == number and at > opening and not sign.isspace():
            return at
    return None


def _blank(found: str) -> str:
    """Return a filler with the same length and line breaks: a word for a string,
    spaces for a comment.
    """
    filler = " " if found.startswith("#") else "~"
    return "".join("\n" if sign == "\n" else filler for sign in found)
