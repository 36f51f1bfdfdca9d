"""Structured output: the output schema of a tool and the validation of its results."""

import collections.abc
import types
import typing
from typing import Annotated, Any, TypeAlias

import msgspec

from ...errors import MCPErrorCode, MCPToolError
from ...protocol.schema.validation import Checker, FieldError, bounded, reasons
from ...wire import to_json
from ..schema.foreign_types import as_model
from ..schema.msgspec_types import has_foreign_notes, to_msgspec_type
from ..schema.object_fields import object_fields
from ..schema.schema_builder import SchemaBuilder
from .encode_result import (
    EncodedResult,
    as_content,
    is_block_type,
    is_result,
    is_result_type,
    json_of,
)

__all__ = ["OutputSchema", "OutputSpec", "output_of"]

# A dict is a JSON Schema. True uses the return annotation, False means no schema, and None uses the
# return annotation if its values are objects in JSON.
OutputSchema: TypeAlias = dict[str, Any] | type | types.UnionType | bool | None


class OutputSpec:
    """The output schema of a tool, and the validation and encoding of its results."""

    def __init__(self, schema: dict[str, Any], kind: Any = None, *, wrapped: bool = False) -> None:
        self.schema = schema
        # True if values are not objects in JSON and are sent as {"result": value}
        self._wrapped = wrapped
        self._checker = Checker(schema, "result")
        self._decode = None
        # Decoding the JSON as the type is faster than validating it against the schema.
        if kind is not None and _reads_back(kind, set()):
            self._decode = msgspec.json.Decoder(kind).decode

    def convert(self, value: Any, tail: bytes = b"}") -> EncodedResult:
        """Return the result with its structured content, and the same JSON as a text block.

        Raises:
            MCPToolError: The value does not match the schema.
        """
        if is_result(value):
            return self._whole(value, tail)
        try:
            body = json_of(value)
        except TypeError as exc:
            raise _unfit([FieldError("result", str(exc))]) from exc
        self._check(body)
        if self._wrapped:
            body = b'{"result":%b}' % body
        return EncodedResult(
            b'{"content":[{"type":"text","text":%b}],"structuredContent":%b%b'
            % (to_json(body.decode()), body, tail),
            False,
        )

    def warm_up(self) -> None:
        """Compile the validator that every result needs.

        Raises:
            ValueError: The schema is invalid.
        """
        if self._decode is None:
            self._checker.compile()

    def _check(self, body: bytes) -> None:
        """Validate the JSON of a value by decoding it as its type, or against the schema."""
        if self._decode is not None:
            try:
                self._decode(body)
            except (msgspec.ValidationError, RecursionError) as exc:
                raise _unfit(reasons(exc, "result" if self._wrapped else "", "result")) from exc
            return
        value = msgspec.json.decode(body)
        problems = self._checker.problems({"result": value} if self._wrapped else value)
        if problems:
            raise _unfit(problems)

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
        # A copy, because the caller may change its dict later.
        output = OutputSpec(msgspec.json.decode(to_json(given)))
        try:
            output.warm_up()
        except ValueError as exc:
            raise ValueError(f"{where}: invalid outputSchema: {exc}") from exc
        return output
    if given is True and returns is None:
        raise TypeError(f"{where}: output_schema=True requires a return annotation")
    derived = given is None
    kind = to_msgspec_type(_awaited(returns) if derived or given is True else given)
    forms = SchemaBuilder(output=True)
    try:
        if derived and not _is_object(kind):
            return None
        form = forms.of(kind)
    except TypeError as exc:
        if derived:
            return None
        raise TypeError(f"{where}: the return type has no JSON form: {exc}") from exc
    schema = forms.root(form.schema)
    if schema.get("type") == "object":
        return OutputSpec(schema, kind)
    # In older revisions `structuredContent` must be an object, so other values are wrapped.
    schema = {"type": "object", "properties": {"result": form.schema}, "required": ["result"]}
    return OutputSpec(forms.root(schema), kind, wrapped=True)


def _is_object(kind: Any) -> bool:
    """Return True for a class whose values are objects in JSON, and for `dict[str, X]`."""
    if typing.get_origin(kind) is Annotated:
        return _is_object(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (dict, collections.abc.Mapping):
        return typing.get_args(kind)[0] is str
    base = typing.get_origin(kind) or kind
    if is_block_type(base) or is_result_type(base):
        return False
    return as_model(base) is not None or object_fields(base) is not None


def _awaited(kind: Any) -> Any:
    """Return the X of `Awaitable[X]` and `Coroutine[..., X]`."""
    if typing.get_origin(kind) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return typing.get_args(kind)[-1]
    return kind


def _reads_back(kind: Any, seen: set[Any]) -> bool:
    """Return True if msgspec can decode a type without running hooks or `__post_init__`.

    Validating a result must not run user code a second time.
    """
    try:
        msgspec.json.schema_components([kind])
    except TypeError:
        return False
    return not has_foreign_notes(kind) and not _runs_code(kind, seen)


def _runs_code(kind: Any, seen: set[Any]) -> bool:
    inner = typing.get_args(kind)
    if inner:
        origin = typing.get_origin(kind)
        return any(_runs_code(part, seen) for part in (*inner, origin))
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    if hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_attrs__"):
        return True
    return any(_runs_code(field.kind, seen) for field in object_fields(kind) or ())


def _unfit(found: list[FieldError]) -> MCPToolError:
    problems = bounded(found)
    text = "; ".join(f"{problem.field}: {problem.constraint}" for problem in problems)
    return MCPToolError(
        f"The result does not match the output schema: {text}",
        code=MCPErrorCode.EXECUTION_ERROR,
        field_errors=[{"field": p.field, "constraint": p.constraint} for p in problems],
    )
