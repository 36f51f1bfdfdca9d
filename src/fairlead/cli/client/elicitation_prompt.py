"""Answers to a server's questions: from the command line, or entered at the terminal."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...client.input.answers import Question, accept, cancel, decline
from ..framework.command_errors import INPUT_NEEDED, CommandError, UsageError, print_message
from ..framework.output import ask, can_ask, safe, visible
from ..framework.suggested_commands import quoted
from .call_arguments import CallArguments, parse
from .schema_values import SchemaMismatch, name_type, read_value

__all__ = ["Questions"]


class Questions:
    """A server's questions during one call, and the user's answers.

    `failed` is the error for the first question that was not answered validly. The server then
    receives `cancel`, because the user made no decision.
    """

    def __init__(self, answers: Sequence[str], *, decline: bool) -> None:
        """Set the values of `--answer`, and whether `--decline` declines all questions.

        Several values of a field are for the questions that have it, in this order; further
        questions get the last one.

        Raises:
            UsageError: A value is not a `key=value`.
        """
        self.failed: CommandError | None = None
        self._answers: dict[str, list[CallArguments]] = {}
        for word in answers:
            answer = parse([word], what="--answer")
            for key in answer.keys:
                self._answers.setdefault(key, []).append(answer)
        self._decline = decline
        self._asked: Counter[str] = Counter()  # how often each field occurred in a form

    async def answer(self, question: Question) -> dict[str, Any]:
        """Return the answer to a question.

        At a terminal, prompt for the fields that have no value.
        """
        if self._decline:
            print_message("declined", safe(question.message), "33")
            return decline()
        try:
            given = self._given(question.schema or {})
            missing = _missing(question, given)
            if missing and not can_ask():
                raise _unanswered(question, missing)
        except CommandError as exc:
            self.failed = self.failed or exc
            return cancel()
        if not missing:
            return accept({**question.defaults, **given})
        # The prompt runs in a thread, so that the event loop keeps the connection alive meanwhile.
        return await asyncio.to_thread(_ask, question, given)

    def warn_unused(self) -> None:
        """Report values of `--answer` whose field did not occur in any form."""
        for key in sorted(self._answers.keys() - self._asked.keys()):
            print_message("warning", f"no question has the field {visible(key)} of --answer")

    def _given(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values for a form's fields.

        Raises `UsageError` for an invalid answer.
        """
        fields = schema.get("properties") or {}
        given: dict[str, Any] = {}
        for name, values in self._answers.items():
            if name in fields:
                given |= values[min(self._asked[name], len(values) - 1)].fit(schema)
                self._asked[name] += 1
        for name, value in given.items():
            choices = fields[name].get("enum")
            if isinstance(choices, list) and value not in choices:
                expected = name_type(fields[name], schema)
                raise UsageError(f"Invalid value {value!r} for {name}: expected {safe(expected)}")
        return given


def _missing(question: Question, given: Mapping[str, Any]) -> list[str]:
    """Return the fields that need an answer; an empty name means the consent to open a page."""
    if question.mode == "url":
        return [""]
    schema = question.schema or {}
    fields = schema.get("properties") or {}
    if given or not can_ask():
        required = schema.get("required") or ()
        return [name for name in required if name not in {*given, *question.defaults}]
    return list(fields)  # at a terminal, the user is also asked about optional fields


def _unanswered(question: Question, missing: list[str]) -> CommandError:
    schema = question.schema or {}
    fields = schema.get("properties") or {}
    options = [
        f"--answer {quoted(f'{name}={name_type(fields.get(name), schema).upper()}')}"
        for name in missing
        if name
    ]
    named = f"pass {' '.join(options)}, or --decline" if options else "pass --decline"
    return CommandError(
        f"The server asks: {safe(question.message)}",
        hint=safe(f"{named}; on a terminal, the question is shown"),
        code=INPUT_NEEDED,
    )


def _ask(question: Question, given: Mapping[str, Any]) -> dict[str, Any]:
    """Prompt for each field. An empty line selects the default, Ctrl-D declines."""
    print_message("the server asks", safe(question.message), "36")
    try:
        if question.mode == "url":
            print_message("open this URL", visible(question.url or ""), "36")
            agreed = ask("continue after opening it? [y/N] ").lower() in ("y", "yes")
            return accept() if agreed else decline()
        return accept(_fields(question.schema or {}, given))
    except EOFError:
        return decline()
    except KeyboardInterrupt:
        return cancel()


def _fields(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = dict(given)
    required = schema.get("required") or ()
    for name, part in (schema.get("properties") or {}).items():
        if name in given:
            continue
        value = _field(name, part, schema, required=name in required)
        if value is not None:
            content[name] = value
    return content


def _field(name: str, part: Mapping[str, Any], root: Mapping[str, Any], *, required: bool) -> Any:
    about = safe(str(part.get("title") or part.get("description") or name))
    choices = part.get("enum")
    kind = " | ".join(map(str, choices)) if isinstance(choices, list) else name_type(part, root)
    kind = "y/n" if kind == "boolean" else kind
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
