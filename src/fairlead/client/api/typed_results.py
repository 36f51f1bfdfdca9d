"""What a server returned, as values with types."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...errors import MCPToolError, RemoteProtocolError
from ...wire.error_codes import INVALID_REQUEST

if TYPE_CHECKING:
    from ...protocol.types.content import ContentBlock, UnknownContent

__all__ = ["Called", "Message", "Prompted", "read_block", "read_list", "tool_error"]

# The structs of the protocol are imported by the functions: they would cost every start 5 ms.


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
    from ...protocol.types.content import TextContent

    return isinstance(block, TextContent)


def read_block(value: Any) -> "ContentBlock | UnknownContent":
    """One block of content; of a kind we do not know, with its bytes."""
    from ...protocol.types.base import encode
    from ...protocol.types.content import decode_content

    return decode_content(encode(value))


def read_list(value: Any, member: str) -> list[Any]:
    """A member that is a list, or is absent."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise RemoteProtocolError(f"{member} is no list", code=INVALID_REQUEST)
