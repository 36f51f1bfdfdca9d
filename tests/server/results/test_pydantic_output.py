"""Tests of encoding return values whose types contain pydantic types."""

from dataclasses import dataclass
from typing import Annotated, Any

import pydantic
import pytest

from fairlead.server.results.pydantic_output import PydanticOutput, contains_pydantic_type


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(serialization_alias="fullName")


class Team(pydantic.BaseModel):
    members: list[Person] = []
    parts: "list[Team]" = []


@dataclass
class Holder:
    team: Team


@dataclass
class Node:
    parts: "list[Node]"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Person, True),
        (dict[str, list[Person]], True),
        (Holder | None, True),
        (Annotated[int, pydantic.Field(ge=1)], True),
        (pydantic.AnyUrl, True),
        (Node, False),
        (list[Node] | int, False),
        (Any, False),
    ],
)
def test_pydantic_types_are_found_at_any_depth(kind: Any, expected: bool) -> None:
    assert contains_pydantic_type(kind) is expected


def test_output_schema_and_results_use_the_same_member_names() -> None:
    output = PydanticOutput(list[Person], wrapped=True)
    assert output.schema["$defs"]["Person"]["properties"].keys() == {"fullName"}
    assert (
        output.encode([Person(name="a"), {"name": "b"}]) == b'[{"fullName":"a"},{"fullName":"b"}]'
    )


def test_the_root_of_a_recursive_model_is_an_object() -> None:
    output = PydanticOutput(Team, wrapped=False)
    assert output.schema["type"] == "object"
    assert output.schema["$defs"].keys() == {"Team", "Person"}
    output.warm_up()


def test_a_type_that_pydantic_does_not_support_is_rejected() -> None:
    with pytest.raises(TypeError, match="Unable to generate"):
        PydanticOutput(type("Other", (), {}), wrapped=False)
