"""Tests of the schema check: stored lists per client and server, and limits."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.limits import CHECKED_SCHEMAS_BYTES
from fairlead.policy.actions import schema_check
from fairlead.policy.actions.schema_check import SchemaCheck
from fairlead.policy.edit_message import with_whole_params
from tests.support.single_exchange import DOWN, Behind, exchange

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHANGED = "notifications/tools/list_changed"


def tools(*names: str) -> bytes:
    return json.dumps({"tools": [{"name": one, "inputSchema": NUMBER} for one in names]}).encode()


async def learn(check: SchemaCheck, *names: str, params: Any = None, **about: Any) -> None:
    answer = tools(*names)
    asked = exchange("tools/list", params, **about)
    assert await check(asked, Behind(answer)) is answer


async def refused(check: SchemaCheck, name: str = "add", given: Any = None, **about: Any) -> str:
    """Call a tool; return the message of the refusal, or an empty string."""
    params = {"name": name, "arguments": {} if given is None else given}
    behind = Behind()
    try:
        await check(exchange(params=params, **about), behind)
    except RpcError as exc:
        if behind.seen or exc.code != -32602:
            raise
        return exc.message
    assert len(behind.seen) == 1
    return ""


async def test_arguments_must_match_the_listed_schema() -> None:
    check = SchemaCheck()
    assert await refused(check) == "", "no tool list was received yet"
    await learn(check, "add")
    assert await refused(check) == "Invalid arguments: a"
    assert await refused(check, given={"a": "x"}) == "Invalid arguments: a"
    assert await refused(check, given={"a": 1}) == ""
    assert await refused(check, "other") == ""
    assert await refused(check, way=DOWN) == "", "only requests to a server are checked"


async def test_calls_of_unlisted_tools_are_refused_if_so_configured() -> None:
    check = SchemaCheck("refuse")
    assert await refused(check) == "Unknown tool: add"
    await learn(check, "add")
    assert await refused(check, given={"a": 1}) == ""
    assert await refused(check, "other", {"a": 1}) == "Unknown tool: other"


async def test_a_change_notification_drops_the_stored_tool_list() -> None:
    check = SchemaCheck()
    await learn(check, "add")
    told = Behind(None)
    await check(exchange(CHANGED, way=DOWN, request=False), told)
    assert len(told.seen) == 1
    assert (await refused(check), check._views) == ("", {})


async def test_tool_lists_are_stored_per_client_and_server() -> None:
    check = SchemaCheck()
    await learn(check, "add", principal="ann", server="s")
    assert await refused(check, principal="ann", server="s") != ""
    assert await refused(check, principal="bob", server="s") == ""
    assert await refused(check, principal="ann", server="t") == ""


async def test_a_later_page_extends_the_tool_list_and_a_first_page_replaces_it() -> None:
    check = SchemaCheck()
    await learn(check, "add")
    await learn(check, "sub", params={"cursor": "2"})
    assert [await refused(check, one) != "" for one in ("add", "sub")] == [True, True]
    assert sum(size for _, size in check._views.values()) == 2 * len(tools("add"))
    await learn(check, "sub")
    assert [await refused(check, one) != "" for one in ("add", "sub")] == [False, True]
    assert sum(size for _, size in check._views.values()) == len(tools("sub"))


@pytest.mark.parametrize("answer", [None, b"[]", b'{"tools":1}', b"{}"])
async def test_an_invalid_tool_list_does_not_replace_the_known_one(answer: bytes | None) -> None:
    check = SchemaCheck()
    await learn(check, "add")
    await check(exchange("tools/list"), Behind(answer))
    assert await refused(check) != ""


async def test_the_least_recently_stored_tool_list_is_evicted_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_check, "MAX_VIEWS", 2)
    check = SchemaCheck()
    hits = CHECKED_SCHEMAS_BYTES.hits
    for name in ("ann", "bob", "ann"):
        await learn(check, "add", principal=name)
    assert CHECKED_SCHEMAS_BYTES.hits == hits
    await learn(check, "add", principal="cy")
    known = [await refused(check, principal=name) != "" for name in ("ann", "bob", "cy")]
    assert (known, CHECKED_SCHEMAS_BYTES.hits) == ([True, False, True], hits + 1)


@pytest.mark.parametrize(("extra", "known"), [(0, [True, True]), (1, [False, True])])
async def test_the_total_size_of_stored_tool_lists_is_limited(
    monkeypatch: pytest.MonkeyPatch, extra: int, known: list[bool]
) -> None:
    monkeypatch.setattr(CHECKED_SCHEMAS_BYTES, "value", 2 * len(tools("add")) - extra)
    check = SchemaCheck()
    for name in ("ann", "bob"):
        await learn(check, "add", principal=name)
    assert [await refused(check, principal=name) != "" for name in ("ann", "bob")] == known


@pytest.mark.parametrize(
    ("name", "arguments", "why", "note"),
    [
        ("add", b'{"a":"x"}', "Invalid arguments: a", "blocked: invalid arguments"),
        ("other", b"{}", "Unknown tool: other", "blocked: unknown tool"),
        (
            "add",
            b'{"a":1,"a":2}',
            "Duplicate member name in the arguments",
            "blocked: duplicate member name",
        ),
    ],
    ids=["no fit", "unknown", "twice"],
)
async def test_the_reason_for_a_refusal_is_noted_in_the_exchange(
    name: str, arguments: bytes, why: str, note: str
) -> None:
    check = SchemaCheck("refuse")
    await learn(check, "add")
    asked = with_whole_params(
        exchange(params={}), Raw(b'{"name":"%b","arguments":%b}' % (name.encode(), arguments))
    )
    with pytest.raises(RpcError, match=f": {why}$"):
        await check(asked, Behind())
    assert asked.did == [note]


@pytest.mark.parametrize("spelled", ["ADD", "add"])
async def test_arguments_are_validated_for_any_spelling_of_the_tool_name(spelled: str) -> None:
    check = SchemaCheck("refuse")
    await learn(check, "add")
    assert await refused(check, spelled, {"a": "x"}) == "Invalid arguments: a"
    assert await refused(check, spelled, {"a": 1}) == ""


async def test_a_tool_with_an_invalid_schema_can_still_be_called() -> None:
    check = SchemaCheck("refuse")
    odd = json.dumps(
        {"tools": [{"name": "a", "inputSchema": 5}, {"name": "b"}, 7, {"inputSchema": {}}]}
    ).encode()
    await check(exchange("tools/list"), Behind(odd))
    assert await refused(check, "a") == ""
    assert await refused(check, "b") == "Unknown tool: b"
