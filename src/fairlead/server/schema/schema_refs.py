"""References between schemas and the names of their definitions."""

from collections.abc import Iterator
from typing import Any

__all__ = ["referenced_name", "references", "rename_references"]


def rename_references(schema: Any, names: dict[str, str]) -> Any:
    """Return a schema whose temporary references (`#/$new/...`) have their final names."""
    if isinstance(schema, list):
        return [rename_references(item, names) for item in schema]
    if not isinstance(schema, dict):
        if isinstance(schema, str) and schema.startswith("#/$new/"):
            return "#/$defs/" + names[schema.removeprefix("#/$new/")]
        return schema
    found = {
        k: rename_references(v, names)
        for k, v in schema.items()
        # An empty `required` has no effect, and draft 4 of JSON Schema forbids it.
        if (k, v) != ("required", [])
    }
    if found.get("format") == "decimal" and found.get("type") == "string":
        # A decimal is sent as a string, but also accepted as a number.
        del found["type"], found["format"]
        found["anyOf"] = [{"type": "number"}, {"type": "string", "format": "decimal"}]
    return found


def referenced_name(schema: dict[str, Any]) -> str | None:
    """Return the name of the definition that a schema refers to, or None."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return reference.removeprefix("#/$defs/")
    return None


def references(schema: Any) -> Iterator[str]:
    """Yield the names of all definitions that a schema refers to."""
    if isinstance(schema, dict):
        name = referenced_name(schema)
        if name is not None:
            yield name
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)
