"""Tests of schemas for function parameters and of decoding arguments."""

import dataclasses
import datetime
import enum
import functools
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from fairlead import Context, MCPServer
from fairlead.protocol.schema.validation import FieldError, InvalidArguments
from fairlead.server.schema.docstrings import parameter_texts
from fairlead.server.schema.header_annotation import Header
from fairlead.server.schema.signature import Signature, _unresolved, context_parameter


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
    HALF = 0.5


class Place(TypedDict):
    city: str
    zip: NotRequired[str]


@dataclasses.dataclass
class Circle:
    radius: float = 1.0


@dataclasses.dataclass
class Box:
    width: int
    label: Path | str = "box"


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)
    friends: "list[Person]" = []

    @pydantic.field_validator("name")
    @classmethod
    def has_a_name(cls, name: str) -> str:
        if not name.strip():
            raise ValueError("is blank")
        return name


@dataclasses.dataclass
class Noted:
    """A class with annotated fields."""

    count: Annotated[int, pydantic.Field(ge=1, description="how many")]
    next: "Noted | None" = None


class Label(msgspec.Struct, rename="camel"):
    """The text of a label."""

    main_text: Annotated[str, "the words"]
    font: Literal[1.5, "big"] = "big"


class Shelf(TypedDict):
    what: Annotated[str, "a name"]
    content: NotRequired[Circle | Box]


@pydantic.dataclasses.dataclass
class Checked:
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def is_odd(cls, n: int) -> int:
        if n % 2 == 0:
            raise ValueError("is even")
        return n


@dataclasses.dataclass
class Lost:
    value: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Opaque(pydantic.BaseModel, arbitrary_types_allowed=True):
    value: threading.Event


class Pairs(enum.Enum):
    A = (1, 2)


def signature_of(kind: Any, default: Any = ...) -> Signature:
    """Return the signature of a function with one parameter of this type."""

    def function(value: Any = None) -> None: ...

    function.__annotations__["value"] = kind
    function.__defaults__ = None if default is ... else (default,)
    return Signature(function)


def schema_of(kind: Any, default: Any = ...) -> Any:
    return signature_of(kind, default).schema["properties"]["value"]


def read(kind: Any, json: str) -> Any:
    return signature_of(kind).decode(b'{"value":%b}' % json.encode()).value


def problems_of(function: Callable[..., Any], json: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidArguments) as caught:
        Signature(function).decode(json.encode())
    return [(error.field, error.constraint) for error in caught.value.errors]


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", 1], {"enum": [1, "a"]}),
        (Literal[1.5, "x"], {"enum": [1.5, "x"]}),
        (Mixed, {"title": "Mixed", "enum": [1, "two", 0.5]}),
        (Path, {"type": "string", "format": "path"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, msgspec.Meta(ge=1)], {"type": "integer", "minimum": 1}),
        (Annotated[str, Header("Region")], {"type": "string", "x-mcp-header": "Region"}),
        (
            Annotated[int, pydantic.Field(gt=1, le=9, description="few")],
            {"type": "integer", "exclusiveMinimum": 1, "maximum": 9, "description": "few"},
        ),
        (
            list[Annotated[str, pydantic.Field(pattern="^a", max_length=3)]],
            {"type": "array", "items": {"type": "string", "pattern": "^a", "maxLength": 3}},
        ),
        (
            Annotated[int | None, pydantic.Field(ge=1)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
    ],
)
def test_parameter_types_are_converted_to_json_schemas(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


@pytest.mark.covers("SRV-30")
def test_classes_of_parameters_become_schema_definitions() -> None:
    def function(a: Color, b: Place, c: Circle, d: Point, e: Person) -> None: ...

    schema = Signature(function).schema
    assert schema["properties"] == {
        "a": {"$ref": "#/$defs/Color"},
        "b": {"$ref": "#/$defs/Place"},
        "c": {"$ref": "#/$defs/Circle"},
        "d": {"$ref": "#/$defs/Point"},
        "e": {"$ref": "#/$defs/Person"},
    }
    assert schema["required"] == ["a", "b", "c", "d", "e"]
    defs = schema["$defs"]
    assert defs["Color"]["enum"] == ["blue", "red"]
    assert defs["Place"]["required"] == ["city"]
    assert defs["Circle"]["properties"] == {"radius": {"type": "number", "default": 1.0}}
    assert defs["Point"]["required"] == ["x"]
    assert defs["Person"]["properties"]["friends"]["items"] == {"$ref": "#/$defs/Person"}


@pytest.mark.covers("SRV-30")
def test_two_classes_with_the_same_name_have_separate_definitions() -> None:
    other = pydantic.create_model("Point", label=(str, ...))

    def function(a: Point, b: Any) -> None: ...

    function.__annotations__["b"] = pydantic.create_model("Holder", point=(other, ...))
    schema = Signature(function).schema
    first = schema["properties"]["a"]["$ref"].removeprefix("#/$defs/")
    holder = schema["properties"]["b"]["properties"]
    second = holder["point"]["$ref"].removeprefix("#/$defs/")
    assert set(schema["$defs"][first]["properties"]) == {"x", "y"}
    assert set(schema["$defs"][second]["properties"]) == {"label"}


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("kind", "json", "value"),
    [
        (int, '"5"', 5),
        (int, '"1e3"', 1000),
        (Literal[1.5] | int, '"1e3"', 1000),
        (float, '"2.5"', 2.5),
        (bool, '"true"', True),
        (list[int], '["1",2]', [1, 2]),
        (str, '"5"', "5"),
        (int | str, '"5"', "5"),
        (Path, '"/tmp"', Path("/tmp")),
        (list[Path], '["a"]', [Path("a")]),
        (Path | int, '"a"', Path("a")),
        (Path | int, "3", 3),
        (Circle | Box, '{"width":"3"}', Box(3)),
        (Circle | Box, '{"radius":3}', Circle(3)),
        (Circle | Box | None, "null", None),
        (
            list[Circle | Box],
            '[{"radius":2},{"width":1,"label":"x"}]',
            [Circle(2), Box(1, Path("x"))],
        ),
        (dict[str, Circle | Box], '{"a":{"width":1}}', {"a": Box(1)}),
        (dict[str, Circle] | Circle, '{"radius":2}', Circle(2)),
        (tuple[Circle | Box, int], '[{"width":1},"2"]', (Box(1), 2)),
        (set[int] | tuple[str, str], '["a","b"]', ("a", "b")),
        (set[int] | tuple[str, str], "[1,2,3]", {1, 2, 3}),
        (Literal[1.5, "x"], "1.5", 1.5),
        (Literal[1.5, "x"], '"1.5"', 1.5),
        (Mixed, "1", Mixed.ONE),
        (Mixed, '"two"', Mixed.TWO),
        (Mixed, '"0.5"', Mixed.HALF),
        (Color, '"red"', Color.RED),
        (bytes, '"aGk="', b"hi"),
        (bytes | str, '"no base64!"', "no base64!"),
        (Decimal, '"1.10"', Decimal("1.10")),
        (Decimal, "2", Decimal(2)),
        (Annotated[Decimal, pydantic.Field(gt=0)], '"0.5"', Decimal("0.5")),
        (datetime.date, '"2026-02-03"', datetime.date(2026, 2, 3)),
        (uuid.UUID, f'"{uuid.UUID(int=1)}"', uuid.UUID(int=1)),
        (Person, '{"name":"Ann","age":"3"}', Person(name="Ann", age=3)),
        (list[Person] | None, '[{"name":"Ann","age":3}]', [Person(name="Ann", age=3)]),
        (Person | Circle, '{"radius":1}', Circle(1)),
        (Noted, '{"count":"2","next":{"count":1}}', Noted(2, Noted(1))),
        (Label, '{"mainText":"a","font":"1.5"}', Label("a", 1.5)),
        (Shelf, '{"what":"a","content":{"radius":1}}', {"what": "a", "content": Circle(1)}),
        (frozenset[Literal[1.5]], "[1.5]", frozenset({1.5})),
        (tuple[Literal[1.5], ...], "[1.5]", (1.5,)),
        (Literal[Mixed.TWO], '"two"', Mixed.TWO),
        (Checked, '{"n":"3"}', Checked(3)),
        (
            Annotated[datetime.datetime, msgspec.Meta(tz=False)],
            '"2026-01-02T03:04:05"',
            datetime.datetime(2026, 1, 2, 3, 4, 5),
        ),
        (pydantic.HttpUrl, '"http://a.b/"', pydantic.HttpUrl("http://a.b/")),
        (Annotated[str | None, Header("Region")], "null", None),
    ],
)
def test_json_arguments_are_converted_to_the_declared_type(
    kind: Any, json: str, value: Any
) -> None:
    found = read(kind, json)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("kind", "fast"),
    [
        (list[dict[str, int]], True),
        (Person | None, True),
        (list[Path], True),
        (Annotated[int | None, pydantic.Field(ge=1)], True),
        (Circle | Box, False),
        (Literal[1.5], False),
        (Noted, False),
    ],
)
def test_only_types_that_msgspec_does_not_support_take_the_slow_path(kind: Any, fast: bool) -> None:
    assert signature_of(kind).fast is fast


@pytest.mark.covers("SRV-22", "SRV-30")
# Decoded on the fast path and on the slow path.
@pytest.mark.parametrize("extra", [int, Literal[1.5] | int])
def test_every_argument_problem_is_reported_and_converted_strings_are_accepted(extra: Any) -> None:
    def order(
        items: list[Point], when: datetime.date, n: int, on: bool = True, z: int = 0
    ) -> None: ...

    order.__annotations__["z"] = extra
    assert sorted(
        problems_of(
            order,
            '{"items":[{"x":"1"},{"x":"one"}],"n":"7","on":"maybe","when":"monday","q":1}',
        )
    ) == [
        ("items.1.x", '"one" is not of type "integer"'),
        ("on", '"maybe" is not of type "boolean"'),
        ("q", "Additional properties are not allowed ('q' was unexpected)"),
        ("when", "Invalid RFC3339 encoded date"),
    ]


@pytest.mark.covers("SRV-22")
@pytest.mark.parametrize(
    ("kind", "json", "problem"),
    [
        (int | None, '"x"', ("value", '"x" is not valid under any of the schemas')),
        (list[int] | None, '["x"]', ("value.0", '"x" is not of type "integer"')),
        (Person, '{"name":" ","age":1}', ("value.name", "Value error, is blank")),
        (Person, '{"name":"A","age":-1}', ("value.age", "-1 is less than the minimum of 0")),
        (Point, "{}", ("value.x", '"x" is a required property')),
        (Checked, '{"n":2}', ("value.n", "Value error, is even")),
        (Noted, '{"count":0}', ("value.count", "0 is less than the minimum of 1")),
        (Annotated[Decimal, pydantic.Field(gt=0)], '"-1"', ("value", "exclusiveMinimum is 0")),
        (Literal[1.5], "true", ("value", "true is not")),
        (Mixed, "true", ("value", "true is not")),
        (int, "1.5", ("value", '1.5 is not of type "integer"')),
        (int, '"1.5"', ("value", '"1.5" is not of type "integer"')),
    ],
)
def test_each_argument_problem_contains_its_field(
    kind: Any, json: str, problem: tuple[str, str]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read(kind, json)
    (error,) = caught.value.errors
    assert error.field == problem[0]
    assert error.constraint.startswith(problem[1])


@pytest.mark.covers("SRV-30")
def test_a_function_is_called_with_the_decoded_arguments() -> None:
    def function(a: Circle | Box, *rest: int, b: int = 2, **more: int) -> Any:
        return a, rest, b, more

    signature = Signature(function)
    assert set(signature.schema["properties"]) == {"a", "b"}
    assert signature.schema["required"] == ["a"]
    assert signature.call(signature.decode(b'{"a":{"width":1}}'), None) == (Box(1), (), 2, {})


@pytest.mark.covers("SRV-30")
def test_self_and_cls_parameters_are_skipped_and_objects_can_be_called() -> None:
    class Counter:
        def method(self, n: int) -> int:
            return n

        @classmethod
        def make(cls, n: int) -> int:
            return n

        def __call__(self, n: int, step: int = 1) -> int:
            return n + step

    for function in (Counter.method, Counter().method, Counter.make):
        assert set(Signature(function).schema["properties"]) == {"n"}
    called = Signature(Counter())
    assert called.call(called.decode(b'{"n":"1"}'), None) == 2
    partial = Signature(functools.partial(Counter(), step=5))
    assert partial.call(partial.decode(b'{"n":1}'), None) == 6


@pytest.mark.covers("SRV-30")
def test_defaults_with_a_json_form_are_part_of_the_schema() -> None:
    sentinel = object()

    def function(
        a: list[int] = [1, 2],  # noqa: B006 - tests mutable defaults
        b: Any = sentinel,
        c: Path = Path("x"),
        d: int = pydantic.Field(3, ge=1, description="days"),
        e: int = pydantic.Field(ge=1),
        f: Mixed = Mixed.TWO,
        g: Person = Person(name="A", age=1),  # noqa: B008
    ) -> Any:
        return a, b, c, d, e, f, g

    signature = Signature(function)
    properties = signature.schema["properties"]
    assert {name: p.get("default") for name, p in properties.items()} == {
        "a": [1, 2],
        "b": None,
        "c": "x",
        "d": 3,
        "e": None,
        "f": "two",
        "g": {"name": "A", "age": 1, "friends": []},
    }
    assert properties["d"]["description"] == "days"
    assert signature.schema["required"] == ["e"]
    first = signature.call(signature.decode(b'{"e":1}'), None)
    assert first == ([1, 2], sentinel, Path("x"), 3, 1, Mixed.TWO, Person(name="A", age=1))
    first[0].append(3)
    assert signature.call(signature.decode(b'{"e":1}'), None)[0] == [1, 2]


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    "kind", [complex, list[complex], Callable[[], int], int | complex, Lost, Opaque, Pairs]
)
def test_a_parameter_without_a_schema_is_rejected_with_a_remedy(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"function: parameter 'value' has no JSON form.*Annotate"):
        signature_of(kind)


@pytest.mark.covers("SRV-30")
def test_a_parameter_limit_without_a_json_form_is_rejected() -> None:
    with pytest.raises(TypeError, match="parameter 'value': ge="):
        signature_of(Annotated[datetime.date, pydantic.Field(ge=datetime.date(2026, 1, 1))])


def test_a_function_with_an_unresolvable_annotation_is_rejected() -> None:
    def function(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="cannot be resolved"):
        Signature(function)


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("notes", "good", "bad"),
    [
        ({"ge": 1}, "1", "0.5"),
        ({"gt": 1}, "1.5", "1"),
        ({"le": 1}, "1", "2"),
        ({"lt": 1}, "0", "1"),
        ({"multiple_of": 2}, "4", "3"),
        ({"ge": Decimal("1.5")}, "1.5", "1"),
    ],
)
def test_limits_apply_to_types_whose_limits_msgspec_does_not_check(
    notes: Any, good: str, bad: str
) -> None:
    kind = Annotated[Decimal, pydantic.Field(**notes)]
    assert read(kind, f'"{good}"') == Decimal(good)
    with pytest.raises(InvalidArguments):
        read(kind, f'"{bad}"')


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Annotated[Path, pydantic.Field(max_length=3)], '"abc"', '"abcd"'),
        (Annotated[Path, pydantic.Field(pattern="^/")], '"/a"', '"a"'),
        (Annotated[list[Circle | Box], pydantic.Field(min_length=1)], '[{"width":1}]', "[]"),
        (
            Annotated[dict[str, Literal[1.5]], pydantic.Field(max_length=1)],
            "{}",
            '{"a":1.5,"b":1.5}',
        ),
    ],
)
def test_sizes_and_patterns_apply_on_the_slow_path(kind: Any, good: str, bad: str) -> None:
    read(kind, good)
    with pytest.raises(InvalidArguments):
        read(kind, bad)


@pytest.mark.covers("SRV-30")
def test_the_schema_contains_descriptions_and_limits_of_fields() -> None:
    defs = signature_of(Label | Noted).schema["$defs"]
    assert defs["Label"] == {
        "title": "Label",
        "description": "The text of a label.",
        "type": "object",
        "properties": {
            "mainText": {"type": "string", "description": "the words"},
            "font": {"enum": [1.5, "big"], "default": "big"},
        },
        "required": ["mainText"],
    }
    assert defs["Noted"]["properties"]["count"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
    }


def test_malformed_arguments_are_reported_as_one_problem() -> None:
    for kind in (int, Literal[1.5]):
        for text in (b"[1]", b"null", b'"x"', b"[" * 5000 + b"]" * 5000, b'{"value":1e400}'):
            with pytest.raises(InvalidArguments) as caught:
                signature_of(kind).decode(text)
            assert [error.field for error in caught.value.errors] == ["arguments"]


# Headers


@pytest.mark.covers("PRO-25")
@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (bool, {"type": "boolean"}),
        (str | None, {"type": "string"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Color, {"type": "string", "title": "Color", "enum": ["blue", "red"]}),
    ],
)
def test_the_schema_of_a_header_parameter_is_a_plain_type(
    kind: Any, schema: dict[str, Any]
) -> None:
    assert schema_of(Annotated[kind, Header("X")]) == {**schema, "x-mcp-header": "X"}


@pytest.mark.covers("PRO-25")
@pytest.mark.parametrize("name", ["", "two words", "näme", "a:b", "a\r\nb"])
def test_a_parameter_with_an_invalid_header_name_is_rejected(name: str) -> None:
    with pytest.raises(TypeError, match="^invalid header name "):
        Header(name)


@pytest.mark.covers("PRO-25")
def test_duplicate_and_non_primitive_headers_are_rejected() -> None:
    def twice(a: Annotated[str, Header("Region")], b: Annotated[str, Header("region")]) -> None: ...

    with pytest.raises(TypeError, match="twice: two parameters use the header 'region'"):
        MCPServer("s").tool()(twice)
    for kind in (float, list[str], Point, int | str):

        def large(a: Annotated[kind, Header("Region")]) -> None: ...  # type: ignore[valid-type]

        with pytest.raises(
            TypeError, match="large: a: the type must be string, integer or boolean"
        ):
            MCPServer("s").tool()(large)


@pytest.mark.covers("PRO-25")
def test_a_header_parameter_in_a_nested_object_is_rejected() -> None:
    class Place(msgspec.Struct):
        region: Annotated[str, Header("Region")]

    def nested(places: list[Place]) -> None: ...

    with pytest.raises(TypeError, match="nested: .*x-mcp-header is not allowed under"):
        MCPServer("s").tool()(nested)


# Docstrings

GOOGLE = """Do it.

Args:
    city: Where
        it rains.
    days (int, optional): How many: at most 7.
    *more: The rest.

Returns:
    text: The forecast.
"""
NUMPY = """Do it.

Parameters
----------
city : str
    Where
    it rains.
days
    How many: at most 7.
*more : int
    The rest.

Returns
-------
text : str
    The forecast.
"""
REST = """Do it.

:param city: Where
    it rains.
:param int days: How many: at most 7.
:param more: The rest.
:returns: The forecast.
"""


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, REST])
def test_parameters_are_described_by_the_docstring(doc: str) -> None:
    assert parameter_texts(doc) == {
        "city": "Where it rains.",
        "days": "How many: at most 7.",
        "more": "The rest.",
    }


@pytest.mark.covers("SRV-30")
def test_an_annotation_takes_precedence_over_the_docstring() -> None:
    def function(city: Annotated[str, "A town."], days: int, place: Point) -> None: ...

    function.__doc__ = GOOGLE.replace("*more", "place")
    properties = Signature(function).schema["properties"]
    assert properties["city"]["description"] == "A town."
    assert properties["days"]["description"] == "How many: at most 7."
    assert properties["place"] == {"$ref": "#/$defs/Point", "description": "The rest."}


@pytest.mark.parametrize(
    "doc", ["", "Args:", "Parameters\n----", ":param x", "Args:\nnot indented: x"]
)
def test_docstrings_without_parameters_have_no_descriptions(doc: str) -> None:
    assert parameter_texts(doc) == {}


def test_building_a_signature_does_not_import_large_libraries() -> None:
    code = (
        "import sys, fairlead.server.schema.signature as s\n"
        "def f(a: int, b: 'list[str]' = []) -> None: ...\n"
        "s.Signature(f).decode(b'{\"a\":1}')\n"
        "print([m for m in ('pydantic', 'jsonschema_rs', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert "pydantic" not in done.stdout, done.stderr
    assert "jsonschema_rs" not in done.stdout


def test_invalid_arguments_have_a_readable_error_message() -> None:
    assert InvalidArguments([FieldError("a", "b")]).args == ("a: b",)


def test_definitions_with_the_same_name_are_numbered() -> None:
    def function(a: Any, b: Any, c: Any) -> None: ...

    for name, field in (("a", "x"), ("b", "y"), ("c", "z")):
        inner = pydantic.create_model("Inner", **{field: (int, ...)})
        outer = pydantic.create_model(f"Outer{name}", held=(inner, ...))
        function.__annotations__[name] = outer
    assert Signature(function).schema["$defs"].keys() == {"Inner", "Inner_2", "Inner_3"}


def test_the_schema_of_a_tuple_parameter_requires_its_length() -> None:
    def function(pair: tuple[int, str]) -> None: ...

    assert Signature(function).schema["properties"]["pair"] == {
        "type": "array",
        "prefixItems": [{"type": "integer"}, {"type": "string"}],
        "items": False,
        "minItems": 2,
        "maxItems": 2,
    }


def test_the_context_parameter_is_found_by_its_annotation() -> None:
    for kind in (Context, Context | None, None | Context, Annotated[Context, "x"]):
        assert context_parameter({"a": int, "b": kind, "return": Context}, Context) == "b"
    for kind in (int, int | None, "Context"):
        assert context_parameter({"a": kind, "return": Context}, Context) is None


def test_the_error_contains_the_unresolvable_annotation() -> None:
    def function(a: int, b: "Unknown | int") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def returning() -> "Unknown": ...  # type: ignore[name-defined]  # noqa: F821

    error = NameError("name 'Unknown' is not defined", name="Unknown")
    assert _unresolved(function, error) == "the annotation 'Unknown | int' of parameter 'b'"
    assert _unresolved(returning, error) == "the annotation 'Unknown' of the return value"
    other = NameError("name 'Other' is not defined", name="Other")
    assert _unresolved(function, other) == "an annotation"


@pytest.mark.parametrize("text", ["nan", "-Inf", "infinity", "\\u006ean"])
@pytest.mark.parametrize("kind", [float, float | None, list[float], dict[str, float]])
def test_a_number_in_a_string_must_be_finite(kind: Any, text: str) -> None:
    value = f'"{text}"'
    if kind == list[float]:
        value = f"[1,{value}]"
    elif kind == dict[str, float]:
        value = f'{{"a":{value}}}'
    signature = signature_of(kind)
    assert signature.fast
    with pytest.raises(InvalidArguments) as caught:
        signature.decode(f'{{"value":{value}}}'.encode())
    (error,) = caught.value.errors
    assert error.field.startswith("value")


@pytest.mark.parametrize(
    ("json", "value"), [("1", 1.0), ('"1.5"', 1.5), ('"1e3"', 1000.0), ('"\\u0031"', 1.0)]
)
def test_finite_numbers_in_strings_are_converted(json: str, value: float) -> None:
    assert read(float, json) == value


def test_the_string_nan_is_valid_for_a_string_parameter() -> None:
    def function(name: str, share: float = 0.5) -> Any:
        return name, share

    signature = Signature(function)
    found = signature.decode(b'{"name":"nan","share":"0.25"}')
    assert signature.call(found, None) == ("nan", 0.25)


@pytest.mark.parametrize(
    ("json", "fits"), [('"aa"', True), ('"ab"', False), ('"a\\n"', False), ("5", False)]
)
@pytest.mark.parametrize("slow", [False, True], ids=["fast", "long way"])
def test_a_pattern_has_the_semantics_of_json_schema(json: str, fits: bool, slow: bool) -> None:
    kind = Annotated[str, msgspec.Meta(pattern="^a+$")]
    signature = signature_of(kind | Literal[1.5] if slow else kind)
    assert signature.fast is not slow
    signature.warm_up()
    text = f'{{"value":{json}}}'.encode()
    if fits:
        assert signature.decode(text).value == "aa"
    else:
        with pytest.raises(InvalidArguments):
            signature.decode(text)


@pytest.mark.parametrize(
    "text",
    [b"[1]", b'{"value":"\xff"}', b"[" * 100_000],
    ids=["list", "not UTF-8", "deep"],
)
def test_malformed_arguments_with_a_pattern_are_reported_as_one_problem(text: bytes) -> None:
    signature = signature_of(Annotated[str, msgspec.Meta(pattern="^a+$")])
    with pytest.raises(InvalidArguments) as caught:
        signature.decode(text)
    assert [error.field for error in caught.value.errors] == ["arguments"]


def test_arguments_are_passed_by_position_or_by_name() -> None:
    def keywords(*, a: int, b: int = 2) -> Any:
        return a, b

    def both(a: int, *, b: int = 2) -> Any:
        return a, b

    def positions(a: int, b: int = 2) -> Any:
        return a, b

    def context(a: int, ctx: Context, b: int = 2) -> Any:
        return a, ctx, b

    for function in (keywords, both, positions):
        signature = Signature(function)
        assert signature.call(signature.decode(b'{"a":1}'), "context") == (1, 2)
    signature = Signature(context, context_type=Context)
    assert signature.context_name == "ctx"
    assert signature.call(signature.decode(b'{"a":1}'), "context") == (1, "context", 2)


@pytest.mark.parametrize("default", [[1], {"a": 1}, {1}, bytearray(b"a")])
def test_a_mutable_default_is_copied_for_each_call(default: Any) -> None:
    signature = signature_of(Any, default)
    first, second = signature.decode(b"{}").value, signature.decode(b"{}").value
    assert first == second == default
    assert first is not second
    assert first is not default


@pytest.mark.parametrize("default", [None, "a", 5, 1.5, (1,), frozenset({1}), Path("x")])
def test_immutable_defaults_are_not_copied(default: Any) -> None:
    assert signature_of(Any, default).decode(b"{}").value is default


def test_a_signature_has_the_source_location_and_the_return_annotation() -> None:
    class Counter:
        def __call__(self, n: int) -> str:
            return ""

    place = (
        f"{__name__}.test_a_signature_has_the_source_location_and_the_return_annotation.<locals>"
    )
    for function in (Counter(), functools.partial(Counter(), n=1)):
        signature = Signature(function)
        assert (signature.where, signature.returns) == (f"{place}.Counter", str)

    def bare(a):  # type: ignore[no-untyped-def]
        return a

    assert Signature(bare).where == f"{place}.bare"
    assert Signature(bare).returns is None
    assert Signature(bare).schema["properties"] == {"a": {}}


def test_the_error_for_an_unresolved_annotation_explains_the_reason() -> None:
    def function(value: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError) as refused:
        Signature(function)
    assert str(refused.value) == (
        f"{__name__}.test_the_error_for_an_unresolved_annotation_explains_the_reason.<locals>.function:"
        " the annotation 'Nowhere' of parameter 'value' cannot be resolved: name 'Nowhere' is not "
        "defined. Import or define it before the function, and not only for type checkers"
    )


def test_the_slow_decoding_path_reports_all_problems() -> None:
    def function(a: Circle | Box, b: Annotated[Path, pydantic.Field(max_length=3)]) -> None: ...

    assert sorted(problems_of(function, '{"a":5,"b":"abcd","c":1}')) == [
        ("a", "5 is not valid under any of the schemas listed in the 'anyOf' keyword"),
        ("b", '"abcd" is longer than 3 characters'),
        ("c", "Additional properties are not allowed ('c' was unexpected)"),
    ]


def test_a_default_value_may_come_from_a_factory() -> None:
    made = pydantic.Field(default_factory=lambda: ["a"])

    def function(tags: list[str] = made) -> Any:
        return tags

    signature = Signature(function)
    assert signature.schema["properties"]["tags"]["default"] == ["a"]
    assert "required" not in signature.schema
    assert signature.call(signature.decode(b"{}"), None) == ["a"]


def test_a_default_in_the_annotation_overrides_the_parameter_default_in_the_schema() -> None:
    kind = Annotated[list[int], pydantic.Field(json_schema_extra={"default": [7]})]
    assert schema_of(kind, [3])["default"] == [7]
    assert schema_of(list[int], [3])["default"] == [3]


def make_resource() -> int:
    return 1


@pytest.mark.parametrize("form", ["default", "annotation"])
@pytest.mark.parametrize("library", ["fastmcp", "mcp"])
def test_a_dependency_of_another_library_is_not_a_parameter(library: str, form: str) -> None:
    if library == "fastmcp":
        dependency: Any = pytest.importorskip("fastmcp.dependencies").Depends(make_resource)
    else:
        sdk = pytest.importorskip("mcp.server.mcpserver", reason="the official SDK 2.x")
        dependency = sdk.Resolve(make_resource)

    def by_default(pool: int = dependency) -> int:
        return pool

    def by_annotation(pool: Annotated[int, dependency]) -> int:
        return pool

    with pytest.raises(TypeError) as failed:
        MCPServer("s").tool(by_default if form == "default" else by_annotation)
    assert str(failed.value).endswith(
        "parameter 'pool' is a dependency, and dependencies are not injected: yield the value "
        "from `lifespan=` of the server, and use `ctx.state`"
    )
