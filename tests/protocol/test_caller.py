import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.errors import RpcError
from fairlead.limits import DECLARATION_BYTES
from fairlead.protocol.caller import (
    ANONYMOUS,
    Caller,
    Meta,
    ParamsHead,
    check_declaration,
    principal_from,
    principal_name,
    read_params_head,
    stateless_caller,
)
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision
from fairlead.wire import to_json
from tests.support.examples import examples

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"


def head_of(params: Any) -> ParamsHead:
    return read_params_head(Raw(to_json(params)))


def meta_of(meta: Any) -> Meta:
    found = head_of({"_meta": meta}).meta
    assert isinstance(found, Meta)
    return found


def is_stateless(meta: Meta) -> bool:
    return meta.protocol_version is not UNSET or meta.client_capabilities is not UNSET


def refusal(meta: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        stateless_caller(meta_of(meta), ANONYMOUS)
    return caught.value


# Reading the head.


def test_the_head_of_params_contains_meta_name_uri_and_arguments() -> None:
    params = (
        b'{"name":"echo","arguments":{"n":1.0},"other":[1],"_meta":{"progressToken":7,'
        b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{"roots":{}},'
        b'"io.modelcontextprotocol/clientInfo":{"name":"c"},'
        b'"io.modelcontextprotocol/logLevel":"info","other":1}}'
    )
    meta = Meta(7, "2026-07-28", Raw(b'{"roots":{}}'), Raw(b'{"name":"c"}'), "info")
    assert read_params_head(Raw(params)) == ParamsHead(meta, "echo", UNSET, Raw(b'{"n":1.0}'))
    assert read_params_head(Raw(b'{"uri":"file:///x"}')) == ParamsHead(UNSET, UNSET, "file:///x")


def test_absent_params_have_an_empty_head() -> None:
    assert read_params_head(UNSET) == ParamsHead()
    assert read_params_head(Raw(b"{}")) == ParamsHead()


@pytest.mark.parametrize("wrong", [None, 5, True, [], {}, 1.5])
def test_params_members_of_the_wrong_type_count_as_absent(wrong: Any) -> None:
    head = head_of({"name": wrong, "uri": wrong, "arguments": {"a": 1}})
    assert head == ParamsHead(UNSET, UNSET, UNSET, Raw(b'{"a":1}'))
    assert head_of({"name": wrong, "uri": "u"}) == ParamsHead(UNSET, UNSET, "u")


@pytest.mark.parametrize("wrong", [None, 5, "x", [], True])
def test_meta_of_the_wrong_type_counts_as_absent(wrong: Any) -> None:
    assert head_of({"_meta": wrong, "name": "echo"}) == ParamsHead(UNSET, "echo")


@pytest.mark.parametrize("token", [None, True, 1.0, 1.5, [], {}])
def test_a_progress_token_is_a_string_or_an_integer(token: Any) -> None:
    meta = meta_of({"progressToken": token, LEVEL: "info"})
    assert meta == Meta(log_level="info")
    assert meta_of({"progressToken": 10**30}) == Meta(10**30)
    assert meta_of({"progressToken": ""}) == Meta("")


def test_a_params_member_of_the_wrong_type_does_not_hide_other_members() -> None:
    meta = meta_of(
        {"progressToken": 1.5, VERSION: NEWEST, CAPABILITIES: {}, INFO: {"a": 1}, LEVEL: 5}
    )
    assert meta == Meta(UNSET, NEWEST.value, Raw(b"{}"), Raw(b'{"a":1}'), UNSET)
    meta = meta_of({"progressToken": 3, VERSION: NEWEST, CAPABILITIES: {}, LEVEL: None})
    assert meta == Meta(3, NEWEST.value, Raw(b"{}"))


@pytest.mark.parametrize("odd", [{}, {"progressToken": 1.5}], ids=["quick", "careful"])
def test_trace_members_are_read_from_the_meta_of_params(odd: dict[str, Any]) -> None:
    trace = {"traceparent": "00-1", "tracestate": "a=b", "baggage": "c=d"}
    meta = meta_of({**trace, **odd})
    assert (meta.traceparent, meta.tracestate, meta.baggage) == ("00-1", "a=b", "c=d")
    assert meta.names_trace
    assert meta_of({"traceparent": "00-1", **odd}).names_trace
    assert meta_of({"baggage": "c=d", **odd}).names_trace
    assert not meta_of({"tracestate": "a=b", **odd}).names_trace
    assert meta_of({"traceparent": 5, "tracestate": 5, "baggage": None}) == Meta()


def test_arguments_in_the_head_of_params_stay_encoded() -> None:
    assert read_params_head(Raw(b'{"arguments": null, "name": 5}')).arguments == Raw(b"null")
    assert read_params_head(Raw(b'{"arguments": [1.0]}')).arguments == Raw(b"[1.0]")


# Without and with a member that requires the slow decoder.
@pytest.mark.parametrize("odd", ["", ',"progressToken":1.5'])
def test_escaped_member_names_in_params_are_recognised(odd: str) -> None:
    params = (
        r'{"na\u006de":"echo","\u005fmeta":{"io.modelcontextprotocol\/protocolVersion":'
        r'"2026-07-28","io.modelcontextprotocol\/clientCapabilities":{}' + odd + "}}"
    )
    assert read_params_head(Raw(params.encode())) == ParamsHead(
        Meta(UNSET, NEWEST.value, Raw(b"{}")), "echo"
    )


@pytest.mark.parametrize("odd", [b"", b',"uri":5'])
def test_the_last_of_duplicate_keys_in_params_is_used(odd: bytes) -> None:
    meta = b'{"progressToken":2,"progressToken":3}'
    params = b'{"name":"a","name":"b","_meta":{"progressToken":1},"_meta":%b%b}'
    assert read_params_head(Raw(params % (meta, odd))) == ParamsHead(Meta(3), "b")


def test_params_nested_deeper_than_the_stack_allows_have_an_empty_head() -> None:
    """Such params can arrive, because the codec decodes with fewer frames on the stack."""
    deep = b"[" * 100_000 + b"]" * 100_000
    assert read_params_head(Raw(b'{"name":"echo","x":%b}' % deep)) == ParamsHead()
    assert read_params_head(Raw(b'{"name":5,"x":%b}' % deep)) == ParamsHead()


keys = st.sampled_from(
    ["name", "uri", "arguments", "_meta", "progressToken", VERSION, CAPABILITIES, INFO, LEVEL, "x"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just("2026-07-28"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(150))
@given(st.dictionaries(keys, values))
def test_reading_the_head_of_params_never_fails_and_returns_valid_members(
    params: dict[str, Any],
) -> None:
    head = head_of(params)
    for name in ("name", "uri"):
        value = params.get(name)
        assert getattr(head, name) == (value if isinstance(value, str) else UNSET)
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        assert head.meta is UNSET
        return
    assert isinstance(head.meta, Meta)
    # Either key makes a request stateless, even if its value is invalid.
    assert is_stateless(head.meta) == (VERSION in meta or CAPABILITIES in meta)
    token = meta.get("progressToken")
    valid = isinstance(token, int | str) and not isinstance(token, bool)
    assert head.meta.progress_token == (token if valid else UNSET)


# Callers.


@pytest.mark.covers("PRO-20")
def test_the_caller_of_a_stateless_request_is_read_from_its_meta() -> None:
    meta = meta_of({VERSION: NEWEST, CAPABILITIES: {"roots": {}}, INFO: {"name": "c"}})
    assert stateless_caller(meta, "alice") == Caller(
        NEWEST, True, "alice", b'{"roots":{}}', b'{"name":"c"}'
    )
    meta = meta_of({VERSION: NEWEST, CAPABILITIES: {}, LEVEL: "debug"})
    assert stateless_caller(meta, ANONYMOUS) == Caller(
        NEWEST, True, ANONYMOUS, b"{}", None, "debug"
    )


@pytest.mark.covers("PRO-20")
@pytest.mark.parametrize(
    "meta",
    [
        {CAPABILITIES: {}},
        {CAPABILITIES: {}, VERSION: None},
        {CAPABILITIES: {}, VERSION: 20260728},
        {VERSION: NEWEST},
        {VERSION: NEWEST, CAPABILITIES: None},
        {VERSION: NEWEST, CAPABILITIES: []},
        {VERSION: NEWEST, CAPABILITIES: "roots"},
        {VERSION: 5},
        {VERSION: None},
        {VERSION: "2099-01-01"},  # missing capabilities are reported before the unsupported version
        {VERSION: "2099-01-01", CAPABILITIES: 5},
    ],
)
def test_a_stateless_request_with_incomplete_metadata_is_refused(meta: Any) -> None:
    assert is_stateless(meta_of(meta))
    error = refusal(meta)
    assert (error.code, error.data) == (-32602, None)


@pytest.mark.covers("PRO-20", "RPC-11")
@pytest.mark.parametrize("version", ["2099-01-01", "", "latest", *(r.value for r in HANDSHAKE)])
def test_unsupported_version_is_refused_with_the_supported_versions(
    version: str,
) -> None:
    error = refusal({VERSION: version, CAPABILITIES: {}})
    assert error.code == -32022
    assert error.data["requested"] == version
    assert set(error.data["supported"]) == {revision.value for revision in Revision}
    assert error.data["supported"][0] == NEWEST.value


def test_the_error_for_an_unsupported_version_names_the_supported_versions() -> None:
    error = refusal({VERSION: "1999", CAPABILITIES: {}})
    assert error.message == (
        "Protocol version '1999' is not served without a handshake; supported: 2026-07-28"
    )


@pytest.mark.parametrize("has_info", [True, False], ids=["with info", "without info"])
def test_the_size_of_declared_capabilities_and_client_info_is_limited(has_info: bool) -> None:
    info = Raw(b'{"name":"c"}') if has_info else UNSET
    room = DECLARATION_BYTES.value - (len(b'{"name":"c"}') if has_info else 0)
    check_declaration(Raw(b'{"a":"%b"}' % (b"x" * (room - 8))), info)
    hits = DECLARATION_BYTES.hits
    with pytest.raises(RpcError) as refused:
        check_declaration(Raw(b'{"a":"%b"}' % (b"x" * (room - 7))), info)
    assert refused.value.code == -32602
    assert refused.value.message == (
        f"capabilities and clientInfo have more than {DECLARATION_BYTES.value} bytes"
    )
    assert DECLARATION_BYTES.hits == hits + 1
    meta = Meta(UNSET, NEWEST.value, Raw(b'{"a":"%b"}' % (b"x" * (room - 7))), info)
    with pytest.raises(RpcError):
        stateless_caller(meta, ANONYMOUS)


def test_a_request_is_not_stateless_if_meta_has_neither_version_nor_capabilities() -> None:
    assert not is_stateless(meta_of({"progressToken": 1, INFO: {}, LEVEL: "info"}))


# Capabilities and names.


def test_a_nested_capability_is_named_by_its_path() -> None:
    caller = Caller(
        NEWEST, True, ANONYMOUS, b'{"elicitation":{"url":{}},"sampling":{},"roots":false}'
    )
    wanted = ("sampling", "elicitation", "elicitation.url", "elicitation.form", "roots", "x.y")
    assert [caller.can(name) for name in wanted] == [True, True, True, False, False, False]


def test_elicitation_without_a_mode_means_forms() -> None:
    caller = Caller(Revision.V2025_06_18, False, ANONYMOUS, b'{"elicitation":{}}')
    assert caller.can("elicitation.form")
    assert not caller.can("elicitation.url")


@pytest.mark.parametrize(
    "declared", [b"null", b"[]", b"5", b"{", b'{"a":' + b"9" * 5000 + b"}", b"[" * 100_000]
)
def test_capabilities_that_cannot_be_decoded_count_as_empty(declared: bytes) -> None:
    caller = Caller(NEWEST, True, ANONYMOUS, declared)
    assert caller.declared == {}
    assert not caller.can("sampling")


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (None, "unknown"),
        (b"{}", "unknown"),
        (b"null", "unknown"),
        (b'{"name":"c"}', "c"),
        (b'{"name":5}', "5"),
    ],
)
def test_the_name_of_a_caller_is_read_from_its_client_info(info: bytes | None, name: str) -> None:
    assert Caller(NEWEST, True, ANONYMOUS, b"{}", info).name == name


def test_declared_capabilities_are_kept_as_sent() -> None:
    sent = b'{"experimental":{"n":1.50}}'
    meta = b'{"_meta":{"%b":"2026-07-28","%b":%b}}' % (
        VERSION.encode(),
        CAPABILITIES.encode(),
        sent,
    )
    head = read_params_head(Raw(meta))
    assert isinstance(head.meta, Meta)
    caller = stateless_caller(head.meta, ANONYMOUS)
    assert caller.capabilities == sent
    assert caller.declared == json.loads(sent)


def test_the_anonymous_principal_is_falsy_and_equals_no_name() -> None:
    assert not ANONYMOUS
    for name in ("", "anonymous"):
        assert name != ANONYMOUS
    assert len({ANONYMOUS: 1, "anonymous": 2}) == 2


def test_a_principal_is_encoded_and_decoded_unchanged() -> None:
    for principal in (ANONYMOUS, "ada", ""):
        assert principal_from(principal_name(principal)) == principal
    assert principal_name(ANONYMOUS) is None
