"""Dialogues in files: the lines that a client sends, and the messages expected in response.

    # A comment.
    → {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    ← {"jsonrpc": "2.0", "id": 1, "result": {}}

A line that begins with a space continues the line before it. Sent lines need not be JSON. Expected
messages are compared by value; `*` in a string matches any text. A step consists of consecutive
sent
lines and all messages expected before the next line is sent. The responses to several requests may
arrive in any order; the messages about a single request arrive as written.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Step", "matches", "pair", "read_dialogue"]


@dataclass
class Step:
    """Consecutive sent lines, and the messages expected in response."""

    line: int  # line of the file in which the step begins
    sent: list[str] = field(default_factory=list)
    expected: list[Any] = field(default_factory=list)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the sent messages that can have a response, including those in batches."""
        found = []
        for line in self.sent:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            for item in message if isinstance(message, list) else [message]:
                if isinstance(item, dict) and "method" in item and "id" in item:
                    found.append(item)
        return found


def read_dialogue(path: Path) -> list[Step]:
    steps: list[Step] = []
    for number, mark, text in _lines(path):
        if mark == "→":
            if not steps or steps[-1].expected:
                steps.append(Step(number))
            steps[-1].sent.append(text)
        else:
            steps[-1].expected.append(json.loads(text))
    return steps


def pair(expected: list[Any], received: list[Any], *, in_order: bool) -> list[Any]:
    """Match expected with received messages, and return those without a match."""
    if in_order:
        together = zip(expected, received, strict=False)
        wrong = [(e, r) for e, r in together if not matches(e, r)]
        return wrong + expected[len(received) :] + received[len(expected) :]
    left = list(received)
    missing = []
    for message in expected:
        found = next((r for r in left if matches(message, r)), None)
        if found is None:
            missing.append(message)
        else:
            left.remove(found)
    return missing + left


def matches(expected: Any, received: Any) -> bool:
    """Return True if both have equal values and types; `*` in an expected string is a wildcard."""
    if isinstance(expected, str) and isinstance(received, str):
        pattern = ".*".join(map(re.escape, expected.split("*")))
        return re.fullmatch(pattern, received, re.DOTALL) is not None
    if isinstance(expected, dict) and isinstance(received, dict):
        return expected.keys() == received.keys() and all(
            matches(value, received[key]) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(received, list):
        return len(expected) == len(received) and all(map(matches, expected, received))
    return type(expected) is type(received) and bool(expected == received)


def _lines(path: Path) -> list[tuple[int, str, str]]:
    found: list[tuple[int, str, str]] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith(("→ ", "← ")):
            found.append((number, line[0], line[2:]))
        elif line.startswith(" ") and found:
            begun, mark, text = found[-1]
            found[-1] = (begun, mark, f"{text.rstrip()} {line.strip()}")
        elif line and not line.startswith("#"):
            raise ValueError(
                f"{path.name}:{number}: a line must start with →, ←, # or a space: {line}"
            )
    return found
