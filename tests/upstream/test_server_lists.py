"""The last complete lists of one server, and the errors of failed list requests."""

from math import inf

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.server_lists import NEEDED_CAPABILITY, ServerLists
from tests.support.scripted_upstream import raw_items
from tests.support.virtual_time import VirtualTime

TOOLS, PROMPTS, RESOURCES, TEMPLATES = ListKind


def test_a_list_is_kept_until_the_next_request_for_it_succeeds() -> None:
    lists, changed = ServerLists(ListKind, for_client=False), list[ListKind]()
    lists.on_changed = changed.append
    prompts, error = raw_items([{"name": "greet"}]), RpcError(5, "no")
    lists.put(PROMPTS, prompts)
    lists.fail(PROMPTS, error)
    assert (lists.items, lists.errors, lists.error) == ({PROMPTS: prompts}, {PROMPTS: error}, error)
    lists.put(PROMPTS, [])
    assert (lists.items, lists.errors, lists.error) == ({PROMPTS: []}, {}, None)
    assert changed == [PROMPTS] * 3


def test_the_version_increases_only_when_the_content_of_a_list_changes() -> None:
    lists, versions = ServerLists(ListKind, for_client=False), list[int]()
    one, two = {"name": "one"}, {"name": "two"}
    # The callback reads the version after it was increased.
    lists.on_changed = lambda kind: versions.append(lists.version)
    assert lists.version == 0
    lists.put(TOOLS, raw_items([one, two]))
    lists.put(PROMPTS, [])
    assert versions == [0, 0]  # the first lists do not increase the version
    lists.put(TOOLS, raw_items([one, two]))
    lists.fail(TOOLS, RpcError(5, "no"))
    lists.put(TOOLS, raw_items([one, two]))
    assert versions == [0] * 5
    lists.put(TOOLS, raw_items([two, one]))  # the order of tools is significant
    lists.put(TOOLS, raw_items([one]))
    lists.put(PROMPTS, raw_items([one]))
    lists.put(TOOLS, [])
    lists.put(TOOLS, [])
    assert versions[5:] == [1, 2, 3, 4, 4]


def test_the_error_is_the_one_of_the_list_that_failed_first() -> None:
    lists, first = ServerLists(ListKind, for_client=False), RpcError(1, "first")
    lists.fail(RESOURCES, first)
    lists.fail(TOOLS, RpcError(2, "second"))
    assert lists.error is first
    lists.put(RESOURCES, [])
    assert str(lists.error) == "MCP error 2: second"


def test_the_tools_of_a_server_are_unset_before_the_first_list() -> None:
    lists = ServerLists((TOOLS,), for_client=True)
    assert (lists.kinds, lists.for_client, lists.tools) == ((TOOLS,), True, None)
    lists.fail(TOOLS, RpcError(5, "no"))
    assert lists.tools is None
    lists.put(TOOLS, [])
    assert lists.tools == []


@pytest.mark.parametrize(
    "bad",
    [b"{", b"17", b"[]", b'{"title": "x"}', b'{"name": 17}', b'{"name": "\xff"}', b"[" * 100_000],
    ids=["cut", "number", "array", "nameless", "wrong name", "encoding", "depth"],
)
def test_tools_that_cannot_be_decoded_are_omitted(bad: bytes) -> None:
    lists = ServerLists((TOOLS,), for_client=True)
    good = b'{"name": "a", "unknown": [1]}'
    lists.put(TOOLS, [Raw(bad), Raw(good)])
    assert lists.tools == [{"name": "a", "unknown": [1]}]
    assert [bytes(item) for item in lists.items[TOOLS]] == [bad, good]


def test_tools_are_decoded_once_for_each_list() -> None:
    lists = ServerLists((TOOLS,), for_client=True)
    lists.put(TOOLS, raw_items([{"name": "a"}]))
    decoded = lists.tools
    lists.fail(TOOLS, RpcError(5, "no"))
    lists.put(PROMPTS, raw_items([{"name": "greet"}]))
    assert lists.tools is decoded
    lists.put(TOOLS, raw_items([{"name": "a"}]))
    assert lists.tools == decoded
    assert lists.tools is not decoded


def test_kinds_of_lists_can_be_added_later() -> None:
    lists = ServerLists((TOOLS,), for_client=True)
    assert lists.add_kinds((PROMPTS, TOOLS, RESOURCES)) == [PROMPTS, RESOURCES]
    assert lists.kinds == (TOOLS, PROMPTS, RESOURCES)
    assert lists.add_kinds(iter((RESOURCES,))) == []


async def test_the_time_of_the_last_successful_list_is_recorded(
    virtual_time: VirtualTime,
) -> None:
    lists = ServerLists(ListKind, for_client=False)
    assert lists.listed_at == -inf
    lists.put(TOOLS, [])
    assert lists.listed_at == virtual_time.now
    virtual_time.now += 5
    lists.fail(PROMPTS, RpcError(5, "no"))
    assert lists.listed_at == virtual_time.now - 5


def test_every_kind_of_list_requires_a_capability() -> None:
    assert NEEDED_CAPABILITY == {
        TOOLS: "tools",
        PROMPTS: "prompts",
        RESOURCES: "resources",
        TEMPLATES: "resources",
    }
