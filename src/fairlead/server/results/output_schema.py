"""Structured output: the schema of what a tool returns, and results that keep to it."""

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

# A JSON Schema; a type; True: from the annotation, whatever it is; False: none; None: from the
# annotation, if that is an object in JSON.
OutputSchema: TypeAlias = dict[str, Any] | type | types.UnionType | bool | None


class OutputSpec:
    """What a tool promises about its results."""

    def __init__(self, schema: dict[str, Any], kind: Any = None, *, wrapped: bool = False) -> None:
        self.schema = schema
        self._wrapped = wrapped  # no object: it travels as {"result": value}
        self._checker = Checker(schema, "result")
        self._decode = None
        if kind is not None and _reads_back(kind, set()):
            self._decode = msgspec.json.Decoder(kind).decode

    def convert(self, value: Any, tail: bytes = b"}") -> EncodedResult:
        """The result with its structured content, and the same as a text block.

        Raises:
            MCPToolError: if the value does not fit the schema.
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
        """Compile what every result is checked with. Raises `ValueError` for a broken schema."""
        if self._decode is None:
            self._checker.compile()

    def _check(self, body: bytes) -> None:
        """What msgspec can read back as the declared type fits; else the schema has to say."""
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
        """A result that its author wrote: checked, unless it says that the tool failed."""
        if value.is_error is not True:
            structured = value.structured_content
            if structured is msgspec.UNSET:
                raise _unfit([FieldError("result", "the structured content is missing")])
            problems = self._checker.problems(msgspec.json.decode(json_of(structured)))
            if problems:
                raise _unfit(problems)
        return as_content(value, tail)


def output_of(given: Any, returns: Any, where: str) -> OutputSpec | None:
    """What a tool promises, by what its author says (`OutputSchema`) and its return annotation.

    Raises:
        TypeError: if a schema is asked for and the type has none.
        ValueError: if the schema that is given is none.
    """
    if given is False:
        return None
    if isinstance(given, dict):
        output = OutputSpec(
            msgspec.json.decode(to_json(given))
        )  # a copy: later changes are not ours
        try:
            output.warm_up()
        except ValueError as exc:
            raise ValueError(f"{where}: the output schema cannot be used: {exc}") from exc
        return output
    if given is True and returns is None:
        raise TypeError(f"{where}: annotate what it returns; its output schema is made from that")
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
        raise TypeError(f"{where}: what it returns has no JSON form: {exc}") from exc
    schema = forms.root(form.schema)
    if schema.get("type") == "object":
        return OutputSpec(schema, kind)
    schema = {"type": "object", "properties": {"result": form.schema}, "required": ["result"]}
    return OutputSpec(forms.root(schema), kind, wrapped=True)


def _is_object(kind: Any) -> bool:
    """Is it a class whose values are objects in JSON, or `dict[str, X]`?"""
    if typing.get_origin(kind) is Annotated:
        return _is_object(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (dict, collections.abc.Mapping):
        return typing.get_args(kind)[0] is str
    base = typing.get_origin(kind) or kind
    if is_block_type(base) or is_result_type(base):
        return False
    return as_model(base) is not None or object_fields(base) is not None


def _awaited(kind: Any) -> Any:
    """`Awaitable[X]` and `Coroutine[..., X]` say what is there in the end."""
    if typing.get_origin(kind) in (collections.abc.Awaitable, collections.abc.Coroutine):
        return typing.get_args(kind)[-1]
    return kind


def _reads_back(kind: Any, seen: set[Any]) -> bool:
    """Can msgspec read it without anybody's code: no hooks, no `__post_init__`?"""
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
        f"The result does not fit the output schema: {text}",
        code=MCPErrorCode.EXECUTION_ERROR,
        field_errors=[{"field": p.field, "constraint": p.constraint} for p in problems],
    )
