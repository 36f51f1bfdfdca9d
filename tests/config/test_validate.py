"""Tests of entry validation and of the published JSON schema."""

import json
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest
from msgspec.structs import fields

from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPStdioServerConfig,
)
from fairlead.config.validate import is_server_name
from fairlead.manager import validate_server_config
from tests.support.home_directory import USER_FILES

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "mcp.schema.json").read_text())


@pytest.mark.covers("CFG-08")
@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"type": "stdio"}, 'a stdio server requires "command"'),
        ({"type": "http"}, 'a http server requires "url"'),
        ({"type": "sse"}, 'a sse server requires "url"'),
        ({"type": "ws"}, 'a ws server requires "url"'),
        ({}, '"command" (stdio) or "url" (http, sse, ws) is required'),
        (
            {"command": "x", "url": "y"},
            '"command" and "url" are both given: remove one of them',
        ),
        (
            {"type": "pigeon", "url": "y"},
            "unknown type 'pigeon': expected one of http, sse, stdio, ws",
        ),
        ({"command": 7}, "Expected `str`, got `int` - at `$.command`"),
        ({"command": "x", "timeout": 0}, '"timeout" must be greater than zero (milliseconds)'),
    ],
)
def test_each_validation_problem_contains_the_server_name(
    entry: dict[str, Any], problem: str
) -> None:
    assert validate_server_config("srv", entry) == [f'Server "srv": {problem}']


@pytest.mark.covers("CFG-08")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x"},
        {"type": "stdio", "command": "x", "inheritEnv": "safe", "requestIdFormat": "string"},
        {"url": "https://x"},
        {"type": "streamable-http", "url": "https://x"},
        {"type": "ws", "url": "wss://x", "dialect": "toolcall"},
        MCPStdioServerConfig(command="x"),
        MCPHttpServerConfig(url="https://x", auth={"type": "oauth"}),
    ],
)
def test_validation_of_valid_entries_reports_no_problems(entry: Any) -> None:
    assert validate_server_config("srv", entry) == []


def test_all_problems_of_an_entry_are_reported_at_once() -> None:
    problems = validate_server_config("my server", {"type": "x", "command": "a", "url": "b"})
    assert len(problems) == 3
    assert validate_server_config("srv", [])[0] == 'Server "srv": the entry must be a map'  # type: ignore[arg-type]


@pytest.mark.covers("CFG-11")
@pytest.mark.parametrize(
    ("name", "fine"),
    [("a", True), ("A.b:c-d_9", True), ("x" * 100, True), ("x" * 101, False), ("", False)]
    + [(bad, False) for bad in ("a b", "a/b", "ä", "a\n", "../x")],
)
def test_a_server_name_has_1_to_100_letters_digits_or_permitted_signs(
    name: str, fine: bool
) -> None:
    assert is_server_name(name) is fine


@pytest.mark.covers("CFG-01")
def test_the_published_schema_accepts_fairlead_files() -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)
    validator.validate(json.loads(USER_FILES[".config/fairlead/mcp.json"]))
    validator.validate(
        {
            "$schema": "x",
            "mcpServers": {"w": {"type": "ws", "url": "ws://x", "dialect": "toolcall"}},
            "disabledServers": ["a"],
            "enabledServers": [],
        }
    )


@pytest.mark.covers("CFG-01")
def test_the_schema_has_every_field_of_an_entry() -> None:
    kinds = SCHEMA["$defs"]
    known = {*kinds["stdio"]["properties"], *kinds["remote"]["properties"]}
    ours = {field.encode_name for kind in get_args(MCPServerEntry) for field in fields(kind)}
    assert known == {*ours, "headersHelper"}


@pytest.mark.covers("CFG-01")
@pytest.mark.parametrize(
    "servers",
    [
        {"a": {}},
        {"a": {"command": "x", "url": "y"}},
        {"a b": {"command": "x"}},
        {"a": {"command": "x", "type": "http"}},
        {"a": {"command": "x", "timeout": 0}},
    ],
)
def test_the_schema_rejects_invalid_entries(servers: dict[str, Any]) -> None:
    assert not jsonschema_rs.validator_for(SCHEMA).is_valid({"mcpServers": servers})
