from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.conversation.era_probe import (
    Incompatible,
    NeedsHandshake,
    RefusedInitialize,
    judge_discover,
    judge_initialize,
    judge_lost_probe,
    judge_refused_initialize,
    lacks_handshake,
    means_http_sse,
    offers_our_version,
)
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision
from fairlead.wire import Failure, Success, failure, to_json


def result(value: Any) -> Success:
    return Success(1, Raw(to_json(value)))


def offer(*versions: str, **more: Any) -> Success:
    return result({"supportedVersions": versions, "capabilities": {}, **more})


def refused(*supported: str) -> Failure:
    return failure(1, -32022, "no", {"supported": supported, "requested": NEWEST.value})


# Responses to server/discover.


@pytest.mark.parametrize(
    ("versions", "both"),
    [(["2026-07-28"], False), (["2025-11-25", "2026-07-28", "2099-01-01"], True)],
)
def test_a_stateless_version_that_both_sides_support_is_used(
    versions: list[str], both: bool
) -> None:
    agreement = Agreement(revision=NEWEST, offers_handshake=both)
    assert judge_discover(offer(*versions)) == agreement


def test_an_agreement_contains_the_description_of_the_server() -> None:
    answer = Success(
        1,
        Raw(
            b'{"supportedVersions":["2026-07-28"],"capabilities":{"x":1.50},"resultType":"complete",'
            b'"instructions":"Be kind.",'
            b'"_meta":{"io.modelcontextprotocol\\/serverInfo":{"name":"s"}}}'
        ),
    )
    assert judge_discover(answer) == Agreement(
        revision=NEWEST,
        capabilities=b'{"x":1.50}',
        server_info=b'{"name":"s"}',
        instructions="Be kind.",
    )


@pytest.mark.parametrize("meta", [None, 5, [], {}])
def test_the_server_info_in_a_discover_result_is_optional(meta: Any) -> None:
    assert judge_discover(offer("2026-07-28", _meta=meta)) == Agreement(revision=NEWEST)


@pytest.mark.parametrize("versions", [["2025-11-25"], ["2024-11-05", "2099-01-01"], []])
def test_a_server_with_only_handshake_revisions_needs_a_handshake(versions: list[str]) -> None:
    assert judge_discover(offer(*versions)) == NeedsHandshake(
        "the server offers only revisions with a handshake"
    )


def test_a_server_with_only_unknown_versions_is_incompatible() -> None:
    assert judge_discover(offer("2099-01-01", "2100-01-01")) == Incompatible(
        "the server offers only 2099-01-01, 2100-01-01"
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        "ok",
        {"tools": []},
        {"capabilities": {}},
        {"supportedVersions": ["2026-07-28"]},
        {"supportedVersions": "2026-07-28", "capabilities": {}},
        {"supportedVersions": [20260728], "capabilities": {}},
    ],
)
def test_an_invalid_discover_result_requires_a_handshake(value: Any) -> None:
    assert judge_discover(result(value)) == NeedsHandshake(
        "the response to server/discover is not a DiscoverResult"
    )


def test_a_refusal_with_only_unknown_stateless_versions_is_incompatible() -> None:
    assert judge_discover(refused("2099-01-01")) == Incompatible(
        "the server supports only 2099-01-01"
    )


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_refusal_with_a_shared_handshake_revision_requires_a_handshake(
    revision: Revision,
) -> None:
    assert judge_discover(refused("2099-01-01", revision.value)) == NeedsHandshake(
        "only revisions with a handshake are shared"
    )


def test_a_refusal_of_the_supported_version_is_incompatible() -> None:
    """A retry is useless, because there is no second stateless version."""
    assert judge_discover(refused("2026-07-28")) == Incompatible(
        "the server supports only 2026-07-28"
    )


@pytest.mark.parametrize(
    "data", [None, 5, [], {}, {"supported": None}, {"supported": "2025-11-25"}, {"supported": [5]}]
)
def test_a_refusal_without_usable_versions_is_incompatible(data: Any) -> None:
    assert judge_discover(failure(1, -32022, "no", data)) == Incompatible(
        "the server supports only other versions"
    )


@pytest.mark.parametrize("code", [-32020, -32021])
def test_an_error_of_the_stateless_era_in_response_to_discover_means_incompatible(
    code: int,
) -> None:
    assert judge_discover(failure(1, code, "headers")) == Incompatible(
        "the server refuses server/discover: headers"
    )


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32700, -32000, -32002, 0, 400])
def test_an_error_without_a_stateless_meaning_in_response_to_discover_requires_a_handshake(
    code: int,
) -> None:
    assert judge_discover(failure(1, code, "what?")) == NeedsHandshake(
        f"the server refuses server/discover with error {code}: what?"
    )


anything = st.recursive(
    st.none() | st.integers() | st.sampled_from(["2026-07-28", "2025-11-25", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["supportedVersions", "capabilities", "_meta", "supported", "data"]),
            inner,
        )
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(anything, st.integers(-32800, -31900))
def test_every_response_to_discover_has_a_verdict(value: Any, code: int) -> None:
    for answer in (result(value), failure(1, code, "no", value)):
        assert isinstance(judge_discover(answer), Agreement | NeedsHandshake | Incompatible)


def test_a_deeply_nested_response_to_discover_has_a_verdict() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert isinstance(judge_discover(Success(1, Raw(deep))), NeedsHandshake)
    error = b'{"code":-32022,"message":"no","data":%b}' % deep
    assert isinstance(judge_discover(Failure(1, -32022, "no", Raw(error))), Incompatible)
    with pytest.raises(RemoteProtocolError):
        judge_initialize(Success(1, Raw(deep)))


# Responses to initialize.


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_any_supported_handshake_revision_is_accepted(revision: Revision) -> None:
    answer = {
        "protocolVersion": revision,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
        "instructions": "Be kind.",
    }
    assert judge_initialize(result(answer)) == Agreement(
        revision=revision,
        capabilities=b'{"tools":{}}',
        server_info=b'{"name":"s","version":"1"}',
        instructions="Be kind.",
    )


def test_an_initialize_result_requires_only_a_version() -> None:
    assert judge_initialize(result({"protocolVersion": "2025-06-18"})) == Agreement(
        revision=Revision.V2025_06_18
    )


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("version", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_a_handshake_with_an_unsupported_version_fails(version: str) -> None:
    with pytest.raises(RemoteProtocolError, match="requires protocol version") as caught:
        judge_initialize(result({"protocolVersion": version}))
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"protocolVersion": 5}, {"protocolVersion": "2025-11-25", "instructions": 5}],
)
def test_an_invalid_initialize_result_raises_a_remote_protocol_error(value: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed") as caught:
        judge_initialize(result(value))
    assert caught.value.code == -32600


# Probes without a response over HTTP.


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422])
def test_a_client_error_status_requires_a_handshake(status: int) -> None:
    assert isinstance(judge_lost_probe(HttpError(status, "what?")), NeedsHandshake)


@pytest.mark.parametrize(
    "error",
    [
        *(HttpError(status) for status in (401, 403, 408, 429, 500, 502, 503, 307)),
        *(ConnectFailed("unreachable"), ChannelClosed("cut"), RequestTimeout(1.0)),
    ],
    ids=str,
)
def test_http_and_connection_errors_that_occur_in_both_eras_give_no_verdict(
    error: FairleadError,
) -> None:
    assert judge_lost_probe(error) is None


def test_an_unreadable_or_missing_response_requires_a_handshake() -> None:
    page = RemoteProtocolError("not valid JSON", code=-32700)
    assert isinstance(judge_lost_probe(page), NeedsHandshake)
    assert isinstance(judge_lost_probe(NoAnswer(1)), NeedsHandshake)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((HttpError(status), True) for status in (400, 404, 405)),
        *((HttpError(status), False) for status in (401, 403, 410, 500)),
        (ConnectFailed("x"), False),
    ],
)
def test_only_http_statuses_400_404_and_405_suggest_the_http_sse_transport(
    error: FairleadError, expected: bool
) -> None:
    assert means_http_sse(error) is expected


def test_a_refusal_that_names_a_supported_stateless_version_is_recognized() -> None:
    assert offers_our_version(refused("2027-01-01", NEWEST.value))
    assert not offers_our_version(refused("2027-01-01", HANDSHAKE[-1].value))
    assert not offers_our_version(failure(1, -32601, "no", {"supported": [NEWEST.value]}))
    assert not offers_our_version(failure(1, -32022, "no", {"supported": 7}))


HANDSHAKE_VERSIONS = {"supported": ["2024-11-05"], "requested": "2025-11-25"}
STATELESS_VERSIONS = {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (RpcError(-32601, "no"), RefusedInitialize.NO_HANDSHAKE),
        (RpcError(-32020, "no"), RefusedInitialize.NO_HANDSHAKE),
        (RpcError(-32021, "no"), RefusedInitialize.NO_HANDSHAKE),
        (RpcError(-32022, "no", STATELESS_VERSIONS), RefusedInitialize.NO_HANDSHAKE),
        (RpcError(-32602, "no", STATELESS_VERSIONS), RefusedInitialize.UNCLEAR),
        (RpcError(-32602, "no"), RefusedInitialize.UNCLEAR),
        (RpcError(-32602, "no", {"supported": 7}), RefusedInitialize.UNCLEAR),
        (RpcError(-32600, "no"), RefusedInitialize.UNCLEAR),
        (RpcError(-32602, "no", HANDSHAKE_VERSIONS), RefusedInitialize.FOR_THIS_CLIENT),
        (RpcError(-32600, "no", HANDSHAKE_VERSIONS), RefusedInitialize.FOR_THIS_CLIENT),
        (RpcError(-32603, "no"), RefusedInitialize.FOR_THIS_CLIENT),
        (RpcError(-32000, "no"), RefusedInitialize.FOR_THIS_CLIENT),
        (HttpError(400), RefusedInitialize.NO_HANDSHAKE),
        (HttpError(405), RefusedInitialize.NO_HANDSHAKE),
        (HttpError(401), RefusedInitialize.FOR_THIS_CLIENT),
        (HttpError(503), RefusedInitialize.FOR_THIS_CLIENT),
    ],
    ids=str,
)
def test_a_refused_initialize_is_classified_by_its_error(
    error: RpcError | HttpError, verdict: RefusedInitialize
) -> None:
    assert judge_refused_initialize(error) is verdict


def test_a_server_that_executed_initialize_uses_the_handshake_era() -> None:
    error = RpcError(-32602, "no")
    error.executed = True
    assert judge_refused_initialize(error) is RefusedInitialize.FOR_THIS_CLIENT


def test_an_unclear_refusal_is_decided_by_the_versions_in_discover() -> None:
    only, both = (
        judge_discover(offer(NEWEST.value)),
        judge_discover(offer("2025-11-25", NEWEST.value)),
    )
    unclear, absent = RpcError(-32602, "no"), RpcError(-32601, "no")
    assert isinstance(only, Agreement)
    assert isinstance(both, Agreement)
    assert [lacks_handshake(unclear, only), lacks_handshake(unclear, both)] == [True, False]
    assert [lacks_handshake(absent, only), lacks_handshake(absent, both)] == [True, True]
    assert not lacks_handshake(RpcError(-32000, "no"), only)
