"""Schemas that refer to definitions, and what the definitions are called."""

from collections.abc import Iterator
from typing import Any

__all__ = ["referenced_name", "references", "rename_references"]


def rename_references(schema: Any, names: dict[str, str], output: bool) -> Any:
    """A schema as it is published: its references (`#/$new/...`) by their final names."""
    if isinstance(schema, list):
        return [rename_references(item, names, output) for item in schema]
    if not isinstance(schema, dict):
        if isinstance(schema, str) and schema.startswith("#/$new/"):
            return "#/$defs/" + names[schema.removeprefix("#/$new/")]
        return schema
    found = {
        k: rename_references(v, names, output)
        for k, v in schema.items()
        if (k, v) != ("required", [])
    }
    if not output and found.get("format") == "decimal" and found.get("type") == "string":
        del found["type"], found["format"]  # written as a string, read from a number as well
        found["anyOf"] = [{"type": "number"}, {"type": "string", "format": "decimal"}]
    return found


def referenced_name(schema: dict[str, Any]) -> str | None:
    """The name of the definition that a schema stands for, if it is a reference."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return reference.removeprefix("#/$defs/")
    return None


def references(schema: Any) -> Iterator[str]:
    """The names of all definitions that a schema refers to."""
    if isinstance(schema, dict):
        name = referenced_name(schema)
        if name is not None:
            yield name
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)
