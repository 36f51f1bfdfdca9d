"""Tests of the descriptions of server failures that a gateway sends to its clients."""

import socket
import ssl

import pytest

from fairlead.errors import (
    CannotAsk,
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
    TransportError,
)
from fairlead.protocol.public_reason import owner_reason, public_reason


def caused(error: BaseException, *causes: BaseException) -> BaseException:
    """Chain errors so that each is the cause of the previous one."""
    chain = [error, *causes]
    for one, cause in zip(chain, causes, strict=False):
        one.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "could not be reached"),
        (ValueError("secret"), "could not be reached"),
        (TransportError("secret", public="is away"), "is away"),
        (TransportError("secret"), "could not be reached"),
        (RequestTimeout(1.5), "did not answer within 1.5 s"),
        (HttpError(299, "secret"), "answered with HTTP 299"),
        (HttpError(300, "secret"), "redirected the request, and redirects are not followed"),
        (HttpError(399, "secret"), "redirected the request, and redirects are not followed"),
        (HttpError(400, "secret"), "answered with HTTP 400"),
        (NoAnswer(1), "ended its response without a result"),
        (RemoteProtocolError("secret", code=-32700), "sent a message that cannot be read"),
        (RemoteProtocolError("secret", code=-32600), "sent a message that is not valid"),
        (RpcError(-32603, "secret"), "answered with error -32603"),
        (ConfigError("secret"), "is not configured correctly"),
        (ConnectFailed("secret", exit_code=0), "exited with code 0 during start-up"),
        (ConnectFailed("secret", exit_code=-9), "was ended by SIGKILL during start-up"),
        (ConnectFailed("secret"), "could not be reached"),
        (ChannelClosed("secret", exit_code=3), "exited with code 3"),
        (ChannelClosed("secret", exit_code=-250), "was ended by signal 250"),
        (ChannelClosed("secret"), "closed the connection"),
        (CannotAsk("secret", capability="x"), "could not be reached"),
        (ConnectionRefusedError(), "refused the connection"),
        (ConnectionResetError(), "closed the connection"),
        (socket.gaierror(), "could not be reached: its host name cannot be resolved"),
        (ssl.SSLCertVerificationError(), "could not be reached: the TLS handshake failed"),
        (TimeoutError(), "did not answer in time"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_public_reason_contains_only_types_and_numbers(
    error: BaseException | None, reason: str
) -> None:
    assert public_reason(error) == reason


def test_the_public_reason_describes_the_more_specific_of_chained_errors() -> None:
    refused, reset, bug = ConnectionRefusedError(), ConnectionResetError(), ValueError()
    assert public_reason(caused(ConnectFailed("x"), refused)) == "refused the connection"
    assert public_reason(caused(ChannelClosed("x"), HttpError(500))) == "answered with HTTP 500"
    assert public_reason(caused(ChannelClosed("x"), bug)) == "closed the connection"
    assert public_reason(caused(HttpError(500), reset)) == "answered with HTTP 500"


@pytest.mark.parametrize(
    ("depth", "reason"), [(7, "refused the connection"), (8, "could not be reached")]
)
def test_at_most_eight_nested_causes_are_examined(depth: int, reason: str) -> None:
    wrapped = [ConnectFailed("x") for _ in range(depth)]
    assert public_reason(caused(*wrapped, ConnectionRefusedError())) == reason


def test_the_owner_reason_is_the_message_without_stderr() -> None:
    error = ChannelClosed("it crashed", exit_code=3, stderr=("trace",))
    assert "it crashed" in owner_reason(error)
    assert "trace" not in owner_reason(error)
    assert owner_reason(ValueError("odd")) == "odd"
