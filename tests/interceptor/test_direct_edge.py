"""Tests of requests without a connection."""

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor.direct_edge import NullReplyPath, direct_exchange
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import Direction
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.wire import Request

CALLER = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
CALL = Request(1, "tools/call", Raw(b'{"name":"x"}'))


async def test_a_request_to_the_client_without_a_connection_is_an_error() -> None:
    asked = direct_exchange(CALL, CALLER)
    with pytest.raises(RpcError) as refused:
        await asked.edge.request_caller(asked, "sampling/createMessage", {})
    assert (refused.value.code, refused.value.message) == (
        -32601,
        "sampling/createMessage cannot be sent: no client is connected",
    )


def test_the_transport_of_an_exchange_without_a_connection_is_direct() -> None:
    asked = direct_exchange(CALL, CALLER, headers={"x": "1"})
    assert asked.head.name == "x"
    assert asked.direction is Direction.CLIENT_TO_SERVER
    assert (asked.transport.transport_type, asked.transport.headers) == ("direct", {"x": "1"})
    other = read_params_head(Raw(b'{"name":"y"}'))
    assert direct_exchange(CALL, CALLER, other).head.name == "y"
    path = NullReplyPath(ANONYMOUS)
    assert path.log_level is None
    assert path.session is not None
