"""JSON Schemas in a form in which they can be compared."""

from typing import Any

__all__ = ["without_titles"]

_KEYS_ARE_NAMES = ("properties", "$defs")


def without_titles(schema: Any, names: bool = False) -> Any:
    """Return a schema without titles; `names` is True if the keys of the object are names."""
    if isinstance(schema, list):
        return [without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_titles(value, key in _KEYS_ARE_NAMES)
        for key, value in schema.items()
        if names or key != "title"
    }
