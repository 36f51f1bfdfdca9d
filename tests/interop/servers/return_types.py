"""Tools with many return types, served by the official Python SDK or by Fairlead.

Each row is a return annotation and the value that its tool returns. Content types differ between
the two, so rows with them have a pair of annotations, ours first.
"""

import collections
import datetime
import decimal
import enum
import ipaddress
import pathlib
import sys
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import annotated_types
import mcp_types
import typing_extensions
from mcp.server import MCPServer as OfficialServer
from mcp.server.mcpserver import Image as OfficialImage
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, RootModel, computed_field

import fairlead
from fairlead.protocol.types.content import TextContent
from fairlead.protocol.types.tools import CallToolResult
from fairlead.server import Image

T = TypeVar("T")
UserId = NewType("UserId", int)
WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
UTC = WHEN.replace(tzinfo=datetime.UTC)
ID = uuid.UUID(int=5)


class Color(enum.Enum):
    """Colors of the rainbow."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mixed(enum.Enum):
    NUMBER = 1
    TEXT = "b"


class Code(str, enum.Enum):  # noqa: UP042 - str() must differ from the value
    A = "a"


class Coordinates(NamedTuple):
    x: int
    name: str = "here"


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass
class Place:
    """A place with a name."""

    name: str
    tags: list[str] = field(default_factory=list)
    where: Point | None = None


@dataclass
class Node:
    value: int
    children: "list[Node]" = field(default_factory=list)


@dataclass
class Box(Generic[T]):
    item: T


@dataclass(frozen=True)
class Order:
    when: datetime.datetime
    color: Color
    price: decimal.Decimal
    data: bytes
    path: pathlib.Path
    number: uuid.UUID
    duration: datetime.timedelta
    mode: Literal["a", "b"] = "a"
    pair: tuple[int, str] = (1, "a")
    points: dict[str, Point] = field(default_factory=dict)


@dataclass
class Owner:
    person: "Person"
    count: Annotated[int, Field(ge=1)] = 1


class Movie(TypedDict):
    title: str
    year: typing.NotRequired[int]


class Film(typing_extensions.TypedDict):
    """A film."""

    title: str
    year: typing_extensions.NotRequired[Annotated[int, Field(description="of its release")]]


class Options(TypedDict, total=False):
    """Options with default values."""

    depth: int
    name: str | None


class Person(BaseModel):
    """A person."""

    name: str
    age: int = Field(3, ge=0, description="in years")
    email: str | None = None


class Employee(Person):
    salary: int = 1


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    full_name: str = Field(alias="fullName")


class Tree(BaseModel):
    value: int
    branches: list["Tree"] = []


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int


class Square(BaseModel):
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Numbers(RootModel[list[int]]):
    pass


class Annotated_:
    """A class with annotations that is not a dataclass."""

    name: str
    size: int = 3

    def __init__(self, name: str) -> None:
        self.name = name


class Pair(NamedTuple):
    """Annotations and values for Fairlead and for the official SDK."""

    ours: tuple[Any, Any]
    official: tuple[Any, Any]


MISSING = object()
PIXEL = bytes.fromhex("89504e470d0a1a0a")

ROWS: dict[str, Any] = {
    "no_annotation": (MISSING, 1),
    # Plain values
    "int": (int, 1),
    "str": (str, "grüß"),
    "float": (float, 1.5),
    "float_of_an_integer": (float, 1),
    "bool": (bool, True),
    "bytes": (bytes, b"abc"),
    "none": (None, None),
    "any": (Any, {"a": 1}),
    "object": (object, {"a": 1}),
    "text_subclass": (str, Code.A),
    "new_type": (UserId, UserId(4)),
    "type_variable": (T, 1),
    # Arrays
    "bare_list": (list, [1]),
    "bare_tuple": (tuple, (1,)),
    "bare_set": (set, {1}),
    "list_of_int": (list[int], [1, 2]),
    "empty_list": (list[int], []),
    "list_of_str": (list[str], ["a"]),
    "typing_list": (typing.List[int], [1]),  # noqa: UP006
    "nested_lists": (list[list[int]], [[1]]),
    "list_of_any": (list[Any], [1, "a"]),
    "list_of_dict": (list[dict], [{"a": 1}]),  # type: ignore[type-arg]
    "list_of_records": (list[dict[str, Any]], [{"a": 1}]),
    "fixed_tuple": (tuple[int, str], (1, "a")),
    "open_tuple": (tuple[int, ...], (1, 2)),
    "empty_tuple": (tuple[()], ()),
    "list_of_tuples": (list[tuple[int, str]], [(1, "a")]),
    "set_of_int": (set[int], {1}),
    "frozenset_of_str": (frozenset[str], frozenset({"a"})),
    "sequence": (Sequence[int], [1, 2]),
    "iterable": (Iterable[int], [1]),
    "deque": (collections.deque[int], collections.deque([1])),
    # Mappings
    "bare_dict": (dict, {"a": 1}),
    "dict_of_int": (dict[str, int], {"a": 1}),
    "dict_of_any": (dict[str, Any], {"a": 1}),
    "dict_of_object": (dict[str, object], {"a": 1}),
    "dict_of_lists": (dict[str, list[int]], {"a": [1]}),
    "dict_of_union": (dict[str, int | str], {"a": 1, "b": "c"}),
    "dict_by_int": (dict[int, str], {1: "a"}),
    "dict_by_uuid": (dict[uuid.UUID, int], {ID: 1}),
    "dict_by_enum": (dict[Color, int], {Color.RED: 1}),
    "dict_by_literal": (dict[Literal["a", "b"], int], {"a": 1}),
    "typing_dict": (typing.Dict[str, int], {"a": 1}),  # noqa: UP006
    "mapping": (Mapping[str, int], {"a": 1}),
    "ordered_dict": (collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    "counter": (collections.Counter[str], collections.Counter("aab")),
    # Unions
    "union": (int | str, "a"),
    "union_with_none": (typing.Union[int, str, None], None),  # noqa: UP007
    "optional": (typing.Optional[int], None),  # noqa: UP045
    "optional_with_a_value": (int | None, 3),
    "optional_dict": (dict[str, int] | None, {"a": 1}),
    "optional_bare_dict": (dict | None, None),
    "list_or_text": (list[int] | str, [1]),
    "optional_model": (Person | None, Person(name="a")),
    "model_or_dataclass": (Person | Point, Point(1)),
    "optional_dataclass": (Point | None, Point(2)),
    "optional_enum": (Color | None, Color.RED),
    # Classes
    "dataclass": (Point, Point(1, 2.5)),
    "dataclass_with_a_dataclass": (Place, Place("a", ["b"], Point(1))),
    "dataclass_of_many_types": (
        Order,
        Order(
            UTC,
            Color.RED,
            decimal.Decimal("1.50"),
            b"x",
            pathlib.Path("/a"),
            ID,
            datetime.timedelta(days=400, hours=2, microseconds=5),
        ),
    ),
    "dataclass_with_a_model": (Owner, Owner(Person(name="a"))),
    "dataclass_from_a_dict": (Point, {"x": 1, "z": 2}),
    "dataclasses": (list[Point], [Point(1)]),
    "described_dataclasses": (list[Place], [Place("a")]),
    "dict_of_dataclasses": (dict[str, Point], {"a": Point(1)}),
    "recursive_dataclass": (Node, Node(1, [Node(2)])),
    "recursive_dataclasses": (list[Node], [Node(1)]),
    "generic_dataclass": (Box[int], Box(1)),
    "typed_dict": (Movie, {"title": "a"}),
    "partial_typed_dict": (Options, {"depth": 1}),
    "described_typed_dict": (Film, {"title": "a", "year": 1}),
    "typed_dicts": (list[Film], [{"title": "a"}]),
    "typed_dict_with_other_keys": (Film, {"title": "a", "other": 1}),
    "model": (Person, Person(name="a")),
    "model_subclass": (Person, Employee(name="a")),
    "model_from_a_dict": (Person, {"name": "a"}),
    "models": (list[Person], [Person(name="a")]),
    "dict_of_models": (dict[str, Person], {"a": Person(name="a")}),
    "aliased_model": (Aliased, Aliased(full_name="x")),
    "aliased_models": (list[Aliased], [Aliased(full_name="x")]),
    "recursive_model": (Tree, Tree(value=1, branches=[Tree(value=2)])),
    "generic_model": (Page[int], Page[int](items=[1], total=1)),
    "computed_field": (Square, Square(width=2)),
    "models_of_lists": (list[Numbers], [Numbers([1])]),
    "named_tuple": (Coordinates, Coordinates(1)),
    "named_tuples": (list[Coordinates], [Coordinates(1, "b")]),
    "annotated_class": (Annotated_, Annotated_("a")),
    # Fixed values
    "enum": (Color, Color.RED),
    "enums": (list[Color], [Color.RED]),
    "enums_of_int": (list[Size], [Size.SMALL]),
    "enums_of_both": (list[Mixed], [Mixed.TEXT]),
    "enums_of_text": (list[Code], [Code.A]),
    "literal": (Literal["a", "b"], "a"),
    "single_literal": (Literal["a"], "a"),
    "literal_of_int": (Literal[1, 2], 1),
    "literal_of_both": (Literal[1, "a", None], None),
    "literal_of_bool": (Literal[True], True),
    "literal_of_enum": (Literal[Color.RED], Color.RED),
    # Other types of the standard library
    "datetime": (datetime.datetime, WHEN),
    "date": (datetime.date, WHEN.date()),
    "decimal": (decimal.Decimal, decimal.Decimal("1.5")),
    "uuid": (uuid.UUID, ID),
    "path": (pathlib.Path, pathlib.Path("/a")),
    "datetimes": (list[datetime.datetime], [WHEN, UTC]),
    "dates": (list[datetime.date], [WHEN.date()]),
    "times": (list[datetime.time], [WHEN.time()]),
    "durations": (
        list[datetime.timedelta],
        [
            datetime.timedelta(days=1, hours=2, microseconds=5),
            datetime.timedelta(seconds=-3),
            datetime.timedelta(0),
        ],
    ),
    "decimals": (list[decimal.Decimal], [decimal.Decimal("1.50")]),
    "uuids": (list[uuid.UUID], [ID]),
    "paths": (list[pathlib.Path], [pathlib.Path("/a")]),
    "list_of_bytes": (list[bytes], [b"a"]),
    "addresses": (list[ipaddress.IPv4Address], [ipaddress.IPv4Address("1.2.3.4")]),
    # Annotations
    "limited": (Annotated[int, Field(ge=1, description="a count")], 3),
    "commented": (Annotated[str, "a comment"], "x"),
    "limited_list": (Annotated[list[int], Field(min_length=1)], [1]),
    "limited_items": (list[Annotated[int, Field(gt=0)]], [1]),
    "annotated_model": (Annotated[Person, "a comment"], Person(name="a")),
    "annotated_dict": (Annotated[dict[str, int], Field(description="d")], {"a": 1}),
    "annotated_types": (Annotated[int, annotated_types.Ge(1), annotated_types.Lt(9)], 3),
    "limited_text": (Annotated[str, Field(min_length=1, max_length=5, pattern="^a")], "ab"),
    "annotated_optional": (Annotated[int | None, Field(description="maybe")], None),
    "positive": (list[PositiveInt], [3]),
    # Values whose types differ from the declared types
    "number_in_text": (int, "5"),
    "whole_float": (int, 1.0),
    "tuple_as_list": (list[int], (1, 2)),
    "set_as_list": (list[int], {1}),
    "number_for_text": (str, 5),
    "text_for_number": (list[int], ["x"]),
    "text_for_optional": (int | None, "x"),
    "value_for_none": (None, 5),
    "none_for_text": (str, None),
    # Content
    "content_block": Pair(
        (TextContent, TextContent(text="a")),
        (mcp_types.TextContent, mcp_types.TextContent(type="text", text="a")),
    ),
    "content_blocks": Pair(
        (list[TextContent], [TextContent(text="a")]),
        (list[mcp_types.TextContent], [mcp_types.TextContent(type="text", text="a")]),
    ),
    "image": Pair((Image, Image(PIXEL)), (OfficialImage, OfficialImage(data=PIXEL, format="png"))),
    "image_or_text": Pair((Image | str, "a"), (OfficialImage | str, "a")),
    "complete_result": Pair(
        (CallToolResult, CallToolResult(content=[])),
        (mcp_types.CallToolResult, mcp_types.CallToolResult(content=[])),
    ),
}


def tool_of(annotation: Any, value: Any) -> Callable[[], Any]:
    def tool() -> Any:
        return value

    if annotation is MISSING:
        del tool.__annotations__["return"]
    else:
        tool.__annotations__["return"] = annotation
    return tool


def main(kind: str) -> None:
    official = OfficialServer("official", log_level="CRITICAL")
    ours = fairlead.MCPServer("ours", rate_limit_rate=0, page_size=1000)
    for name, row in ROWS.items():
        if isinstance(row, Pair):
            row = row.ours if kind == "ours" else row.official
        if kind == "ours":
            ours.tool(name)(tool_of(*row))
        else:
            official.tool(name)(tool_of(*row))
    (ours if kind == "ours" else official).run()


if __name__ == "__main__":
    main(sys.argv[1])
