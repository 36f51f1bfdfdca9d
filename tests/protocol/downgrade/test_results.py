"""Tests of results downgraded to the revision of a peer; all other members are unchanged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.protocol.downgrade.capabilities import downgrade_capabilities
from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.downgrade.params import downgrade_params
from fairlead.protocol.downgrade.results import CACHEABLE, downgrade_result, upgrade_result
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision
from tests.support.downgrade_examples import (
    CACHED,
    INITIALIZE,
    ODD,
    PARAMS,
    RESULTS,
    SERVER,
    TAG,
    V2025_11_25,
    encoded,
    mutated,
    params_for,
    result_for,
    validator,
)

results = st.sampled_from([(m, v) for m, (_, v) in RESULTS.items()] + [("initialize", INITIALIZE)])


def upgraded(method: str, value: object) -> Any:
    return json.loads(upgrade_result(method, encoded(value), server_info=encoded(SERVER)))


@pytest.mark.parametrize("method", RESULTS)
def test_the_example_results_are_valid_in_the_newest_revision(method: str) -> None:
    name, value = RESULTS[method]
    validator(NEWEST, name).validate(value)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("revision", HANDSHAKE)
@pytest.mark.parametrize("method", [*RESULTS, "initialize"])
def test_a_downgraded_result_is_valid_in_the_revision_of_the_peer(
    method: str, revision: Revision, closed: bool
) -> None:
    name, value = RESULTS.get(method, ("InitializeResult", INITIALIZE))
    validator(revision, name, closed=closed).validate(result_for(revision, method, value))


@pytest.mark.parametrize(
    "method", ["tools/call", "prompts/list", "prompts/get", "resources/read", "completion/complete"]
)
@pytest.mark.parametrize("kind", [Raw, bytes])
def test_a_result_without_changes_is_not_decoded(method: str, kind: type[Raw]) -> None:
    unreadable = kind(b"not even JSON")
    assert downgrade_result(method, unreadable, NEWEST) is unreadable


@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("value", [b"", b"[]", b"7", b"{", b'{"\xff":1}', b"[" * 100_000])
def test_params_results_and_capabilities_that_are_not_objects_are_unchanged(
    value: bytes, revision: Revision
) -> None:
    for method in [*RESULTS, "initialize", "x/y"]:
        assert downgrade_result(method, value, revision) is value
    for method in [*PARAMS, "x/y"]:
        assert downgrade_params(method, value, revision) is value
    assert downgrade_capabilities(value, revision) is value
    assert upgrade_result("tools/list", value) is value


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_result_without_newer_members_is_returned_as_the_same_object(revision: Revision) -> None:
    result = Raw(b'{ "content": [ {"type": "text", "text": "\\u0041"} ], "isError": false }')
    assert downgrade_result("tools/call", result, revision) is result


def test_a_downgraded_result_has_the_same_type_raw_or_bytes_as_the_original() -> None:
    value = b'{"resultType":"complete"}'
    assert downgrade_result("x", value, V2025_11_25) == b"{}"
    assert downgrade_result("x", Raw(value), V2025_11_25) == Raw(b"{}")
    assert isinstance(downgrade_result("x", Raw(value), V2025_11_25), Raw)


@pytest.mark.covers("RPC-06")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_unknown_result_members_keep_their_original_json_text(revision: Revision) -> None:
    tool = b'{"name":"t","inputSchema":%s,"x-odd":%s,"execution":{},"icons":[]}' % (ODD, ODD)
    result = b'{"resultType":"complete","tools":[%s],"_meta":{"a":%s},"odd":%s}' % (tool, ODD, ODD)
    assert downgrade_result("tools/list", result, revision).count(ODD) == 4


@given(
    results.flatmap(lambda r: st.tuples(st.just(r[0]), mutated(r[1]))), st.sampled_from(Revision)
)
def test_downgrading_a_result_a_second_time_has_no_effect(
    case: tuple[str, Any], revision: Revision
) -> None:
    method, value = case
    try:
        once = downgrade_result(method, encoded(value), revision)
    except DowngradeError:
        return
    assert downgrade_result(method, once, revision) is once


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_only_a_complete_result_can_be_downgraded(revision: Revision) -> None:
    assert result_for(revision, "x/y", {"resultType": "complete", "a": 1}) == {"a": 1}
    for kind in ("input_required", "task", 3):
        with pytest.raises(DowngradeError, match="only complete results"):
            result_for(revision, "tools/call", {"resultType": kind})


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_stateless_keys_of_meta_are_removed_for_handshake_revisions(revision: Revision) -> None:
    meta = {"io.modelcontextprotocol/serverInfo": SERVER, "traceparent": "00-1-2-01"}
    assert result_for(revision, "x/y", {"_meta": meta}) == {"_meta": {"traceparent": "00-1-2-01"}}
    assert params_for(revision, "notifications/tools/list_changed", TAG) == {}
    assert params_for(revision, "x/y", {"_meta": {}}) == {"_meta": {}}


def test_the_ttl_of_a_task_is_not_removed_as_a_cache_hint() -> None:
    task = {"taskId": "1", "ttlMs": 5}
    assert result_for(V2025_11_25, "tasks/get", task) == task


@pytest.mark.parametrize("method", RESULTS)
def test_an_upgraded_result_is_valid_in_the_newest_revision(method: str) -> None:
    name, value = RESULTS[method]
    old = result_for(V2025_11_25, method, value)
    validator(NEWEST, name).validate(upgraded(method, old))


def test_upgrading_a_result_adds_the_members_of_stateless_results() -> None:
    meta = {"io.modelcontextprotocol/serverInfo": SERVER}
    assert upgraded("tools/call", {"content": []}) == {
        "content": [],
        "resultType": "complete",
        "_meta": meta,
    }
    for method in CACHEABLE:
        assert upgraded(method, {"_meta": {"a": 1}}) == {
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"a": 1, **meta},
        }


def test_upgrading_a_result_keeps_its_existing_members() -> None:
    whole = Raw(encoded({**CACHED, "tools": []}))
    assert upgrade_result("tools/list", whole, server_info=encoded({"name": "other"})) is whole
    assert upgrade_result("x/y", whole, server_info=None) is whole
    assert upgraded("resources/read", {"resultType": "input_required", "_meta": 7}) == {
        "resultType": "input_required",
        "_meta": 7,
    }


@pytest.mark.covers("RPC-06")
def test_upgrading_a_result_keeps_the_original_json_text_of_values() -> None:
    result = upgrade_result("tools/list", b'{"tools":%s,"_meta":%s}' % (ODD, ODD), server_info=ODD)
    assert result.count(ODD[1:-1]) == 3
