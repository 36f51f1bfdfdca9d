"""Elicitation forms: conversion of a type to a schema, and of a response to the type."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from ...errors import RpcError
from ...protocol.schema.validation import Checker, FieldError, InvalidArguments, reasons
from ...wire.error_codes import INVALID_PARAMS
from ..schema.foreign_types import as_model
from ..schema.object_fields import object_fields

__all__ = ["AcceptedElicitation", "DeclinedElicitation", "ElicitationForm", "Elicited"]

T = TypeVar("T")

_PRIMITIVE = {"string", "integer", "number", "boolean"}


class AcceptedElicitation(Struct, Generic[T], frozen=True):
    """The user's response to an elicitation: the data that the user entered."""

    data: T
    action: Literal["accept"] = "accept"

    @property
    def accepted(self) -> Literal[True]:
        return True


class DeclinedElicitation(Struct, frozen=True):
    """The response of a user who declined an elicitation or closed it."""

    action: Literal["decline", "cancel"]
    data: None = None

    @property
    def accepted(self) -> Literal[False]:
        return False


# The user's response. After `if answer.action == "accept"`, type checkers know the type of `data`.
Elicited: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation


class ElicitationForm:
    """The schema of a form and the conversion of its content to a value.

    `kind` is a dataclass, TypedDict, pydantic model or msgspec struct with plain fields, a plain
    type such as `bool` or `Literal["a", "b"]` (the form then has one field, `value`), a list of
    choices, or a JSON Schema.

    Raises:
        TypeError: The type cannot be a form, because the specification allows only flat forms; or
            the JSON Schema is invalid.
    """

    def __init__(self, kind: Any) -> None:
        if isinstance(kind, Mapping):
            self.schema: dict[str, Any] = dict(kind)
            self._checker = Checker(self.schema, "the answer")
            try:
                # Compiled here, so that the handler's author gets the error, not the user.
                self._checker.compile()
            except ValueError as exc:
                raise TypeError(f"invalid JSON Schema of a form: {exc}") from exc
            self._convert: Callable[[Any], Any] = self._checked
        elif (model := as_model(kind)) is not None:
            self.schema = _flat_schema(*_model_schema(model))
            self._convert = lambda content: _as_instance(model, content)
        elif object_fields(kind) is not None:
            self.schema = _flat(kind)
            # Not strict, because clients may send numbers and booleans as strings.
            self._convert = lambda content: msgspec.convert(content, kind, strict=False)
        else:
            if isinstance(kind, list) and kind and all(isinstance(one, str) for one in kind):
                kind = Literal[tuple(kind)]
            if isinstance(kind, str | int | float | list | tuple | set):
                raise TypeError(
                    f"answer must be a type, a list of choices or a JSON Schema, not {kind!r}"
                )
            form: Any = msgspec.defstruct("Form", [("value", kind)])
            self.schema = _flat(form)
            self._convert = lambda content: msgspec.convert(content, form, strict=False).value

    def read(self, answer: Raw) -> Elicited[Any]:
        """Convert the response of the client.

        Raises:
            RpcError: -32602, the response is malformed or does not match the schema.
        """
        try:
            given = msgspec.json.decode(answer, type=_Answer)
            if given.action != "accept":
                return DeclinedElicitation(given.action)
            content = given.content or {}
            _refuse_non_numbers(content, self.schema)
            return AcceptedElicitation(self._convert(content))
        except (InvalidArguments, msgspec.DecodeError, RecursionError) as exc:
            raise RpcError(
                INVALID_PARAMS, f"The response does not match the requested schema: {exc}"
            ) from exc

    def _checked(self, content: dict[str, Any]) -> dict[str, Any]:
        errors = self._checker.coerce_strings(content)
        if errors:
            raise InvalidArguments(errors)
        return content


def _refuse_non_numbers(content: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Reject "nan" and "inf", which msgspec reads as numbers and JSON does not have."""
    for name, part in schema.get("properties", {}).items():
        text = content.get(name)
        if isinstance(text, str) and part.get("type") == "number" and _NOT_FINITE.fullmatch(text):
            raise InvalidArguments([FieldError(name, f"{text!r} is not a number")])


_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


class _Answer(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


def _model_schema(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a pydantic model, and its definitions by name."""
    schema: dict[str, Any] = model.model_json_schema(ref_template="{model}")
    return schema, schema.get("$defs", {})


def _as_instance(model: Any, content: dict[str, Any]) -> Any:
    """Convert the content of a form to a pydantic model.

    Raises:
        InvalidArguments: The content does not match the model.
    """
    try:
        return model.model_validate(content)
    except ValueError as exc:
        raise InvalidArguments(reasons(exc, "", "the answer")) from exc


def _flat(kind: Any) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([kind], ref_template="{name}")
    return _flat_schema(components[root["$ref"]] if "$ref" in root else root, components)


def _flat_schema(whole: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    fields = whole.get("properties", {}).items()
    properties = {name: _plain(name, part, components) for name, part in fields}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if whole.get("required"):
        schema["required"] = whole["required"]
    return schema


def _plain(name: str, part: dict[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a field: a primitive, an enumeration or a list of enumerated values."""
    part = _resolved(part, components)
    # Forms have no null: an optional field is one that is not required.
    if "anyOf" in part:
        options = [option for option in part["anyOf"] if option.get("type") != "null"]
        if len(options) == 1:
            rest = {k: v for k, v in part.items() if k != "anyOf" and v is not None}
            return _plain(name, {**options[0], **rest}, components)
    # msgspec leaves out the type of an enumeration, and the specification requires it.
    if "enum" in part:
        part = {"type": "string", **part}
    if part.get("type") in _PRIMITIVE:
        return part
    if part.get("type") == "array":
        items = _resolved(part.get("items", {}), components)
        if "enum" in items:
            return {**part, "items": {"type": "string", **items}}
    raise TypeError(
        f"invalid form field {name!r}: "
        "expected a primitive, an enumeration or a list of enumerated values"
    )


def _resolved(part: dict[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its `$ref`, if any, replaced by the definition."""
    if "$ref" not in part:
        return part
    # The title is the name of the Python class, which means nothing to the user.
    definition = {k: v for k, v in components[part["$ref"]].items() if k != "title"}
    return {**definition, **{k: v for k, v in part.items() if k != "$ref"}}
