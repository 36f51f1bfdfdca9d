"""`Header`: the annotation of a parameter that is also sent as an HTTP header."""

from typing import Any

from ...protocol.types.base import HEADER_ANNOTATION
from .schema_refs import referenced_name

__all__ = ["Header", "flat_headers"]


class Header:
    """Annotation of a parameter whose value is also sent as the HTTP header `Mcp-Param-<name>`.

    Raises:
        TypeError: The name is not a valid header name.
    """

    def __init__(self, name: str) -> None:
        # Loaded on first use: few tools have header arguments.
        from ...protocol.headers import is_header_name

        if not is_header_name(name):
            raise TypeError(
                f"invalid header name {name!r}: expected only letters, digits and !#$%&'*+-.^_`|~"
            )
        self.name = name

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


def flat_headers(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that gives header parameters a plain type: no union with null, no `$ref`.

    Clients drop a tool if the type of a header parameter is not a string, integer or boolean, and
    they do not resolve references. The decoder still accepts null.
    """
    properties = dict(schema["properties"])
    for name, entry in schema["properties"].items():
        if HEADER_ANNOTATION not in entry:
            continue
        entry = dict(entry)
        options = [o for o in entry.get("anyOf", ()) if o != {"type": "null"}]
        if len(options) == 1:
            entry = {**options[0], **{k: v for k, v in entry.items() if k != "anyOf"}}
            if "default" in entry and entry["default"] is None:
                del entry["default"]
        if (target := referenced_name(entry)) is not None:
            entry = {**schema["$defs"][target], **{k: v for k, v in entry.items() if k != "$ref"}}
        if "type" not in entry and all(isinstance(v, str) for v in entry.get("enum", [0])):
            entry["type"] = "string"
        properties[name] = entry
    return {**schema, "properties": properties}
