"""Where a key stands in a file, as far as that can be told without a parser that remembers it."""

import re

from ..manager.formats import Document

__all__ = ["line_of"]


def line_of(document: Document, where: tuple[str, ...]) -> int | None:
    """The line of a key, given as the steps that lead to it; None if it was not found."""
    text = document.text
    at = (_in_toml if document.format == "toml" else _in_nested)(text, where)
    return None if at is None else text.count("\n", 0, at) + 1


def _in_toml(text: str, where: tuple[str, ...]) -> int | None:
    for depth in range(len(where), -1, -1):
        start = 0
        if depth:
            path = r"\s*\.\s*".join(_key(step) for step in where[:depth])
            header = re.search(rf"(?m)^[ \t]*\[\s*{path}\s*[\].]", text)
            if header is None:
                continue
            start = header.start()
        if depth == len(where):
            return start
        body = text.index("\n", start) if depth and "\n" in text[start:] else start
        following = re.compile(r"(?m)^[ \t]*\[").search(text, body)
        section = text[: following.start()] if following else text
        names = r"\s*\.\s*".join(_key(step) for step in where[depth:])
        for pattern in (rf"(?m)^[ \t]*{names}\s*=", rf"(?:^|[{{,\s]){_key(where[-1])}\s*="):
            if key := re.compile(pattern).search(section, body):
                return key.start() + len(key[0]) - len(key[0].lstrip())
        if depth:
            return start
    return None


def _in_nested(text: str, where: tuple[str, ...]) -> int | None:
    """JSON and YAML: each step is a key behind the one before."""
    at: int | None = None
    for step in where:
        key = re.compile(rf"(?m)(?:^|[{{,\s-]){_key(step)}\s*:").search(text, at or 0)
        if key is None:
            break
        at = key.start() + len(key[0]) - len(key[0].lstrip())
    return at


def _key(name: str) -> str:
    quoted = re.escape(name)
    return rf"""(?:{quoted}|"{quoted}"|'{quoted}')"""
