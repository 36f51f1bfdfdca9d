"""Explanations of validation errors, and conversion of strings where a schema expects numbers."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from ...limits import PROBLEM_TEXT, PROBLEMS
from ...wire.quote_text import quoted, shortened
from .schema_validator import SchemaValidator

__all__ = ["Checker", "FieldError", "InvalidArguments", "reasons"]


class FieldError(msgspec.Struct, frozen=True):
    """One problem with the arguments of a call."""

    field: str
    constraint: str
    value: Any = None


class InvalidArguments(ValueError):
    """Raised for arguments that do not match their schema.

    `errors` contains the first problems and the number of further problems.
    """

    def __init__(self, errors: Sequence[FieldError]) -> None:
        shown = bounded(errors)
        super().__init__("; ".join(f"{e.field}: {e.constraint}" for e in shown))
        self.errors = shown


def bounded(errors: Sequence[FieldError]) -> list[FieldError]:
    """Return as many problems as fit into a response, each with a shortened text."""
    shown = [
        FieldError(shortened(e.field), shortened(e.constraint, PROBLEM_TEXT.value), e.value)
        for e in errors[: PROBLEMS.value]
    ]
    if len(errors) > len(shown):
        PROBLEMS.hit()
        shown.append(FieldError("others", f"{len(errors) - len(shown)} more problems"))
    return shown


class Checker(msgspec.Struct):
    """Validator that lists the problems of a value, each with the name of the affected field."""

    schema: dict[str, Any]
    root: str = "arguments"  # name of the whole value in problems
    foreign: bool = False  # the schema comes from a peer
    _validator: SchemaValidator | None = None
    # Validators of individual members, by member name.
    _members: dict[str, SchemaValidator | None] = {}

    def problems(self, value: Any) -> list[FieldError]:
        return self._explain(value, self._errors(value))

    def coerce_strings(self, values: dict[str, Any]) -> list[FieldError]:
        """Convert strings where the schema expects numbers or booleans, and return the remaining
        problems.

        The values are changed in place.
        """
        # A conversion may reveal further problems in the enclosing values.
        for _ in range(8):
            errors = self._errors(values)
            if not errors or not [error for error in errors if _mend(values, error)]:
                break
        return self._explain(values, errors)

    def compile(self) -> None:
        """Compile the schema. Otherwise it is compiled on first use.

        Raises:
            ValueError: The schema is invalid; the text says where and why.
        """
        if self._validator is None:
            self._validator = SchemaValidator(self.schema, foreign=self.foreign)

    def _errors(self, value: Any) -> list[Any] | None:
        if self._validator is None:
            self.compile()
        assert self._validator is not None
        return self._validator.errors(value)

    def _explain(self, value: Any, errors: list[Any] | None) -> list[FieldError]:
        """Convert validation errors to problems. If `errors` is None, validate each member."""
        if errors is None:
            return self._outline(value) or [FieldError(self.root, UNKNOWN)]
        facts = chain.from_iterable(map(self._explained, errors))
        return list(islice(facts, COUNTED))

    def _outline(self, value: Any) -> list[FieldError]:
        """Return one problem for each invalid or missing member of an object."""
        named = self.schema.get("properties")
        if not isinstance(value, dict) or not isinstance(named, dict):
            return []
        required = self.schema.get("required")
        found = [
            FieldError(str(name), f'"{name}" is a required property')
            for name in (required if isinstance(required, list) else ())
            if name not in value
        ]
        closed = self.schema.get("additionalProperties") is False
        for name, held in value.items():
            if name not in named:
                if closed and len(found) < COUNTED:
                    found.append(FieldError(name, _unexpected(name)))
            elif len(found) < PROBLEMS.value and not self._fits(name, held):
                found.append(FieldError(name, UNKNOWN))
        return found[:COUNTED]

    def _fits(self, name: str, value: Any) -> bool:
        """Return True if a member is valid,
        as far as that can be decided without the other members.
        """
        if name not in self._members:
            kept = ("$defs", "definitions", "$schema")
            shared: dict[str, Any] = {key: self.schema[key] for key in kept if key in self.schema}
            # A property that cannot be validated separately counts as valid.
            try:
                part = {**shared, "allOf": [self.schema["properties"][name]]}
                self._members[name] = SchemaValidator(part, foreign=self.foreign)
            except ValueError:
                self._members[name] = None
        validator = self._members[name]
        return validator is None or validator.is_valid(value)

    def _explained(self, error: Any) -> Iterator[FieldError]:
        kind = error.kind
        if kind.name in ("anyOf", "oneOf"):
            # If only one branch of a union has the right type, its problems are more useful than
            # "none of the branches matches".
            meant = [branch for branch in kind.context or () if not _is_other(branch, error)]
            if len(meant) == 1 and meant[0]:
                for inner in meant[0]:
                    yield from self._explained(inner)
                return
        path = [str(part) for part in error.instance_path]
        if kind.name == "required":
            yield FieldError(".".join([*path, kind.property]), error.message)
        elif kind.name == "additionalProperties":
            # The message names all properties; repeating it for each would grow quadratically.
            for name in kind.unexpected:
                yield FieldError(".".join([*path, name]), _unexpected(name))
        else:
            value = error.instance if path else None
            yield FieldError(".".join(path) or self.root, error.message, value)


def _unexpected(name: str) -> str:
    return f"Additional properties are not allowed ({quoted(name)} was unexpected)"


COUNTED = 1_000  # maximum number of problems that are counted
UNKNOWN = "does not match; the value is too large or nested too deeply to locate the mistake"


def reasons(cause: BaseException, name: str = "", root: str = "arguments") -> list[FieldError]:
    """Return the problems that an exception describes; a pydantic exception lists them by field.

    `name` is the field that was decoded, `root` the name of the whole value.
    """
    # msgspec appends the path to its message.
    what, _, where = str(cause).partition(" - at `$")
    path = [name] if name else []
    path += [part for part in re.split(r"[.\[\]]+", where.rstrip("`")) if part]
    details: Callable[..., Any] | None = getattr(cause.__cause__ or cause, "errors", None)
    if not callable(details):
        return [FieldError(".".join(path) or root, what)]
    return [
        FieldError(".".join([*path, *map(str, detail["loc"])]) or root, str(detail["msg"]))
        for detail in details(include_url=False, include_context=False, include_input=False)
    ]


def _mend(values: Any, error: Any) -> bool:
    """Convert a value that is invalid only because it is a string."""
    path, kind = error.instance_path, error.kind
    if kind.name in ("anyOf", "oneOf"):
        branches = [b for b in kind.context if b and all(_read(e) is not None for e in b)]
        return bool(branches) and sum(_mend(values, e) for e in branches[0]) > 0
    better = _read(error)
    if better is None or not path:
        return False
    for part in path[:-1]:
        values = values[part]
    if type(values[path[-1]]) is not str:
        return False
    values[path[-1]] = better
    return True


def _is_other(branch: list[Any], error: Any) -> bool:
    """Return True if the whole value has a different type than this branch of a union."""
    return any(e.kind.name == "type" and e.instance_path == error.instance_path for e in branch)


def _read(error: Any) -> Any:
    """Return the number or boolean that a string contains; None for any other string."""
    text, kind = error.instance, error.kind
    if type(text) is not str:
        return None
    match kind.name:
        case "type":
            options = (_parsed(text, wanted) for wanted in kind.types)
            return next((option for option in options if option is not None), None)
        case "enum":
            for wanted in ("integer", "number", "boolean"):
                value = _parsed(text, wanted)
                if value is not None and any(
                    value == option and isinstance(option, bool) == isinstance(value, bool)
                    for option in kind.options
                ):
                    return value
    return None


def _parsed(text: str, wanted: str) -> Any:
    match wanted:
        case "boolean":
            return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
        case "integer" if re.fullmatch(r"-?\d{1,400}", text, re.ASCII):
            return int(text)
        case "integer" | "number" if _NUMBER.fullmatch(text):
            number = float(text)
            if wanted == "integer":
                return int(number) if number.is_integer() else None
            return number if math.isfinite(number) else None
    return None


# The number of digits is limited, because `int` raises for thousands of them.
_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
