"""What a client declares, as a server of the other era receives it."""

import json
from typing import Any

import pytest

from fairlead.relay.bridge.client_capabilities import (
    can_be_asked,
    fingerprint,
    for_handshake_server,
    for_stateless_server,
)

UI = "io.modelcontextprotocol/ui"


@pytest.mark.parametrize(
    ("declared", "received"),
    [
        ({}, {}),
        ({"sampling": {}}, {"sampling": {}}),
        ({"roots": {"listChanged": True}, "sampling": {}}, {"roots": {}, "sampling": {}}),
        ({"tasks": {"list": {}}, "elicitation": {}}, {"elicitation": {}}),
        ({"extensions": {UI: {"a": 1}, "x/y": {}}}, {"extensions": {UI: {"a": 1}}}),
        ({"extensions": {"x/y": {}}, "sampling": {}}, {"sampling": {}}),
    ],
)
def test_a_stateless_server_receives_what_applies_to_single_requests(
    declared: dict[str, Any], received: dict[str, Any]
) -> None:
    assert json.loads(for_stateless_server(json.dumps(declared).encode())) == received


def test_a_handshake_server_receives_known_extensions_only() -> None:
    declared = {"roots": {}, "extensions": {UI: {}, "x/y": {}}}
    received = json.loads(for_handshake_server(json.dumps(declared).encode()))
    assert received == {"roots": {}, "extensions": {UI: {}}}


def test_equal_capabilities_have_one_fingerprint_in_any_order() -> None:
    assert fingerprint(b'{"a":{},"b":{}}') == fingerprint(b'{"b": {}, "a": {}}')
    assert fingerprint(b'{"a":{}}') != fingerprint(b'{"a":{"b":1}}')
    assert fingerprint(b"no json") == b"no json"


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        (b"{}", False),
        (b'{"sampling":{}}', True),
        (b'{"roots":{},"x":"%b"}' % (b"y" * 2000), True),
        (b'{"experimental":{}}', False),
        (b"[]", False),
        (b"{", False),
    ],
)
def test_who_declares_a_way_to_be_asked_can_be(capabilities: bytes, asked: bool) -> None:
    assert can_be_asked(capabilities) is asked
