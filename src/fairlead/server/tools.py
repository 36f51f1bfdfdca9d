"""Tools: how one is described, and how it is called."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..protocol.types.tools import Tool, ToolAnnotations
from ..wire import to_json
from .context import Context
from .signature import FieldError, InvalidArguments, Signature

__all__ = ["ToolEntry", "describe_function", "tool_from_function", "tool_from_schema"]

NO_ARGUMENTS = Raw(b"{}")


class ToolEntry:
    """One registered tool: its definition, and how to decode arguments and call it."""

    __slots__ = (
        "asynchronous",
        "call",
        "decode",
        "definition",
        "inline",
        "name",
        "timeout",
        "wants_context",
    )

    def __init__(
        self,
        definition: Tool,
        decode: Callable[[Raw], Any],
        call: Callable[[Any, Any], Any],
        *,
        asynchronous: bool,
        wants_context: bool,
        inline: bool,
        timeout: float | None,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.decode = decode  # raises InvalidArguments
        self.call = call  # with what `decode` made, and a context
        self.asynchronous = asynchronous
        self.wants_context = wants_context
        self.inline = inline
        self.timeout = timeout


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None,
    description: str | None,
    title: str | None,
    annotations: ToolAnnotations | None,
    meta: dict[str, Any] | None,
    timeout: float | None,
    inline: bool,
) -> ToolEntry:
    """A tool whose schema is generated from the function's type hints."""
    signature = Signature(function, context_type=Context)
    text = description if description is not None else describe_function(function)
    definition = Tool(
        name=name or function.__name__,
        title=title or UNSET,
        description=text or UNSET,
        input_schema=Raw(to_json(signature.schema)),
        annotations=annotations or UNSET,
        meta=Raw(to_json(meta)) if meta else UNSET,
    )
    asynchronous = is_asynchronous(function)
    if inline and asynchronous:
        raise TypeError(f"{definition.name}: only a plain function can be called inline")
    return ToolEntry(
        definition,
        signature.decode,
        signature.call,
        asynchronous=asynchronous,
        wants_context=signature.context_name is not None,
        inline=inline,
        timeout=timeout,
    )


def tool_from_schema(
    name: str, schema: dict[str, Any], handler: Callable[..., Any], title: str | None
) -> ToolEntry:
    """A tool with a schema given by its author: a bare JSON Schema, or a whole tool object."""
    whole = schema if "inputSchema" in schema else {"inputSchema": schema}
    definition = msgspec.convert(
        {
            **{k: v for k, v in whole.items() if k not in ("inputSchema", "outputSchema", "_meta")},
            "name": name,
            **({"title": title} if title else {}),
            **{
                k: Raw(to_json(whole[k]))
                for k in ("inputSchema", "outputSchema", "_meta")
                if k in whole
            },
        },
        Tool,
    )
    if definition.description is UNSET and (text := describe_function(handler)):
        definition = msgspec.structs.replace(definition, description=text)
    return ToolEntry(
        definition,
        _checked_by(whole["inputSchema"]),
        lambda arguments, _: handler(**arguments),
        asynchronous=is_asynchronous(handler),
        wants_context=False,
        inline=False,
        timeout=None,
    )


def describe_function(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


def is_asynchronous(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _checked_by(schema: dict[str, Any]) -> Callable[[Raw], dict[str, Any]]:
    """Plain decoding, checked against a schema that we did not make."""
    validator: Any = None

    def decode(arguments: Raw) -> dict[str, Any]:
        nonlocal validator
        if validator is None:
            import jsonschema_rs

            validator = jsonschema_rs.validator_for(schema, retriever=_refuse_reference)
        try:
            values: dict[str, Any] = msgspec.json.decode(arguments, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise InvalidArguments([FieldError("arguments", str(exc))]) from exc
        errors = [
            FieldError(".".join(map(str, e.instance_path)) or "arguments", e.message)
            for e in validator.iter_errors(values)
        ]
        if errors:
            raise InvalidArguments(errors)
        return values

    return decode


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"references to {uri} are not followed")
