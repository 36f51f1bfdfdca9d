"""How Python types look in JSON, and how their values come back from it.

msgspec knows most types. What it does not (paths, pydantic models) it asks our hooks; what it
refuses (a union of two objects, `Literal[1.5]`, an enum of numbers and strings) is taken apart here
until the parts are types that it knows.
"""

import collections.abc
import dataclasses
import datetime
import enum
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Union

import msgspec

__all__ = [
    "Form",
    "Forms",
    "Header",
    "as_model",
    "check_headers",
    "converter",
    "flat_headers",
    "from_json",
    "has_foreign_notes",
    "normal",
    "object_fields",
    "to_plain",
]

HEADER_KEY = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, section 5.6.2


def is_path(kind: type) -> bool:
    """Whether it is a kind of `pathlib` path. Whoever has one has imported that module."""
    pathlib = sys.modules.get("pathlib")
    return pathlib is not None and issubclass(kind, pathlib.PurePath)


class Header:
    """Put into a parameter's `Annotated`: its value also travels as `Mcp-Param-<name>` over HTTP.

    Raises:
        TypeError: if no header can have this name.
    """

    def __init__(self, name: str) -> None:
        if not _TOKEN.fullmatch(name):
            raise TypeError(f"{name!r} is not the name of a header: letters, digits and - only")
        self.name = name

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


class Form(NamedTuple):
    """One type: its schema, and what makes a value of it from decoded JSON.

    `convert(value, strict)` raises ValueError, TypeError or msgspec.ValidationError. Unless strict,
    it reads numbers and booleans from strings.
    """

    schema: dict[str, Any]
    convert: Callable[[Any, bool], Any]


class Forms:
    """The forms of several types that share their definitions (`defs`, for `$defs`)."""

    def __init__(self, *, output: bool = False) -> None:
        self.defs: dict[str, Any] = {}
        self._output = output
        self._unread: dict[str, Any] = {}  # definitions as they came, to know them again
        self._objects: dict[Any, Form] = {}

    def native(self, kind: Any) -> Form:
        """The form of a type that msgspec knows, alone or with our hooks; `TypeError` if not."""
        if has_foreign_notes(kind):
            raise TypeError("msgspec would not read what its fields are annotated with")
        msgspec.json.Decoder(kind, dec_hook=from_json)
        (schema,), components = msgspec.json.schema_components(
            [kind], schema_hook=self._foreign, ref_template="#/$new/{name}"
        )
        return Form(self._adopt(schema, components), converter(kind))

    def of(self, kind: Any) -> Form:
        """The form of any type that has one.

        Raises:
            TypeError: if it has none.
        """
        try:
            return self.native(kind)
        except TypeError as exc:
            form = self._apart(kind)
            if form is None:
                raise TypeError(_reason(kind, exc)) from exc
            return form

    def root(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A schema that stands alone: not a reference, and with the definitions it needs."""
        name = _referred(schema)
        if name is not None:
            schema = {**self.defs[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        if not schema.get("required", True):
            schema = {k: v for k, v in schema.items() if k != "required"}
        needed: dict[str, Any] = {}
        waiting = list(_references(schema))
        while waiting:
            if (name := waiting.pop()) not in needed:
                needed[name] = self.defs[name]
                waiting += _references(needed[name])
        defs = {name: self.defs[name] for name in self.defs if name in needed}
        return {**schema, "$defs": defs} if defs else schema

    def _foreign(self, kind: type) -> dict[str, Any]:
        """The schema of what only we know: msgspec's `schema_hook`."""
        if is_path(kind):
            return {"type": "string", "format": "path"}
        adapter = _adapter(kind)
        if adapter is None:
            raise NotImplementedError
        mode = "serialization" if self._output else "validation"
        method = adapter.json_schema if as_model(kind) is None else adapter.model_json_schema
        try:
            schema: dict[str, Any] = method(ref_template="#/$new/{model}", mode=mode)
        except RuntimeError as exc:  # pydantic's, for a model with a field that has no schema
            raise TypeError(f"{kind.__qualname__}: {exc}") from exc
        return self._adopt(schema, schema.pop("$defs", {}))

    def _adopt(self, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
        """Take new definitions over; two that differ cannot have one name."""
        names = {}
        for name, content in components.items():
            free, count = name, 2
            while free in self.defs and self._unread.get(free) != content:
                free, count = f"{name}_{count}", count + 1
            names[name] = free
            self.defs[free] = self._unread[free] = content
        for name in components:
            self.defs[names[name]] = self._finished(components[name], names)
        return self._finished(schema, names)

    def _finished(self, schema: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
        """With the final names of what it refers to."""
        found: dict[str, Any] = _renamed(schema, names, self._output)
        return found

    def _apart(self, kind: Any) -> Form | None:
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            return self._annotated(args[0], args[1:])
        if origin in (Union, types.UnionType):
            return self._union([self.of(option) for option in args])
        if origin is typing.Literal:
            return _literal(args)
        if origin in _ARRAYS and args:
            return self._array(origin, args)
        if origin in _OBJECTS and args:
            return self._mapping(*args)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return _enum(kind)
        if kind in self._objects:
            return self._objects[kind]
        fields = object_fields(kind)
        return None if fields is None else self._object(kind, fields)

    def _annotated(self, base: Any, notes: Iterable[Any]) -> Form:
        inner = self.of(base)
        limits, words, extra = _read_notes(notes)
        words.pop("tz", None)
        schema = dict(inner.schema)
        sized = {"array": "Items", "object": "Properties"}.get(schema.get("type", ""), "Length")
        for name, value in limits.items():
            schema[_KEYWORDS[name].replace("Length", sized)] = value

        def convert(value: Any, strict: bool) -> Any:
            made = inner.convert(value, strict)
            for name, limit in limits.items():
                if made is not None and not _within(made, name, limit):
                    raise ValueError(f"{_KEYWORDS[name]} is {limit}")
            return made

        return Form({**schema, **words, **extra}, convert)

    def _union(self, options: list[Form]) -> Form:
        def unused(option: Form, value: dict[str, Any]) -> int:
            name = _referred(option.schema)
            known = (option.schema if name is None else self.defs[name]).get("properties")
            return 0 if known is None else len(value.keys() - known.keys())

        def convert(value: Any, strict: bool) -> Any:
            ways = (True,) if strict else (True, False)
            if isinstance(value, dict):  # those first that use most of what was given
                likely = sorted(options, key=lambda option: unused(option, value))
                attempts = [(option, way) for option in likely for way in ways]
            else:  # a string is rather a string than a number
                attempts = [(option, way) for way in ways for option in options]
            for option, way in attempts:
                try:
                    return option.convert(value, way)
                except _DOES_NOT_FIT:
                    pass
            raise ValueError("fits none of the types it may have")

        return Form({"anyOf": [option.schema for option in options]}, convert)

    def _array(self, origin: Any, args: tuple[Any, ...]) -> Form:
        make = _ARRAYS[origin]
        if origin is tuple and args[-1] is not Ellipsis:
            items = [self.of(item) for item in args]
            size = len(items)
            return Form(
                {
                    "type": "array",
                    "prefixItems": [item.schema for item in items],
                    "items": False,
                    "minItems": size,
                    "maxItems": size,
                },
                lambda value, strict: tuple(
                    item.convert(v, strict)
                    for item, v in zip(items, _expect(value, list), strict=True)
                ),
            )
        item = self.of(args[0])
        schema: dict[str, Any] = {"type": "array", "items": item.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True
        return Form(
            schema,
            lambda value, strict: make(item.convert(v, strict) for v in _expect(value, list)),
        )

    def _mapping(self, key: Any, value: Any) -> Form:
        keys, values = self.of(key), self.of(value)
        return Form(
            {"type": "object", "additionalProperties": values.schema},
            lambda given, strict: {
                keys.convert(k, False): values.convert(v, strict)
                for k, v in _expect(given, dict).items()
            },
        )

    def _object(self, kind: Any, fields: "list[_Field]") -> Form:
        name = re.sub(r"[^\w.\-]", "_", kind.__name__)
        while name in self.defs:
            name += "_"
        self.defs[name] = {}  # taken, also while a field refers back to it
        forms: dict[str, tuple[str, Form]] = {}

        def convert(value: Any, strict: bool) -> Any:
            given = _expect(value, dict)
            missing = [f.key for f in fields if f.required and f.key not in given]
            if missing:
                raise ValueError(f"{', '.join(missing)} missing")
            values = {
                name: form.convert(given[key], strict)
                for key, (name, form) in forms.items()
                if key in given
            }
            return kind(**values)

        form = self._objects[kind] = Form({"$ref": f"#/$defs/{name}"}, convert)
        for field in fields:
            forms[field.key] = (field.name, self.of(normal(field.kind)))
        self.defs[name] = {
            "title": kind.__name__,
            "type": "object",
            "properties": {f.key: _with_default(forms[f.key][1].schema, f) for f in fields},
            "required": [field.key for field in fields if field.required],
        }
        if not any(field.required for field in fields):
            del self.defs[name]["required"]
        doc = inspect.cleandoc(kind.__doc__ or "")
        if doc and not doc.startswith(f"{kind.__name__}("):  # a dataclass writes its own
            self.defs[name]["description"] = doc
        return form


def converter(kind: Any) -> Callable[[Any, bool], Any]:
    """`Form.convert` of a type that msgspec knows."""

    def convert(value: Any, strict: bool) -> Any:
        return msgspec.convert(value, kind, strict=strict, dec_hook=from_json)

    return convert


def from_json(kind: type, value: Any) -> Any:
    """Make a value of a type that msgspec does not know: its `dec_hook`."""
    if is_path(kind):
        return kind(_expect(value, str))
    adapter = _adapter(kind)
    if adapter is None:
        raise TypeError(f"{kind.__name__} has no JSON form")
    if as_model(kind) is not None:
        return adapter.model_validate(value)
    return adapter.validate_python(value)


def to_plain(value: Any) -> Any:
    """What the encoder asks about values that it does not know: its `enc_hook`."""
    if as_model(type(value)) is not None:
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    if is_path(type(value)):
        return str(value)
    adapter = _adapter(type(value))
    if adapter is not None:
        return msgspec.Raw(adapter.dump_json(value))
    raise TypeError(f"a value of type {type(value).__qualname__} has no JSON form")


def as_model(kind: Any) -> Any:
    """The type itself if it is a pydantic model. Who has one has imported pydantic already."""
    pydantic = sys.modules.get("pydantic")
    model = getattr(pydantic, "BaseModel", None)
    return kind if model and isinstance(kind, type) and issubclass(kind, model) else None


def normal(kind: Any) -> Any:
    """The same type in msgspec's words: what `Annotated` says, whoever's way it is said in, as a
    `Meta`."""
    if kind is object:
        return Any
    if kind in (datetime.datetime, datetime.time):
        name = "date-time" if kind is datetime.datetime else "time"
        return Annotated[kind, msgspec.Meta(extra_json_schema={"format": name})]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _with_meta(normal(args[0]), args[1:])
    if origin in (Union, types.UnionType):
        return Union[tuple(normal(option) for option in args)]  # noqa: UP007 - made while running
    if origin in _ARRAYS or origin in _OBJECTS:
        inner = tuple(arg if arg is Ellipsis else normal(arg) for arg in args)
        if origin in _READ_AS_LIST:
            return list[inner[0]]  # type: ignore[valid-type]
        return kind if inner == args else origin[inner]
    return kind


def has_foreign_notes(kind: Any, seen: set[Any] | None = None) -> bool:
    """Is a field of a class in it annotated in words that msgspec does not read?"""
    seen = set() if seen is None else seen
    notes: tuple[Any, ...] = ()
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is Annotated:
        inner, notes = inner[:1], inner[1:]
    elif typing.get_origin(kind) is typing.Literal:
        return False
    if any(any(_read_notes([n])) for n in notes if not isinstance(n, msgspec.Meta)):
        return True
    if any(has_foreign_notes(part, seen) for part in inner):
        return True
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    if dataclasses.is_dataclass(kind) and hasattr(kind, "__pydantic_validator__"):
        return True  # pydantic's kind of dataclass, which checks itself when it is made
    if issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None:
        return False  # only msgspec knows how to tell tagged ones apart
    return any(has_foreign_notes(field.kind, seen) for field in object_fields(kind) or ())


def check_headers(schema: dict[str, Any], where: str) -> None:
    """Look at the parameters that travel as headers, and say their schemas plainly.

    Raises:
        TypeError: if a name is no token or there twice, or a value is no string, integer, boolean.
    """
    seen: dict[str, str] = {}
    properties = schema.get("properties")
    for name, entry in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(entry, dict) or HEADER_KEY not in entry:
            continue
        header, what = entry[HEADER_KEY], f"{where}: parameter {name!r}"
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise TypeError(f"{what}: {header!r} is not the name of a header")
        if header.lower() in seen:
            raise TypeError(f"{what}: {seen[header.lower()]!r} has the header {header!r} already")
        seen[header.lower()] = name
        if entry.get("type") not in ("string", "integer", "boolean"):
            raise TypeError(f"{what}: only a string, integer or boolean fits into a header")


def flat_headers(schema: dict[str, Any]) -> dict[str, Any]:
    """Parameters with a header get schemas that show their type: no union with null, no `$ref`.

    A client leaves a tool out whose header has another type, and does not look far. The decoder
    accepts null all the same.
    """
    properties = dict(schema["properties"])
    for name, entry in schema["properties"].items():
        if HEADER_KEY not in entry:
            continue
        entry = dict(entry)
        options = [o for o in entry.get("anyOf", ()) if o != {"type": "null"}]
        if len(options) == 1:
            entry = {**options[0], **{k: v for k, v in entry.items() if k != "anyOf"}}
            if entry.get("default", 0) is None:
                del entry["default"]
        if (target := _referred(entry)) is not None:
            entry = {**schema["$defs"][target], **{k: v for k, v in entry.items() if k != "$ref"}}
        if "type" not in entry and all(isinstance(v, str) for v in entry.get("enum", [0])):
            entry["type"] = "string"
        properties[name] = entry
    return {**schema, "properties": properties}


# Annotations: msgspec's Meta, plain strings, our Header, pydantic's Field and annotated_types are
# all read by their attributes, so that nothing has to be imported to know them.

_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def _with_meta(base: Any, notes: Iterable[Any]) -> Any:
    limits, words, extra = _read_notes(notes)
    if limits and typing.get_origin(base) in (Union, types.UnionType):
        # Said of `int | None`, a limit means the number.
        options = typing.get_args(base)
        bounded = [o if o is type(None) else Annotated[o, msgspec.Meta(**limits)] for o in options]
        base, limits = Union[tuple(bounded)], {}  # noqa: UP007
    if not (limits or words or extra):
        return base
    if extra:
        words["extra_json_schema"] = extra
    return Annotated[base, msgspec.Meta(**limits, **words)]


def _read_notes(notes: Iterable[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Limits by msgspec's names, title, description and examples, and more for the schema."""
    limits: dict[str, Any] = {}
    words: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, str):
            words.setdefault("description", note)
            continue
        if isinstance(note, Header):
            extra[HEADER_KEY] = note.name
            continue
        if isinstance(note, msgspec.Meta) and note.tz is not None:
            words["tz"] = note.tz
        for name in _KEYWORDS:
            if (limit := getattr(note, name, None)) is not None and not callable(limit):
                limits[name] = _limit(name, limit)
        for name, attribute, kind in _WORDS:
            if isinstance(word := getattr(note, attribute, None), kind) and word:
                words.setdefault(name, word)
        for attribute in ("json_schema_extra", "extra_json_schema"):
            if isinstance(more := getattr(note, attribute, None), dict):
                extra.update(more)
        if isinstance(inner := getattr(note, "metadata", None), list | tuple):
            deeper = _read_notes(inner)
            limits.update(deeper[0])
    return limits, words, extra


_WORDS: tuple[tuple[str, str, type], ...] = (
    ("title", "title", str),
    ("description", "description", str),
    ("description", "documentation", str),
    ("examples", "examples", list),
)


def _limit(name: str, value: Any) -> Any:
    if name == "pattern":
        return getattr(value, "pattern", value)
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: a limit in a JSON Schema is a number")
    return value


def _within(value: Any, name: str, limit: Any) -> bool:
    match name:
        case "ge":
            return bool(value >= limit)
        case "gt":
            return bool(value > limit)
        case "le":
            return bool(value <= limit)
        case "lt":
            return bool(value < limit)
        case "multiple_of":
            return bool(value % limit == 0)
        case "min_length":
            return bool(_size(value) >= limit)
        case "max_length":
            return bool(_size(value) <= limit)
    return re.search(limit, str(value)) is not None


def _size(value: Any) -> int:
    return len(value if hasattr(value, "__len__") else str(value))


# Types that are taken apart.

_READ_AS_LIST = (collections.abc.Iterable, collections.abc.Iterator)
_ARRAYS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Iterator: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_DOES_NOT_FIT = (ValueError, TypeError, msgspec.ValidationError)


class _Field(NamedTuple):
    key: str
    name: str
    kind: Any
    required: bool
    default: Any = msgspec.NODEFAULT


def _with_default(schema: dict[str, Any], field: _Field) -> dict[str, Any]:
    if field.default is msgspec.NODEFAULT:
        return schema
    try:
        plain = msgspec.json.decode(msgspec.json.encode(field.default, enc_hook=to_plain))
    except (TypeError, ValueError, msgspec.MsgspecError):
        return schema  # a default that JSON cannot carry
    return {**schema, "default": plain}


def object_fields(kind: Any) -> list[_Field] | None:
    """The fields of a class that is an object in JSON; None if it is none.

    Raises:
        TypeError: if an annotation in it cannot be resolved.
    """
    if not isinstance(kind, type):
        return None
    try:
        if issubclass(kind, msgspec.Struct):
            found = msgspec.structs.fields(kind)
            return [_Field(f.encode_name, f.name, f.type, f.required, f.default) for f in found]
        if dataclasses.is_dataclass(kind):
            return _dataclass_fields(kind)
        if typing.is_typeddict(kind):
            required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
            hints = typing.get_type_hints(kind, include_extras=True)
            return [_Field(k, k, _bare(v), k in required) for k, v in hints.items()]
    except NameError as exc:
        raise TypeError(f"in {kind.__qualname__}: {exc}") from exc
    return None


def _dataclass_fields(kind: Any) -> list[_Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    no = dataclasses.MISSING
    return [
        _Field(
            f.name,
            f.name,
            hints[f.name],
            f.default is no and f.default_factory is no,
            msgspec.NODEFAULT if f.default is no else f.default,
        )
        for f in dataclasses.fields(kind)
        if f.init
    ]


def _bare(kind: Any) -> Any:
    """Without `Required` and `NotRequired`."""
    if typing.get_origin(kind) in (typing.Required, typing.NotRequired):
        return typing.get_args(kind)[0]
    return kind


def _literal(values: tuple[Any, ...]) -> Form:
    plain = [v.value if isinstance(v, enum.Enum) else v for v in values]
    return Form({"enum": plain}, _one_of(dict(zip(map(_key, plain), values, strict=True))))


def _enum(kind: type[enum.Enum]) -> Form:
    values = [member.value for member in kind]
    if not all(isinstance(value, str | int | float | None) for value in values):
        raise TypeError(f"the values of {kind.__name__} are not all strings or numbers")
    return Form({"title": kind.__name__, "enum": values}, _one_of({_key(m.value): m for m in kind}))


def _one_of(members: dict[Any, Any]) -> Callable[[Any, bool], Any]:
    def convert(value: Any, strict: bool) -> Any:
        try:
            return members[_key(value)]
        except (KeyError, TypeError):
            raise ValueError("is not one of the values it may have") from None

    return convert


def _key(value: Any) -> Any:
    """`True` is not 1 in JSON, although 1.0 is."""
    return (isinstance(value, bool), value)


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def _adapter(kind: type) -> Any:
    """Pydantic's way to read a type: a model itself, an adapter for its other types."""
    if as_model(kind) is not None:
        return kind
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not hasattr(kind, "__get_pydantic_core_schema__"):
        return None
    return pydantic.TypeAdapter(kind)


def _renamed(schema: Any, names: dict[str, str], output: bool) -> Any:
    if isinstance(schema, list):
        return [_renamed(item, names, output) for item in schema]
    if not isinstance(schema, dict):
        if isinstance(schema, str) and schema.startswith("#/$new/"):
            return "#/$defs/" + names[schema.removeprefix("#/$new/")]
        return schema
    found = {k: _renamed(v, names, output) for k, v in schema.items() if (k, v) != ("required", [])}
    if not output and found.get("format") == "decimal" and found.get("type") == "string":
        del found["type"], found["format"]  # written as a string, read from a number as well
        found["anyOf"] = [{"type": "number"}, {"type": "string", "format": "decimal"}]
    return found


def _referred(schema: dict[str, Any]) -> str | None:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return reference.removeprefix("#/$defs/")
    return None


def _references(schema: Any) -> Iterator[str]:
    """The names of all definitions that a schema refers to."""
    if isinstance(schema, dict):
        name = _referred(schema)
        if name is not None:
            yield name
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _reason(kind: Any, exc: TypeError) -> str:
    if str(exc).startswith("Generating JSON schema for custom types"):
        return f"{getattr(kind, '__qualname__', kind)} is no type of JSON"
    return str(exc).partition("\n")[0]
