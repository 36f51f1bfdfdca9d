"""Elicitation at the terminal; requests are declined if no person can be prompted."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ...client.input.answers import Question, accept, cancel, decline
from ..framework.command_errors import print_message
from ..framework.output import ask, can_ask, safe, visible
from .schema_values import SchemaMismatch, name_type, read_value

__all__ = ["ask_person"]


async def ask_person(question: Question) -> dict[str, Any]:
    """Prompt for each field. An empty line selects the default, Ctrl-D declines."""
    if not can_ask():
        print_message("declined", f"input request of the server: {safe(question.message)}", "33")
        return decline()
    # In a thread, so that the event loop keeps the connection alive during the prompt.
    return await asyncio.to_thread(_ask, question)


def _ask(question: Question) -> dict[str, Any]:
    print_message("the server asks", safe(question.message), "36")
    try:
        if question.mode == "url":
            print_message("open this URL", visible(question.url or ""), "36")
            agreed = ask("continue after opening it? [y/N] ") == "y"
            return accept() if agreed else decline()
        return accept(_fields(question.schema or {}))
    except EOFError:
        return decline()
    except KeyboardInterrupt:
        return cancel()


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    required = schema.get("required") or ()
    for name, part in (schema.get("properties") or {}).items():
        value = _field(name, part, schema, required=name in required)
        if value is not None:
            content[name] = value
    return content


def _field(name: str, part: Mapping[str, Any], root: Mapping[str, Any], *, required: bool) -> Any:
    about = safe(str(part.get("title") or part.get("description") or name))
    choices = part.get("enum")
    kind = " | ".join(map(str, choices)) if isinstance(choices, list) else name_type(part, root)
    default = part.get("default")
    shown = f" [{default}]" if default is not None else "" if required else " (optional)"
    while True:
        text = ask(f"  {about} ({visible(kind)}){shown}: ")
        if not text and (default is not None or not required):
            return default
        try:
            value = read_value(text, part, root)
        except SchemaMismatch as exc:
            print_message("invalid value", f"expected {exc}", "33")
            continue
        if isinstance(choices, list) and value not in choices:
            print_message("invalid value", f"expected one of {', '.join(map(str, choices))}", "33")
            continue
        return value
