"""Tests of the members that each protocol era adds to results."""

import json

import pytest

from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.server.results.result_envelope import ResultEnvelope

STATELESS, SESSION = Caller(NEWEST, True, ANONYMOUS), Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
ENDING = {
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}},
}
KEPT = {"ttlMs": 0, "cacheScope": "private"}


def test_only_stateless_results_contain_the_server_info() -> None:
    envelope = ResultEnvelope({"name": "s"})
    assert json.loads(envelope.answered(b'"a":1', STATELESS)) == {"a": 1, **ENDING}
    assert json.loads(envelope.answered(b'"a":1', SESSION)) == {"a": 1}


@pytest.mark.parametrize("caller", [STATELESS, SESSION], ids=["stateless", "handshake"])
def test_only_stateless_list_results_have_cache_hints(caller: Caller) -> None:
    plain = ResultEnvelope({"name": "s"})
    public = ResultEnvelope({"name": "s"}, b'"ttlMs":5,"cacheScope":"public"')
    own = plain.listed(b'"a":1', caller, b'"ttlMs":7')
    found = [json.loads(one) for one in (plain.listed(b'"a":1', caller), own)]
    shared = json.loads(public.listed(b'"a":1', caller))
    if caller is SESSION:
        assert [*found, shared] == [{"a": 1}] * 3
    else:
        assert found == [{"a": 1, **KEPT, **ENDING}, {"a": 1, "ttlMs": 7, **ENDING}]
        assert shared == {"a": 1, "ttlMs": 5, "cacheScope": "public", **ENDING}


def test_a_call_result_is_converted_to_the_revision_of_the_client() -> None:
    envelope = ResultEnvelope({"name": "s"})
    result = b'{"content":[],"structuredContent":{"x":1}}'
    assert json.loads(envelope.called(result, STATELESS)) == {**json.loads(result), **ENDING}
    assert json.loads(envelope.called(result, SESSION)) == json.loads(result)
    oldest = Caller(Revision("2024-11-05"), False, ANONYMOUS)
    assert json.loads(envelope.called(result, oldest)) == json.loads(result)
    listed = b'{"content":[],"structuredContent":[1]}'
    converted = {"content": [{"type": "text", "text": "[1]"}]}
    assert json.loads(envelope.called(listed, oldest)) == converted
