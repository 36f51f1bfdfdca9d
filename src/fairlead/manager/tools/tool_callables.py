"""Tools as Python functions, with signatures derived from their JSON Schemas."""

import keyword
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import reduce
from inspect import Parameter, Signature
from operator import or_
from typing import Any, Literal

from ...client import MCPClient
from .model_blocks import model_blocks
from .tool import MCPTool
from .tool_lookup import tool_of_client

__all__ = ["as_callables", "signature_of"]

_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict[str, Any],
}
_DEEPEST = 5  # maximum nesting level of a schema that is converted to annotations


def as_callables(
    tools: Iterable[MCPTool | Mapping[str, Any]], client: MCPClient | None = None
) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return asynchronous functions by name, with signature, annotations and docstring.

    `tools` are the tools of a manager, or definitions that `client.list_tools` returned. The
    functions return the result's text, including structured content that no text repeats. A result
    with images, audio or links is returned as the list of its content blocks.

    Raises:
        TypeError: A definition is given without its client.
    """
    return {tool.name: _callable(tool) for tool in (_bound(one, client) for one in tools)}


def signature_of(schema: Mapping[str, Any]) -> tuple[Signature, dict[str, str]]:
    """Return the signature for a schema, and the property for each parameter.

    Optional parameters without a default have the default None and are sent only if they are given.
    """
    properties = schema.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    names: dict[str, str] = {}
    parameters = []
    # Python requires that parameters without a default come first.
    for name in sorted(declared, key=lambda one: one not in needed):
        parameter = _identifier(name, names)
        names[parameter] = name
        inner = declared[name] if isinstance(declared[name], Mapping) else {}
        annotation = _annotation(inner)
        default: Any = Parameter.empty
        if name not in needed:
            default = inner.get("default")
            annotation = annotation if default is not None else _optional(annotation)
        parameters.append(
            Parameter(
                parameter, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
            )
        )
    return Signature(parameters, return_annotation=Any), names


def _bound(tool: MCPTool | Mapping[str, Any], client: MCPClient | None) -> MCPTool:
    if not isinstance(tool, Mapping):
        return tool
    if client is None:
        raise TypeError("definitions of tools need their client: `as_callables(tools, client)`")
    return tool_of_client(client, tool)


def _callable(tool: MCPTool) -> Callable[..., Awaitable[Any]]:
    signature, names = signature_of(tool.parameters)

    parameters = {name: parameter for parameter, name in names.items()}
    # A schema usually allows properties that it does not declare; they are sent as given.
    is_open = tool.parameters.get("additionalProperties") is not False

    async def call(*args: Any, **kwargs: Any) -> Any:
        named = {parameters.get(name, name): value for name, value in kwargs.items()}
        checked = {name: named[name] for name in named if name in names or not is_open}
        bound = signature.bind(*args, **checked).arguments
        # Positional arguments come first, then the others in the given order.
        given = {names[name]: value for name, value in bound.items() if name not in named}
        given |= {names.get(name, name): value for name, value in named.items()}
        blocks = model_blocks(await tool.execute(given))
        if all(block.get("type") == "text" for block in blocks):
            return "\n".join(str(block.get("text", "")) for block in blocks)
        return blocks

    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = _docstring(tool, names)
    call.__signature__ = signature  # type: ignore[attr-defined]  # read by `inspect.signature`
    call.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()} | {
        "return": Any
    }
    return call


def _docstring(tool: MCPTool, names: Mapping[str, str]) -> str:
    properties = tool.parameters["properties"]
    lines = [
        f"    {parameter}: {inner['description']}"
        for parameter, name in names.items()
        if isinstance(inner := properties[name], Mapping) and inner.get("description")
    ]
    return "\n".join([tool.description, "", "Args:", *lines]) if lines else tool.description


def _identifier(name: str, taken: Mapping[str, str]) -> str:
    found = re.sub(r"\W", "_", name) or "_"
    if found[0].isdigit() or keyword.iskeyword(found):
        found += "_" if keyword.iskeyword(found) else ""
        found = f"_{found}" if found[0].isdigit() else found
    while found in taken:
        found += "_"
    return found


def _annotation(schema: Mapping[str, Any], depth: int = 0) -> Any:
    choices, kind = schema.get("enum"), schema.get("type")
    if depth > _DEEPEST:
        return Any
    if (
        isinstance(choices, list)
        and choices
        and all(isinstance(one, str | int | bool | None) for one in choices)
    ):
        return Literal[tuple(choices)]
    if isinstance(kind, list):
        return _union([_annotation({**schema, "type": one}, depth + 1) for one in kind])
    for word in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(word), list):
            found = [_annotation(one, depth + 1) for one in parts if isinstance(one, Mapping)]
            return _union(found)
    if kind == "array":
        items = schema.get("items")
        return list[_annotation(items, depth + 1) if isinstance(items, Mapping) else Any]  # type: ignore[misc]
    return _TYPES.get(kind, Any) if isinstance(kind, str) else Any


def _union(parts: list[Any]) -> Any:
    if not parts or any(part is Any for part in parts):
        return Any
    return reduce(or_, parts) if len(set(map(str, parts))) > 1 else parts[0]


def _optional(annotation: Any) -> Any:
    return annotation if annotation is Any or annotation is None else annotation | None
