"""Tests of converting client capabilities for a server of the other era."""

import json
from typing import Any

import pytest

from fairlead.protocol.caller import cached_if_short, can_be_asked, has_roots
from fairlead.protocol.identity.client_capabilities import (
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
def test_a_stateless_server_receives_capabilities_that_apply_to_single_requests(
    declared: dict[str, Any], received: dict[str, Any]
) -> None:
    assert json.loads(for_stateless_server(json.dumps(declared).encode())) == received


def test_a_handshake_server_receives_only_extensions_with_known_names() -> None:
    declared = {"roots": {}, "extensions": {UI: {}, "x/y": {}}}
    received = json.loads(for_handshake_server(json.dumps(declared).encode()))
    assert received == {"roots": {}, "extensions": {UI: {}}}


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
def test_a_client_with_input_capabilities_can_receive_input_requests(
    capabilities: bytes, asked: bool
) -> None:
    assert can_be_asked(capabilities) is asked


@pytest.mark.parametrize(("length", "calls"), [(4095, 1), (4096, 2)])
def test_results_for_long_bytes_are_not_cached(length: int, calls: int) -> None:
    seen = list[int]()

    @cached_if_short(2)
    def size(raw: bytes) -> int:
        seen.append(len(raw))
        return len(raw)

    assert size(b"x" * length) == size(b"x" * length) == length
    assert seen == [length] * calls


def test_the_number_of_cached_results_is_limited() -> None:
    seen = list[bytes]()

    @cached_if_short(2)
    def note(raw: bytes) -> None:
        seen.append(raw)

    for raw in (b"a", b"b", b"b", b"c", b"a"):
        note(raw)
    assert seen == [b"a", b"b", b"c", b"a"]


@pytest.mark.parametrize(
    ("declared", "asked", "roots"),
    [
        (b"{}", False, False),
        (b'{"roots":{}}', True, True),
        (b'{"sampling":{}}', True, False),
        (b'{"elicitation":{"url":{}}}', True, False),
        (b'{"experimental":{}}', False, False),
        (b"[]", False, False),
        (b"nonsense", False, False),
    ],
)
def test_input_capabilities_and_roots_of_a_client_are_recognized(
    declared: bytes, asked: bool, roots: bool
) -> None:
    assert (can_be_asked(declared), has_roots(declared)) == (asked, roots)
