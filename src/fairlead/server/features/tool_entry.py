"""Registered tools: their definitions, argument decoding and calls."""

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from ...interceptor import Handler
from ...protocol.schema.validation import Checker, FieldError, InvalidArguments
from ...protocol.types.base import HEADER_ANNOTATION
from ...protocol.types.tools import Tool, ToolAnnotations
from ...wire import to_json
from ..context.context import Context
from ..results.encode_result import EncodedResult, text_result
from ..results.output_schema import OutputSchema, OutputSpec, output_of
from ..schema.signature import (
    Signature,
    context_parameter,
    hints_of,
    require_bound,
    require_function,
    require_names,
    unwrap_partials,
)

if TYPE_CHECKING:
    from ...protocol.headers import ParamHeader

__all__ = [
    "ToolEntry",
    "describe_function",
    "name_of_function",
    "require_name",
    "tool_from_function",
    "tool_from_schema",
]

NO_ARGUMENTS = Raw(b"{}")


class ToolEntry(Struct, eq=False):
    """One registered tool: its definition, argument decoder and function."""

    definition: Tool
    decode: Callable[[Raw], Any]  # raises InvalidArguments
    call: Callable[[Any, Any], Any]  # takes the result of `decode` and a context
    asynchronous: bool
    wants_context: bool
    inline: bool = False
    timeout: float | None = None
    # converts results of a tool with an output schema; raises MCPToolError
    convert: Callable[[Any, bytes], EncodedResult] | None = None
    # encodes a string, the most frequent result; None if `convert` has to check it
    encode_text: Callable[[str, bytes], bytes] | None = text_result
    warm_up: Callable[[], None] = lambda: None  # compiles the schemas that every call needs
    home: Handler | None = None  # handler of the inner server, for a mounted tool
    name: str = ""  # the name in the definition
    param_headers: "tuple[ParamHeader, ...]" = ()
    scopes: tuple[str, ...] = ()  # scopes that a caller's token must have

    def __post_init__(self) -> None:
        self.name = self.definition.name
        self.param_headers = _param_headers(self.definition)


def tool_from_function(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    title: str | None = None,
    annotations: ToolAnnotations | Mapping[str, Any] | None = None,
    meta: dict[str, Any] | None = None,
    timeout: float | None = None,
    inline: bool = False,
    output_schema: OutputSchema = None,
) -> ToolEntry:
    """Return a tool whose schema is generated from the type hints of a function.

    Raises:
        TypeError: A parameter or the return value has no JSON Schema, `inline` is set for a
            coroutine function, a method has no object, a lambda function has no name, or the only
            parameters are `*args` and `**kwargs`.
    """
    signature = Signature(function, context_type=Context)
    require_bound(function)
    _require_parameters(signature.where, function)
    output = output_of(output_schema, signature.returns, signature.where)
    text = description if description is not None else describe_function(function)
    definition = Tool(
        name=require_name(name, function),
        title=title or UNSET,
        description=text or UNSET,
        input_schema=Raw(to_json(signature.schema)),
        output_schema=Raw(to_json(output.schema)) if output else UNSET,
        # A mapping is sent unchanged, including members that `ToolAnnotations` does not have.
        annotations=cast("ToolAnnotations | None", annotations) or UNSET,
        meta=Raw(to_json(meta)) if meta else UNSET,
    )
    asynchronous = is_asynchronous(function)
    if inline and asynchronous:
        raise TypeError(f"{definition.name}: inline is not supported for coroutine functions")
    return ToolEntry(
        definition,
        signature.decode,
        signature.call,
        asynchronous=asynchronous,
        wants_context=signature.context_name is not None,
        inline=inline,
        timeout=timeout,
        convert=output.convert if output else None,
        encode_text=output.encode_text if output else text_result,
        warm_up=lambda: _warm_up(signature, output),
    )


def tool_from_schema(
    name: str,
    schema: dict[str, Any],
    handler: Callable[..., Any],
    title: str | None,
    output_schema: OutputSchema = None,
) -> ToolEntry:
    """Return a tool with a given schema: a JSON Schema or a complete tool object.

    The handler receives the arguments that it has parameters for, by name, or all of them if it has
    `**kwargs`. A parameter annotated `Context` receives the context.

    Raises:
        TypeError: The handler is a generator, a class or a method without an object, it has
            positional-only parameters, the output schema is a type without a JSON Schema, or a
            header annotation is invalid.
        ValueError: A schema or the tool object is invalid.
    """
    require_function(handler)
    require_bound(handler)
    whole = schema if "inputSchema" in schema else {"inputSchema": schema}
    arguments = _argument_schema(whole["inputSchema"], name)
    hints = _hints(handler)
    if output_schema is None:
        # False: the return annotation of the handler is ignored, because the schema is explicit.
        output_schema = whole.get("outputSchema", False)
    output = output_of(output_schema, hints.get("return"), name)
    raw = {"inputSchema": Raw(to_json(arguments))}
    if "_meta" in whole:
        raw["_meta"] = Raw(to_json(whole["_meta"]))
    if output is not None:
        raw["outputSchema"] = Raw(to_json(output.schema))
    members = {k: v for k, v in whole.items() if k not in ("inputSchema", "outputSchema", "_meta")}
    if title:
        members["title"] = title
    try:
        definition = msgspec.convert({**members, "name": name, **raw}, Tool)
    except msgspec.ValidationError as exc:
        raise ValueError(f"{name}: invalid tool object: {exc}") from exc
    if definition.description is UNSET and (text := describe_function(handler)):
        definition = msgspec.structs.replace(definition, description=text)
    context_name = context_parameter(hints, Context)
    return ToolEntry(
        definition,
        _checked_by(msgspec.json.decode(definition.input_schema), name),
        _by_name(handler, context_name),
        asynchronous=is_asynchronous(handler),
        wants_context=context_name is not None,
        convert=output.convert if output else None,
        encode_text=output.encode_text if output else text_result,
    )


def _param_headers(tool: Tool) -> "tuple[ParamHeader, ...]":
    """Return the arguments that are also sent as headers (stateless HTTP).

    Raises:
        TypeError: A client could not call the tool: a header name is invalid or used twice, or an
            argument is not a string, integer or boolean.
    """
    if HEADER_ANNOTATION.encode() not in bytes(tool.input_schema):
        return ()
    # Loaded on first use: few tools have header arguments.
    from ...protocol.headers import param_headers

    try:
        return param_headers(msgspec.json.decode(tool.input_schema))
    except ValueError as exc:
        raise TypeError(f"{tool.name}: {exc}") from exc


def _warm_up(signature: Signature, output: OutputSpec | None) -> None:
    signature.warm_up()
    if output is not None:
        output.warm_up()


def _argument_schema(schema: Any, name: str) -> dict[str, Any]:
    """Return the schema with `type: object`, which the specification requires."""
    if not isinstance(schema, dict):
        raise ValueError(f"{name}: inputSchema must be a dict, not {schema!r}")
    if schema.get("type", "object") != "object":
        raise ValueError(f"{name}: inputSchema must have the type 'object', not {schema['type']!r}")
    return {"type": "object", **schema}


def describe_function(function: Callable[..., Any]) -> str:
    return inspect.getdoc(unwrap_partials(function)) or ""


def is_asynchronous(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def name_of_function(function: Callable[..., Any]) -> str:
    """Return the name of a function or of the class of an object; empty for a lambda function."""
    target = unwrap_partials(function)
    name = str(getattr(target, "__name__", None) or type(target).__name__)
    return "" if name == "<lambda>" else name


def require_name(name: str | None, function: Callable[..., Any]) -> str:
    """Return the given name, or the name of the function.

    Raises:
        TypeError: No name is given, and the function is a lambda function.
    """
    found = name or name_of_function(function)
    if not found:
        raise TypeError("a lambda function has no name: pass a name, or define it with `def`")
    return found


def _require_parameters(where: str, function: Callable[..., Any]) -> None:
    """Check that a function has not only `*args` and `**kwargs`, which callers cannot pass.

    Raises:
        TypeError: The function is probably the result of a decorator without `functools.wraps`.
    """
    parameters = inspect.signature(function).parameters.values()
    if parameters and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise TypeError(
            f"{where}: callers cannot pass {' and '.join(map(str, parameters))}: name each "
            "parameter, and use `functools.wraps` in decorators"
        )


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return hints_of(handler)
    # Names imported only for type checkers cannot be resolved, and the schema is explicit anyway.
    except (NameError, TypeError):
        return {}


def _by_name(
    handler: Callable[..., Any], context_name: str | None
) -> Callable[[dict[str, Any], Any], Any]:
    parameters = inspect.signature(handler).parameters.values()
    for parameter in parameters:
        require_names(name_of_function(handler) or "the lambda function", parameter)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}

    def call(arguments: dict[str, Any], context: Any) -> Any:
        values = arguments if takes_all else {k: v for k, v in arguments.items() if k in known}
        if context_name is not None:
            values = {**values, context_name: context}
        return handler(**values)

    return call


def _checked_by(schema: dict[str, Any], name: str) -> Callable[[Raw], dict[str, Any]]:
    """Return a decoder that validates arguments against a given schema.

    Raises:
        ValueError: The schema is invalid.
    """
    checker = Checker(schema)
    try:
        # Compiled at registration, so that an invalid schema fails here and not in the first call.
        checker.compile()
    except ValueError as exc:
        raise ValueError(f"{name}: invalid inputSchema: {exc}") from exc

    def decode(arguments: Raw) -> dict[str, Any]:
        try:
            values: dict[str, Any] = msgspec.json.decode(arguments, type=dict[str, Any])
        # msgspec raises RecursionError for deeply nested JSON.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise InvalidArguments([FieldError("arguments", str(exc))]) from exc
        errors = checker.coerce_strings(values)
        if errors:
            raise InvalidArguments(errors)
        return values

    return decode
