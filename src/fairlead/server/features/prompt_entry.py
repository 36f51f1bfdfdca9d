"""Registered prompts: their definitions and the functions that render them."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from ...errors import RpcError
from ...interceptor import Handler
from ...protocol.types.prompts import Prompt, PromptArgument
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from .text_arguments import TextParameter, TextSignature
from .tool_entry import describe_function, is_asynchronous, require_name

__all__ = ["PromptEntry", "prompt_from_function", "prompt_from_template"]

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class PromptEntry(Struct):
    """One registered prompt: its definition, and the function that renders its messages."""

    definition: Prompt
    render: Callable[[dict[str, str], Context | None], Any]
    asynchronous: bool
    signature: TextSignature | None = None  # signature of the function; None for a template
    home: Handler | None = None  # handler of the inner server, for a mounted prompt
    scopes: tuple[str, ...] = ()  # scopes that a caller's token must have

    def check(self, given: Mapping[str, str]) -> None:
        """Check that all required arguments are present.

        Raises:
            RpcError: -32602, a required argument is missing.
        """
        declared = self.definition.arguments
        arguments = [] if declared is UNSET else list(declared)
        missing = [a.name for a in arguments if a.required is True and a.name not in given]
        if missing:
            raise RpcError(
                INVALID_PARAMS,
                f"Missing arguments of prompt {self.definition.name!r}: {', '.join(missing)}",
                {"missing": missing},
            )


def prompt_from_template(
    name: str,
    description: str | None,
    arguments: Sequence[Mapping[str, Any]] | None,
    template: str | Callable[..., Any] | None,
    title: str | None = None,
) -> PromptEntry:
    """Return a prompt from a template (SRV-06).

    `{key}` is replaced by the argument of that name, `{{` and `}}` by braces.
    """
    if callable(template) and arguments is None:
        return prompt_from_function(template, name, description, title)
    declared = [PromptArgument(**dict(argument)) for argument in arguments or ()]
    definition = Prompt(
        name=name,
        title=title or UNSET,
        description=description or UNSET,
        arguments=declared or UNSET,
    )
    if callable(template):
        return _entry(definition, template, {argument.name for argument in declared})
    text = template if template is not None else description or name
    return PromptEntry(definition, lambda given, _: fill(text, given), False)


def prompt_from_function(
    function: Callable[..., Any], name: str | None, description: str | None, title: str | None
) -> PromptEntry:
    """Return a prompt whose arguments are the parameters of the function that renders it."""
    declared = [_argument(p) for p in TextSignature(function).parameters.values()]
    definition = Prompt(
        name=require_name(name, function),
        title=title or UNSET,
        description=description or describe_function(function) or UNSET,
        arguments=declared or UNSET,
    )
    return _entry(definition, function, {argument.name for argument in declared})


def _entry(definition: Prompt, function: Callable[..., Any], known: set[str]) -> PromptEntry:
    signature = TextSignature(function)

    def render(given: dict[str, str], context: Context | None) -> Any:
        texts = {name: text for name, text in given.items() if name in known}
        return function(**signature.arguments(texts, context))

    return PromptEntry(definition, render, is_asynchronous(function), signature)


def _argument(parameter: TextParameter) -> PromptArgument:
    return PromptArgument(
        name=parameter.name,
        title=parameter.title or UNSET,
        description=parameter.description or UNSET,
        required=parameter.required,
    )


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace `{key}` by values, and `{{` and `}}` by braces."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return str(values.get(match[1], ""))

    # One pass, so that braces inside a value are not replaced.
    return _BRACES.sub(replace, template)
