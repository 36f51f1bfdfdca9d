"""Typed results of calls."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...errors import MCPToolError, RemoteProtocolError
from ...wire.error_codes import INVALID_REQUEST

if TYPE_CHECKING:
    from ...protocol.types.content import ContentBlock, UnknownContent

__all__ = [
    "Called",
    "Message",
    "Prompted",
    "ToolCallResult",
    "read_block",
    "read_list",
    "tool_error",
]

# The structs of the protocol are imported by the functions, because they would add 5 ms to every
# start.


class ToolCallResult(dict[str, Any]):
    """The result of a tool as received, a dict with shortcuts to what programs usually need."""

    __slots__ = ()

    @property
    def data(self) -> Any:
        """The structured content, or None. An object with the only key `result` is unwrapped.

        Servers wrap results that are not objects in this way.
        """
        return _unwrapped(self.get("structuredContent"))

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines."""
        content = self.get("content")
        blocks = content if isinstance(content, list) else ()
        return "\n".join(
            str(block.get("text", ""))
            for block in blocks
            if isinstance(block, dict) and block.get("type") == "text"
        )

    @property
    def is_error(self) -> bool:
        """True if the tool failed."""
        return self.get("isError") is True


class Called(Struct, frozen=True, kw_only=True):
    """The result of a tool. A content block of an unknown kind is an `UnknownContent`."""

    content: "list[ContentBlock | UnknownContent]"
    structured: Any = None  # `structuredContent`, decoded
    is_error: bool = False
    result: ToolCallResult  # the complete result as received

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines."""
        from ...protocol.types.content import TextContent

        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def data(self) -> Any:
        """The structured content, or None. An object with the only key `result` is unwrapped."""
        return _unwrapped(self.structured)

    @property
    def error(self) -> MCPToolError | None:
        """The structured error of the tool, or None."""
        return tool_error(self.result)


class Message(Struct, frozen=True):
    """One message of a prompt."""

    role: str
    content: "ContentBlock | UnknownContent"


class Prompted(Struct, frozen=True, kw_only=True):
    """A prompt with its arguments filled in."""

    messages: list[Message]
    description: str | None = None


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and "result" in value:
        return value["result"]
    return value


def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
    """Return the structured error in the result of a tool, or None."""
    if not result.get("isError"):
        return None
    for block in result.get("content") or ():
        try:
            return MCPToolError.from_dict(msgspec.json.decode(block["text"]))
        except (KeyError, TypeError, ValueError, msgspec.DecodeError):
            continue
    return None


def read_block(value: Any) -> "ContentBlock | UnknownContent":
    """Return a content block; one of an unknown kind keeps its bytes."""
    from ...protocol.types.base import encode
    from ...protocol.types.content import decode_content

    return decode_content(encode(value))


def read_list(value: Any, member: str) -> list[Any]:
    """Return a member that must be a list or absent.

    Raises:
        RemoteProtocolError: The member is not a list.
    """
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise RemoteProtocolError(f"{member} is not a list", code=INVALID_REQUEST)
