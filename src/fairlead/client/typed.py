"""What a server offers, as typed values. The same calls with dicts are on `MCPClient` itself."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from ..errors import MCPToolError, RemoteProtocolError
from ..peer import OnProgress
from ..protocol.types.base import decode, decode_items
from ..wire.codes import INVALID_REQUEST

if TYPE_CHECKING:
    from ..protocol.types.completion import Completion
    from ..protocol.types.content import ContentBlock, ResourceContents, UnknownContent
    from ..protocol.types.prompts import Prompt
    from ..protocol.types.resources import Resource, ResourceTemplate
    from ..protocol.types.tools import Tool
    from .known import KnownTools

__all__ = ["Called", "Message", "Prompted", "TypedCalls"]

# The structs are imported by the methods: a hundred of them would cost every start 5 ms.

T = TypeVar("T")


class Called(Struct, frozen=True, kw_only=True):
    """What a tool returned. A block of an unknown kind is an `UnknownContent`."""

    content: "list[ContentBlock | UnknownContent]"
    structured: Any = None  # `structuredContent`, decoded
    is_error: bool = False
    result: dict[str, Any]  # the whole of it, as it came

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(getattr(block, "text", "") for block in self.content if _is_text(block))

    @property
    def error(self) -> MCPToolError | None:
        """The structured error, if the tool gave one."""
        return tool_error(self.result)


class Message(Struct, frozen=True):
    """One message of a prompt."""

    role: str
    content: "ContentBlock | UnknownContent"


class Prompted(Struct, frozen=True, kw_only=True):
    """A prompt, filled in."""

    messages: list[Message]
    description: str | None = None


class TypedCalls:
    """The typed half of a client."""

    _known: "KnownTools"

    # What the other half has

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Raw:
        raise NotImplementedError

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        retry: bool | None = None,
    ) -> dict[str, Any]:
        raise NotImplementedError

    async def read_resource(self, uri: str, *, cache: bool = True) -> dict[str, Any]:
        raise NotImplementedError

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        raise NotImplementedError

    def _offers(self, method: str) -> bool:
        raise NotImplementedError

    def _pages(self, method: str, *, cache: bool = True) -> AsyncIterator[dict[str, Raw]]:
        raise NotImplementedError

    def _skip(self, method: str, reason: str) -> None:
        raise NotImplementedError

    # Lists, whole or page by page

    async def tools(self, *, cache: bool = True) -> "list[Tool]":
        """All tools. Items we cannot read are skipped and named in `skipped`, as in all lists."""
        return [tool async for page in self.tool_pages(cache=cache) for tool in page]

    async def tool_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Tool]]":
        from ..protocol.types.tools import Tool

        first = True
        async for page in self._typed_pages("tools/list", "tools", Tool, cache):
            if first:
                self._known.forget()
            first = False
            self._known.learn_typed(page)
            yield page

    async def resources(self, *, cache: bool = True) -> "list[Resource]":
        """All resources."""
        return [item async for page in self.resource_pages(cache=cache) for item in page]

    def resource_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Resource]]":
        from ..protocol.types.resources import Resource

        return self._typed_pages("resources/list", "resources", Resource, cache)

    async def templates(self, *, cache: bool = True) -> "list[ResourceTemplate]":
        """All URI templates of resources."""
        return [item async for page in self.template_pages(cache=cache) for item in page]

    def template_pages(self, *, cache: bool = True) -> "AsyncIterator[list[ResourceTemplate]]":
        from ..protocol.types.resources import ResourceTemplate

        method, member = "resources/templates/list", "resourceTemplates"
        return self._typed_pages(method, member, ResourceTemplate, cache)

    async def prompts(self, *, cache: bool = True) -> "list[Prompt]":
        """All prompts."""
        return [item async for page in self.prompt_pages(cache=cache) for item in page]

    def prompt_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Prompt]]":
        from ..protocol.types.prompts import Prompt

        return self._typed_pages("prompts/list", "prompts", Prompt, cache)

    # Single things

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        retry: bool | None = None,
    ) -> Called:
        """Call a tool. A tool that fails says so with `is_error`; it is not an exception."""
        result = await self.call_tool(
            name, arguments, timeout, on_progress=on_progress, retry=retry
        )
        return Called(
            content=[_block(block) for block in _list(result.get("content"), "content")],
            structured=result.get("structuredContent"),
            is_error=result.get("isError") is True,
            result=result,
        )

    async def read(self, uri: str, *, cache: bool = True) -> "list[ResourceContents]":
        """What a resource holds; a folder may hold several things."""
        from ..protocol.types.content import ResourceContents

        result = await self.read_resource(uri, cache=cache)
        found: list[ResourceContents] = []
        for index, item in enumerate(_list(result.get("contents"), "contents")):
            try:
                found.append(msgspec.convert(item, ResourceContents))
            except msgspec.ValidationError as exc:
                self._skip("resources/read", f"item {index}: {exc}")
        return found

    async def prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> Prompted:
        """A prompt with its blanks filled in."""
        result = await self.get_prompt(name, arguments)
        messages: list[Message] = []
        for index, item in enumerate(_list(result.get("messages"), "messages")):
            if isinstance(item, dict) and "content" in item:
                messages.append(Message(str(item.get("role")), _block(item["content"])))
            else:
                self._skip("prompts/get", f"message {index} has no content")
        description = result.get("description")
        return Prompted(
            messages=messages, description=description if isinstance(description, str) else None
        )

    async def complete(
        self,
        kind: Literal["prompt", "resource"],
        of: str,
        argument: str,
        value: str = "",
        *,
        filled: Mapping[str, str] | None = None,
    ) -> "Completion":
        """Suggestions for one argument of a prompt, or one blank of a URI template.

        `of` is the prompt's name or the template; `filled` are the arguments known so far.
        """
        from ..protocol.types.completion import CompleteResult, Completion

        if not self._offers("completion/complete"):
            return Completion(values=[])
        ref = {"type": "ref/prompt", "name": of}
        if kind == "resource":
            ref = {"type": "ref/resource", "uri": of}
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if filled:
            params["context"] = {"arguments": dict(filled)}
        return (await self.request_typed("completion/complete", params, CompleteResult)).completion

    async def request_typed(
        self, method: str, params: Mapping[str, Any] | None, type_: type[T]
    ) -> T:
        """Any request, its result decoded into a type.

        Raises:
            RemoteProtocolError: it does not fit.
        """
        try:
            return decode(await self.request(method, params), type_)
        except msgspec.DecodeError as exc:
            raise RemoteProtocolError(
                f"The result of {method} is malformed: {exc}", code=INVALID_REQUEST
            ) from exc

    async def _typed_pages(
        self, method: str, member: str, type_: type[T], cache: bool
    ) -> AsyncIterator[list[T]]:
        if not self._offers(method):
            return
        async for page in self._pages(method, cache=cache):
            try:
                items = decode(page.get(member, Raw(b"null")), list[Raw])
            except msgspec.DecodeError as exc:
                self._skip(method, f"{member}: {exc}")
                continue
            good, bad = decode_items(items, type_)
            for item in bad:
                self._skip(method, f"item {item.index}: {item.reason}")
            yield good


def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
    """The structured error in a tool's result, if it has one."""
    if not result.get("isError"):
        return None
    for block in result.get("content") or ():
        try:
            return MCPToolError.from_dict(msgspec.json.decode(block["text"]))
        except (KeyError, TypeError, ValueError, msgspec.DecodeError):
            continue
    return None


def _is_text(block: Any) -> bool:
    from ..protocol.types.content import TextContent

    return isinstance(block, TextContent)


def _block(value: Any) -> "ContentBlock | UnknownContent":
    from ..protocol.types.base import encode
    from ..protocol.types.content import decode_content

    return decode_content(encode(value))


def _list(value: Any, member: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise RemoteProtocolError(f"{member} is no list", code=INVALID_REQUEST)
