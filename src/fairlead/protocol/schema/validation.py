"""Values held against a JSON Schema: everything that is wrong, and what can be put right."""

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
    """One thing that is wrong with the arguments of a call."""

    field: str
    constraint: str
    value: Any = None


class InvalidArguments(ValueError):
    """The arguments do not fit; `errors` lists the first problems, and how many more there are."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        shown = bounded(errors)
        super().__init__("; ".join(f"{e.field}: {e.constraint}" for e in shown))
        self.errors = shown


def bounded(errors: Sequence[FieldError]) -> list[FieldError]:
    """Return as many problems as fit into an answer, each with a text of limited length."""
    shown = [
        FieldError(shortened(e.field), shortened(e.constraint, PROBLEM_TEXT.value), e.value)
        for e in errors[: PROBLEMS.value]
    ]
    if len(errors) > len(shown):
        PROBLEMS.hit()
        shown.append(FieldError("others", f"{len(errors) - len(shown)} more problems"))
    return shown


class Checker:
    """Finds everything that is wrong with a value, by its schema."""

    def __init__(
        self, schema: dict[str, Any], root: str = "arguments", *, foreign: bool = False
    ) -> None:
        """`root` names the value as a whole; `foreign`: the schema comes from a peer."""
        self._schema = schema
        self._root = root
        self._foreign = foreign
        self._validator: SchemaValidator | None = None
        self._members: dict[str, SchemaValidator | None] = {}  # of members, by their names

    def problems(self, value: Any) -> list[FieldError]:
        return self._explain(value, self._errors(value))

    def coerce_strings(self, values: dict[str, Any]) -> list[FieldError]:
        """Read numbers and booleans from strings where the schema wants them; what is left wrong?

        The values are changed in place.
        """
        for _ in range(8):  # a mended value may bring to light what else is wrong around it
            errors = self._errors(values)
            if not errors or not [error for error in errors if _mend(values, error)]:
                break
        return self._explain(values, errors)

    def compile(self) -> None:
        """Get ready to check. Done on first use, if not before.

        Raises:
            ValueError: if the schema is none; says where and why.
        """
        if self._validator is None:
            self._validator = SchemaValidator(self._schema, foreign=self._foreign)

    def _errors(self, value: Any) -> list[Any] | None:
        if self._validator is None:
            self.compile()
        assert self._validator is not None
        return self._validator.errors(value)

    def _explain(self, value: Any, errors: list[Any] | None) -> list[FieldError]:
        """Return the problems behind errors, or which members are wrong if those are not known."""
        if errors is None:
            return self._outline(value) or [FieldError(self._root, UNKNOWN)]
        facts = chain.from_iterable(map(self._explained, errors))
        return list(islice(facts, COUNTED))

    def _outline(self, value: Any) -> list[FieldError]:
        """Return what is wrong with the members of an object, each as a whole."""
        named = self._schema.get("properties")
        if not isinstance(value, dict) or not isinstance(named, dict):
            return []
        required = self._schema.get("required")
        found = [
            FieldError(str(name), f'"{name}" is a required property')
            for name in (required if isinstance(required, list) else ())
            if name not in value
        ]
        closed = self._schema.get("additionalProperties") is False
        for name, held in value.items():
            if name not in named:
                if closed and len(found) < COUNTED:
                    found.append(FieldError(name, _unexpected(name)))
            elif len(found) < PROBLEMS.value and not self._fits(name, held):
                found.append(FieldError(name, UNKNOWN))
        return found[:COUNTED]

    def _fits(self, name: str, value: Any) -> bool:
        """Return whether a member fits, as far as that can be told without the others."""
        if name not in self._members:
            kept = ("$defs", "definitions", "$schema")
            shared: dict[str, Any] = {key: self._schema[key] for key in kept if key in self._schema}
            try:
                part = {**shared, "allOf": [self._schema["properties"][name]]}
                self._members[name] = SchemaValidator(part, foreign=self._foreign)
            except ValueError:
                self._members[name] = None
        validator = self._members[name]
        return validator is None or validator.is_valid(value)

    def _explained(self, error: Any) -> Iterator[FieldError]:
        kind = error.kind
        if kind.name in ("anyOf", "oneOf"):
            meant = [branch for branch in kind.context or () if not _is_other(branch, error)]
            if len(meant) == 1 and meant[0]:
                for inner in meant[0]:
                    yield from self._explained(inner)
                return
        path = [str(part) for part in error.instance_path]
        if kind.name == "required":
            yield FieldError(".".join([*path, kind.property]), error.message)
        elif kind.name == "additionalProperties":
            # The message names all of them; repeated for each it would grow with their square.
            for name in kind.unexpected:
                yield FieldError(".".join([*path, name]), _unexpected(name))
        else:
            value = error.instance if path else None
            yield FieldError(".".join(path) or self._root, error.message, value)


def _unexpected(name: str) -> str:
    return f"Additional properties are not allowed ({quoted(name)} was unexpected)"


COUNTED = 1_000  # problems; a longer list says no more
UNKNOWN = "does not fit; it is too large or nested too deeply to say where"


def reasons(cause: BaseException, name: str = "", root: str = "arguments") -> list[FieldError]:
    """What an exception says, field by field if it was one of pydantic's.

    `name` is the field that was looked at, `root` what all of it is called.
    """
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
    """Put right what only has the wrong type because it was written as a string."""
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
    """Of a union: is it the whole value that has another type than this branch wants?"""
    return any(e.kind.name == "type" and e.instance_path == error.instance_path for e in branch)


def _read(error: Any) -> Any:
    """The number or boolean that a string was meant to be; None if it was not."""
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


_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
