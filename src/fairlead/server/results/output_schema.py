"""Structured output: the output schema of a tool and the validation of its results.

Which types have a schema, and which are wrapped, follows the official SDK.
"""

import collections.abc
import enum
import sys
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from ...errors import MCPErrorCode, MCPToolError
from ...protocol.schema.validation import Checker, FieldError, InvalidArguments, bounded, reasons
from ...wire import to_json
from ..schema.foreign_types import as_model
from ..schema.object_fields import Field, is_typed_dict, object_fields
from ..schema.output_schema_builder import OutputSchemaBuilder
from .encode_result import (
    EncodedResult,
    as_content,
    is_block_type,
    is_result,
    is_result_type,
    json_of,
    plain_blocks,
    structured_text_result,
)
from .media import Media
from .native_output import NativeOutput

if TYPE_CHECKING:
    from .pydantic_output import PydanticOutput

__all__ = ["OutputSchema", "OutputSpec", "output_of"]

# A dict is a JSON Schema. True requires a return annotation with a schema,
# False means no schema, and None uses the return annotation if it has a schema.
OutputSchema: TypeAlias = dict[str, Any] | type | types.UnionType | bool | None

_WRAPPED = (str, int, float, bool, bytes, type(None))


class OutputSpec:
    """The output schema of a tool, and the validation and encoding of its results."""

    def __init__(
        self, schema: dict[str, Any], encoder: "NativeOutput | PydanticOutput", *, wrapped: bool
    ) -> None:
        self.schema = schema
        # True if values are not objects in JSON and are sent as {"result": value}
        self._wrapped = wrapped
        self._encode = encoder.encode
        self.warm_up = encoder.warm_up  # compiles the validator, if every result needs it
        # encodes a string without a check, if the type is `str`
        self.encode_text = structured_text_result if encoder.takes_any_text else None
        self._checker = Checker(schema, "result")  # validates complete results

    def convert(self, value: Any, tail: bytes = b"}") -> EncodedResult:
        """Encode a return value as a result with content blocks and structured content.

        Raises:
            MCPToolError: The value does not match the schema.
        """
        if is_result(value):
            return self._whole(value, tail)
        try:
            body = self._encode(value)
        except InvalidArguments as exc:
            raise _unfit(list(exc.errors)) from exc
        except (TypeError, AttributeError) as exc:
            blocks = self._encode_blocks(value)
            if blocks is None:
                raise _unfit([FieldError("result", str(exc))]) from exc
            body = blocks
        except (msgspec.ValidationError, ValueError, RecursionError) as exc:
            raise _unfit(reasons(exc, "result" if self._wrapped else "", "result")) from exc
        if self._wrapped:
            return as_content(value, b',"structuredContent":{"result":%b}%b' % (body, tail), body)
        content = as_content(value, b',"structuredContent":%b%b' % (body, tail), body)
        # Only the stateless revisions allow other structured values than objects.
        return content if body.startswith(b"{") else EncodedResult(content.result, False)

    def _encode_blocks(self, value: Any) -> bytes | None:
        """Return the JSON of content blocks if the schema allows them, as for `list[Any]`."""
        body = plain_blocks(value)
        if body is None or not self._wrapped:
            return None
        structured = msgspec.json.decode(b'{"result":%b}' % body)
        return None if self._checker.problems(structured) else body

    def _whole(self, value: Any, tail: bytes) -> EncodedResult:
        """Validate and encode a complete result. Error results are not validated."""
        if value.is_error is not True:
            structured = value.structured_content
            if structured is msgspec.UNSET:
                raise _unfit([FieldError("result", "the structured content is missing")])
            problems = self._checker.problems(msgspec.json.decode(json_of(structured)))
            if problems:
                raise _unfit(problems)
        return as_content(value, tail)


def output_of(given: Any, returns: Any, where: str) -> OutputSpec | None:
    """Return the output specification of a tool, from `OutputSchema` and its return annotation.

    Raises:
        TypeError: A schema is requested, but the type has none.
        ValueError: The given schema is invalid.
    """
    if given is False:
        return None
    if isinstance(given, dict):
        return _given(given, where)
    if given is True and returns is None:
        raise TypeError(f"{where}: output_schema=True requires a return annotation")
    derived = given is None
    kind = _data_type(_awaited(returns)) if derived or given is True else given
    try:
        if derived and not _has_output(kind):
            return None
        return _typed(kind)
    except TypeError as exc:
        if derived:
            return None
        raise TypeError(f"{where}: the return type has no JSON form: {exc}") from exc


def _given(given: dict[str, Any], where: str) -> OutputSpec:
    # A copy, because the caller may change its dict later.
    schema = msgspec.json.decode(to_json(given))
    output = OutputSpec(schema, NativeOutput(None, schema, wrapped=False), wrapped=False)
    try:
        output.warm_up()
    except ValueError as exc:
        raise ValueError(f"{where}: invalid outputSchema: {exc}") from exc
    return output


def _typed(kind: Any) -> OutputSpec:
    """Return the specification of a type.

    Raises:
        TypeError: The type has no schema.
    """
    base = _bare(kind)
    fields = _root_fields(base)
    wrapped = fields is None and _is_wrapped(base)
    # A program that uses a type of pydantic has imported it already.
    foreign = _pydantic_output(kind, wrapped, fields) if "pydantic" in sys.modules else None
    if foreign is not None:
        return OutputSpec(foreign.schema, foreign, wrapped=wrapped)
    builder = OutputSchemaBuilder()
    if fields is not None:
        schema = {"title": base.__name__, **builder.object(fields)}
    elif wrapped:
        schema = builder.object([Field("result", "result", kind, True)])
    else:
        schema = builder.of(base)
    schema = builder.root(schema)
    names = [f.name for f in fields or ()]
    # msgspec can encode the instances of a class with exactly these fields.
    if names == [f.name for f in object_fields(base) or ()]:
        names = []
    native = NativeOutput(kind, schema, wrapped=wrapped, attributes=names)
    return OutputSpec(schema, native, wrapped=wrapped)


def _pydantic_output(
    kind: Any, wrapped: bool, fields: list[Field] | None
) -> "PydanticOutput | None":
    # Loaded on first use: many servers do not use pydantic.
    from .pydantic_output import PydanticOutput, contains_pydantic_type

    if not contains_pydantic_type(kind):
        return None
    try:
        return PydanticOutput(kind if wrapped else _bare(kind), wrapped=wrapped, fields=fields)
    # pydantic does not support structs and, before Python 3.12, `typing.TypedDict`.
    except TypeError:
        return None


def _has_output(kind: Any) -> bool:
    """Return True if results of a type are structured by default."""
    base = _bare(kind)
    if kind is None or is_result_type(base) or _is_content(base) or _is_empty(base):
        return False
    return not isinstance(base, type) or not _is_wrapped(base) or base in _WRAPPED


def _is_empty(base: Any) -> bool:
    """Return True for a dataclass without fields."""
    return object_fields(base) == [] and as_model(base) is None and not is_typed_dict(base)


def _is_wrapped(base: Any) -> bool:
    """Return True for a type whose values are sent as {"result": value}."""
    if isinstance(base, types.GenericAlias):
        return base.__origin__ is not dict or base.__args__[0] is not str
    return not isinstance(base, type) or not (
        as_model(base) is not None or object_fields(base) is not None or _root_fields(base)
    )


def _root_fields(base: Any) -> list[Field] | None:
    """Return the fields of a class with annotations that is neither a model nor a `TypedDict`.

    As in the official SDK, a field without a default is required, and limits and descriptions in
    `Annotated` are ignored.
    """
    if not isinstance(base, type) or as_model(base) is not None or is_typed_dict(base):
        return None
    if issubclass(base, msgspec.Struct | tuple | enum.Enum):
        return None
    try:
        hints = typing.get_type_hints(base)
    except NameError as exc:
        raise TypeError(f"in {base.__qualname__}: {exc}") from exc
    fields = []
    for name, kind in hints.items():
        default = getattr(base, name, msgspec.NODEFAULT)
        if hasattr(default, "__get__"):  # a slot
            default = msgspec.NODEFAULT
        if not name.startswith("_") and typing.get_origin(kind) is not typing.ClassVar:
            fields.append(Field(name, name, kind, default is msgspec.NODEFAULT, default))
    return fields or None


def _is_content(kind: Any) -> bool:
    """Return True for content blocks, also in lists and unions, which have no output schema."""
    kind = _bare(kind)
    origin = typing.get_origin(kind)
    if origin in (list, tuple, collections.abc.Sequence, typing.Union, types.UnionType):
        return any(map(_is_content, typing.get_args(kind)))
    return is_block_type(kind) or (isinstance(kind, type) and issubclass(kind, Media | msgspec.Raw))


def _data_type(kind: Any) -> Any:
    """Return the X of `Annotated[CallToolResult, X]`; return other types unchanged."""
    if typing.get_origin(kind) is Annotated and is_result_type(typing.get_args(kind)[0]):
        return typing.get_args(kind)[1]
    return kind


def _bare(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _awaited(kind: Any) -> Any:
    """Return the X of `Awaitable[X]` and `Coroutine[..., X]`; return other types unchanged."""
    if typing.get_origin(kind) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return typing.get_args(kind)[-1]
    return kind


def _unfit(found: list[FieldError]) -> MCPToolError:
    problems = bounded(found)
    text = "; ".join(f"{problem.field}: {problem.constraint}" for problem in problems)
    return MCPToolError(
        f"The result does not match the output schema: {text}",
        code=MCPErrorCode.EXECUTION_ERROR,
        field_errors=[{"field": p.field, "constraint": p.constraint} for p in problems],
    )
