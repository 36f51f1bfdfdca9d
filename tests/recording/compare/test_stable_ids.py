"""Tests of replacing ids with descriptions that are equal in every recording."""

from typing import Any

from fairlead.recording.compare.compare_tapes import StableIds, with_stable_ids
from tests.support.tape_entries import DOWN, UP, entry


def test_request_ids_are_replaced_by_descriptions_of_their_requests() -> None:
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    messages = [
        entry({"method": "tools/call", "id": 1, "params": {"name": "add"}}, session="a"),
        entry({"method": "ping", "id": 1}, DOWN, "a"),
        entry({"method": "tools/list", "id": 2}, session="a"),
        entry(cancelled, session="a"),
        entry({"id": 1, "result": {"_meta": {"progressToken": 5}}}, DOWN, "a"),
        entry({"id": 1, "result": {}}, UP, "a"),
        entry({"id": 1, "result": {}}, DOWN, "b"),
        entry({"method": "notifications/cancelled", "params": {"requestId": [1]}}, session="a"),
    ]
    named = [message for _, message in with_stable_ids(messages)]
    assert [message.get("id") for message in named] == [
        "its own",
        "its own",
        "its own",
        None,
        "of tools/call add",
        "of ping",
        "of nothing",
        None,
    ]
    assert named[3]["params"] == {"requestId": "of tools/list"}
    assert named[4]["result"] == {"_meta": {"progressToken": "a token"}}
    assert named[7]["params"] == {"requestId": "of nothing"}


def test_messages_that_differ_only_in_ids_have_the_same_hash() -> None:
    def same(one: Any, two: Any) -> bool:
        return StableIds.content(entry(one)) == StableIds.content(entry(two))

    call = {"method": "tools/call", "id": 1, "params": {"name": "a", "_meta": {"progressToken": 1}}}
    other = {"method": "tools/call", "id": 2, "params": {"_meta": {"progressToken": "x"}}}
    other["params"]["name"] = "a"  # type: ignore[index]
    assert not same(call, other)  # the order of members is significant
    again = {**call, "id": 9, "params": {"name": "a", "_meta": {"progressToken": "x"}}}
    assert same(call, again)
    assert not same(call, {**again, "params": {**call["params"], "name": "b"}})  # type: ignore[dict-item]
    cancel = "notifications/cancelled"
    assert same(
        {"method": cancel, "params": {"requestId": 1, "reason": "x"}},
        {"method": cancel, "params": {"requestId": 2, "reason": "x"}},
    )
    assert same({"method": cancel}, {"method": cancel, "id": 5})
    assert not same({"method": cancel, "params": [1]}, {"method": cancel, "params": [2]})
    assert not same({"method": "m", "params": {"requestId": 1}}, {"method": "m", "params": {}})
    assert same({"result": {"a": 1}, "id": 1}, {"result": {"a": 1}, "id": 2})
    assert StableIds.content(entry(b"[1]")) == 0
    huge = b'{"method":"m","params":{"progressToken":1,"n":%b}}' % (b"9" * 30)
    assert StableIds.content(entry(huge)) == StableIds.content(entry(huge))
