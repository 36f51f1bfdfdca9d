"""Tests of entries with host-specific field names."""

from typing import Any

import pytest

from fairlead.config.hosts.continue_dev import CONTINUE
from fairlead.config.hosts.simple_hosts import CURSOR, MCPORTER


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"url": "u"}, {"url": "u"}),
        ({"url": "u", "auth": "x"}, {"url": "u", "auth": "x"}),
        ({"url": "u", "auth": {}}, {"url": "u", "oauth": {}}),
        (
            {"auth": {"CLIENT_ID": "i", "CLIENT_SECRET": "s", "scopes": ["a"], "other": 1}},
            {"oauth": {"clientId": "i", "clientSecret": "s", "scopes": ["a"]}},
        ),
    ],
)
def test_the_auth_field_of_cursor_becomes_oauth(
    raw: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert CURSOR.adapt is not None
    assert CURSOR.adapt(raw) == expected


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        ({}, None),
        ({"apiKey": "k"}, {"Authorization": "Bearer k"}),
        ({"apiKey": ""}, None),
        ({"requestOptions": {"headers": {"A": "1"}}}, {"A": "1"}),
        ({"requestOptions": {"headers": "A"}}, None),
        ({"requestOptions": "x", "headers": {"B": "2"}}, {"B": "2"}),
        (
            {"apiKey": "k", "requestOptions": {"headers": {"A": "1"}}, "headers": {"A": "2"}},
            {"Authorization": "Bearer k", "A": "2"},
        ),
    ],
)
def test_request_options_of_continue_become_headers(
    raw: dict[str, Any], headers: dict[str, str] | None
) -> None:
    assert CONTINUE.adapt is not None
    adapted = CONTINUE.adapt(raw)
    if headers is None:
        assert adapted is raw
    else:
        assert adapted == {**raw, "headers": headers}


@pytest.mark.parametrize(
    ("raw", "variable"),
    [
        ({"url": "u"}, None),
        ({"url": "u", "bearerTokenEnv": "A"}, "A"),
        ({"url": "u", "bearer_token_env": "B"}, "B"),
        ({"url": "u", "bearerTokenEnv": "A", "bearer_token_env": "B"}, "A"),
    ],
)
def test_the_token_variable_of_mcporter_is_converted_to_the_field_of_codex(
    raw: dict[str, Any], variable: str | None
) -> None:
    assert MCPORTER.adapt is not None
    named = {} if variable is None else {"bearer_token_env_var": variable}
    assert MCPORTER.adapt(raw) == {**raw, **named}
