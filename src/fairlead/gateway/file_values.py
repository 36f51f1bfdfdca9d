"""Values of a gateway file: variables, types, and errors that name the line."""

from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from ..config.files.formats import Document
from ..config.files.source_locations import SourceLocation, location_of
from ..config.variables.variable_syntax import VariableScope, substitute
from ..errors import ConfigError
from ..suggestions import unknown_name

__all__ = ["FileValues"]


class FileValues(Struct, eq=False):
    """Conversion of the values of one document. `env` are the variables that it may contain."""

    document: Document
    env: Mapping[str, str]

    def table(self, where: SourceLocation, data: Any) -> dict[str, Any]:
        """Return the map of names at a key; an empty one if the key is missing."""
        found = data.get(where[-1], {})
        if not isinstance(found, dict):
            raise self.wrong(where, f"`{where[-1]}` must be a map of names, not {_shown(found)}")
        return found

    def fields(
        self, where: SourceLocation, raw: Any, known: Mapping[str, Any], about: str
    ) -> dict[str, Any]:
        """Return the converted values of a map. `about` precedes errors about unknown keys."""
        if not isinstance(raw, dict):
            raise self.wrong(where, f"`{where[-1]}` must be a map with {', '.join(known)}")
        self.know(where, raw, known, "key", about)
        return {key: self.value((*where, key), value, known[key]) for key, value in raw.items()}

    def know(
        self,
        where: SourceLocation,
        raw: dict[str, Any],
        known: Iterable[str],
        what: str,
        about: str = "",
    ) -> None:
        """Raise `ConfigError` for a key that is not known."""
        for key in raw:
            if key not in known:
                raise self.wrong((*where, key), about + unknown_name(what, key, known))

    def value(self, where: SourceLocation, raw: Any, kind: Any) -> Any:
        """Replace variables in a value, and convert it to the expected type."""
        filled = self._filled(where, raw)
        try:
            value = msgspec.convert(filled, kind, strict=filled == raw)
        except msgspec.ValidationError:
            given = "" if get_origin(kind) is Literal else f", not {_shown(raw)}"
            raise self.wrong(where, f"`{where[-1]}` must be {_words(kind)}{given}") from None
        if isinstance(value, int | float) and value < 0:
            raise self.wrong(where, f"`{where[-1]}` must not be negative")
        return value

    def _filled(self, where: SourceLocation, raw: Any) -> Any:
        if isinstance(raw, list):
            return [self._filled(where, one) for one in raw]
        if isinstance(raw, dict):
            return {key: self._filled((*where, key), one) for key, one in raw.items()}
        if not isinstance(raw, str):
            return raw
        scope = VariableScope(env=self.env)
        text = substitute(raw, "fairlead", scope)
        # Without this check, the name of a missing variable would become a token.
        if scope.missing:
            missing = ", ".join(scope.missing)
            raise self.wrong(where, f"`{where[-1]}`: environment variables not set: {missing}")
        return text

    def wrong(self, where: SourceLocation, reason: str) -> ConfigError:
        """Return an error with the line of a key."""
        return ConfigError(reason, path=self.document.path, line=self.line(where))

    def line(self, where: SourceLocation) -> int | None:
        """Return the line of a key; None if it is unknown."""
        at = location_of(self.document, where)
        return None if at is None else at[0]


def _words(kind: Any) -> str:
    """Describe a type for an error message."""
    if get_origin(kind) is Literal:
        return " or ".join(f'"{one}"' for one in get_args(kind))
    if isinstance(kind, UnionType):
        return " or ".join(_words(one) for one in get_args(kind) if one is not type(None))
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}
    many = {list: "a list of strings", tuple: "a list of strings", dict: "a map of strings"}
    return names.get(kind) or many.get(get_origin(kind) or kind) or "of another type"


def _shown(value: Any) -> str:
    """Describe the type of a value, because the value itself may be a secret."""
    names = {dict: "a map", list: "a list", str: "a string", bool: "true or false"}
    names |= {int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), "a date")
