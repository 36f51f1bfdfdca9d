"""Values held against a JSON Schema: everything that is wrong, and what can be put right."""

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["Checker", "FieldError", "InvalidArguments", "reasons"]


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with the arguments of a call."""

    field: str
    constraint: str
    value: Any = None


class InvalidArguments(ValueError):
    """The arguments do not fit; `errors` lists every problem."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.constraint}" for e in errors))
        self.errors = errors


class Checker:
    """Finds everything that is wrong with a value, by its schema."""

    def __init__(self, schema: dict[str, Any], root: str = "arguments") -> None:
        self._schema = schema
        self._root = root  # what the value as a whole is called
        self._validator: Any = None

    def problems(self, value: Any) -> list[FieldError]:
        return [fact for error in self._errors(value) for fact in self._explained(error)]

    def mend(self, values: dict[str, Any]) -> list[FieldError]:
        """Read numbers and booleans from strings where the schema wants them; what is left wrong?

        The values are changed in place.
        """
        for _ in range(8):  # a mended value may bring to light what else is wrong around it
            errors = list(self._errors(values))
            if not [error for error in errors if _mend(values, error)]:
                break
        return [fact for error in errors for fact in self._explained(error)]

    def compile(self) -> None:
        """Get ready to check. Done on first use, if not before.

        Raises:
            ValueError: if the schema is none; says where and why.
        """
        if self._validator is not None:
            return
        import jsonschema_rs

        try:
            self._validator = jsonschema_rs.validator_for(self._schema, retriever=_refuse_reference)
        except jsonschema_rs.ValidationError as exc:
            where = ".".join(str(part) for part in exc.instance_path)
            raise ValueError(f"{exc.message} (at {where})" if where else exc.message) from exc

    def _errors(self, value: Any) -> Iterator[Any]:
        if self._validator is None:
            self.compile()
        found: Iterator[Any] = self._validator.iter_errors(value)
        return found

    def _explained(self, error: Any) -> list[FieldError]:
        kind = error.kind
        if kind.name in ("anyOf", "oneOf"):
            meant = [branch for branch in kind.context or () if not _is_other(branch, error)]
            if len(meant) == 1 and meant[0]:
                return [fact for inner in meant[0] for fact in self._explained(inner)]
        path = [str(part) for part in error.instance_path]
        if kind.name == "required":
            return [FieldError(".".join([*path, kind.property]), error.message)]
        if kind.name == "additionalProperties":
            return [FieldError(".".join([*path, name]), error.message) for name in kind.unexpected]
        value = error.instance if path else None
        return [FieldError(".".join(path) or self._root, error.message, value)]


def reasons(cause: BaseException, name: str = "", root: str = "arguments") -> list[FieldError]:
    """What an exception says, field by field if it was one of pydantic's.

    `name` is the field that was looked at, `root` what all of it is called.
    """
    what, _, where = str(cause).partition(" - at `$")
    path = [name] if name else []
    path += [part for part in re.split(r"[.\[\]]+", where.rstrip("`")) if part]
    details = getattr(cause.__cause__ or cause, "errors", None)
    if not callable(details):
        return [FieldError(".".join(path) or root, what)]
    return [
        FieldError(".".join([*path, *map(str, detail["loc"])]) or root, str(detail["msg"]))
        for detail in details(include_url=False, include_context=False)
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


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"references to {uri} are not followed")
