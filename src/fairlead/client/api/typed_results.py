"""Typed results of calls."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

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
    "ResultDict",
    "ToolCallResult",
    "read_block",
    "read_list",
    "tool_error",
]

# The functions import the protocol's structs, which would otherwise add 5 ms to every start.


class ResultDict(dict[str, Any]):
    """A result as received: a dict, as the methods of a client return it."""

    __slots__ = ()

    # Hidden from type checkers, which would otherwise accept any misspelled name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Loaded on first use: only errors need them.
            from ...suggestions import missing_attribute
            from ..client_migration_hints import RESULT_HINTS

            raise missing_attribute(self, name, RESULT_HINTS)


class ToolCallResult(ResultDict):
    """A tool result as received: a dict with shortcuts to frequently used members."""

    __slots__ = ()

    @property
    def data(self) -> Any:
        """The structured content, or None. An object whose only key is `result` is unwrapped,
        because servers wrap results that are not objects in this way.
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

    def raise_for_error(self) -> Self:
        """Return this result, unless the tool failed.

        Raises:
            MCPToolError: The tool failed; `result` is this result.
        """
        if self.is_error:
            raise _failure(self)
        return self


class Called(Struct, frozen=True, kw_only=True):
    """A tool result. A content block of an unknown type is an `UnknownContent`."""

    content: "list[ContentBlock | UnknownContent]"
    structured: Any = None  # `structuredContent`, decoded
    is_error: bool = False
    result: ToolCallResult  # the complete result as received

    # Hidden from type checkers, which would otherwise accept any misspelled name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Loaded on first use: only errors need them.
            from ...suggestions import missing_attribute
            from ..client_migration_hints import CALLED_HINTS

            raise missing_attribute(self, name, CALLED_HINTS)

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines."""
        from ...protocol.types.content import TextContent

        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def data(self) -> Any:
        """The structured content, or None. An object whose only key is `result` is unwrapped."""
        return _unwrapped(self.structured)

    @property
    def error(self) -> MCPToolError | None:
        """The tool's structured error, or None."""
        return tool_error(self.result)

    def raise_for_error(self) -> Self:
        """Return this result, unless the tool failed.

        Raises:
            MCPToolError: The tool failed; its attribute `result` is the result as received.
        """
        self.result.raise_for_error()
        return self


class Message(Struct, frozen=True):
    """A message in a prompt."""

    role: str
    content: "ContentBlock | UnknownContent"


class Prompted(Struct, frozen=True, kw_only=True):
    """A prompt with its arguments substituted."""

    messages: list[Message]
    description: str | None = None


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and "result" in value:
        return value["result"]
    return value


def _failure(result: ToolCallResult) -> MCPToolError:
    """Return the structured error in a failed result, or an error with the text of the result."""
    text = result.text.strip() or "the tool failed without an error message"
    error = tool_error(result) or MCPToolError(text)
    error.result = result
    return error


def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
    """Return the structured error in a tool result, or None."""
    if not result.get("isError"):
        return None
    for block in result.get("content") or ():
        try:
            return MCPToolError.from_dict(msgspec.json.decode(block["text"]))
        except (KeyError, TypeError, ValueError, msgspec.DecodeError):
            continue
    return None


def read_block(value: Any) -> "ContentBlock | UnknownContent":
    """Decode a content block; a block of an unknown type becomes `UnknownContent` with its
    bytes.
    """
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
