"""JSON Schemas of the values that tools return.

Apart from titles, they equal the schemas of pydantic, which the official SDK publishes. Clients
therefore see the same schema from both.
"""

import collections
import collections.abc
import enum
import inspect
import re
import types
import typing
from typing import Annotated, Any, Literal, TypeVar, Union

import msgspec

from .annotations import KEYWORDS, read_notes
from .foreign_types import RESPELLED, adapter_of, as_model, is_path
from .msgspec_types import ARRAYS, OBJECTS
from .object_fields import Field, object_fields, with_default
from .schema_refs import referenced_name, references, rename_references
from .type_aliases import alias_of, alias_value, substituted, variable_type

__all__ = ["OutputSchemaBuilder", "flat_union"]

_SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
_DICTS = (collections.OrderedDict, collections.defaultdict, collections.Counter)
_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_BINARY = {"type": "string", "format": "binary"}
# By full name, because most servers do not import these modules.
_STRINGS = {
    "datetime.datetime": "date-time",
    "datetime.date": "date",
    "datetime.time": "time",
    "datetime.timedelta": "duration",
    "uuid.UUID": "uuid",
    "ipaddress.IPv4Address": "ipv4",
    "ipaddress.IPv6Address": "ipv6",
    "ipaddress.IPv4Network": "ipv4network",
    "ipaddress.IPv6Network": "ipv6network",
    "ipaddress.IPv4Interface": "ipv4interface",
    "ipaddress.IPv6Interface": "ipv6interface",
    "re.Pattern": "regex",
}
_NUMBERS: dict[str, dict[str, Any]] = {
    "decimal.Decimal": {"anyOf": [{"type": "number"}, {"type": "string"}]},
    "fractions.Fraction": {"anyOf": [{"type": "number"}, {"type": "string", "format": "fraction"}]},
    "builtins.complex": {"type": "string"},
}


class OutputSchemaBuilder:
    """Builder of the schema of one type, with the definitions that it needs."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        self._named: dict[Any, str] = {}  # names of the definitions by class

    def root(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with its definitions; a reference is replaced by its definition."""
        name = referenced_name(schema)
        if name is not None:
            schema = {**self.defs[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        needed: set[str] = set()
        waiting = list(references(schema))
        while waiting:
            if (name := waiting.pop()) not in needed:
                needed.add(name)
                waiting += references(self.defs[name])
        defs = {name: content for name, content in self.defs.items() if name in needed}
        return {**schema, "$defs": defs} if defs else schema

    def object(self, fields: list[Field]) -> dict[str, Any]:
        """Return the schema of an object with the given fields.

        Raises:
            TypeError: A field has no schema.
        """
        properties = {f.key: _with_default(self.of(f.kind), f.default) for f in fields}
        required = [f.key for f in fields if f.required]
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        return {**schema, "required": required} if required else schema

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type; classes are references to `defs`.

        Raises:
            TypeError: The type has no schema.
        """
        if kind in (Any, object, msgspec.Raw):
            return {}
        if isinstance(kind, TypeVar):
            return self.of(variable_type(kind))
        if isinstance(kind, typing.NewType):
            return self.of(kind.__supertype__)
        if alias_of(kind) is not None:
            return self._alias(kind)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            return self._annotated(args[0], args[1:])
        if origin in (Union, types.UnionType):
            return flat_union([self.of(option) for option in args if option is not _UNSET])
        if origin is Literal:
            return _enumeration([v.value if isinstance(v, enum.Enum) else v for v in args], True)
        base = kind if origin is None else origin
        if base in ARRAYS or base is collections.deque:
            return self._array(kind, base, args)
        if base in OBJECTS or base in _DICTS:
            key, value = (*args, int)[:2] if args else (str, Any)  # `Counter[str]` counts
            return self._mapping(key, value)
        return self._plain(base) or self._reference(kind, base, args)

    def _plain(self, kind: Any) -> dict[str, Any] | None:
        if kind in _NAMES:
            return {"type": _NAMES[kind]}
        if kind is None:
            return {"type": "null"}
        if not isinstance(kind, type):
            raise TypeError(f"{kind} is not a JSON type")
        if kind in (bytes, bytearray):
            return dict(_BINARY)
        full_name = f"{kind.__module__}.{kind.__qualname__}"
        if full_name in _NUMBERS:
            return dict(_NUMBERS[full_name])
        if full_name in _STRINGS or is_path(kind):
            return {"type": "string", "format": _STRINGS.get(full_name, "path")}
        return None

    def _annotated(self, base: Any, notes: tuple[Any, ...]) -> dict[str, Any]:
        schema = dict(self.of(base))
        # Plain strings describe parameters only.
        limits, words, extra = read_notes(n for n in notes if not isinstance(n, str))
        words.pop("tz", None)
        # A limit on `int | None` applies to the number only.
        options = schema.get("anyOf", [schema])
        limited = [_limited(o, limits) if o != {"type": "null"} else o for o in options]
        schema = {**schema, "anyOf": limited} if "anyOf" in schema else limited[0]
        return {**schema, **words, **extra}

    def _array(self, kind: Any, base: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        if base is tuple and kind is not base and args[-1:] != (Ellipsis,):
            return _fixed_array([self.of(item) for item in args], len(args))
        schema = {"type": "array", "items": self.of(args[0] if args else Any)}
        return {**schema, "uniqueItems": True} if base in _SETS else schema

    def _mapping(self, key: Any, value: Any) -> dict[str, Any]:
        keys, values = self.of(key), self.of(value)
        schema: dict[str, Any] = {"type": "object", "additionalProperties": values or True}
        if keys.get("type") == "string" or "$ref" in keys:
            keys = {k: v for k, v in keys.items() if k != "type"}
            return {**schema, "propertyNames": keys} if keys else schema
        return schema

    def _reference(self, kind: Any, base: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        """Define a class on its first use, and return a reference to it."""
        if kind not in self._named:
            if adapter_of(base) is not None:
                return self._foreign(base)
            name = self._reserve(kind)
            self.defs[name] = {"title": base.__name__, **self._definition(kind, base, args)}
        return {"$ref": f"#/$defs/{self._named[kind]}"}

    def _alias(self, kind: Any) -> dict[str, Any]:
        """Define a type alias on its first use, and return a reference to it."""
        if kind not in self._named:
            try:
                name, value = self._reserve(kind), alias_value(kind)
            except NameError as exc:
                raise TypeError(f"in the type alias {kind}: {exc}") from exc
            self.defs[name] = self.of(value)
        return {"$ref": f"#/$defs/{self._named[kind]}"}

    def _reserve(self, kind: Any) -> str:
        """Reserve the name of a definition, which may refer to itself while it is built."""
        name = self._free_name(re.sub(r"[^\w.\-]", "_", _label(kind)))
        self._named[kind], self.defs[name] = name, {}
        return name

    def _definition(self, kind: Any, base: Any, args: tuple[Any, ...]) -> dict[str, Any]:
        if issubclass(base, enum.Enum):
            return {**_enumeration([member.value for member in base], False), **_description(base)}
        if issubclass(base, tuple) and hasattr(base, "_fields"):
            return self._named_tuple(base, _variables(base, args))
        fields = object_fields(base)
        if fields is None:
            raise TypeError(f"{base.__qualname__} is not a JSON type")
        values = _variables(base, args)
        fields = [f._replace(kind=substituted(f.kind, values)) for f in fields]
        return {**self.object(_tag(base) + fields), **_description(base)}

    def _named_tuple(self, kind: Any, values: dict[Any, Any]) -> dict[str, Any]:
        hints = typing.get_type_hints(kind, include_extras=True)
        missing = msgspec.NODEFAULT
        defaults = kind._field_defaults
        items = [
            _with_default(
                self.of(substituted(hints.get(name, Any), values)), defaults.get(name, missing)
            )
            for name in kind._fields
        ]
        return _fixed_array(items, len(items) - len(defaults))

    def _foreign(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a pydantic type inside of another class."""
        adapter = adapter_of(kind)
        method = adapter.json_schema if as_model(kind) is None else adapter.model_json_schema
        try:
            schema: dict[str, Any] = method(ref_template="#/$new/{model}")
        except RuntimeError as exc:  # pydantic's error for a model with a field that has no schema
            raise TypeError(f"{kind.__qualname__}: {exc}") from exc
        found = schema.pop("$defs", {})
        if "$ref" not in schema and as_model(kind) is not None:
            found[kind.__name__] = schema
            schema = {"$ref": f"#/$new/{kind.__name__}"}
        names = {
            name: name if self.defs.get(name) == content else self._free_name(name)
            for name, content in found.items()
        }
        for name, content in found.items():
            self.defs[names[name]] = rename_references(content, names)
        renamed: dict[str, Any] = rename_references(schema, names)
        return renamed

    def _free_name(self, name: str) -> str:
        free, count = name, 2
        while free in self.defs:
            free, count = f"{name}_{count}", count + 1
        return free


_UNSET = msgspec.UnsetType


def flat_union(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a union without nested unions and repetitions; null is the last."""
    found: list[dict[str, Any]] = []
    for option in options:
        inner = option["anyOf"] if option.keys() == {"anyOf"} else [option]
        found += [one for one in inner if one not in found]
    found.sort(key=lambda one: one == {"type": "null"})
    return found[0] if len(found) == 1 else {"anyOf": found}


def _limited(schema: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    sized = {"array": "Items", "object": "Properties"}.get(schema.get("type", ""), "Length")
    named = {KEYWORDS[name].replace("Length", sized): value for name, value in limits.items()}
    return {**schema, **named}


def _fixed_array(items: list[dict[str, Any]], least: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "minItems": least, "maxItems": len(items)}
    return {**schema, "prefixItems": items} if items else schema


def _enumeration(values: list[Any], constant: bool) -> dict[str, Any]:
    """Return the schema of fixed values. With `constant`, a single value becomes a `const`."""
    names = {**_NAMES, list: "array", tuple: "array"}
    kinds = {type(value) for value in values}
    if not kinds <= names.keys():
        kinds = {next((k for k in names if isinstance(v, k)), type(v)) for v in values}
    if not kinds <= names.keys():
        raise TypeError(f"{values} are not all strings, numbers or lists")
    fixed = {"const": values[0]} if constant and len(values) == 1 else {"enum": values}
    return {**fixed, "type": names[kinds.pop()]} if len(kinds) == 1 else fixed


def _description(kind: Any) -> dict[str, Any]:
    text = inspect.cleandoc(kind.__doc__ or "")
    # The default docstrings of dataclasses and enumerations do not describe them.
    if not text or text.startswith(f"{kind.__name__}(") or text == "An enumeration.":
        return {}
    return {"description": text}


def _tag(kind: Any) -> list[Field]:
    """Return the field that distinguishes a tagged struct, if there is one."""
    config = kind.__struct_config__ if issubclass(kind, msgspec.Struct) else None
    if config is None or config.tag is None:
        return []
    return [Field(config.tag_field, config.tag_field, Literal[config.tag], True)]


def _with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    if isinstance(default, RESPELLED):
        # Loaded on first use: few defaults are bytes or durations.
        from .pydantic_format import in_pydantic_format

        default = in_pydantic_format(default)
    return with_default(schema, default)


def _variables(kind: Any, args: tuple[Any, ...]) -> dict[Any, Any]:
    """Return the type variables of a generic class with their values."""
    return dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))


def _label(kind: Any) -> str:
    """Return the name of a class or alias with its type arguments: `Box[Box[int]]`."""
    args, base = typing.get_args(kind), typing.get_origin(kind) or kind
    name: str = getattr(base, "__name__", None) or str(base)
    return f"{name}[{','.join(map(_label, args))}]" if args else name
