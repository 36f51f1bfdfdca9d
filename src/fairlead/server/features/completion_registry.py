"""Completion of arguments of prompts and of URI templates."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from ...errors import RpcError
from ...limits import COMPLETION_VALUES
from ...protocol.types.completion import CompleteParams, Completion, PromptReference
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from ..decode_params import decode_params
from ..execution.worker_threads import WorkerThreads
from .paged_list import PagedList
from .prompt_entry import PromptEntry
from .resource_registry import Resources
from .text_arguments import TextSignature
from .tool_entry import is_asynchronous

__all__ = ["Completer", "Completions"]

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
        """
        self._own[reference, argument] = completer

    def mount(self, inner: "Completions", stem: str) -> None:
        """Also use the completion functions of an inner server, whose prompts have the prefix
        `stem`.
        """
        self._mounted.append((stem, inner))

    def find(self, reference: str, argument: str) -> Completer | None:
        completer = self._own.get((reference, argument))
        for stem, inner in self._mounted:
            # Mounted templates keep their URIs; only prompts are renamed.
            completer = completer or inner.find(reference, argument)
            completer = completer or inner.find(reference.removeprefix(stem), argument)
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
        reference, signature = self._referred(asked)
        name, typed = asked.argument.name, asked.argument.value
        completer = self.find(reference, name)
        values: Any = ()
        if completer is not None:
            wanted = (typed, _context(asked)) if _takes_others(completer) else (typed,)
            values = await self._workers.call(
                completer, *wanted, asynchronous=is_asynchronous(completer)
            )
        elif signature is not None and name in signature.parameters:
            values = _alike(typed, signature.parameters[name].choices)
        return to_json({"completion": _bounded(values)})[1:-1]

    def _referred(self, asked: CompleteParams) -> tuple[str, TextSignature | None]:
        if isinstance(asked.ref, PromptReference):
            prompt = self._prompts.get(asked.ref.name)
            if prompt is None:
                text = f"Unknown prompt: {asked.ref.name}{self._prompts.hint(asked.ref.name)}"
                raise RpcError(INVALID_PARAMS, text)
            return asked.ref.name, prompt.signature
        uri = asked.ref.uri
        template = self._resources.templates.get(uri)
        if template is not None:
            return uri, template.signature
        # Clients may send the URI of a fixed resource, which has no variables to complete.
        if self._resources.fixed.get(uri) is None:
            text = f"Unknown resource template: {uri}{self._resources.templates.hint(uri)}"
            raise RpcError(INVALID_PARAMS, text, {"uri": uri})
        return uri, None


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
    """Return the choices that contain the typed text, those that start with it first."""
    sought = typed.casefold()
    found = [choice for choice in choices if sought in choice.casefold()]
    return sorted(found, key=lambda choice: not choice.casefold().startswith(sought))


def _bounded(values: Any) -> Completion:
    """Return at most `MOST` values, and the total number."""
    if isinstance(values, Completion):
        if len(values.values) <= MOST:
            return values
        total = values.total if values.total is not UNSET else len(values.values)
        return Completion(values=values.values[:MOST], total=total, has_more=True)
    every = [] if values is None else [str(value) for value in values]
    return Completion(values=every[:MOST], total=len(every), has_more=len(every) > MOST)
