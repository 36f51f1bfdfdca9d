"""The tools of many servers in one catalog."""

import logging
import re
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.manager.tools.catalog import Listed, ToolCatalog
from fairlead.protocol.targets.unique_names import assign_names

PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")

names = st.text(min_size=1, max_size=40) | st.sampled_from(["a", "a b", "a_b", "a-b", "_a", "A_a"])


async def call(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


def about(server: str) -> Mapping[str, Any]:
    return {"provider": None, "provider_name": f"of {server}", "available": lambda: True}


def listed(server: str, *tools: str, deferred: bool = False) -> Listed:
    return server, [{"name": tool} for tool in tools], deferred


def names_of(catalog: ToolCatalog) -> dict[tuple[str, str], str]:
    return {(t.mcp_server_name, t.mcp_tool_name): t.name for t in catalog.tools}


@pytest.mark.covers("HST-51", "HST-19")
@given(
    st.dictionaries(names, st.lists(names, max_size=6), max_size=6),
    st.randoms(use_true_random=False),
)
def test_every_tool_has_a_unique_name_in_any_order_of_servers(
    servers: dict[str, list[str]], random: Random
) -> None:
    catalog = ToolCatalog(call, about)
    everything = [listed(server, *tools) for server, tools in servers.items()]
    catalog.build(everything)
    found = names_of(catalog)
    assert set(found) == {(server, tool) for server, tools in servers.items() for tool in tools}
    assert len(set(found.values())) == len(found)
    assert all(PLAIN.fullmatch(name) for name in found.values())
    assert [tool.name for tool in catalog.tools] == sorted(catalog.by_name)

    random.shuffle(everything)
    one_by_one = ToolCatalog(call, about)
    for known in range(len(everything) + 1):
        one_by_one.build(everything[:known])
    assert names_of(one_by_one) == found


def test_an_unchanged_tool_stays_the_same_object() -> None:
    catalog = ToolCatalog(call, about)
    time, files = listed("time", "now"), listed("files", "read", "write")
    before = catalog.build([time, files])
    assert catalog.build([files, time]) is before
    server, (read, _), deferred = files
    after = catalog.build([time, (server, [read, {"name": "write", "title": "Other"}], deferred)])
    kept = {tool.name for tool in after if any(tool is old for old in before)}
    assert kept == {"mcp_time_now", "mcp_files_read"}
    # A tool filter creates a new list with the same definitions each time.
    assert catalog.build([time, (server, [t.source for t in after[:2]], deferred)]) is after  # type: ignore[misc]


def test_listed_tools_replace_remembered_tools() -> None:
    catalog = ToolCatalog(call, about)
    server, definitions, _ = listed("time", "now")
    assert [t.deferred for t in catalog.build([(server, definitions, True)])] == [True]
    (tool,) = catalog.build([(server, definitions, False)])
    assert (tool.deferred, tool.path) == (False, "mcp:time via of time")


@pytest.mark.covers("HST-51")
def test_a_renamed_tool_regains_its_name_when_the_conflicting_tool_is_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fairlead.manager")
    catalog = ToolCatalog(call, about)
    spaced, plain = listed("my server", "x"), listed("my_server", "x")
    (first,) = catalog.build([spaced])
    assert first.name == "mcp_my_server_x"
    both = catalog.build([spaced, plain])
    assert catalog.by_name["mcp_my_server_x"].mcp_server_name == "my_server"
    assert "mcp_my_server_x is taken" in caplog.text
    caplog.clear()
    assert catalog.build([spaced, plain, listed("other", "y")])[:2] == both  # the same objects
    assert not caplog.records
    assert catalog.build([spaced]) == [first]


def test_tool_names_stay_unique_if_a_server_uses_an_already_assigned_name() -> None:
    wanted = {"mcp_my_server_x": [("my server", "x"), ("my_server", "x")]}
    guessed = assign_names(wanted)["my server", "x"]
    evil = listed("my", guessed.removeprefix("mcp_my_"))
    catalog = ToolCatalog(call, about)
    tools = catalog.build([listed("my server", "x"), listed("my_server", "x"), evil])
    assert catalog.by_name[guessed].mcp_server_name == "my"
    assert len({tool.name for tool in tools}) == 3


def test_invalid_tool_definitions_are_omitted() -> None:
    broken: list[dict[str, Any]] = [{"name": ""}, {"name": 7}, {}, {"name": "ok"}, {"name": "ok"}]
    assert [t.name for t in ToolCatalog(call, about).build([("s", broken, False)])] == ["mcp_s_ok"]


@pytest.mark.covers("DEC-20")
def test_tools_are_assigned_to_their_servers_regardless_of_name_prefixes() -> None:
    catalog = ToolCatalog(call, about)
    catalog.build([listed("a", "b_c"), listed("a_b", "c", "a_c")])
    owners = {
        name: (found.mcp_server_name, found.mcp_tool_name)
        for name, found in catalog.by_name.items()
    }
    assert set(owners.values()) == {("a", "b_c"), ("a_b", "c"), ("a_b", "a_c")}
    assert len(owners) == 3
    assert all(name.startswith("mcp_") for name in owners)
