"""What a server last said about its tools, for those who decide by it."""

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
    """The tools of the last `tools/list`, as far as a later call depends on them."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}  # the output schemas, by tool; decoded when needed
        self._harmless: set[str] = set()
        self._validators: dict[str, SchemaValidator] = {}

    def forget(self) -> None:
        """A new list begins, or the old one is no longer true."""
        self._harmless.clear()
        self.forget_schemas()

    def forget_schemas(self) -> None:
        self.schemas.clear()
        self._validators.clear()

    def learn(self, tools: Iterable[Mapping[str, Any]]) -> None:
        """Take in tools of a list."""
        for tool in tools:
            self._add(str(tool.get("name")), is_harmless(tool), tool.get("outputSchema"))

    def learn_typed(self, tools: "Iterable[Tool]") -> None:
        """The same for tools that were decoded already."""
        for tool in tools:
            hints = tool.annotations
            harmless = not isinstance(hints, UnsetType) and (
                hints.read_only_hint is True or hints.idempotent_hint is True
            )
            schema = tool.output_schema
            self._add(tool.name, harmless, None if isinstance(schema, UnsetType) else schema)

    def harmless(self, tool: object) -> bool:
        """Whether calling it twice does what calling it once does, by its own word."""
        return tool in self._harmless

    def check(self, tool: str, result: dict[str, Any]) -> None:
        """Hold a complete result against the tool's schema, if there is one.

        Raises:
            OutputMismatch: it lacks structured content, or that does not fit; or the schema is
                none, or refers to places we do not go.
        """
        schema = self.schemas.get(tool)
        if schema is None or result.get("isError"):
            return
        if "structuredContent" not in result:
            raise OutputMismatch(tool, "it has no structuredContent", result)
        validator = self._validators.get(tool)
        if validator is None:
            validator = self._validators[tool] = _validator(tool, schema, result)
        errors = validator.errors(result["structuredContent"])
        if errors is None:
            raise OutputMismatch(tool, "it is too large or nested too deeply to say where", result)
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
    """Return whether a tool says that calling it twice does what calling it once does."""
    hints = tool.get("annotations")
    return isinstance(hints, Mapping) and (
        hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
    )


def _validator(tool: str, schema: Any, result: dict[str, Any]) -> SchemaValidator:
    try:
        plain = msgspec.json.decode(schema) if isinstance(schema, Raw) else schema
        return SchemaValidator(plain, foreign=True)
    except Exception as exc:  # of several libraries, without a common base
        raise OutputMismatch(tool, f"the schema cannot be used: {exc}", result) from exc
