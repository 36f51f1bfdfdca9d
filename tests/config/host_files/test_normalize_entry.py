"""Tests of the conversion of host entries to `NormalizedEntry`."""

from typing import Any

import pytest

from fairlead.config.found_server import EnvironmentReference
from fairlead.config.host_files.normalize_entry import NormalizedEntry, normalize_entry
from fairlead.errors import ConfigError

STDIO = {"command": "x"}
HTTP = {"url": "http://h"}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (STDIO, "stdio"),
        ({"cmd": "x"}, "stdio"),
        ({"type": "local", "command": "x"}, "stdio"),
        (HTTP, "http"),
        ({"type": "remote", **HTTP}, "http"),
        *(
            ({"type": said, **HTTP}, "http")
            for said in ("streamable-http", "streamable_http", "streamableHttp", "streamablehttp")
        ),
        ({"transport": "sse", **HTTP}, "sse"),
        ({"transportType": "sse", **HTTP}, "sse"),
        ({"type": "websocket", **HTTP}, "ws"),
        ({"url": "ws://h"}, "ws"),
        ({"url": "wss://h"}, "ws"),
        ({"tcp": "h:1"}, "ws"),
        ({"httpUrl": "http://h"}, "http"),
        *(({key: "http://h"}, "http") for key in ("serverUrl", "uri", "baseUrl", "endpoint")),
        ({"transport": {"type": "sse", "url": "http://h"}, "x": 1}, "sse"),
    ],
)
def test_the_type_of_a_server_is_derived_from_its_fields(raw: dict[str, Any], kind: str) -> None:
    assert normalize_entry(raw).entry.type == kind


def test_the_transport_of_a_url_depends_on_its_key_and_its_host() -> None:
    assert normalize_entry(HTTP, url_means="sse").entry.type == "sse"
    assert normalize_entry({"httpUrl": "http://h"}, url_means="sse").entry.type == "http"
    assert normalize_entry({"url": "ws://h"}, url_means="sse").entry.type == "ws"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({}, "missing `command`"),
        ({"command": []}, "missing `command`"),
        ({"type": "stdio", "url": "http://h"}, "a stdio server must not have `url`"),
        ({"command": "x", "url": "http://h"}, "`command` and `url` are both given"),
        ({"type": "http", "command": "x"}, "missing `url`"),
        ({"type": "http"}, "missing `url`"),
        (
            {"type": "odd", "url": "http://h"},
            "unknown type 'odd': expected one of http, sse, stdio, ws",
        ),
        ({"type": 1, "url": "http://h"}, "`type` must be a string"),
        ({"command": "x", "env": []}, "`env` must be a map"),
        ({"url": "http://h", "headers": "x"}, "`headers` must be a map"),
        ({"command": "x", "timeout": "1"}, "`timeout` must be a number"),
        ({"command": "x", "timeout": True}, "`timeout` must be a number"),
        ({"command": "x", "enabled": 1}, "`enabled` must be true or false"),
        ({"command": "x", "disabled": "no"}, "`disabled` must be true or false"),
        ({"command": 1}, "Expected `str`, got `int` - at `$.command`"),
    ],
)
def test_an_invalid_entry_is_rejected_with_the_name_of_the_wrong_or_missing_field(
    raw: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        normalize_entry(raw)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("raw", "command", "args"),
    [
        ({"command": "x"}, "x", []),
        ({"command": "x", "args": None}, "x", []),
        (
            {"command": "x", "args": ["a", 1, 2.5, True, False]},
            "x",
            ["a", "1", "2.5", "true", "false"],
        ),
        ({"command": ["x", "a"], "args": ["b"]}, "x", ["a", "b"]),
        ({"cmd": "x", "args": ["a"]}, "x", ["a"]),
        ({"command": {"path": "x", "args": ["a"]}}, "x", ["a"]),
        ({"command": {"command": "x"}, "args": ["a"]}, "x", ["a"]),
    ],
)
def test_the_command_is_split_into_program_and_arguments(
    raw: dict[str, Any], command: str, args: list[str]
) -> None:
    entry: Any = normalize_entry(raw).entry
    assert (entry.command, entry.args) == (command, args)


def test_environment_values_become_strings_and_null_is_ignored() -> None:
    for key in ("env", "environment", "envs"):
        made = normalize_entry({**STDIO, key: {"A": 1, "B": True, "C": None, "D": "d"}})
        entry: Any = made.entry
        assert entry.env == {"A": "1", "B": "true", "D": "d"}
        assert made.notes == ("C is null and ignored",)
    nested: Any = normalize_entry({"command": {"path": "x", "env": {"A": "1"}}}).entry
    assert nested.env == {"A": "1"}
    for key in ("headers", "http_headers"):
        remote: Any = normalize_entry({**HTTP, key: {"A": 1}}).entry
        assert remote.headers == {"A": "1"}


def test_fields_that_the_transport_of_an_entry_does_not_use_are_dropped() -> None:
    more = {"cwd": "/w", "inheritEnv": "safe", "dialect": "toolcall", "lazy": True}
    local: Any = normalize_entry({**STDIO, **more}).entry
    assert (local.cwd, local.inherit_env, local.lazy) == ("/w", "safe", True)
    remote: Any = normalize_entry({**HTTP, **more}).entry
    assert (remote.url, remote.lazy, remote.auth) == ("http://h", True, None)
    unusable = {"cwd": 5, "inheritEnv": 5, "dialect": 5}
    assert normalize_entry({**HTTP, **unusable}).entry == normalize_entry(HTTP).entry
    socket: Any = normalize_entry({"url": "ws://h", **more}).entry
    assert socket.dialect == "toolcall"


def test_auth_and_oauth_fields_are_kept_unchanged() -> None:
    entry = normalize_entry({**HTTP, "auth": {"a": 1}, "oauth": False}).entry
    assert (entry.auth, entry.oauth) == ({"a": 1}, False)
    assert (
        normalize_entry({**STDIO, "requestIdFormat": "string"}).entry.request_id_format == "string"
    )


USUAL = "a timeout out of range is ignored: the default applies"


@pytest.mark.parametrize(
    ("raw", "unit", "calls", "startup", "notes"),
    [
        ({}, "ms", None, None, ()),
        ({"timeout": 5}, "ms", 5.0, None, ()),
        ({"timeout": 5}, "s", 5000.0, None, ()),
        ({"timeout": {"startup": 1, "request": 2}}, "s", 2000.0, 1000.0, ()),
        ({"requestTimeoutMs": 5}, "s", 5.0, None, ()),
        ({"request_timeout_ms": 5}, "s", 5.0, None, ()),
        ({"tool_timeout_sec": 5}, "ms", 5000.0, None, ()),
        ({"startup_timeout_sec": 5}, "ms", None, 5000.0, ()),
        ({"startup_timeout_ms": 5}, "s", None, 5.0, ()),
        ({"connectionTimeout": 5}, "s", None, 5.0, ()),
        ({"timeout": 1, "requestTimeoutMs": 2}, "ms", 1.0, None, ()),
        ({"timeout": 0}, "ms", None, None, (USUAL,)),
        ({"timeout": -1}, "ms", None, None, (USUAL,)),
        ({"timeout": 0.5}, "ms", 0.5, None, ()),
        ({"timeout": 1e12}, "ms", 1e12, None, ()),
        ({"timeout": 10**12 + 1}, "ms", None, None, (USUAL,)),
    ],
)
def test_timeouts_of_all_programs_are_converted_to_milliseconds(
    raw: dict[str, Any],
    unit: str,
    calls: float | None,
    startup: float | None,
    notes: tuple[str, ...],
) -> None:
    made = normalize_entry({**STDIO, **raw}, unit=unit)
    assert (made.entry.timeout, made.startup_timeout, made.notes) == (calls, startup, notes)


@pytest.mark.parametrize(
    ("raw", "enabled"),
    [
        ({}, True),
        ({"enabled": True}, True),
        ({"enabled": False}, False),
        ({"disabled": True}, False),
        ({"disabled": False}, True),
        ({"enabled": True, "disabled": True}, False),
        ({"enabled": False, "disabled": False}, False),
    ],
)
def test_enabled_false_or_disabled_true_disables_a_server(
    raw: dict[str, Any], enabled: bool
) -> None:
    made = normalize_entry({**STDIO, **raw})
    assert (made.enabled, made.entry.enabled) == (enabled, enabled)


@pytest.mark.parametrize(
    ("raw", "lookups"),
    [
        ({"bearer_token_env_var": "T"}, [("headers", "Authorization", "T", "Bearer {}")]),
        ({"bearer_token_env_var": ""}, []),
        ({"env_http_headers": {"X-A": "A"}}, [("headers", "X-A", "A", "{}")]),
        ({"env_http_headers": ["X-A"]}, []),
        ({"api_key_env": "K"}, [("headers", "Authorization", "K", "Bearer {}")]),
        (
            {"api_key_env": "K", "api_key_header": "X-Key", "api_key_format": "key={token}"},
            [("headers", "X-Key", "K", "key={}")],
        ),
        ({"api_key_header": "X-Key"}, []),
        (
            {"env_vars": ["A", {"name": "B"}, {"x": 1}, 3]},
            [("env", "A", "A", "{}"), ("env", "B", "B", "{}")],
        ),
        ({"env_keys": ["A"]}, [("env", "A", "A", "{}")]),
        ({"env_keys": "A"}, []),
    ],
)
def test_fields_that_name_environment_variables_become_references(
    raw: dict[str, Any], lookups: list[tuple[Any, str, str, str]]
) -> None:
    expected = tuple(EnvironmentReference(*one) for one in lookups)
    assert normalize_entry({**STDIO, **raw}).lookups == expected


@pytest.mark.parametrize(
    ("raw", "only", "without"),
    [
        ({}, None, ()),
        ({"includeTools": ["a", 1]}, ("a",), ()),
        ({"enabled_tools": []}, (), ()),
        ({"tools": ["a", "*"]}, None, ()),
        ({"tools": {"a": 1}}, None, ()),
        ({"available_tools": []}, None, ()),
        ({"available_tools": ["a"]}, ("a",), ()),
        (
            {"excludeTools": ["a"], "disabled_tools": ["b", 1], "disabledTools": ["c"]},
            None,
            ("a", "b", "c"),
        ),
        ({"excludeTools": "a"}, None, ()),
    ],
)
def test_tool_filters_of_all_programs_are_read(
    raw: dict[str, Any], only: tuple[str, ...] | None, without: tuple[str, ...]
) -> None:
    made = normalize_entry({**STDIO, **raw})
    assert (made.only_tools, made.without_tools) == (only, without)


@pytest.mark.parametrize(
    ("raw", "env_file", "helper"),
    [
        ({}, None, None),
        ({"envFile": ".env", "headersHelper": "h"}, ".env", "h"),
        ({"envFile": "", "http_headers_helper": "h"}, None, "h"),
        ({"envFile": 1, "headersHelper": 1}, None, None),
    ],
)
def test_env_file_and_header_helper_fields_are_read(
    raw: dict[str, Any], env_file: str | None, helper: str | None
) -> None:
    made = normalize_entry({**HTTP, **raw})
    assert (made.env_file, made.headers_helper) == (env_file, helper)


def test_omitted_fields_of_an_entry_have_their_defaults() -> None:
    entry = normalize_entry(STDIO).entry
    assert NormalizedEntry(entry=entry) == normalize_entry(STDIO)
