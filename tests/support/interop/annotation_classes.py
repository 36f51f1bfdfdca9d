"""Classes and type aliases for comparisons with the official Python SDK."""
# ruff: noqa: UP045 - the old forms are compared, too

import collections
import datetime
import decimal
import enum
import pathlib
import uuid
from dataclasses import InitVar, dataclass, field
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import typing_extensions as te
from pydantic import (
    ConfigDict,
    Field,
)

T = TypeVar("T")
K = TypeVar("K")
B = TypeVar("B", bound=int)
C = TypeVar("C", int, str)
D = te.TypeVar("D", default=int)
UserId = NewType("UserId", int)
Name = NewType("Name", str)
Ids = NewType("Ids", list[int])
WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
UTC = WHEN.replace(tzinfo=datetime.UTC)
OFF = WHEN.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
ID = uuid.UUID(int=5)


class Color(enum.Enum):
    """Colors of the rainbow."""

    RED = "red"
    BLUE = "blue"


class Plain(enum.Enum):
    A = "a"
    B = "b"


class Str(enum.StrEnum):
    A = "a"
    B = "b"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Flags(enum.IntFlag):
    R = 1
    W = 2


class Flag(enum.Flag):
    R = 1
    W = 2


class One(enum.Enum):
    ONLY = "only"


class Floats(enum.Enum):
    A = 1.5
    B = 2.5


class WithNone(enum.Enum):
    A = None
    B = "b"


class Tup(enum.Enum):
    A = (1, 2)
    B = (3, 4)


class Bools(enum.Enum):
    YES = True
    NO = False


class Auto(enum.Enum):
    A = enum.auto()
    B = enum.auto()


@dataclass
class Point:
    x: int
    y: float = 0.5


@dataclass
class Point3(Point):
    z: int = 0


@dataclass(slots=True)
class Slot:
    x: int
    y: str = "a"


@dataclass(kw_only=True)
class Kw:
    a: int = 1
    b: str


@dataclass
class Hidden:
    a: int
    _b: int = 2
    c: ClassVar[int] = 3
    d: int = field(init=False, default=4)


@dataclass
class InitVars:
    a: int
    b: InitVar[int] = 3


@dataclass
class Opt:
    a: int | None
    b: Optional[str] = None
    c: list[int] | None = field(default_factory=list)


@dataclass
class Factory:
    a: dict[str, int] = field(default_factory=dict)
    b: Point = field(default_factory=lambda: Point(1))


@dataclass
class Defaults:
    a: datetime.date = datetime.date(2026, 1, 2)
    b: Color = Color.RED
    c: decimal.Decimal = decimal.Decimal("1.5")
    d: bytes = b"a"
    e: tuple[int, ...] = (1, 2)
    f: frozenset[int] = frozenset({1})
    g: Any = None
    h: float = 1
    i: pathlib.Path = pathlib.Path("/a")
    j: uuid.UUID = ID


@dataclass
class Meta:
    a: Annotated[int, Field(ge=1, description="a")]
    b: Annotated[str, "comment"] = "x"
    c: int = field(default=1, metadata={"description": "hi"})


@dataclass
class AField:
    a: int = Field(default=1, description="a")
    b: list[int] = Field(default_factory=list)  # noqa: RUF009 - pydantic's field is the subject


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class IntBox(Box[int]):
    more: str = "a"


@dataclass
class Two(Generic[T, K]):
    a: T
    b: list[K]


@dataclass
class Node:
    value: int
    children: "list[Node]" = field(default_factory=list)


@dataclass
class Linked:
    value: int
    next: "Linked | None" = None


@dataclass
class Outer:
    """Outer doc."""

    point: Point
    points: list[Point]
    by_name: dict[str, Point]
    color: Color
    either: Point | Slot
    maybe: Point | None = None


@dataclass
class Empty:
    pass


@dataclass(frozen=True)
class Fancy:
    """
    A text of
    two lines.

    More.
    """

    x: int


class Post:
    a: int

    def __init__(self, a):
        self.a = a


class Slots:
    __slots__ = ("a", "b")
    a: int
    b: str

    def __init__(self, a, b):
        self.a = a
        self.b = b


class Props:
    @property
    def a(self) -> int:
        return 1


class NoHints:
    def __init__(self):
        self.a = 1


class Sub(Post):
    b: str = "x"


class Und:
    _a: int = 1
    b: ClassVar[int] = 2


class GenC(Generic[T]):
    a: T

    def __init__(self, a):
        self.a = a


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Partial(TypedDict, total=False):
    a: int
    b: Required[str]


class Inherit(Movie, total=False):
    stars: int


class TeMovie(te.TypedDict):
    """A film."""

    title: te.Required[Annotated[str, Field(min_length=1)]]
    year: te.NotRequired[int]


class TeRO(te.TypedDict):
    a: te.ReadOnly[int]


class TeQuoted(te.TypedDict, total=False):
    """Annotations as `from __future__ import annotations` stores them."""

    a: "te.Required[int]"
    b: "te.NotRequired[list[TeQuoted]]"
    c: "Annotated[te.NotRequired[int], 'a number']"


class TeMoreQuoted(TeQuoted):
    d: "te.NotRequired[int]"
    e: int


class TeNested(te.TypedDict):
    movie: TeMovie
    movies: list[TeMovie]


class TeRec(te.TypedDict):
    a: int
    kids: "list[TeRec]"


class TePoint(te.TypedDict):
    p: Point
    c: Color


class Nested(TypedDict):
    movie: Movie


class GenTD(te.TypedDict, Generic[T]):
    item: T


Func = te.TypedDict("Func", {"a-b": int, "class": str})
StdFunc = TypedDict("StdFunc", {"a-b": int, "in": str})


class EmptyTD(te.TypedDict):
    pass


class Closed(te.TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")
    a: int


class Coord(NamedTuple):
    x: int
    name: str = "here"


class Coord0(NamedTuple):
    pass


class CoordC(NamedTuple):
    """Doc."""

    c: Color
    p: Point | None = None


OldNT = collections.namedtuple("OldNT", "a b")
OldNTD = collections.namedtuple("OldNTD", "a b", defaults=[1])


class GenNT(NamedTuple, Generic[T]):
    a: T


class Proto(Protocol):
    a: int


class Abc:
    a: int = 1


class Impl(Abc):
    b: str = "q"


class StrSub(str):
    pass


class IntSub(int):
    pass


class DictSub(dict):
    pass


class DictSubT(dict[str, int]):
    pass


class ListSub(list[int]):
    pass


class Ex(Exception):
    pass


JsonAlias: TypeAlias = "dict[str, Any] | list[Any] | str"
Alias1 = te.TypeAliasType("Alias1", list[int])
AliasRec = te.TypeAliasType("AliasRec", "int | list[AliasRec]")
AliasD = te.TypeAliasType("AliasD", dict[str, int])
AliasG = te.TypeAliasType("AliasG", list[T], type_params=(T,))


def late():
    pass
