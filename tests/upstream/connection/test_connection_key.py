"""Keys of connections, which are equal for clients that a server cannot distinguish."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.protocol.caller import (
    ANONYMOUS,
    Caller,
    Principal,
    can_be_asked,
    principal_from,
)
from fairlead.protocol.identity.client_capabilities import (
    for_handshake_server,
    for_stateless_server,
)
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.upstream.connection.connection_key import (
    STATELESS,
    ConnectionKey,
    key_of_caller,
    key_of_session,
    normal_capabilities,
)
from tests.support.single_exchange import exchange

ADA = principal_from("ada")
UI = "io.modelcontextprotocol/ui"
VERSION = NEWEST_HANDSHAKE.value
LONG = 1 << 20


def caller(capabilities: Any = None, principal: Principal = ANONYMOUS) -> Caller:
    declared = capabilities if isinstance(capabilities, bytes) else json.dumps(capabilities or {})
    data = declared if isinstance(declared, bytes) else declared.encode()
    return exchange(capabilities=data, principal=principal).caller


def caller_key(caller: Caller) -> ConnectionKey:
    return key_of_caller(caller.capabilities, caller.principal)


def declaration(**members: Any) -> bytes:
    return json.dumps(members).encode()


def introduction(**members: Any) -> bytes:
    return json.dumps({"protocolVersion": VERSION, **members}).encode()


def test_the_key_of_a_stateless_caller_contains_its_capabilities() -> None:
    key = caller_key(caller({"roots": {}, "sampling": {}}, ADA))
    assert key == ConnectionKey(False, VERSION, b'{"roots":{},"sampling":{}}', ADA, False)
    assert caller_key(caller()) == ConnectionKey(False, VERSION)
    assert ConnectionKey(True) == STATELESS


@pytest.mark.parametrize(("capabilities", "asked"), [({}, False), ({"roots": {}}, True)])
def test_the_key_of_a_session_contains_its_revision_and_capabilities(
    capabilities: Any, asked: bool
) -> None:
    key = key_of_session(caller(capabilities, ADA), introduction())
    declared = json.dumps(capabilities, separators=(",", ":")).encode()
    assert key == ConnectionKey(False, VERSION, declared, ADA, asked)


def test_a_session_and_a_stateless_caller_share_a_key_unless_they_accept_server_requests() -> None:
    """A suspended call of a stateless caller can occupy its connection for minutes."""
    assert key_of_session(caller(), introduction()) == caller_key(caller())
    asked = caller({"elicitation": {}})
    assert key_of_session(asked, introduction()) != caller_key(asked)


@pytest.mark.parametrize(
    ("declared", "normal"),
    [
        ({}, {}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"form": {"x": 1}}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}, "form": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ({"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
        ({"elicitation": 5, "sampling": [], "roots": None}, {}),
        ({"sampling": {"context": {}}}, {"sampling": {}}),
        ({"sampling": {"tools": {"x": 1}}}, {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}}, {"roots": {}}),
        ({"experimental": {"x": {}}, "tasks": {}, "vendor": 5}, {}),
        ({"extensions": {UI: {"a": 1}, "x/y": {}}}, {"extensions": {UI: {}}}),
        ({"extensions": {"x/y": {}}}, {}),
        ({"extensions": 5}, {}),
        (b"[1]", {}),
        (b"{", {}),
        (b"[" * 100_000, {}),
    ],
)
def test_capabilities_that_do_not_affect_servers_are_removed(declared: Any, normal: Any) -> None:
    data = declared if isinstance(declared, bytes) else json.dumps(declared).encode()
    assert json.loads(normal_capabilities(data)) == normal


@given(st.permutations(["roots", "sampling", "elicitation", "experimental"]))
def test_the_order_of_capabilities_is_ignored(names: list[str]) -> None:
    declared = json.dumps({name: {} for name in names}).encode()
    expected = b'{"elicitation":{"form":{}},"roots":{},"sampling":{}}'
    assert normal_capabilities(declared) == expected


@pytest.mark.parametrize(
    ("said", "revision"),
    [
        (introduction(), VERSION),
        (introduction(clientInfo={"name": "x"}, capabilities={"roots": {}}), VERSION),
        (b'{"protocolVersion":"2024-11-05"}', "2024-11-05"),
        (b'{"protocolVersion":"2027-01-01"}', ""),
        (b'{"protocolVersion":5}', ""),
        (b"{}", ""),
        (b"[]", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_the_revision_in_a_connection_key_is_the_version_proposed_by_the_client(
    said: bytes, revision: str
) -> None:
    assert key_of_session(caller(), said).revision == revision


def test_clients_that_a_server_can_distinguish_have_different_keys() -> None:
    keys = {
        key_of_session(caller(), introduction()),
        key_of_session(caller(principal=ADA), introduction()),
        key_of_session(caller({"roots": {}}), introduction()),
        key_of_session(caller(), b'{"protocolVersion":"2024-11-05"}'),
        STATELESS,
    }
    assert len(keys) == 5
    assert key_of_session(caller({"tasks": {}}, ADA), introduction(clientInfo={})) in keys


@pytest.mark.parametrize(
    "function",
    [
        normal_capabilities,
        can_be_asked,
        for_handshake_server,
        for_stateless_server,
        partial(key_of_caller, principal=ANONYMOUS),
    ],
)
def test_long_capabilities_are_not_kept_in_memory(function: Any) -> None:
    held = held_after(function, (declaration(number=n, padding="x" * LONG) for n in range(20)))
    assert held < 2 * LONG


def test_long_introductions_are_not_kept_in_memory() -> None:
    def proposed(params: bytes) -> None:
        assert key_of_session(caller(), params).revision == "2025-11-25"

    held = held_after(proposed, (introduction(number=n, padding="x" * LONG) for n in range(20)))
    assert held < 2 * LONG


def held_after(function: Callable[[bytes], object], inputs: Iterator[bytes]) -> int:
    """Return the memory that a function keeps after calls with all inputs, in bytes."""
    tracemalloc.start()
    try:
        for one in inputs:
            function(one)
        del one
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held
