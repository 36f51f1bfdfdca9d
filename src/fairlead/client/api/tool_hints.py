"""Tool properties from the last `tools/list` that later calls depend on."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, UnsetType

from ...errors import OutputMismatch
from ...limits import PROBLEM_TEXT
from ...protocol.schema.schema_validator import SchemaValidator
from ...wire.quote_text import shortened

if TYPE_CHECKING:
    from ...protocol.types.tools import Tool

__all__ = ["ToolHints", "is_harmless"]


class ToolHints:
    """Facts about the tools in the last `tools/list` that later calls need."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}  # output schemas by tool name; decoded when needed
        self._harmless: set[str] = set()
        self._validators: dict[str, SchemaValidator] = {}

    def forget(self) -> None:
        """Forget all tools, because a new list starts or the old list is outdated."""
        self._harmless.clear()
        self.forget_schemas()

    def forget_schemas(self) -> None:
        self.schemas.clear()
        self._validators.clear()

    def learn(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Add tools from a list."""
        for tool in tools:
            self._add(str(tool.get("name")), is_harmless(tool), tool.get("outputSchema"))

    def learn_typed(self, tools: "Iterable[Tool]") -> None:
        """Add tools that are already decoded."""
        for tool in tools:
            hints = tool.annotations
            harmless = not isinstance(hints, UnsetType) and (
                hints.read_only_hint is True or hints.idempotent_hint is True
            )
            schema = tool.output_schema
            self._add(tool.name, harmless, None if isinstance(schema, UnsetType) else schema)

    def harmless(self, tool: object) -> bool:
        """Return True if the tool's annotations allow repeating a call."""
        return tool in self._harmless

    def check(self, tool: str, result: dict[str, Any]) -> None:
        """Check a complete result against the tool's output schema, if it has one.

        Raises:
            OutputMismatch: The structured content is missing or invalid, or the schema cannot be
                used.
        """
        schema = self.schemas.get(tool)
        if schema is None or result.get("isError"):
            return
        if "structuredContent" not in result:
            raise OutputMismatch(tool, "the result has no structuredContent", result)
        validator = self._validators.get(tool)
        if validator is None:
            validator = self._validators[tool] = _validator(tool, schema, result)
        errors = validator.errors(result["structuredContent"])
        if errors is None:
            raise OutputMismatch(
                tool, "the result is too large or nested too deeply to locate the mismatch", result
            )
        if errors:
            where = "".join(f"/{step}" for step in errors[0].instance_path)
            what = shortened(errors[0].message, PROBLEM_TEXT.value)
            raise OutputMismatch(tool, f"{what} (at {shortened(where) or '/'})", result)

    def _add(self, name: str, harmless: bool, schema: Any) -> None:
        if harmless:
            self._harmless.add(name)
        if isinstance(schema, Mapping | Raw):
            self.schemas[name] = schema


def is_harmless(tool: Mapping[str, Any]) -> bool:
    """Return True if a tool is declared read-only or idempotent."""
    hints = tool.get("annotations")
    return isinstance(hints, Mapping) and (
        hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
    )


def _validator(tool: str, schema: Any, result: dict[str, Any]) -> SchemaValidator:
    try:
        plain = msgspec.json.decode(schema) if isinstance(schema, Raw) else schema
        return SchemaValidator(plain, foreign=True)
    # Two libraries raise exceptions here that have no common base class.
    except Exception as exc:
        raise OutputMismatch(tool, f"the schema cannot be used: {exc}", result) from exc
