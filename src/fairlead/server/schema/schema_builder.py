"""JSON Schemas of Python types, and conversion of JSON values to these types.

msgspec supports most types, and calls our hooks for some others (paths, pydantic models). Types
that it rejects (a union of two objects, `Literal[1.5]`, an enum of numbers and strings) are split
here until the parts are supported.
"""

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple, Union

import msgspec

from .annotations import KEYWORDS, read_notes, satisfies_limit
from .foreign_types import adapter_of, as_model, converter, is_path, require_type
from .msgspec_types import ARRAYS, OBJECTS, has_foreign_notes, to_msgspec_type
from .object_fields import Field, object_fields, with_default
from .schema_refs import referenced_name, references, rename_references

__all__ = ["SchemaBuilder", "TypeSchema"]


class TypeSchema(NamedTuple):
    """The schema of one type, and the function that converts decoded JSON to it.

    `convert(value, strict)` raises ValueError, TypeError or msgspec.ValidationError. Unless
    `strict` is True, it converts strings to numbers and booleans.
    """

    schema: dict[str, Any]
    convert: Callable[[Any, bool], Any]


class SchemaBuilder:
    """Builder of schemas for several types that share their definitions (`defs`, for `$defs`)."""

    def __init__(self) -> None:
        self.defs: dict[str, Any] = {}
        # definitions before they were renamed, to recognize equal definitions
        self._unread: dict[str, Any] = {}
        self._objects: dict[Any, TypeSchema] = {}

    def native(self, kind: Any) -> TypeSchema:
        """Return the schema of a type that msgspec supports, alone or with our hooks.

        Raises:
            TypeError: msgspec does not support the type.
        """
        if has_foreign_notes(kind):
            raise TypeError("msgspec does not support the annotations of its fields")
        (schema,), components = msgspec.json.schema_components(
            [kind], schema_hook=self._foreign, ref_template="#/$new/{name}"
        )
        return TypeSchema(self._adopt(schema, components), converter(kind))

    def of(self, kind: Any) -> TypeSchema:
        """Return the schema of any type that has one.

        Raises:
            TypeError: The type has no schema.
        """
        try:
            return self.native(kind)
        except TypeError as exc:
            form = self._apart(kind)
            if form is None:
                raise TypeError(_reason(kind, exc)) from exc
            return form

    def root(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with its definitions; a reference is replaced by its definition."""
        name = referenced_name(schema)
        if name is not None:
            schema = {**self.defs[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        if not schema.get("required", True):
            schema = {k: v for k, v in schema.items() if k != "required"}
        needed: dict[str, Any] = {}
        waiting = list(references(schema))
        while waiting:
            if (name := waiting.pop()) not in needed:
                needed[name] = self.defs[name]
                waiting += references(needed[name])
        defs = {name: self.defs[name] for name in self.defs if name in needed}
        return {**schema, "$defs": defs} if defs else schema

    def _foreign(self, kind: type) -> dict[str, Any]:
        """Return the schema of a type that msgspec does not support; used as `schema_hook`."""
        if is_path(kind):
            return {"type": "string", "format": "path"}
        adapter = adapter_of(kind)
        if adapter is None:
            raise NotImplementedError
        method = adapter.json_schema if as_model(kind) is None else adapter.model_json_schema
        try:
            schema: dict[str, Any] = method(ref_template="#/$new/{model}")
        except RuntimeError as exc:  # pydantic's error for a model with a field that has no schema
            raise TypeError(f"{kind.__qualname__}: {exc}") from exc
        return self._adopt(schema, schema.pop("$defs", {}))

    def _adopt(self, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
        """Add definitions under unique names and return the schema with these names."""
        names = {}
        for name, content in components.items():
            free, count = name, 2
            while free in self.defs and self._unread.get(free) != content:
                free, count = f"{name}_{count}", count + 1
            names[name] = free
            self.defs[free] = self._unread[free] = content
        for name in components:
            self.defs[names[name]] = rename_references(components[name], names)
        renamed: dict[str, Any] = rename_references(schema, names)
        return renamed

    def _apart(self, kind: Any) -> TypeSchema | None:
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            return self._annotated(args[0], args[1:])
        if origin in (Union, types.UnionType):
            return self._union([self.of(option) for option in args])
        if origin is typing.Literal:
            return _literal(args)
        if origin in ARRAYS and args:
            return self._array(origin, args)
        if origin in OBJECTS and args:
            return self._mapping(*args)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _enum(kind)
        if kind in self._objects:
            return self._objects[kind]
        fields = object_fields(kind)
        return None if fields is None else self._object(kind, fields)

    def _annotated(self, base: Any, notes: Iterable[Any]) -> TypeSchema:
        inner = self.of(base)
        limits, words, extra = read_notes(notes)
        words.pop("tz", None)
        schema = dict(inner.schema)
        sized = {"array": "Items", "object": "Properties"}.get(schema.get("type", ""), "Length")
        for name, value in limits.items():
            schema[KEYWORDS[name].replace("Length", sized)] = value

        def convert(value: Any, strict: bool) -> Any:
            made = inner.convert(value, strict)
            for name, limit in limits.items():
                if made is not None and not satisfies_limit(made, name, limit):
                    raise ValueError(f"{KEYWORDS[name]} is {limit}")
            return made

        return TypeSchema({**schema, **words, **extra}, convert)

    def _union(self, options: list[TypeSchema]) -> TypeSchema:
        def unused(option: TypeSchema, value: dict[str, Any]) -> int:
            name = referenced_name(option.schema)
            known = (option.schema if name is None else self.defs[name]).get("properties")
            return 0 if known is None else len(value.keys() - known.keys())

        def convert(value: Any, strict: bool) -> Any:
            ways = (True,) if strict else (True, False)
            if isinstance(value, dict):  # Options that use most of the given members come first.
                likely = sorted(options, key=lambda option: unused(option, value))
                attempts = [(option, way) for option in likely for way in ways]
            else:  # A string remains a string if one of the options accepts it.
                attempts = [(option, way) for way in ways for option in options]
            for option, way in attempts:
                try:
                    return option.convert(value, way)
                except _DOES_NOT_FIT:
                    pass
            raise ValueError("does not match any of the allowed types")

        return TypeSchema({"anyOf": [option.schema for option in options]}, convert)

    def _array(self, origin: Any, args: tuple[Any, ...]) -> TypeSchema:
        make = ARRAYS[origin]
        if origin is tuple and args[-1] is not Ellipsis:
            items = [self.of(item) for item in args]
            size = len(items)
            return TypeSchema(
                {
                    "type": "array",
                    "prefixItems": [item.schema for item in items],
                    "items": False,
                    "minItems": size,
                    "maxItems": size,
                },
                lambda value, strict: tuple(
                    item.convert(v, strict)
                    for item, v in zip(items, require_type(value, list), strict=True)
                ),
            )
        item = self.of(args[0])
        schema: dict[str, Any] = {"type": "array", "items": item.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True
        return TypeSchema(
            schema,
            lambda value, strict: make(item.convert(v, strict) for v in require_type(value, list)),
        )

    def _mapping(self, key: Any, value: Any) -> TypeSchema:
        keys, values = self.of(key), self.of(value)
        return TypeSchema(
            {"type": "object", "additionalProperties": values.schema},
            lambda given, strict: {
                # Keys of JSON objects are always strings, so they are never converted strictly.
                keys.convert(k, False): values.convert(v, strict)
                for k, v in require_type(given, dict).items()
            },
        )

    def _object(self, kind: Any, fields: "list[Field]") -> TypeSchema:
        name = re.sub(r"[^\w.\-]", "_", kind.__name__)
        while name in self.defs:
            name += "_"
        self.defs[name] = {}  # Reserved now, because a field may refer to this class again.
        forms: dict[str, tuple[str, TypeSchema]] = {}

        def convert(value: Any, strict: bool) -> Any:
            given = require_type(value, dict)
            missing = [f.key for f in fields if f.required and f.key not in given]
            if missing:
                raise ValueError(f"missing: {', '.join(missing)}")
            values = {
                name: form.convert(given[key], strict)
                for key, (name, form) in forms.items()
                if key in given
            }
            return kind(**values)

        # Registered before its fields are read, which ends the recursion of a recursive class.
        form = self._objects[kind] = TypeSchema({"$ref": f"#/$defs/{name}"}, convert)
        for field in fields:
            forms[field.key] = (field.name, self.of(to_msgspec_type(field.kind)))
        self.defs[name] = {
            "title": kind.__name__,
            "type": "object",
            "properties": {f.key: with_default(forms[f.key][1].schema, f.default) for f in fields},
            "required": [field.key for field in fields if field.required],
        }
        if not any(field.required for field in fields):
            del self.defs[name]["required"]
        doc = inspect.cleandoc(kind.__doc__ or "")
        # The default docstring of a dataclass is its signature.
        if doc and not doc.startswith(f"{kind.__name__}("):
            self.defs[name]["description"] = doc
        return form


_DOES_NOT_FIT = (ValueError, TypeError, msgspec.ValidationError)


def _literal(values: tuple[Any, ...]) -> TypeSchema:
    plain = [v.value if isinstance(v, enum.Enum) else v for v in values]
    return TypeSchema({"enum": plain}, _one_of(dict(zip(map(_key, plain), values, strict=True))))


def _enum(kind: type[enum.Enum]) -> TypeSchema:
    values = [member.value for member in kind]
    if not all(isinstance(value, str | int | float | None) for value in values):
        raise TypeError(f"the values of {kind.__name__} are not all strings or numbers")
    return TypeSchema(
        {"title": kind.__name__, "enum": values}, _one_of({_key(m.value): m for m in kind})
    )


def _one_of(members: dict[Any, Any]) -> Callable[[Any, bool], Any]:
    def convert(value: Any, strict: bool) -> Any:
        try:
            return members[_key(value)]
        except (KeyError, TypeError):
            raise ValueError("is not one of the allowed values") from None

    return convert


def _key(value: Any) -> Any:
    """Return a key that distinguishes `True` from 1, as JSON does; 1 and 1.0 are equal."""
    return (isinstance(value, bool), value)


def _reason(kind: Any, exc: TypeError) -> str:
    # msgspec's message describes its own hooks, which do not concern the author of a tool.
    if str(exc).startswith("Generating JSON schema for custom types"):
        return f"{getattr(kind, '__qualname__', kind)} is not a JSON type"
    return str(exc).partition("\n")[0]
