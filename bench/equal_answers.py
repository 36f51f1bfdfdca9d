"""Check that all runtimes of a row give the same response to the same call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .calls import Work
from .child import Failed
from .requests import Era

__all__ = ["difference", "essence", "sample_line"]

_SAMPLE = 7  # the call that is compared; its text is the same for every server
_DEFAULTS = {"isError": False, "resultType": "complete"}  # may be written out or left out


def sample_line(work: Work, era: Era, number: int) -> bytes:
    """Return the call that every server of a row gets, with `number` as its id."""
    [line] = work.lines(era, _SAMPLE, 1)
    return line.replace(b'"id":%d,' % _SAMPLE, b'"id":%d,' % number, 1)


def essence(answer: bytes) -> dict[str, Any]:
    """Return a result without the parts that the protocol leaves to the server.

    These are `_meta`, members that equal their defaults, and the white space of the text that
    repeats a structured result.

    Raises:
        Failed: The answer is not the result of a call.
    """
    try:
        result = dict(msgspec.json.decode(answer)["result"])
        result.pop("_meta", None)
        for name, default in _DEFAULTS.items():
            if result.get(name) == default:
                del result[name]
        result["content"] = [
            {name: value for name, value in block.items() if name != "_meta"}
            for block in result["content"]
        ]
        if "structuredContent" in result:
            for block in result["content"]:
                block["text"] = _read_json(block["text"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        raise Failed(f"not the result of a call: {answer[:300]!r}") from None
    return result


def _read_json(text: str) -> Any:
    """Decode JSON; return the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def difference(answers: Mapping[str, bytes]) -> str | None:
    """Return which runtimes answered the same call differently; None if all answers are equal.

    Raises:
        Failed: An answer is not the result of a call.
    """
    groups: list[tuple[dict[str, Any], list[str]]] = []
    for name, answer in answers.items():
        found = essence(answer)
        for known, names in groups:
            if known == found:
                names.append(name)
                break
        else:
            groups.append((found, [name]))
    if len(groups) < 2:
        return None
    parts = [f"{', '.join(names)}: {str(found)[:300]}" for found, names in groups]
    return "the answers to the same call differ: " + "; ".join(parts)
