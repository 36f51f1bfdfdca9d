"""Descriptions of parameters in docstrings.

Supported are "Args:" with indented lines (Google), an underlined "Parameters" (numpy) and ":param
x:" (reST).
"""

import re

__all__ = ["parameter_texts"]

_REST = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
_HEADINGS = ("args:", "arguments:", "parameters:", "params:")


def parameter_texts(doc: str) -> dict[str, str]:
    """Return the description of each parameter in a docstring."""
    lines = doc.splitlines()
    texts: dict[str, list[str]] = {}
    for index, line in enumerate(lines):
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if match := _REST.match(line.strip()):
            texts[match[1]] = [match[2], *_indented(lines[index + 1 :], _indent(line))]
        elif line.strip().lower() in _HEADINGS:
            _read_section(_indented(lines[index + 1 :], _indent(line), keep=True), _GOOGLE, texts)
        elif line.strip() == "Parameters" and below.strip().startswith("---"):
            _read_section(_until_heading(lines[index + 2 :]), _NUMPY, texts)
    joined = {name: " ".join(" ".join(parts).split()) for name, parts in texts.items()}
    return {name: text for name, text in joined.items() if text}


def _read_section(lines: list[str], entry: re.Pattern[str], texts: dict[str, list[str]]) -> None:
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    current: list[str] | None = None
    for line in lines:
        # Only the outermost level has names; deeper lines continue a description.
        match = entry.match(line.strip()) if _indent(line) == margin else None
        if match:
            current = texts[match[1]] = list(match.groups()[1:])
        elif current is not None:
            current.append(line)


def _indented(lines: list[str], margin: int, *, keep: bool = False) -> list[str]:
    """Return the lines that are indented below a line; `keep` includes blank lines."""
    found = []
    for line in lines:
        if (line.strip() or not keep) and (not line.strip() or _indent(line) <= margin):
            break
        found.append(line)
    return found


def _until_heading(lines: list[str]) -> list[str]:
    for index, line in enumerate(lines[1:]):
        if line.strip().startswith("---"):
            return lines[:index]
    return lines


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
