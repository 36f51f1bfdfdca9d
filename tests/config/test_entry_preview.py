"""Tests of previews, which show every value of an entry and its origin, but no secrets."""

from typing import Any

import pytest

from fairlead.client.server_entry import MCPServerEntry, read_entry
from fairlead.config.entry_preview import PreviewedValue, preview
from fairlead.config.found_server import EnvironmentReference, FoundServer, Input
from fairlead.redaction.redact_text import REDACTED

ENV = {"REGION": "north", "API_TOKEN": "hunter2", "EMPTY": ""}
Shown = tuple[str, str, tuple[str, ...]]


def found_server(entry: dict[str, Any], **more: Any) -> FoundServer:
    made: MCPServerEntry = read_entry(entry)
    fields: dict[str, Any] = {"dialect": "claude", "level": "user", "home": "/home/u", **more}
    return FoundServer(
        name="a",
        host="x",
        host_title="X",
        path="/home/u/conf/x.json",
        line=1,
        raw=entry,
        entry=made,
        **fields,
    )


def shown(entry: dict[str, Any], **more: Any) -> list[Shown]:
    return [(one.field, one.text, one.origins) for one in preview(found_server(entry, **more), ENV)]


def test_a_command_is_shown_with_its_arguments_folder_and_environment_in_order() -> None:
    entry = {
        "command": "run",
        "args": ["a", "${REGION}"],
        "cwd": "~/there",
        "env": {"MODE": "fast", "MY_TOKEN": "abc", "BLANK_TOKEN": ""},
        "inheritEnv": "safe",
        "auth": "none",
        "oauth": {"clientId": "c"},
    }
    assert shown(entry) == [
        ("command", "run", ()),
        ("args[0]", "a", ()),
        ("args[1]", "north", ("your variable REGION",)),
        ("cwd", "/home/u/there", ()),
        ("env.MODE", "fast", ()),
        ("env.MY_TOKEN", REDACTED, ()),
        ("env.BLANK_TOKEN", "", ()),
        ("inheritEnv", "safe", ()),
        ("auth", "none", ()),
        ("oauth", "{'clientId': 'c'}", ()),
    ]


def test_a_remote_server_is_shown_with_its_headers() -> None:
    entry = {"type": "sse", "url": "https://x.example/${REGION}", "headers": {"X-Api-Key": "k"}}
    lookups = (
        EnvironmentReference("headers", "X-Region", "REGION", "in {}"),
        EnvironmentReference("headers", "Authorization", "API_TOKEN", "Bearer {}"),
        EnvironmentReference("headers", "X-Other", "OTHER"),
        EnvironmentReference("env", "IGNORED", "REGION"),
    )
    assert shown(entry, lookups=lookups, headers_helper="helper --password=abc") == [
        ("url", "https://x.example/north", ("your variable REGION",)),
        ("type", "sse", ()),
        ("headers.X-Region", f"in {REDACTED}", ("your variable REGION",)),
        ("headers.Authorization", REDACTED, ("your variable API_TOKEN",)),
        ("headers.X-Other", "(not set)", ("your variable OTHER",)),
        ("headers.X-Api-Key", REDACTED, ()),
        (
            "headers",
            "(known after connecting)",
            (f"printed by the command helper --password={REDACTED}",),
        ),
    ]


@pytest.mark.parametrize(
    ("dialect", "text", "expected", "origins"),
    [
        ("claude", "plain", "plain", ()),
        ("claude", "${REGION}", "north", ("your variable REGION",)),
        ("claude", "${API_TOKEN}", REDACTED, ("your variable API_TOKEN",)),
        ("claude", "${NO}", "${NO}", ("your variable NO (not set)",)),
        ("claude", "${NO:-x}", "x", ("the default for NO (not set)",)),
        (
            "claude",
            "${NO}${REGION}",
            "${NO}north",
            ("your variable REGION", "your variable NO (not set)"),
        ),
        ("mcporter", "a ${NO}", "a ${NO}", ("the environment variable NO is not set",)),
        (
            "vscode",
            "${input:place}",
            "here",
            ("the default of the input place, unless you enter another value",),
        ),
        (
            "vscode",
            "${input:pin}",
            REDACTED,
            ("the default of the input pin, unless you enter another value",),
        ),
        ("vscode", "${input:open}", "${input:open}", ("missing input 'open'",)),
        ("opencode", "{file:token.txt}", REDACTED, ("the file /home/u/conf/token.txt",)),
        ("fairlead", "!show it", "!show it", ()),
        ("fairlead", "REGION", "REGION", ()),
    ],
)
def test_an_argument_is_shown_with_the_origin_of_its_value(
    dialect: str, text: str, expected: str, origins: tuple[str, ...]
) -> None:
    needs = (
        Input("place", default="here"),
        Input("pin", password=True, default="1234"),
        Input("open"),
    )
    values = shown({"command": "c", "args": [text, "z"]}, dialect=dialect, needs_input=needs)
    assert values == [("command", "c", ()), ("args[0]", expected, origins), ("args[1]", "z", ())]


@pytest.mark.parametrize(
    ("dialect", "text", "expected", "origins"),
    [
        ("fairlead", "!show it", "(known after connecting)", ("printed by the command show it",)),
        ("fairlead", "REGION", "north", ("your variable REGION",)),
        ("fairlead", "API_TOKEN", REDACTED, ("your variable API_TOKEN",)),
        ("fairlead", "EMPTY", "", ("your variable EMPTY",)),
        ("fairlead", "NO", "NO", ()),
        ("fairlead", "", "", ()),
        ("claude", "!show it", "!show it", ()),
        ("claude", "REGION", "REGION", ()),
        ("gemini", "$REGION", "north", ("your variable REGION",)),
        ("gemini", "$NO", "", ("your variable NO (not set)",)),
    ],
)
def test_a_preview_resolves_environment_values_like_the_program_of_the_entry(
    dialect: str, text: str, expected: str, origins: tuple[str, ...]
) -> None:
    [_, value] = shown({"command": "c", "env": {"A": text}}, dialect=dialect)
    assert value == ("env.A", expected, origins)


@pytest.mark.parametrize(
    ("command", "cwd", "level", "expected"),
    [
        ("./bin/x", None, "user", [("command", "./bin/x", ())]),
        (
            "./bin/x",
            None,
            "project",
            [
                ("command", "/work/p/bin/x", ("relative to the working directory",)),
                ("cwd", "/work/p", ("the project folder",)),
            ],
        ),
        (
            "${REGION}/x",
            "sub",
            "local",
            [
                (
                    "command",
                    "/work/p/sub/north/x",
                    ("your variable REGION", "relative to the working directory"),
                ),
                ("cwd", "/work/p/sub", ()),
            ],
        ),
        ("x", "/abs", "project", [("command", "x", ()), ("cwd", "/abs", ())]),
        ("/b/x", "sub", "project", [("command", "/b/x", ()), ("cwd", "/work/p/sub", ())]),
    ],
)
def test_a_relative_command_of_a_project_is_shown_with_its_folder(
    command: str, cwd: str | None, level: str, expected: list[Shown]
) -> None:
    entry = {"command": command} | ({} if cwd is None else {"cwd": cwd})
    assert shown(entry, level=level, workspace="/work/p") == expected


@pytest.mark.parametrize(
    ("env_file", "expected"),
    [
        (
            ".env",
            [
                ("env.MODE", "fast", ("the file /work/p/.env",)),
                ("env.MY_TOKEN", REDACTED, ("the file /work/p/.env",)),
            ],
        ),
        ("gone", [("envFile", "/work/p/gone", ("a missing file",))]),
        ("${input:x}", [("envFile", "${input:x}", ("missing input 'x'",))]),
        (None, []),
    ],
)
def test_the_variables_of_an_env_file_are_shown(
    env_file: str | None, expected: list[Shown]
) -> None:
    contents = {"/work/p/.env": b"\xef\xbb\xbfMODE=fast\nMY_TOKEN=abc\n", "/work/p/gone": None}
    more = {"dialect": "vscode", "workspace": "/work/p", "contents": contents}
    assert shown({"command": "c"}, env_file=env_file, **more) == [("command", "c", ()), *expected]


def test_previewed_variables_are_read_from_the_process_environment_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REGION", "south")
    found = found_server({"command": "${REGION}"})
    assert preview(found)[0].text == "south"
    assert preview(found, {})[0].text == "${REGION}"


def test_the_default_origin_of_a_previewed_value_is_the_entry() -> None:
    assert PreviewedValue("a", "b").plain() == {"field": "a", "value": "b", "from": ["entry"]}
    filled = PreviewedValue("a", "b", ("c", "d"))
    assert filled.plain() == {"field": "a", "value": "b", "from": ["c", "d"]}
