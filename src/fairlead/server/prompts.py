"""Prompts: texts with gaps that a person fills in."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Struct

from ..errors import RpcError
from ..protocol.types.prompts import Prompt, PromptArgument
from ..wire.codes import INVALID_PARAMS

__all__ = ["PromptEntry", "prompt_from_function", "prompt_from_template"]

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")


class PromptEntry(Struct):
    """One registered prompt: its definition, and what makes its messages from the arguments."""

    definition: Prompt
    render: Callable[[dict[str, str]], Any]
    asynchronous: bool

    def check(self, given: Mapping[str, str]) -> None:
        """Raises `RpcError` -32602 when a required argument is missing."""
        declared = self.definition.arguments
        arguments = [] if declared is UNSET else list(declared)
        missing = [a.name for a in arguments if a.required is True and a.name not in given]
        if missing:
            raise RpcError(
                INVALID_PARAMS,
                f"Prompt {self.definition.name!r} needs {', '.join(missing)}",
                {"missing": missing},
            )


def prompt_from_template(
    name: str,
    description: str | None,
    arguments: Sequence[Mapping[str, Any]] | None,
    template: str | Callable[..., Any] | None,
) -> PromptEntry:
    """SRV-06: `{key}` stands for the argument of that name, `{{` and `}}` for braces."""
    declared = [PromptArgument(**dict(argument)) for argument in arguments or ()]
    definition = Prompt(name=name, description=description or UNSET, arguments=declared or UNSET)
    if callable(template):
        function = template
        return PromptEntry(
            definition, lambda given: function(**given), inspect.iscoroutinefunction(function)
        )
    text = template if template is not None else description or name
    return PromptEntry(definition, lambda given: fill(text, given), False)


def prompt_from_function(
    function: Callable[..., Any], name: str | None, description: str | None, title: str | None
) -> PromptEntry:
    """A prompt whose arguments are the parameters of a function that returns its messages."""
    declared = [
        PromptArgument(name=p.name, required=p.default is p.empty)
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    definition = Prompt(
        name=name or function.__name__,
        title=title or UNSET,
        description=description or inspect.getdoc(function) or UNSET,
        arguments=declared or UNSET,
    )
    known = {argument.name for argument in declared}
    return PromptEntry(
        definition,
        lambda given: function(**{k: v for k, v in given.items() if k in known}),
        inspect.iscoroutinefunction(function),
    )


def fill(template: str, values: Mapping[str, str]) -> str:
    """One pass, so that a value with braces in it stays what it is."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return str(values.get(match[1], ""))

    return _BRACES.sub(replace, template)
