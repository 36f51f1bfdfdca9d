"""Tests of `fairlead mcp import` and `export`."""

import json
import tomllib

import pytest
import yaml

from tests.support.cli_user import Person, person

__all__ = ["person"]


def test_import_converts_entries_and_copies_them_to_the_fairlead_file(person: Person) -> None:
    stdio = {
        "command": "npx",
        "args": ["-y", "${userHome}/x", "${env:PLACE}"],
        "env": {"T": "${env:TOKEN}", "MODE": "fast"},
    }
    web = {"url": "https://x.example/mcp", "headers": {"A": "Bearer ${env:TOKEN}"}}
    theirs = person.has("home/.cursor/mcp.json", {"local": stdio, "web": web})
    before = theirs.read_bytes()
    done = person.does("mcp", "import", "cursor")
    assert done.code == 0, done.err
    assert done.out.endswith(f"2 of 2 copied to {person.ours}/mcp.json\n")
    assert person.read("ours/mcp.json")["mcpServers"] == {
        "local": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "${HOME}/x", "${PLACE}"],
            "env": {"T": "${TOKEN}", "MODE": "fast"},
        },
        "web": {
            "type": "http",
            "url": "https://x.example/mcp",
            "headers": {"A": "Bearer ${TOKEN}"},
        },
    }
    assert theirs.read_bytes() == before


def test_import_converts_the_variables_of_several_programs(person: Person) -> None:
    (person.home / ".codex").mkdir()
    (person.home / ".codex/config.toml").write_text(
        '[mcp_servers.a]\ncommand = "a"\nenv_vars = ["KEY"]\nstartup_timeout_sec = 5\n'
        '[mcp_servers.b]\nurl = "https://b.example"\nbearer_token_env_var = "B_TOKEN"\n'
    )
    opencode = {"mcp": {"c": {"type": "local", "command": ["c", "{env:WHO}"]}}}
    (person.home / ".config/opencode").mkdir(parents=True)
    (person.home / ".config/opencode/opencode.json").write_text(json.dumps(opencode))
    person.has("home/.gemini/settings.json", {"d": {"command": "d", "args": ["$ONE", "${TWO}"]}})
    for program in ("codex", "opencode", "gemini"):
        assert person.does("mcp", "import", program).code == 0
    servers = person.read("ours/mcp.json")["mcpServers"]
    assert servers["a"]["env"] == {"KEY": "${KEY}"}
    assert servers["a"]["startup_timeout_ms"] == 5000
    assert servers["b"]["headers"] == {"Authorization": "Bearer ${B_TOKEN}"}
    assert servers["c"]["args"] == ["${WHO}"]
    assert servers["d"]["args"] == ["${ONE}", "${TWO}"]


def test_import_converts_an_input_to_an_environment_variable(person: Person) -> None:
    entry = {"type": "http", "url": "https://x.example", "headers": {"K": "${input:api-key}"}}
    person.has("home/.config/Code/User/mcp.json", {})
    (person.home / ".config/Code/User/mcp.json").write_text(json.dumps({"servers": {"v": entry}}))
    done = person.does("mcp", "import", "vscode")
    assert "v: headers.K was an input; set API_KEY in the environment instead" in done.err
    assert person.read("ours/mcp.json")["mcpServers"]["v"]["headers"] == {"K": "${API_KEY}"}


def test_import_skips_entries_that_cannot_be_converted(person: Person) -> None:
    person.has(
        "home/.cursor/mcp.json",
        {
            "command": {"command": "x", "env": {"A": "!touch /tmp/x"}},
            "folder": {"command": "x", "args": ["${workspaceFolder}/y"]},
            "mine": {"command": "theirs"},
        },
    )
    person.has("ours/mcp.json", {"mine": {"command": "mine"}})
    done = person.does("mcp", "import", "cursor")
    assert (done.code, done.out) == (0, f"0 of 3 copied to {person.ours}/mcp.json\n")
    assert "command: env.A begins with `!`, which starts a command in Fairlead's files" in done.err
    assert "folder: args contains ${workspaceFolder}, which Fairlead does not support" in done.err
    assert "(--force replaces it)" in done.err
    assert person.read("ours/mcp.json")["mcpServers"] == {"mine": {"command": "mine"}}
    assert person.does("mcp", "import", "cursor", "mine").code == 1
    assert person.does("mcp", "import", "cursor", "mine", "--force").code == 0
    assert person.read("ours/mcp.json")["mcpServers"]["mine"]["command"] == "theirs"


def test_an_unapproved_project_entry_is_not_imported(person: Person) -> None:
    person.has("project/.cursor/mcp.json", {"p": {"command": "x"}})
    refused = person.does("mcp", "import", "cursor")
    assert "first run `fairlead mcp approve p`" in refused.err
    assert not (person.ours / "mcp.json").exists()
    assert person.does("mcp", "import", "cursor", "--project").code == 0
    person.does("mcp", "remove", "p", "--project")
    person.does("mcp", "approve", "p", "--yes")
    assert person.does("mcp", "import", "cursor", "p").code == 0
    assert person.read("ours/mcp.json")["mcpServers"]["p"]["command"] == "x"


def test_import_and_export_of_unknown_names_and_programs_are_errors(person: Person) -> None:
    assert "expected one of claude-code, " in person.does("mcp", "import", "emacs").err
    assert "No servers are configured in cursor" in person.does("mcp", "import", "cursor").err
    person.has("home/.cursor/mcp.json", {"notes": {"command": "x"}})
    assert "did you mean 'notes'?" in person.does("mcp", "import", "cursor", "note").err
    assert "expected one of claude, " in person.does("mcp", "export", "emacs").err
    assert "did you mean 'notes'?" in person.does("mcp", "export", "cursor", "note").err


@pytest.mark.parametrize("program", ["cursor", "codex", "goose"])
def test_several_servers_are_exported_as_one_text(person: Person, program: str) -> None:
    person.has("home/.cursor/mcp.json", {"a": {"command": "a", "env": {"T": "${env:T}"}}})
    person.has("ours/mcp.json", {"b": {"type": "http", "url": "https://b.example/mcp"}})
    done = person.does("mcp", "export", program)
    assert (done.code, done.err) == (0, "")
    match program:
        case "cursor":
            assert json.loads(done.out)["mcpServers"] == {
                "a": {"command": "a", "env": {"T": "${env:T}"}},
                "b": {"url": "https://b.example/mcp"},
            }
        case "codex":
            servers = tomllib.loads(done.out)["mcp_servers"]
            assert servers["a"] == {"command": "a", "env_vars": ["T"]}
            assert servers["b"] == {"url": "https://b.example/mcp"}
        case "goose":
            servers = yaml.safe_load(done.out)["extensions"]
            assert servers["a"]["env_keys"] == ["T"]
            assert servers["b"]["uri"] == "https://b.example/mcp"


def test_export_skips_or_rejects_servers_that_a_program_does_not_support(person: Person) -> None:
    person.has(
        "ours/mcp.json",
        {
            "ws": {"type": "ws", "url": "wss://x.example"},
            "cmd": {"command": "x", "env": {"K": "!pass show k"}},
        },
    )
    done = person.does("mcp", "export", "cursor")
    assert list(json.loads(done.out)["mcpServers"]) == ["cmd"]
    assert "skipped: ws: Cursor does not support WebSocket servers" in done.err
    assert "cmd: K is a command, which other programs do not support" in done.err
    refused = person.does("mcp", "export", "cursor", "ws")
    assert (refused.code, refused.out) == (1, "")
