"""Tests of finding the secrets in the configuration of a server."""

from typing import Any

import pytest

from fairlead.recording.tape.known_secrets import secrets_in, secrets_of


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["x", "--api-key", "abc"], ["abc"]),
        (["x", "--api-key=abc"], ["abc"]),
        (["x", "--token", "--verbose"], []),
        (["x", "--name", "abc"], []),
        (["x", "token", "abc"], []),
        (["x", "--name=abc"], []),
        (["x", "-token=abc"], ["abc"]),
    ],
)
def test_command_line_options_named_like_a_secret_are_found(
    command: list[str], found: list[str]
) -> None:
    assert secrets_in(command, {}) == found


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("API_TOKEN", "abc", True),
        ("MY_KEY", "abc", True),
        ("DB_PASS", "abc", True),
        ("KEYBOARD", "abc", False),
        ("PATH", "abc", False),
        ("COMPASS", "abc", False),
        ("PASS", "abc", True),
    ],
)
def test_variables_named_like_a_secret_are_found(name: str, value: str, secret: bool) -> None:
    assert (value in secrets_in([], {name: value})) is secret


def test_a_secret_is_found_with_and_without_a_prefix_such_as_bearer() -> None:
    assert "abc" in secrets_in([], {"AUTH_TOKEN": "Bearer abc"})


def test_passwords_in_urls_are_found_in_encoded_and_decoded_form() -> None:
    found = secrets_in([], {"DATABASE": "postgres://u:p%40ss@h/db", "OTHER": "u:p2@h"})
    assert {"p%40ss", "p@ss"} <= set(found)
    assert "p2" not in found
    assert secrets_in([], {"ODD": "http://[half"}) == []


@pytest.mark.parametrize(
    ("entry", "found", "unknown"),
    [
        (
            {"url": "http://u:pw@h/", "headers": {"X-Api-Key": "abc", "X": "d"}},
            {"pw", "abc"},
            {"d"},
        ),
        (
            {"command": "x", "args": ["--token", "abc"], "env": {"MY_KEY": "def", "A": "g"}},
            {"abc", "def"},
            {"g"},
        ),
    ],
)
def test_secrets_in_a_configuration_entry_are_found(
    entry: dict[str, Any], found: set[str], unknown: set[str]
) -> None:
    secrets = set(secrets_of(entry))
    assert found <= secrets
    assert not unknown & secrets


def test_secrets_in_the_environment_of_a_command_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_TOKEN", "inherited-value")
    assert "inherited-value" in secrets_of({"command": "x"})
    assert "inherited-value" not in secrets_of({"command": "x", "inheritEnv": "safe"})
    assert "inherited-value" not in secrets_of({"url": "http://h", "type": "http"})
