"""`Header`: the annotation of a parameter that also travels as an HTTP header."""

from typing import Any

from ...protocol.types.base import HEADER_ANNOTATION
from .schema_refs import referenced_name

__all__ = ["Header", "flat_headers"]


class Header:
    """Put into a parameter's `Annotated`: its value also travels as `Mcp-Param-<name>` over HTTP.

    Raises:
        TypeError: if no header can have this name.
    """

    def __init__(self, name: str) -> None:
        from ...protocol.headers import is_header_name  # few servers have any

        if not is_header_name(name):
            raise TypeError(f"{name!r} is not the name of a header: letters, digits and - only")
        self.name = name

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


def flat_headers(schema: dict[str, Any]) -> dict[str, Any]:
    """Parameters with a header get schemas that show their type: no union with null, no `$ref`.

    A client leaves a tool out whose header has another type, and does not look far. The decoder
    accepts null all the same.
    """
    properties = dict(schema["properties"])
    for name, entry in schema["properties"].items():
        if HEADER_ANNOTATION not in entry:
            continue
        entry = dict(entry)
        options = [o for o in entry.get("anyOf", ()) if o != {"type": "null"}]
        if len(options) == 1:
            entry = {**options[0], **{k: v for k, v in entry.items() if k != "anyOf"}}
            if entry.get("default", 0) is None:
                del entry["default"]
        if (target := referenced_name(entry)) is not None:
            entry = {**schema["$defs"][target], **{k: v for k, v in entry.items() if k != "$ref"}}
        if "type" not in entry and all(isinstance(v, str) for v in entry.get("enum", [0])):
            entry["type"] = "string"
        properties[name] = entry
    return {**schema, "properties": properties}
