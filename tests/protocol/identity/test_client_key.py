"""Tests of keys that identify a client by facts that it cannot choose."""

import pytest

from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.identity.client_key import client_key, connection_key, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:5000", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::ffff:10.0.0.1]:80", "10.0.0.1"),
        ("host:80", "host"),
        ("host", "host"),
        ("/run/x.sock", "/run/x.sock"),
        ("", ""),
    ],
)
def test_addresses_in_one_network_count_as_one_client(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("principal", "address", "key"),
    [
        ("ann", None, "principal:ann"),
        ("ann", "10.0.0.1", "principal:ann"),
        (ANONYMOUS, "10.0.0.1:5", "address:10.0.0.1"),
        (ANONYMOUS, None, "address:"),
    ],
)
def test_a_client_is_identified_by_its_principal_or_its_address(
    principal: Principal, address: str | None, key: str
) -> None:
    assert client_key(principal, address) == key


@pytest.mark.parametrize("kind", ["http", "sse", "websocket", "stdio", "memory"])
def test_an_anonymous_client_on_a_pipe_is_identified_by_its_connection(kind: str) -> None:
    connection = object()
    plain = TransportContext(transport_type=kind)
    on_network = kind in ("http", "sse", "websocket")
    expected = "address:" if on_network else f"connection:{id(connection)}"
    assert connection_key(ANONYMOUS, plain, connection) == expected
    assert connection_key("ann", plain, connection) == "principal:ann"
    placed = TransportContext(transport_type=kind, peer_address="10.0.0.1")
    assert connection_key(ANONYMOUS, placed, connection) == "address:10.0.0.1"
