"""Tests of action options: types, missing options and error messages."""

from typing import Any, Literal

import pytest

from fairlead.interceptor import InterceptorBase
from fairlead.policy.rules.build_actions import (
    Action,
    ActionBuilder,
    ActionContext,
    canonical_json,
    parse_actions,
)

Place = tuple[Any, ...]


class Thing(InterceptorBase):
    """An action with one option of each type."""

    def __init__(
        self,
        text: str,
        count: int = 1,
        *,
        share: float = 0.5,
        on: bool = False,
        kind: Literal["a", "b"] = "a",
        names: list[str] | None = None,
        numbers: list[int] | None = None,
        either: int | str | None = None,
        table: dict[str, int] | None = None,
        folder: str = "",
        clock: Any = None,
        known: Any = None,
        answers: bool = False,
    ) -> None:
        self.given = {name: value for name, value in locals().items() if name[0] not in "_s"}
        self.share = share


class Plain(InterceptorBase):
    """An action without options."""

    def __init__(self) -> None:
        pass


def make(
    name: str, given: Any, *, answers: bool = False, **about: Any
) -> tuple[Action | None, list[tuple[Place, str]]]:
    told: list[tuple[Place, str]] = []
    context = ActionContext(actions={"thing": Thing, "plain": Plain, "cache": Plain}, **about)
    builder = ActionBuilder(context, lambda where, why: told.append((where, why)), answers=answers)
    return builder.make(name, given, ("do",)), told


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("text", 1, "a string, not a number"),
        ("count", 1.5, "an integer, not a number"),
        ("count", True, "an integer, not true or false"),
        ("share", "y", "a number, not a string"),
        ("share", float("inf"), "a number, not inf"),
        ("on", {}, "true or false, not a map"),
        ("kind", "c", '"a" or "b"'),
        ("names", "y", "a list of strings, not a string"),
        ("numbers", ["y"], "a list of an integer, not a list"),
        ("either", [], "an integer or a string, not a list"),
        ("table", 1, "a map, not a number"),
    ],
)
def test_an_invalid_value_is_reported_with_the_expected_type(
    name: str, value: Any, expected: str
) -> None:
    told = [(("do", name), f"`{name}` of `thing` must be {expected}")]
    assert make("thing", {"text": "x", name: value}) == (None, told)


@pytest.mark.parametrize(
    ("given", "where", "why"),
    [
        (5, ("do",), "`text` of `thing` must be a string, not a number"),
        ([], ("do",), "`text` of `thing` must be a string, not a list"),
        ({"count": 1}, ("do",), "`thing` requires `text`"),
        (None, ("do",), "`thing` requires `text`"),
        (True, ("do",), "`thing` requires `text`"),
        (
            {"text": "x", "cuont": 1},
            ("do", "cuont"),
            "unknown option of `thing` 'cuont': did you mean 'count'?",
        ),
    ],
)
def test_a_missing_or_unknown_option_of_an_action_is_reported(
    given: Any, where: Place, why: str
) -> None:
    assert make("thing", given) == (None, [(where, why)])


def test_every_invalid_option_of_an_action_is_reported() -> None:
    made, told = make("thing", {"nothing": 1, "count": "x", "on": 3})
    assert made is None
    assert [where for where, _ in told] == [("do", "nothing"), ("do", "count"), ("do", "on")]


@pytest.mark.parametrize(
    ("given", "where"), [(5, ("do",)), ({"x": 1}, ("do", "x"))], ids=["short", "map"]
)
def test_an_action_without_options_rejects_options(given: Any, where: Place) -> None:
    assert make("plain", given) == (None, [(where, "`plain` takes no options")])
    for nothing in (None, True, {}):
        made, told = make("plain", nothing)
        assert (str(made), told) == ("plain", [])


def test_an_unknown_action_or_one_that_is_unsuitable_for_responses_is_reported() -> None:
    assert make("thng", {}) == (
        *(None, [(("do",), "unknown action 'thng': did you mean 'thing'?")]),
    )
    late = "`cache` cannot be used in a rule about responses"
    assert make("cache", {}, answers=True) == (None, [(("do",), late)])
    assert make("cache", {})[1] == []


def test_context_values_are_passed_to_factories_that_accept_them() -> None:
    def clock() -> float:
        return 1.0

    made, _ = make("thing", "x", answers=True, folder="here", clock=clock)
    assert made is not None
    assert isinstance(made.bare, Thing)
    given = made.bare.given
    assert (given["text"], given["folder"], given["clock"], given["answers"], given["known"]) == (
        *("x", "here", clock, True, None),
    )
    assert made.options == {"text": "x"}
    assert made.interceptor is made.bare


@pytest.mark.parametrize(
    ("error", "why"), [(ValueError("odd"), "`bad`: odd"), (OSError("full"), "`bad`: full")]
)
def test_an_exception_of_an_action_factory_is_reported_as_a_mistake(
    error: Exception, why: str
) -> None:
    def bad() -> InterceptorBase:
        raise error

    told: list[Any] = []
    builder = ActionBuilder(ActionContext(actions={"bad": bad}), lambda *one: told.append(one))
    assert builder.make("bad", None, ("do", 1)) is None
    assert told == [(("do", 1), why)]


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("block", [("block", None, ("do",))]),
        ({"a": 1, "b": None}, [("a", 1, ("do", "a")), ("b", None, ("do", "b"))]),
        (["a", {"b": 2}], [("a", None, ("do", 0)), ("b", 2, ("do", 1, "b"))]),
        ([["a"]], [("a", None, ("do", 0, 0))]),
    ],
)
def test_actions_can_be_given_as_a_name_a_map_or_a_list(raw: Any, found: Any) -> None:
    told: list[Any] = []
    assert parse_actions(raw, ("do",), lambda *one: told.append(one)) == found
    assert told == []


@pytest.mark.parametrize(
    ("raw", "where"),
    [({}, ("do",)), ([], ("do",)), (5, ("do",)), (None, ("do",)), (["a", 5], ("do", 1))],
)
def test_a_value_that_is_not_an_action_is_reported(raw: Any, where: Place) -> None:
    told: list[Any] = []
    parse_actions(raw, ("do",), lambda *one: told.append(one))
    assert told == [(where, 'expected an action, such as "block" or { delay = 2 }')]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, "x"),
        ({"a": "text", "b": [1, True]}, "x (a: text, b: [1,true])"),
        ({"a": "y" * 60}, f"x (a: {'y' * 60})"),
        ({"a": "y" * 61}, f"x (a: {'y' * 60}…)"),
    ],
)
def test_the_text_of_an_action_contains_its_options(options: dict[str, Any], shown: str) -> None:
    plain = Plain()
    assert str(Action("x", options, plain, plain, plain)) == shown


def test_equal_values_have_the_same_canonical_json() -> None:
    assert canonical_json({"b": 1, "a": 2}) == canonical_json({"a": 2, "b": 1})
    assert canonical_json({"a": 1}) != canonical_json({"a": 2})
    odd = object()
    assert canonical_json(odd) == repr(odd).encode()
