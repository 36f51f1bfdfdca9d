import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.errors import LocalProtocolError
from fairlead.protocol.caller import ANONYMOUS, read_params_head, stateless_caller
from fairlead.protocol.outgoing_params import Identity, with_meta
from fairlead.protocol.revisions import NEWEST
from fairlead.wire import Params, to_json

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"
LEVEL = "io.modelcontextprotocol/logLevel"

US = Identity({"name": "us", "version": "1"}, {"roots": {}})
STAMP = {VERSION: NEWEST.value, CAPABILITIES: {"roots": {}}, INFO: {"name": "us", "version": "1"}}


def plain(params: Params) -> Any:
    assert isinstance(params, Raw)
    return json.loads(bytes(params))


# Request metadata of the stateless era.


@pytest.mark.covers("PRO-20")
def test_request_metadata_contains_version_capabilities_and_client_name() -> None:
    assert plain(with_meta(None, None, US.stamp)) == {"_meta": STAMP}


def test_the_default_identity_has_a_name_and_no_capabilities() -> None:
    us = Identity()
    assert (us.info, us.capabilities) == (b'{"name":"fairlead","version":"0"}', b"{}")


def test_the_log_level_is_sent_until_it_is_reset() -> None:
    us = Identity()
    us.request_log_level("info")
    assert plain(with_meta(None, None, us.stamp))["_meta"][LEVEL] == "info"
    us.request_log_level("error")
    assert plain(with_meta(None, None, us.stamp))["_meta"][LEVEL] == "error"
    us.request_log_level(None)
    assert LEVEL not in plain(with_meta(None, None, us.stamp))["_meta"]


@pytest.mark.covers("PRO-20")
def test_a_server_reads_the_request_metadata_of_a_client() -> None:
    us = Identity({"name": 'a"\n\ud83d', "version": "1"}, {"x": 'y"}'})
    us.request_log_level("debug")
    head = read_params_head(with_meta({"name": "echo"}, "t", us.stamp))
    assert head.name == "echo"
    assert head.meta is not UNSET
    assert head.meta.progress_token == "t"
    caller = stateless_caller(head.meta, ANONYMOUS)
    assert (caller.revision, caller.declared, caller.name, caller.log_level) == (
        NEWEST,
        {"x": 'y"}'},
        'a"\n\ufffd',
        "debug",
    )


# Params and added members.


def test_params_without_additions_are_returned_unchanged() -> None:
    raw = Raw(b'{ "a" : 1.0 }')
    assert with_meta(None, None, b"") is UNSET
    assert with_meta(raw, None, b"") is raw
    assert with_meta({}, None, b"") == Raw(b"{}")
    assert with_meta({"a": [1]}, None, b"") == Raw(b'{"a":[1]}')


def test_a_progress_token_is_sent_without_request_metadata() -> None:
    assert with_meta(None, 7, b"") == Raw(b'{"_meta":{"progressToken":7}}')
    assert with_meta({}, "7", b"") == Raw(b'{"_meta":{"progressToken":"7"}}')
    assert with_meta({"a": 1}, 0, b"") == Raw(b'{"a":1,"_meta":{"progressToken":0}}')


@pytest.mark.parametrize("params", [{"a": 1}, Raw(b'{"a":1}')])
def test_progress_token_and_request_metadata_are_sent_in_one_meta_member(params: Any) -> None:
    assert plain(with_meta(params, 7, US.stamp)) == {
        "a": 1,
        "_meta": {"progressToken": 7, **STAMP},
    }


@pytest.mark.parametrize("as_raw", [True, False])
def test_request_metadata_overrides_equal_keys_in_the_meta_of_the_caller(as_raw: bool) -> None:
    own = {"traceparent": "00-1", "progressToken": "mine", VERSION: "old", "n": {"deep": [1]}}
    params: Any = {"a": 1, "_meta": own}
    sent = with_meta(Raw(to_json(params)) if as_raw else params, 7, US.stamp)
    meta = {"traceparent": "00-1", "n": {"deep": [1]}, "progressToken": 7, **STAMP}
    assert plain(sent) == {"a": 1, "_meta": meta}


def test_the_progress_token_of_the_caller_is_kept_unless_another_token_is_given() -> None:
    params = {"_meta": {"progressToken": "mine"}}
    assert plain(with_meta(params, None, US.stamp)) == {"_meta": {"progressToken": "mine", **STAMP}}


def test_forwarded_values_keep_their_original_json_text() -> None:
    raw = Raw(rb'{"n": 1.50, "s": "\u00e9", "_meta": {"x": 1E2, "x": 1E3}}')
    assert with_meta(raw, 1, b"") == Raw(
        rb'{"n":1.50,"s":"\u00e9","_meta":{"x":1E3,"progressToken":1}}'
    )


@pytest.mark.parametrize("params", [{"a": 1, "_meta": None}, Raw(b'{"a":1,"_meta":null}')])
def test_a_null_meta_of_the_caller_counts_as_absent(params: Any) -> None:
    assert with_meta(params, 1, b"") == Raw(b'{"a":1,"_meta":{"progressToken":1}}')


@pytest.mark.parametrize(
    "params", [{"_meta": 5}, {"_meta": []}, Raw(b'{"_meta":"x"}'), Raw(b"[]"), Raw(b"{")]
)
def test_meta_that_is_not_an_object_raises_a_local_error(params: Any) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        with_meta(params, 1, b"")
    assert caught.value.code == -32602


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.none() | st.integers() | texts | st.lists(st.booleans(), max_size=2)


@settings(deadline=None)
@given(
    st.dictionaries(texts.filter(lambda name: name != "_meta"), values, max_size=3),
    st.none() | st.dictionaries(texts, values, max_size=3),
    st.none() | st.integers() | texts,
    st.booleans(),
    st.booleans(),
)
def test_added_meta_changes_only_the_progress_token_and_request_metadata(
    params: dict[str, Any],
    own: dict[str, Any] | None,
    token: int | str | None,
    stamped: bool,
    as_raw: bool,
) -> None:
    given_params = params if own is None else {**params, "_meta": own}
    meta = {**(own or {}), **({} if token is None else {"progressToken": token})}
    meta.update(STAMP if stamped else {})
    sent = with_meta(
        Raw(to_json(given_params)) if as_raw else given_params,
        token,
        US.stamp if stamped else b"",
    )
    expected = {**params, "_meta": meta} if meta or own is not None else params
    assert plain(sent) == expected
