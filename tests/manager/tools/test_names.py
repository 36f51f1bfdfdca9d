"""Tests of unique names for the tools of many servers."""

import re

import pytest

from fairlead.protocol.targets.unique_names import MAX_NAME, assign_names, tool_names


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
def test_tool_names_have_plain_characters_and_contain_the_server_once(
    server: str, tool: str, name: str
) -> None:
    assert tool_names(server, [tool]) == [name]


@pytest.mark.covers("HST-50")
def test_long_tool_names_end_in_a_stable_hash() -> None:
    names = tool_names("server", ["t" * 100, "t" * 101])
    assert [len(name) for name in names] == [MAX_NAME, MAX_NAME]
    assert names == tool_names("server", ["t" * 100, "t" * 101])
    assert names[0] != names[1]


@pytest.mark.covers("HST-51")
def test_in_a_name_conflict_the_tool_whose_name_needs_no_change_keeps_it() -> None:
    names = assign_names({"mcp_my_server_x": [("my server", "x"), ("my_server", "x")]})
    assert names["my_server", "x"] == "mcp_my_server_x"
    assert re.fullmatch(r"mcp_my_server_x_[0-9a-f]{8}", names["my server", "x"])


@pytest.mark.covers("HST-51")
def test_a_name_suffix_that_is_already_used_is_not_assigned() -> None:
    wanted = {"mcp_a_b_x": [("a b", "x"), ("a_b", "x")]}
    guessed = assign_names(wanted)["a b", "x"]
    names = assign_names(wanted, taken={guessed})
    assert names["a b", "x"] not in ("mcp_a_b_x", guessed)
    assert len(names["a b", "x"]) <= MAX_NAME
