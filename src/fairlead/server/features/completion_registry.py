"""Completion of arguments of prompts and of URI templates."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from ...errors import RpcError
from ...limits import COMPLETION_VALUES
from ...protocol.types.completion import (
    CompleteParams,
    Completion,
    PromptReference,
    Reference,
)
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from ..decode_params import decode_params
from ..execution.worker_threads import WorkerThreads
from ..schema.signature import require_bound, require_function
from .paged_list import PagedList
from .prompt_entry import PromptEntry
from .resource_registry import ResourceEntry, Resources
from .tool_entry import is_asynchronous

__all__ = ["Completer", "Completions", "referred_entry"]

MOST = COMPLETION_VALUES.value

# Takes the text typed so far and optionally the other arguments; returns the values.
Completer = Callable[..., Any]


class Completions:
    """Registered completion functions, and completions derived from the types of parameters."""

    def __init__(
        self, prompts: PagedList[PromptEntry], resources: Resources, workers: WorkerThreads
    ) -> None:
        self._prompts = prompts
        self._resources = resources
        self._workers = workers
        self._own: dict[tuple[str, str], Completer] = {}
        self._mounted: list[tuple[str, Completions]] = []

    def add(self, reference: str, argument: str, completer: Completer) -> None:
        """Register a completion function; `reference` is the name of a prompt or the URI of a
        template.

        Raises:
            TypeError: The completer is not a function.
        """
        require_function(completer)
        require_bound(completer)
        self._own[reference, argument] = completer

    def mount(self, inner: "Completions", stem: str) -> None:
        """Also use the completion functions of an inner server, whose prompts have the prefix
        `stem`.
        """
        self._mounted.append((stem, inner))

    def find(self, reference: str, argument: str, *, is_prompt: bool) -> Completer | None:
        completer = self._own.get((reference, argument))
        for stem, inner in self._mounted:
            # Mounted templates keep their URIs; only prompts are renamed.
            if completer is None and (not is_prompt or reference.startswith(stem)):
                name = reference.removeprefix(stem) if is_prompt else reference
                completer = inner.find(name, argument, is_prompt=is_prompt)
        return completer

    def __bool__(self) -> bool:
        """Return True if at least one argument can be completed."""
        signatures = [prompt.signature for prompt in self._prompts.entries()]
        signatures += [template.signature for template in self._resources.templates.entries()]
        return bool(self._own or any(inner for _, inner in self._mounted)) or any(
            parameter.choices for s in signatures if s for parameter in s.parameters.values()
        )

    async def complete(self, params: Raw | UnsetType) -> bytes:
        """Return the members of a result, without the braces.

        Raises:
            RpcError: -32602, the prompt or the template is unknown.
        """
        asked = decode_params(params, CompleteParams)
        signature = self._referred(asked.ref).signature
        name, typed = asked.argument.name, asked.argument.value
        is_prompt = isinstance(asked.ref, PromptReference)
        completer = self.find(_named(asked.ref), name, is_prompt=is_prompt)
        values: Any = ()
        if completer is not None:
            wanted = (typed, _context(asked)) if _takes_others(completer) else (typed,)
            values = await self._workers.call(
                completer, *wanted, asynchronous=is_asynchronous(completer)
            )
        elif signature is not None and name in signature.parameters:
            values = _alike(typed, signature.parameters[name].choices)
        return to_json({"completion": _bounded(values)})[1:-1]

    def _referred(self, reference: Reference) -> PromptEntry | ResourceEntry:
        """Return the entry whose argument is completed.

        Raises:
            RpcError: -32602, the prompt or the template is unknown.
        """
        entry = referred_entry(reference, self._prompts, self._resources)
        if entry is not None:
            return entry
        name = _named(reference)
        if isinstance(reference, PromptReference):
            text = f"Unknown prompt: {name}{self._prompts.hint(name)}"
            raise RpcError(INVALID_PARAMS, text)
        text = f"Unknown resource template: {name}{self._resources.templates.hint(name)}"
        raise RpcError(INVALID_PARAMS, text, {"uri": name})


def referred_entry(
    reference: Reference, prompts: PagedList[PromptEntry], resources: Resources
) -> PromptEntry | ResourceEntry | None:
    """Return the prompt, template or fixed resource that a completion request names, or None."""
    if isinstance(reference, PromptReference):
        return prompts.get(reference.name)
    # Clients may send the URI of a fixed resource, which has no variables to complete.
    return resources.templates.get(reference.uri) or resources.fixed.get(reference.uri)


def _named(reference: Reference) -> str:
    return reference.name if isinstance(reference, PromptReference) else reference.uri


def _takes_others(completer: Completer) -> bool:
    parameters = inspect.signature(completer).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _context(asked: CompleteParams) -> dict[str, str]:
    context = asked.context
    if isinstance(context, UnsetType) or isinstance(context.arguments, UnsetType):
        return {}
    return context.arguments


def _alike(typed: str, choices: Iterable[str]) -> list[str]:
    """Return the choices that contain the typed text; choices that start with it come first."""
    sought = typed.casefold()
    found = [choice for choice in choices if sought in choice.casefold()]
    return sorted(found, key=lambda choice: not choice.casefold().startswith(sought))


def _bounded(values: Any) -> Completion:
    """Return at most `MOST` of the values, and the total number of values."""
    if isinstance(values, Completion):
        if len(values.values) <= MOST:
            return values
        total = values.total if values.total is not UNSET else len(values.values)
        return Completion(values=values.values[:MOST], total=total, has_more=True)
    every = [] if values is None else [str(value) for value in values]
    return Completion(values=every[:MOST], total=len(every), has_more=len(every) > MOST)
