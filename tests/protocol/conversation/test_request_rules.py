"""Tests of the requests that may be sent in each session state and to each client."""

import pytest

from fairlead.errors import LocalProtocolError
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.conversation.request_rules import (
    check_before_handshake,
    check_server_request,
)
from fairlead.protocol.envelope import SessionState
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.wire.error_codes import INVALID_REQUEST, METHOD_NOT_FOUND

NEW, OPENING = SessionState.UNINITIALIZED, SessionState.INITIALIZING


@pytest.mark.parametrize("method", ["initialize", "server/discover", "ping"])
def test_a_client_may_send_handshake_requests_and_pings_before_the_handshake(method: str) -> None:
    check_before_handshake(method, NEW, is_client=True, gated=True)


@pytest.mark.parametrize(
    ("method", "state", "is_client", "gated", "code"),
    [
        ("tools/list", NEW, True, True, INVALID_REQUEST),
        ("ping", NEW, False, True, METHOD_NOT_FOUND),
        ("roots/list", OPENING, False, True, METHOD_NOT_FOUND),
        ("ping", SessionState.CLOSING, True, False, INVALID_REQUEST),
        ("ping", SessionState.CLOSED, False, False, INVALID_REQUEST),
    ],
)
def test_requests_before_the_handshake_or_after_closing_are_refused(
    method: str, state: SessionState, is_client: bool, gated: bool, code: int
) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        check_before_handshake(method, state, is_client, gated)
    assert caught.value.code == code


def test_a_server_may_ping_during_the_handshake_and_ungated_peers_may_send_any_request() -> None:
    check_before_handshake("ping", OPENING, is_client=False, gated=True)
    check_before_handshake("tools/list", NEW, is_client=True, gated=False)


def test_a_server_requests_only_features_that_its_client_declared() -> None:
    client = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS, b'{"roots":{}}')
    check_server_request("roots/list", client)
    check_server_request("vendor/question", client)
    with pytest.raises(LocalProtocolError, match="needs the client capability 'sampling'"):
        check_server_request("sampling/createMessage", client)
    check_server_request("sampling/createMessage", client, undeclared=True)
    old = Caller(Revision.V2025_03_26, False, ANONYMOUS, b'{"elicitation":{}}')
    with pytest.raises(LocalProtocolError, match="is not part of 2025-03-26"):
        check_server_request("elicitation/create", old, undeclared=True)
