"""Forms for questions to a person, and the answers that fit them."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.server.context.elicitation_forms import ElicitationForm

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "x": {"type": "number"}},
    "required": ["n"],
}


@dataclass
class Person:
    name: str
    age: int = 0


def accepted(content: Any) -> Raw:
    return Raw(json.dumps({"action": "accept", "content": content}).encode())


@pytest.mark.parametrize(
    ("kind", "content", "data"),
    [
        (SCHEMA, {"n": 1}, {"n": 1}),
        (SCHEMA, {"n": "2"}, {"n": 2}),
        (Person, {"name": "Ada", "age": "3"}, Person("Ada", 3)),
        (bool, {"value": True}, True),
        (Literal["a", "b"], {"value": "b"}, "b"),
    ],
    ids=["schema", "text for a number", "record", "plain", "choice"],
)
def test_an_answer_that_fits_is_read(kind: Any, content: Any, data: Any) -> None:
    answer = ElicitationForm(kind).read(accepted(content))
    assert (answer.action, answer.data) == ("accept", data)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (SCHEMA, {"n": "many"}),
        (SCHEMA, {}),
        (SCHEMA, {"n": 1, "x": "nan"}),
        (Person, {"age": 3}),
        (float, {"value": "inf"}),
        (bool, None),
    ],
    ids=["wrong", "missing", "not a number", "record", "infinite", "empty"],
)
def test_an_answer_that_does_not_fit_is_refused(kind: Any, content: Any) -> None:
    with pytest.raises(RpcError) as refused:
        ElicitationForm(kind).read(accepted(content))
    assert refused.value.code == -32602
    assert refused.value.message.startswith("The answer does not fit the question: ")


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_an_answer_may_be_none(action: str) -> None:
    answer = ElicitationForm(SCHEMA).read(Raw(b'{"action":"%b"}' % action.encode()))
    assert (answer.action, answer.data) == (action, None)


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="a form needs a JSON Schema"):
        ElicitationForm({"type": "no such type"})
