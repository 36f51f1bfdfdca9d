import typing

import msgspec
import pytest
from msgspec import Raw

from fairlead.protocol.envelope import (
    Direction,
    McpMessage,
    MessageEnvelope,
    SessionContext,
    SessionState,
    TransportContext,
)
from fairlead.wire import Failure, JsonRpcMessage, Notification, Request, Success


@pytest.mark.covers("PRO-10")
def test_mcp_message_is_a_union_of_the_four_kinds_of_messages() -> None:
    kinds = {Request, Notification, Success, Failure}
    assert set(typing.get_args(McpMessage)) == kinds
    assert McpMessage == JsonRpcMessage


@pytest.mark.covers("PRO-11")
def test_a_response_has_the_reverse_direction_of_its_request() -> None:
    assert {direction: direction.reverse() for direction in Direction} == {
        Direction.CLIENT_TO_SERVER: Direction.SERVER_TO_CLIENT,
        Direction.SERVER_TO_CLIENT: Direction.CLIENT_TO_SERVER,
        Direction.INTERNAL: Direction.INTERNAL,
    }


def test_reversing_a_direction_twice_returns_the_original_direction() -> None:
    assert [direction.reverse().reverse() for direction in Direction] == [*Direction]


@pytest.mark.covers("PRO-07")
def test_the_state_of_a_session_has_five_values() -> None:
    assert [state.name for state in SessionState] == [
        "UNINITIALIZED",
        "INITIALIZING",
        "ACTIVE",
        "CLOSING",
        "CLOSED",
    ]


@pytest.mark.covers("PRO-13")
def test_a_transport_context_requires_only_a_type() -> None:
    with pytest.raises(TypeError):
        TransportContext()  # type: ignore[call-arg]
    context = TransportContext(transport_type="stdio")
    assert msgspec.structs.asdict(context) == {
        "transport_type": "stdio",
        "connected": True,
        "headers": None,
        "cookies": None,
        "method": None,
        "path": None,
        "status": None,
        "event_id": None,
        "event_type": None,
        "last_event_id": None,
        "retry_after": None,
        "process_id": None,
        "close_code": None,
        "peer_address": None,
        "connection_id": None,
    }


@pytest.mark.covers("PRO-14")
def test_a_session_context_requires_only_a_state() -> None:
    with pytest.raises(TypeError):
        SessionContext()  # type: ignore[call-arg]
    session = SessionContext(state=SessionState.UNINITIALIZED)
    assert msgspec.structs.asdict(session) == {
        "state": SessionState.UNINITIALIZED,
        "session_id": None,
        "protocol_version": None,
        "client_info": None,
        "server_info": None,
        "client_capabilities": None,
        "server_capabilities": None,
        "instructions": None,
        "correlation_id": None,
    }


@pytest.mark.covers("PRO-14")
def test_a_session_can_be_encoded_and_decoded() -> None:
    session = SessionContext(
        state=SessionState.ACTIVE,
        session_id="s",
        protocol_version="2025-11-25",
        client_info={"name": "c", "version": "1"},
        server_info={"name": "s", "version": "2"},
        client_capabilities={"roots": {}},
        server_capabilities={"tools": {"listChanged": True}},
        instructions="Be kind.",
        correlation_id="abc",
    )
    kept = msgspec.json.encode(session)
    assert msgspec.json.decode(kept, type=SessionContext) == session


@pytest.mark.covers("PRO-12")
def test_an_envelope_is_immutable_and_has_the_context_of_one_message() -> None:
    transport = TransportContext(transport_type="http", headers={"Origin": "http://localhost"})
    session = SessionContext(state=SessionState.ACTIVE)
    envelope = MessageEnvelope(
        message=Success(1, Raw(b"{}")),
        direction=Direction.SERVER_TO_CLIENT,
        transport=transport,
        session=session,
        received_at=1000.0,
        elapsed=0.5,
    )
    assert msgspec.structs.asdict(envelope) == {
        "message": Success(1, Raw(b"{}")),
        "direction": Direction.SERVER_TO_CLIENT,
        "transport": transport,
        "session": session,
        "received_at": 1000.0,
        "elapsed": 0.5,
    }
    with pytest.raises(AttributeError):
        envelope.direction = Direction.INTERNAL  # type: ignore[misc]
