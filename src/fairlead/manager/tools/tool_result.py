"""Tool results: content for the model, and details for its host."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...client.api.typed_results import tool_error
from ...wire import to_json

__all__ = [
    "ToolDetails",
    "ToolResult",
    "named_error",
    "normalize_arguments",
    "result_from_error",
    "result_from_response",
]


ERROR_PREFIX = "MCP error: "  # prefix of the text that a model reads after a failure (HST-54)


class ToolDetails(Struct, frozen=True, kw_only=True):
    """The details of a result that a model need not read."""

    server_name: str
    mcp_tool_name: str
    raw_content: list[dict[str, Any]] = []
    structured_content: Any = None
    meta: dict[str, Any] | None = None
    is_error: bool = False
    provider: str | None = None  # the host program whose configuration contains the server
    provider_name: str | None = None


class ToolResult(Struct, frozen=True):
    """Content blocks for the model, and details for the host."""

    content: list[dict[str, Any]]
    details: ToolDetails

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines."""
        return "\n".join(str(b.get("text", "")) for b in self.content if b.get("type") == "text")


def result_from_response(result: Mapping[str, Any], **about: Any) -> ToolResult:
    """Return the result of a successful or failed (`isError`) tool call."""
    blocks = [block for block in result.get("content") or () if isinstance(block, dict)]
    is_error = result.get("isError") is True
    meta = result.get("_meta")
    details = ToolDetails(
        raw_content=blocks,
        structured_content=result.get("structuredContent"),
        meta=meta if isinstance(meta, dict) else None,
        is_error=is_error,
        **about,
    )
    if is_error:
        return ToolResult(_as_error(result, blocks), details)
    if not blocks and details.structured_content is not None:  # models read only `content`
        text = to_json(details.structured_content).decode()
        return ToolResult([{"type": "text", "text": text}], details)
    return ToolResult(blocks, details)


def result_from_error(problem: str, **about: Any) -> ToolResult:
    """Return the result that the model gets if the call itself failed."""
    text = {"type": "text", "text": f"{ERROR_PREFIX}{problem}"}
    return ToolResult([text], ToolDetails(is_error=True, raw_content=[], **about))


def named_error(name: str, error: BaseException) -> str:
    """Return the message of an error; the name of the server is added if it is missing."""
    text = str(error)
    return text if f'"{name}"' in text else f'server "{name}": {text}'


def _as_error(result: Mapping[str, Any], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a failed result, with `MCP error: ` at the start of the first text."""
    error = tool_error(result)
    if error is not None and len(blocks) == 1:
        said = {"type": "text", "text": f"{ERROR_PREFIX}{error.message}"}
        hint = error.suggestion
        return [said, {"type": "text", "text": hint}] if hint else [said]
    for index, block in enumerate(blocks):
        if block.get("type") == "text":
            text = {**block, "text": f"{ERROR_PREFIX}{block.get('text', '')}"}
            return [*blocks[:index], text, *blocks[index + 1 :]]
    return [{"type": "text", "text": f"{ERROR_PREFIX}the tool failed"}, *blocks]


def normalize_arguments(arguments: Any, schema: Any) -> dict[str, Any]:
    """Return the arguments to send: unchanged, except for unintended `null` values.

    Anything but an object becomes `{}`. Models write `null` for an optional property they do not
    want to set, so a `null` is omitted if the property is declared and optional, and its schema
    does not allow null. Empty strings, objects and arrays are kept.
    """
    if not isinstance(arguments, Mapping):
        return {}
    nulls = [name for name, value in arguments.items() if value is None]
    if not nulls or not isinstance(schema, Mapping):
        return dict(arguments)
    properties, required = schema.get("properties"), schema.get("required")
    declared = properties if isinstance(properties, Mapping) else {}
    needed = required if isinstance(required, list) else []
    omitted = {
        name
        for name in nulls
        if name in declared and name not in needed and _forbids_null(declared[name], schema)
    }
    return {name: value for name, value in arguments.items() if name not in omitted}


_MAX_SCHEMAS = 200  # maximum number of references and unions examined for one property


def _forbids_null(schema: Any, root: Mapping[str, Any], seen: list[None] | None = None) -> bool:
    """Return True if null certainly violates a schema; False otherwise.

    Circular references never end, and unions of them grow exponentially, so the number of examined
    schemas is limited.
    """
    seen = [] if seen is None else seen
    seen.append(None)
    if schema is False:
        return True
    if not isinstance(schema, Mapping) or schema.get("nullable") is True:
        return False
    if len(seen) > _MAX_SCHEMAS:
        return False
    kind, choices = schema.get("type"), schema.get("enum")
    if isinstance(kind, str) and kind != "null":
        return True
    if isinstance(kind, list) and "null" not in kind:
        return True
    if isinstance(choices, list) and None not in choices:
        return True
    if "const" in schema and schema["const"] is not None:
        return True

    def forbidden(part: Any) -> bool:
        return _forbids_null(part, root, seen)

    reference, every = schema.get("$ref"), schema.get("allOf")
    if isinstance(reference, str) and forbidden(_referenced(reference, root)):
        return True
    if isinstance(every, list) and any(map(forbidden, every)):
        return True
    return any(
        isinstance(parts := schema.get(keyword), list) and parts and all(map(forbidden, parts))
        for keyword in ("anyOf", "oneOf")
    )


def _referenced(reference: str, root: Mapping[str, Any]) -> Any:
    """Resolve a JSON pointer within the document; other references are not followed."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
