"""Tests of unique tool and prompt names in the merged list of several servers."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.protocol.targets.unique_names import (
    MAX_NAME,
    assign_names,
    may_belong_to,
    merge_names,
    tool_names,
)

TAILED = re.compile(r"a_b_c_[0-9a-f]{8}")


def one(server: str, name: str) -> str:
    return merge_names([(server, name)])[server, name]


@pytest.mark.parametrize(
    ("server", "name", "merged"),
    [
        ("time", "now", "time_now"),
        ("my server!", "now", "my_server_now"),
        ("a-b", "c", "a-b_c"),
        ("日本", "now", "__now"),
        ("files", "read.text", "files_read.text"),
    ],
)
def test_a_merged_name_starts_with_the_server_name_in_plain_characters(
    server: str, name: str, merged: str
) -> None:
    assert one(server, name) == merged


def test_a_long_merged_name_ends_in_a_stable_hash() -> None:
    name = one("server", "t" * 100)
    assert len(name) == MAX_NAME
    assert re.search(r"_[0-9a-f]{8}$", name)
    assert name == one("server", "t" * 100)
    assert name != one("server", "t" * 101)
    assert one("s", "t" * 62) == "s_" + "t" * 62


def test_two_equal_merged_names_both_get_a_suffix() -> None:
    names = merge_names([("a", "b_c"), ("a_b", "c"), ("a_b", "d")])
    assert names["a_b", "d"] == "a_b_d"
    assert TAILED.fullmatch(names["a", "b_c"])
    assert TAILED.fullmatch(names["a_b", "c"])
    assert names["a", "b_c"] != names["a_b", "c"]


def test_a_tool_named_like_the_merged_name_of_another_tool_does_not_replace_it() -> None:
    rivals = [("a", "b_c"), ("a_b", "c")]
    foreseen = merge_names(rivals)["a_b", "c"]
    crook = ("a", foreseen.removeprefix("a_"))
    names = merge_names([*rivals, crook])
    assert foreseen not in names.values()
    assert len(set(names.values())) == 3


@given(
    st.lists(
        st.tuples(
            st.text("ab_- é", min_size=1, max_size=6),
            st.text("ab_", min_size=1, max_size=6) | st.text(min_size=60, max_size=90),
        )
    ),
    st.integers(),
)
def test_merged_names_are_unique_and_independent_of_the_order_of_servers(
    pairs: list[tuple[str, str]], seed: int
) -> None:
    names = merge_names(pairs)
    assert names.keys() == set(pairs)
    assert len(set(names.values())) == len(names)
    assert all(len(name) <= MAX_NAME for name in names.values())
    random.Random(seed).shuffle(pairs)
    assert merge_names(pairs) == names


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("a", "b", "mcp_a_b"),
        ("git", "git_log", "mcp_git_log"),
        ("Git", "gIT-log", "mcp_Git_log"),
        ("git", "git_", "mcp_git_git"),
        ("git", "gitlog", "mcp_git_gitlog"),
        ("git", "gat_log", "mcp_git_gat_log"),
        ("_a b_", "c.d", "mcp_a_b_c_d"),
        ("é", "__", "mcp____"),
        ("a", "b" * 58, "mcp_a_" + "b" * 58),
    ],
)
def test_tool_names_for_models_start_with_mcp_and_the_server_name(
    server: str, tool: str, name: str
) -> None:
    assert tool_names(server, [tool]) == [name]


def test_a_long_tool_name_for_models_has_a_hash_suffix() -> None:
    [name] = tool_names("a", ["b" * 59])
    assert len(name) == MAX_NAME
    assert re.fullmatch("mcp_a_b+_[0-9a-f]{8}", name)


def test_one_of_several_tools_with_the_same_name_keeps_it_and_the_others_get_suffixes() -> None:
    rivals = [("a b", "c"), ("a.b", "c"), ("a_b", "c")]
    names = assign_names({"n": rivals, "m": [("x", "m")]})
    assert (names["x", "m"], names["a_b", "c"]) == ("m", "n")
    tails = [names["a b", "c"], names["a.b", "c"]]
    assert all(re.fullmatch("n_[0-9a-f]{8}", tail) for tail in tails)
    assert len(set(tails)) == 2
    for refused in ({"taken": {tails[0]}}, {}):
        wanted = {"n": rivals, **({} if refused else {tails[0]: [("y", "z")]})}
        again = assign_names(wanted, **refused)
        assert tails[0] not in (again["a b", "c"], again["a.b", "c"])
        assert again["a.b", "c"] == tails[1]


@pytest.mark.parametrize(
    ("server", "merged", "expected"),
    [
        ("a", "a_b", True),
        ("a", "a", False),
        ("a", "ab", False),
        ("a b", "a_b_c", True),
        ("s" * 40, "s" * 31, True),
        ("s" * 40, "s" * 30, False),
    ],
)
def test_all_servers_that_a_merged_name_may_belong_to_are_recognized(
    server: str, merged: str, expected: bool
) -> None:
    assert may_belong_to(server, merged) is expected
