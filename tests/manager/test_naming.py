"""Names for the tools of many servers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.manager.naming import MAX_NAME, assign_names, tool_name

PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@pytest.mark.covers("HST-50")
@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("time", "now", "mcp_time_now"),
        ("my server", "do it!", "mcp_my_server_do_it"),
        ("github", "github_search", "mcp_github_search"),
        ("github", "github-search", "mcp_github_search"),
        ("github", "github", "mcp_github_github"),
        ("a", "a_a_b", "mcp_a_a_b"),
        ("日本", "🙂", "mcp____"),
    ],
)
def test_names_are_plain_and_say_the_server_once(server: str, tool: str, name: str) -> None:
    assert tool_name(server, tool) == name


@pytest.mark.covers("HST-50")
def test_long_names_end_in_a_hash_that_stays() -> None:
    name = tool_name("server", "t" * 100)
    assert len(name) == MAX_NAME
    assert name == tool_name("server", "t" * 100)
    assert name != tool_name("server", "t" * 101)


@pytest.mark.covers("HST-51")
@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))),
    st.randoms(),
)
def test_every_tool_has_a_name_of_its_own_whatever_the_order(
    pairs: list[tuple[str, str]], random: "object"
) -> None:
    names = assign_names(pairs)
    assert len(set(names.values())) == len(set(pairs))
    assert all(PLAIN.fullmatch(name) for name in names.values())
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign_names(shuffled) == names


@pytest.mark.covers("HST-51")
def test_the_one_that_needed_no_change_keeps_the_name() -> None:
    names = assign_names([("my server", "x"), ("my_server", "x")])
    assert names["my_server", "x"] == "mcp_my_server_x"
    assert re.fullmatch(r"mcp_my_server_x_[0-9a-f]{8}", names["my server", "x"])
