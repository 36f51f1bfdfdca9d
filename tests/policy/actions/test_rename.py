"""Tests of the rename action with single exchanges."""

import json

import pytest

from fairlead.errors import RpcError
from fairlead.policy.actions import Rename
from tests.support.single_exchange import DOWN, Behind, exchange


def test_two_items_cannot_be_given_the_same_new_name() -> None:
    with pytest.raises(ValueError, match="same new name"):
        Rename({"a": "x", "b": "x"})


async def test_calls_are_forwarded_with_the_original_names() -> None:
    rename = Rename({"old": "new"})
    for method in ("tools/call", "prompts/get"):
        behind = Behind()
        asked = exchange(method, {"name": "new", "arguments": {"a": 1}})
        await rename(asked, behind)
        params = json.loads(bytes(behind.seen[0].message.params))  # type: ignore[arg-type]
        assert params == {"name": "old", "arguments": {"a": 1}}
        with pytest.raises(RpcError, match=r"Unknown (tool|prompt): old"):
            await rename(exchange(method, {"name": "old"}), behind)
        for unchanged in (
            exchange(method, {"name": "other"}),
            exchange(method, {}),
            exchange(method, {"name": "new"}, server="red"),
            exchange(method, {"name": "new"}, way=DOWN),
            exchange("tools/other", {"name": "new"}),
        ):
            await rename(unchanged, behind)
            assert behind.seen[-1] is unchanged


async def test_completions_are_forwarded_with_the_original_names() -> None:
    rename, behind = Rename({"old": "new"}), Behind()
    ref = {"type": "ref/prompt", "name": "new"}
    await rename(exchange("completion/complete", {"ref": ref, "argument": {}}), behind)
    params = json.loads(bytes(behind.seen[0].message.params))  # type: ignore[arg-type]
    assert params == {"ref": {"type": "ref/prompt", "name": "old"}, "argument": {}}
    for params in (None, {}, {"ref": 5}, {"ref": {"name": "other"}}):
        asked = exchange("completion/complete", params)
        await rename(asked, behind)
        assert behind.seen[-1] is asked


async def test_lists_contain_the_new_names_of_renamed_tools() -> None:
    rename = Rename({"old": "new"})
    listed = b'{"tools":[{"name":"old","x":1},{"name":"other"},5],"nextCursor":"2"}'
    asked = exchange("tools/list", {})
    answer = await rename(asked, Behind(listed))
    assert json.loads(bytes(answer or b"")) == {
        "tools": [{"name": "new", "x": 1}, {"name": "other"}, 5],
        "nextCursor": "2",
    }
    assert asked.did == ["renamed in the list"]
    for unchanged in (b'{"tools":[{"name":"other"}]}', b"{}", b"[]", b'{"tools":5}'):
        assert await rename(exchange("tools/list", {}), Behind(unchanged)) is unchanged


@pytest.mark.parametrize(("method", "what"), [("tools/call", "tool"), ("prompts/get", "prompt")])
async def test_a_call_by_the_old_name_is_rejected_and_a_call_by_the_new_name_is_noted(
    method: str, what: str
) -> None:
    rename = Rename({"old": "new"})
    for spelled in ("old", "OLD"):
        with pytest.raises(RpcError, match=f": Unknown {what}: {spelled}$") as refused:
            await rename(exchange(method, {"name": spelled}), Behind())
        assert refused.value.code == -32602
    asked = exchange(method, {"name": "new"})
    behind = Behind()
    await rename(asked, behind)
    assert asked.did == ["renamed to old"]
    assert (behind.seen[0].target, behind.seen[0].displayed) == ("old", "new")
    other = exchange(method, {"name": "other"})
    await rename(other, behind)
    assert other.did is None
    assert behind.seen[-1] is other


async def test_a_list_with_renamed_tools_is_noted_in_the_exchange() -> None:
    asked = exchange("tools/list", {})
    answer = await Rename({"old": "new"})(asked, Behind(b'{"tools":[{"name":"old"},1]}'))
    assert bytes(answer or b"") == b'{"tools":[{"name":"new"},1]}'
    assert asked.did == ["renamed in the list"]
