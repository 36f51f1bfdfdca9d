"""Answers to elicitation, sampling and roots requests, from the client's callbacks.

The same code answers a server's request (handshake era) and an input request inside a result
(stateless era). A capability is declared if its callback is set.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from ...errors import RpcError
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = [
    "InputCallbacks",
    "OnElicit",
    "OnRoots",
    "OnSample",
    "Question",
    "accept",
    "cancel",
    "decline",
]

RootLike: TypeAlias = "str | PathLike[str] | Mapping[str, Any]"


class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """An elicitation request from a server to the user.

    A form has a `schema`: a flat JSON Schema for the requested content. A page has a `url`: show
    the full URL, open it only if the user agrees, and never fetch it yourself.
    """

    message: str
    mode: Literal["form", "url"] = "form"
    schema: dict[str, Any] | None = field(default=None, name="requestedSchema")
    url: str | None = None
    elicitation_id: str | None = None

    @property
    def defaults(self) -> dict[str, Any]:
        """The initial values of the form."""
        fields = (self.schema or {}).get("properties")
        if not isinstance(fields, Mapping):
            return {}
        return {
            name: one["default"]
            for name, one in fields.items()
            if isinstance(one, Mapping) and "default" in one
        }


ElicitAnswer: TypeAlias = Mapping[str, Any]  # created by accept, decline and cancel
OnElicit: TypeAlias = Callable[[Question], ElicitAnswer | Awaitable[ElicitAnswer]]
SampleAnswer: TypeAlias = str | Mapping[str, Any]  # a string, or a complete CreateMessageResult
OnSample: TypeAlias = Callable[[dict[str, Any]], SampleAnswer | Awaitable[SampleAnswer]]
Roots: TypeAlias = Iterable[RootLike]
OnRoots: TypeAlias = Callable[[], Roots | Awaitable[Roots]]


def accept(content: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer of a user who filled in a form, or agreed to open a page (no content)."""
    return {"action": "accept"} if content is None else {"action": "accept", "content": content}


def decline() -> dict[str, Any]:
    """Return the answer of a user who declined."""
    return {"action": "decline"}


def cancel() -> dict[str, Any]:
    """Return the answer of a user who made no decision."""
    return {"action": "cancel"}


@dataclass
class InputCallbacks:
    """The input callbacks, and the capabilities to declare for them."""

    on_elicit: OnElicit | None = None
    on_sample: OnSample | None = None
    on_roots: OnRoots | None = None
    elicit_url: bool = False  # True if `on_elicit` can show pages too
    sample_tools: bool = False  # `on_sample` supports tools

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare, one for each callback that is set."""
        declared: dict[str, Any] = {}
        if self.on_elicit is not None:
            declared["elicitation"] = {"form": {}, "url": {}} if self.elicit_url else {"form": {}}
        if self.on_sample is not None:
            declared["sampling"] = {"tools": {}} if self.sample_tools else {}
        if self.on_roots is not None:
            declared["roots"] = {"listChanged": True}
        return declared

    def missing(self, method: str) -> str | None:
        """Return the missing capability that answering a method requires, or None."""
        capability, callback = {
            "elicitation/create": ("elicitation", self.on_elicit),
            "sampling/createMessage": ("sampling", self.on_sample),
            "roots/list": ("roots", self.on_roots),
        }.get(method, (method, None))
        return capability if callback is None else None

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result for a request from the server.

        Raises:
            RpcError: The callback is missing, or does not support this request.
            Exception: The callback raised it.
        """
        if method == "elicitation/create" and self.on_elicit is not None:
            return await self._elicit(self.on_elicit, params)
        if method == "sampling/createMessage" and self.on_sample is not None:
            return await self._sample(self.on_sample, params)
        if method == "roots/list" and self.on_roots is not None:
            return {"roots": _roots(await _settled(self.on_roots()))}
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    async def _elicit(self, ask: OnElicit, params: dict[str, Any]) -> dict[str, Any]:
        question = _question(params)
        if question.mode == "url" and not self.elicit_url:
            raise RpcError(INVALID_PARAMS, "This client does not open pages (elicitation.url)")
        answer = await _settled(ask(question))
        if not isinstance(answer, Mapping) or answer.get("action") not in _ACTIONS:
            raise RpcError(
                INTERNAL_ERROR, "on_elicit must return accept(content), decline() or cancel()"
            )
        given = dict(answer)
        if not isinstance(given.get("content", {}), Mapping):
            raise RpcError(
                INTERNAL_ERROR, "on_elicit must pass accept() a dict with a value for each field"
            )
        if given["action"] != "accept":
            given.pop("content", None)
        elif question.mode == "form":
            given.setdefault("content", {})
        return given

    async def _sample(self, ask: OnSample, params: dict[str, Any]) -> dict[str, Any]:
        if not self.sample_tools and ("tools" in params or "toolChoice" in params):
            raise RpcError(
                INVALID_PARAMS, "This client does not support tools in sampling (sampling.tools)"
            )
        said = await _settled(ask(params))
        # Callbacks may return only a string; the required members are added here.
        if isinstance(said, str):
            return {
                "role": "assistant",
                "content": {"type": "text", "text": said},
                "model": "unknown",
                "stopReason": "endTurn",
            }
        if not isinstance(said, Mapping):
            raise RpcError(
                INTERNAL_ERROR, "on_sample must return a string or a CreateMessageResult"
            )
        return dict(said)


_ACTIONS = ("accept", "decline", "cancel")


def _question(params: dict[str, Any]) -> Question:
    try:
        return msgspec.convert({**params, "mode": params.get("mode") or "form"}, Question)
    except msgspec.ValidationError as exc:
        raise RpcError(INVALID_PARAMS, f"Invalid elicitation request: {exc}") from exc


def _roots(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise RpcError(INTERNAL_ERROR, "on_roots must return a list of paths, URIs or roots")
    return [_root(root) for root in given]


def _root(root: RootLike) -> dict[str, Any]:
    """Return a root as an object with a `file://` URI; paths are converted."""
    if isinstance(root, Mapping):
        return dict(root)
    if not isinstance(root, str | PathLike):
        raise RpcError(INTERNAL_ERROR, f"on_roots returned {root!r}, expected a path, URI or root")
    text = str(root)
    if isinstance(root, str) and "://" in text:
        return {"uri": text}
    from pathlib import Path

    path = Path(text).expanduser().absolute()
    return {"uri": path.as_uri(), "name": path.name or str(path)}


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
