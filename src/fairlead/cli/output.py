"""What strangers say, on its way to a person: safe for a terminal, and never a heap of bytes."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from ..observe.display import json_text, prose, safe, visible

__all__ = ["blocks", "counted", "for_stream", "pretty", "safe", "size", "visible", "write"]


def write(text: str) -> None:
    """Write a text and a line end to stdout; to a terminal only what is safe there."""
    shown = for_stream(text, sys.stdout)
    sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")


def for_stream(text: str, stream: TextIO) -> str:
    """As it is for a file or a pipe, safe for a terminal."""
    return prose(text) if stream.isatty() else text


def pretty(value: Any) -> str:
    """JSON that people can read too. Nothing in it acts on a terminal or hides."""
    return json_text(value, indent=2)


def blocks(result: Mapping[str, Any]) -> Iterator[str]:
    """The content of a tool's result, block by block: text as it is, the rest in a line each."""
    content = [b for b in result.get("content") or () if isinstance(b, Mapping)]
    structured = "structuredContent" in result
    if structured and not any(block.get("text") for block in content):
        content = [block for block in content if block.get("type") != "text"]  # empty ones
    for block in content:
        yield str(block.get("text", "")) if block.get("type") == "text" else _described(block)
    if structured and not any(block.get("text") for block in content):
        yield pretty(result["structuredContent"])


def counted(count: int, what: str) -> str:
    """How many of something there are: 1 tool, 2 tools."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def size(count: int) -> str:
    """A number of bytes, for people."""
    if count < 1000:
        return f"{count} byte{'' if count == 1 else 's'}"
    for unit, much in (("kB", 1e3), ("MB", 1e6)):
        if count < 1000 * much:
            return f"{count / much:.1f} {unit}"
    return f"{count / 1e9:.1f} GB"


def _described(block: Mapping[str, Any]) -> str:
    kind = str(block.get("type"))
    match kind:
        case "image" | "audio":
            facts = [block.get("mimeType"), _encoded_size(block.get("data"))]
        case "resource":
            resource = block.get("resource")
            held: Mapping[str, Any] = resource if isinstance(resource, Mapping) else {}
            text = held.get("text")
            amount = (
                size(len(text.encode("utf-8", "replace")))
                if isinstance(text, str)
                else _encoded_size(held.get("blob"))
            )
            facts = [held.get("uri"), held.get("mimeType"), amount]
        case "resource_link":
            count = block.get("size")
            amount = size(count) if isinstance(count, int) else None
            facts = [block.get("uri"), block.get("name"), block.get("mimeType"), amount]
            kind = "link"
        case _:
            facts = [f"of a kind that is not known here, {size(len(pretty(block)))} of JSON"]
    return f"[{kind}: {', '.join(str(fact) for fact in facts if fact)}]"


def _encoded_size(data: Any) -> str | None:
    if not isinstance(data, str):
        return None
    return size(len(data) * 3 // 4 - data[-2:].count("="))
