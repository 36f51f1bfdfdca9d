"""Parameters that also travel as HTTP headers."""

import re
from typing import Any

from .references import referred

__all__ = ["HEADER_KEY", "Header", "check_headers", "flat_headers"]

HEADER_KEY = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2


class Header:
    """Put into a parameter's `Annotated`: its value also travels as `Mcp-Param-<name>` over HTTP.

    Raises:
        TypeError: if no header can have this name.
    """

    def __init__(self, name: str) -> None:
        if not _TOKEN.fullmatch(name):
            raise TypeError(f"{name!r} is not the name of a header: letters, digits and - only")
        self.name = name

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


def check_headers(schema: dict[str, Any], where: str) -> None:
    """Look at the parameters that travel as headers, and say their schemas plainly.

    Raises:
        TypeError: if a name is no token or there twice, or a value is no string, integer, boolean.
    """
    seen: dict[str, str] = {}
    properties = schema.get("properties")
    for name, entry in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(entry, dict) or HEADER_KEY not in entry:
            continue
        header, what = entry[HEADER_KEY], f"{where}: parameter {name!r}"
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise TypeError(f"{what}: {header!r} is not the name of a header")
        if header.lower() in seen:
            raise TypeError(f"{what}: {seen[header.lower()]!r} has the header {header!r} already")
        seen[header.lower()] = name
        if entry.get("type") not in ("string", "integer", "boolean"):
            raise TypeError(f"{what}: only a string, integer or boolean fits into a header")


def flat_headers(schema: dict[str, Any]) -> dict[str, Any]:
    """Parameters with a header get schemas that show their type: no union with null, no `$ref`.

    A client leaves a tool out whose header has another type, and does not look far. The decoder
    accepts null all the same.
    """
    properties = dict(schema["properties"])
    for name, entry in schema["properties"].items():
        if HEADER_KEY not in entry:
            continue
        entry = dict(entry)
        options = [o for o in entry.get("anyOf", ()) if o != {"type": "null"}]
        if len(options) == 1:
            entry = {**options[0], **{k: v for k, v in entry.items() if k != "anyOf"}}
            if entry.get("default", 0) is None:
                del entry["default"]
        if (target := referred(entry)) is not None:
            entry = {**schema["$defs"][target], **{k: v for k, v in entry.items() if k != "$ref"}}
        if "type" not in entry and all(isinstance(v, str) for v in entry.get("enum", [0])):
            entry["type"] = "string"
        properties[name] = entry
    return {**schema, "properties": properties}
