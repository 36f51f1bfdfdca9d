"""Tests of server settings."""

import dataclasses

import pytest

from fairlead import MCPServerConfig


def test_settings_of_a_server_have_the_documented_defaults() -> None:
    assert dataclasses.asdict(MCPServerConfig()) == {
        "name": "fairlead-mcp-server",
        "version": "1.0.0",
        "title": None,
        "transport": "stdio",
        "host": "127.0.0.1",
        "port": 8080,
        "auth_token": None,
        "instructions": None,
        "default_tool_timeout": 60.0,
        "per_tool_timeouts": None,
        "rate_limit_rate": 50.0,
        "rate_limit_burst": 100,
        "per_tool_rate": 0.0,
        "per_tool_burst": 0,
        "warm_up": True,
        "log_level": "INFO",
        "input_timeout": 600.0,
        "page_size": 100,
        "max_in_flight": MCPServerConfig().max_in_flight,
        "max_message_bytes": 16_777_216,
        "cache_ttl": 0.0,
        "cache_scope": "private",
        "tool_modules": (),
        "tool_entry_points": False,
    }


@pytest.mark.parametrize(
    ("own", "expected"), [(None, 7), ({}, 7), ({"t": 3}, 3), ({"t": 0}, 0), ({"other": 3}, 7)]
)
def test_the_timeout_of_a_tool_is_looked_up_by_name(
    own: dict[str, float] | None, expected: float
) -> None:
    config = MCPServerConfig(default_tool_timeout=7, per_tool_timeouts=own)
    assert config.timeout_of("t") == expected


def test_settings_of_a_server_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        MCPServerConfig("n")  # type: ignore[misc]
