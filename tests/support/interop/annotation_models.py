"""Models of pydantic for comparisons with the official Python SDK."""

import datetime
import decimal
import pathlib
import uuid
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
)

from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    PrivateAttr,
    RootModel,
    SecretStr,
    alias_generators,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
)
from pydantic import dataclasses as pdc

from .annotation_classes import Color, T


class Person(BaseModel):
    """A person."""

    name: str
    age: int = Field(3, ge=0, description="in years")
    email: str | None = None


class OpenModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Forbid(BaseModel):
    model_config = ConfigDict(extra="forbid", title="Other title", frozen=True)
    a: int


class AliasM(BaseModel):
    full_name: str = Field(alias="fullName")


class SerAlias(BaseModel):
    full_name: str = Field(serialization_alias="fullName")


class ValAlias(BaseModel):
    full_name: str = Field(validation_alias="fullName")


class GenAlias(BaseModel):
    model_config = ConfigDict(alias_generator=alias_generators.to_camel, populate_by_name=True)
    full_name: str
    last_seen: datetime.datetime | None = None


class Excl(BaseModel):
    a: int = 1
    secret: str = Field("s", exclude=True)


class Priv(BaseModel):
    a: int = 1
    _b: int = PrivateAttr(2)


class Comp(BaseModel):
    w: int

    @computed_field
    @property
    def area(self) -> int:
        return self.w**2


class Ser(BaseModel):
    w: int

    @field_serializer("w")
    def s(self, v) -> str:
        return f"{v}!"


class MSer(BaseModel):
    w: int

    @model_serializer
    def s(self) -> dict[str, Any]:
        return {"q": self.w}


class Val(BaseModel):
    w: int

    @field_validator("w")
    @classmethod
    def v(cls, x):
        return x + 1


class Types(BaseModel):
    a: datetime.datetime
    b: datetime.timedelta
    c: decimal.Decimal
    d: bytes
    e: uuid.UUID
    f: pathlib.Path
    g: Color
    h: set[int]
    i: tuple[int, str]
    j: Literal["a", "b"]
    k: float


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "rex"


class Zoo(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []


class Root(RootModel[list[int]]):
    pass


class RootD(RootModel[dict[str, int]]):
    pass


class RootS(RootModel[str]):
    pass


class Tree(BaseModel):
    value: int
    branches: list["Tree"] = []


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int


class Nest(BaseModel):
    people: list[Person]
    by: dict[str, Person]
    maybe: Person | None = None


class SecretModel(BaseModel):
    a: SecretStr


class Urls(BaseModel):
    a: AnyUrl
    b: HttpUrl | None = None


class EmptyM(BaseModel):
    pass


class Dep(BaseModel):
    a: int = Field(1, deprecated=True, examples=[1, 2], title="T", json_schema_extra={"x-a": 1})


class StrictModel(BaseModel):
    model_config = ConfigDict(strict=True)
    a: float


class UseVals(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    c: Color = Color.RED


@pdc.dataclass
class PD:
    a: int
    b: str = Field("x", description="b")


@pdc.dataclass(config=ConfigDict(extra="forbid"))
class PDForbid:
    a: int
