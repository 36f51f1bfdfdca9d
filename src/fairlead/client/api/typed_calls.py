"""Client methods with typed results. Those of `CallMixin`, such as `list_tools`, return dicts."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar

import msgspec

from ...peer import OnProgress
from ...protocol.types.base import decode_or_raise
from .calls import CallMixin, unknown_keyword
from .typed_results import Called, Message, Prompted, read_block, read_list

if TYPE_CHECKING:
    from ...protocol.types.completion import Completion
    from ...protocol.types.content import ResourceContents
    from ...protocol.types.prompts import Prompt
    from ...protocol.types.resources import Resource, ResourceTemplate
    from ...protocol.types.tools import Tool

__all__ = ["TypedCallMixin"]

# The methods import the structs, because importing all of them would add 5 ms to every start.

T = TypeVar("T")


class TypedCallMixin(CallMixin):
    """The typed calls of a client, based on the calls that return dicts."""

    # Lists, complete or page by page

    async def tools(self, *, cache: bool = True) -> "list[Tool]":
        """Return all tools. As in all lists, invalid items are skipped and added to `skipped`."""
        return [tool async for page in self.tool_pages(cache=cache) for tool in page]

    async def tool_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Tool]]":
        """Yield the tools, page by page."""
        from ...protocol.types.tools import Tool

        first = True
        async for page in self._items("tools/list", "tools", Tool, cache):
            # The known tools are replaced with the first page, so that they are kept on failure.
            if first:
                self._known.forget()
            first = False
            self._known.learn_typed(page)
            yield page

    async def resources(self, *, cache: bool = True) -> "list[Resource]":
        """Return all resources."""
        return [item async for page in self.resource_pages(cache=cache) for item in page]

    def resource_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Resource]]":
        """Return an iterator over the resources, page by page."""
        from ...protocol.types.resources import Resource

        return self._items("resources/list", "resources", Resource, cache)

    async def templates(self, *, cache: bool = True) -> "list[ResourceTemplate]":
        """Return all resource URI templates."""
        return [item async for page in self.template_pages(cache=cache) for item in page]

    def template_pages(self, *, cache: bool = True) -> "AsyncIterator[list[ResourceTemplate]]":
        """Return an iterator over the URI templates, page by page."""
        from ...protocol.types.resources import ResourceTemplate

        method, member = "resources/templates/list", "resourceTemplates"
        return self._items(method, member, ResourceTemplate, cache)

    async def prompts(self, *, cache: bool = True) -> "list[Prompt]":
        """Return all prompts."""
        return [item async for page in self.prompt_pages(cache=cache) for item in page]

    def prompt_pages(self, *, cache: bool = True) -> "AsyncIterator[list[Prompt]]":
        """Return an iterator over the prompts, page by page."""
        from ...protocol.types.prompts import Prompt

        return self._items("prompts/list", "prompts", Prompt, cache)

    # Single items

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        retry: bool | None = None,
        headers: Mapping[str, str] | None = None,
        **unknown: Never,
    ) -> Called:
        """Call a tool. If the tool fails, `is_error` is set; no exception is raised."""
        if unknown:
            raise unknown_keyword("call", unknown)
        result = await self.call_tool(
            name, arguments, timeout, on_progress=on_progress, retry=retry, headers=headers
        )
        return Called(
            content=[read_block(block) for block in read_list(result.get("content"), "content")],
            structured=result.get("structuredContent"),
            is_error=result.get("isError") is True,
            result=result,
        )

    async def read(self, uri: str, *, cache: bool = True) -> "list[ResourceContents]":
        """Return the contents of a resource; a folder may have several contents."""
        from ...protocol.types.content import ResourceContents

        result = await self.read_resource(uri, cache=cache)
        found: list[ResourceContents] = []
        for index, item in enumerate(read_list(result.get("contents"), "contents")):
            try:
                found.append(msgspec.convert(item, ResourceContents))
            except msgspec.ValidationError as exc:
                self._skip("resources/read", f"item {index}: {exc}")
        return found

    async def prompt(self, name: str, arguments: Mapping[str, Any] | None = None) -> Prompted:
        """Return a prompt with its arguments substituted; see `get_prompt`."""
        result = await self.get_prompt(name, arguments)
        messages: list[Message] = []
        for index, item in enumerate(read_list(result.get("messages"), "messages")):
            if isinstance(item, dict) and "content" in item:
                messages.append(Message(str(item.get("role")), read_block(item["content"])))
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
        """Return suggestions for a prompt argument or a URI template variable.

        `of` is the prompt's name or the URI template; `filled` are the arguments known so far.
        """
        from ...protocol.types.completion import CompleteResult, Completion

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
        """Send a request and decode its result to a type.

        Raises:
            RemoteProtocolError: The result does not match the type.
        """
        result = await self.request(method, params)
        return decode_or_raise(result, type_, f"The result of {method}")
