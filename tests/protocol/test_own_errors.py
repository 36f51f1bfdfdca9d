"""Errors that a relay or gateway creates about a failed server."""

import pytest

from fairlead.errors import LoginRequired
from fairlead.protocol.own_errors import unreachable_error


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ("notes", "notes"),
        ("notes --gateway /home/ann/gateway.toml", "notes --gateway FILE"),
        ("notes --gateway '/home/a b/g.toml' --scope a", "notes --gateway FILE --scope a"),
        ("notes --gateway '/a'\"'\"'b/g.toml' --scope a", "notes --gateway FILE --scope a"),
        ("https://internal.example/mcp --scope 'a;b'", "URL --scope 'a;b'"),
        ("'https://internal.example/a&b'", "URL"),
    ],
)
def test_errors_for_clients_contain_the_login_command_without_files_and_addresses(
    arguments: str, shown: str
) -> None:
    error = LoginRequired("h", remedy=f"run `fairlead login {arguments}`", scopes=["a"])
    assert unreachable_error("notes", error).message == (
        "server 'notes' requires a login with more scopes: a; the operator of this proxy has to "
        f"run `fairlead login {shown}`"
    )


def test_an_error_for_clients_without_a_login_command_has_only_the_reason() -> None:
    message = unreachable_error("notes", LoginRequired("h", server="https://h")).message
    assert message == "server 'notes' requires a login"
