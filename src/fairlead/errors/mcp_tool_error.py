"""Tool failures that become results, and their wire format."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from .base_error import FairleadError

__all__ = ["MCPErrorCode", "MCPToolError"]


class MCPErrorCode(StrEnum):
    """Reasons why a tool call failed."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    TIMEOUT = "TIMEOUT"
    NOT_FOUND = "NOT_FOUND"
    RATE_LIMITED = "RATE_LIMITED"
    CIRCUIT_OPEN = "CIRCUIT_OPEN"
    DEPENDENCY_MISSING = "DEPENDENCY_MISSING"
    ACCESS_DENIED = "ACCESS_DENIED"
    INTERNAL = "INTERNAL"


class MCPToolError(FairleadError):
    """Tool failure that the caller should read.

    If a tool raises this error, it becomes the tool's result. In a client, `raise_for_error()` of a
    result raises it, and `result` is the result as received.
    """

    result: Mapping[str, Any] | None = None

    def __init__(
        self,
        message: str,
        *,
        code: MCPErrorCode | str = MCPErrorCode.EXECUTION_ERROR,
        correlation_id: str | None = None,
        tool_name: str | None = None,
        module: str | None = None,
        field_errors: Sequence[Mapping[str, Any]] | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = MCPErrorCode(code)
        self.correlation_id = correlation_id
        self.tool_name = tool_name
        self.module = module
        self.field_errors = [dict(error) for error in field_errors] if field_errors else None
        self.suggestion = suggestion

    def to_dict(self) -> dict[str, Any]:
        """Return the form that is sent to clients, without unset attributes."""
        facts: dict[str, Any] = {
            "code": self.code.value,
            "message": self.message,
            "correlation_id": self.correlation_id,
            "tool_name": self.tool_name,
            "module": self.module,
            "field_errors": self.field_errors,
            "suggestion": self.suggestion,
        }
        return {key: value for key, value in facts.items() if value is not None}

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text."""
        # Imported here, so that `fairlead.errors` stays cheap to import.
        import json

        return json.dumps(self.to_dict(), ensure_ascii=False, default=str)

    def to_mcp_response(self) -> dict[str, Any]:
        """Return the error as a `tools/call` result."""
        return {"content": [{"type": "text", "text": self.to_json()}], "isError": True}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "MCPToolError":
        """Return the error from a mapping that `to_dict` produced.

        Raises:
            ValueError: The mapping does not describe a tool error.
        """
        try:
            # Unknown keys are ignored, so that a later version can add keys.
            known = {key: facts[key] for key in facts if key in _TOOL_ERROR_KEYS}
            return cls(known.pop("message"), **known)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"not a tool error: {exc}") from exc

    @classmethod
    def from_json(cls, text: str | bytes) -> "MCPToolError":
        """Return the error from a text that `to_json` produced.

        Raises:
            ValueError: The text does not describe a tool error.
        """
        import json

        return cls.from_dict(json.loads(text))

    @classmethod
    def from_mcp_response(cls, result: Mapping[str, Any]) -> "MCPToolError":
        """Return the error from a result that `to_mcp_response` produced.

        Raises:
            ValueError: The result does not come from `to_mcp_response`.
        """
        try:
            failed, text = result.get("isError"), result["content"][0]["text"]
        except (AttributeError, KeyError, IndexError, TypeError) as exc:
            raise ValueError("not the result of a tool that failed") from exc
        if failed is not True or not isinstance(text, str):
            raise ValueError("not the result of a tool that failed")
        return cls.from_json(text)


_TOOL_ERROR_KEYS = frozenset(
    ("code", "message", "correlation_id", "tool_name", "module", "field_errors", "suggestion")
)
