"""Tests of the conversion of other programs' entries into Fairlead's format."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig, read_entry
from fairlead.config.discovery import load_all_mcp_configs
from fairlead.config.edit.config_file import ConfigFile
from fairlead.config.edit.import_entry import import_entry
from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.found_server import EnvironmentReference, FoundServer
from fairlead.config.hosts import HOSTS, find_servers
from fairlead.config.trust import Trust
from fairlead.config.variables.resolve import resolve
from fairlead.errors import ConfigError
from tests.support.home_directory import HOME, full_home, machine_in, write


def one(root: Path, host: str, file: str, content: dict[str, Any]) -> FoundServer:
    write(root / HOME, {file: content})
    [found] = find_servers(next(h for h in HOSTS if h.id == host), machine_in(root), ConfigReader())
    return found


def test_imported_entries_resolve_to_the_same_values(tmp_path: Path) -> None:
    machine = full_home(tmp_path)
    env = {"HOME": machine.home, "PORTER": "value-of-PORTER"}
    loaded = load_all_mcp_configs(machine.cwd, home=machine.home, env=env, platform="linux")
    trust = Trust(tmp_path / "approvals.json")
    checked = 0
    for found in loaded.found.values():
        if found.level == "project" or found.dialect == "fairlead" or found.needs_input:
            continue
        try:
            adopted = import_entry(found, env)
        except ConfigError:
            continue
        if adopted.notes or found.env_file or found.headers_helper:
            continue
        ours = tmp_path / f"ours{checked}"
        file = ConfigFile.of_user(machine_in(tmp_path, FAIRLEAD_HOME=str(ours)))
        file.add(found.name.replace(" ", "_"), adopted.fields)
        again = load_all_mcp_configs(
            "/", home="/nowhere", env={**env, "FAIRLEAD_HOME": str(ours)}, filter_exa=False
        )
        [copy] = [f for f in again.found.values() if f.path == str(file.path)]
        # Programs treat unset variables differently, so all variables are set.
        unset = resolve(found, env, trust=trust).missing
        env |= {name: f"value-of-{name}" for name in unset}
        before = resolve(found, env, trust=trust).entry
        after = resolve(copy, env, trust=trust).entry
        assert (found.name, found.host, after) == (found.name, found.host, before)
        checked += 1
    assert checked > 10


def test_import_rejects_a_value_that_fairlead_would_run_as_a_command(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"A": "!rm -r ."}}
    found = one(tmp_path, "cursor", ".cursor/mcp.json", {"mcpServers": {"a": entry}})
    with pytest.raises(ConfigError, match="env.A begins with `!`"):
        import_entry(found)


def test_import_warns_about_text_that_fairlead_would_replace_as_a_variable(tmp_path: Path) -> None:
    entry = {"command": "x", "args": ["${A}"], "env": {"B": "SET"}}
    found = one(tmp_path, "zed", ".config/zed/settings.json", {"context_servers": {"a": entry}})
    adopted = import_entry(found, {"SET": "1"})
    assert adopted.notes == (
        "args looks like a variable; Fairlead replaces it",
        "env.B is the name of a set variable; Fairlead uses the variable's value",
    )
    assert isinstance(adopted.entry, MCPStdioServerConfig)
    assert "SET" not in repr(adopted)


def test_entries_in_fairlead_format_are_imported_unchanged(tmp_path: Path) -> None:
    raw = {"command": "x", "env": {"A": "!pass show a"}, "note": "kept"}
    found = one(tmp_path, "fairlead", ".config/fairlead/mcp.json", {"mcpServers": {"a": raw}})
    assert import_entry(found).fields == raw


def found_server(entry: dict[str, Any], **more: Any) -> FoundServer:
    fields: dict[str, Any] = {"dialect": "vscode", "level": "user", "workspace": "/p", **more}
    return FoundServer(
        name="a",
        host="x",
        host_title="X",
        path="/x",
        line=1,
        raw=entry,
        entry=read_entry(entry),
        **fields,
    )


@pytest.mark.parametrize(
    ("dialect", "text", "ours", "notes"),
    [
        ("vscode", "${env:A}b", "${A}b", ()),
        ("vscode", "${userHome}/x", "${HOME}/x", ()),
        ("vscode", "a${/}b", "a/b", ()),
        ("vscode", "a${pathSeparator}b", "a/b", ()),
        ("vscode", "${other}", "${other}", ("args looks like a variable; Fairlead replaces it",)),
        (
            "vscode",
            "${input:api-key}",
            "${API_KEY}",
            ("args was an input; set API_KEY in the environment instead",),
        ),
        ("claude", "${A:-b}", "${A:-b}", ()),
        ("gemini", "$A/${B}", "${A}/${B}", ()),
        ("continue", "${{ secrets.KEY }}", "${KEY}", ()),
        ("goose", "${A}", "${A}", ("args looks like a variable; Fairlead replaces it",)),
        ("literal", "${A}", "${A}", ("args looks like a variable; Fairlead replaces it",)),
        ("literal", "$A", "$A", ()),
    ],
)
def test_imported_variables_are_converted_to_fairlead_syntax(
    dialect: str, text: str, ours: str, notes: tuple[str, ...]
) -> None:
    adopted = import_entry(found_server({"command": "c", "args": [text]}, dialect=dialect), {})
    assert adopted.fields == {"type": "stdio", "command": "c", "args": [ours]}
    assert adopted.notes == notes


@pytest.mark.parametrize("text", ["${workspaceFolder}", "${command:x}", "${env:1-a}"])
def test_import_rejects_a_variable_without_an_equivalent_in_fairlead(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_entry(found_server({"command": "c", "args": [text]}), {})
    assert refused.value.args[0] == f"args contains {text}, which Fairlead does not support"


def test_an_imported_entry_contains_fields_that_its_program_stores_separately() -> None:
    found = found_server(
        {"url": "https://x", "type": "http", "headers": {"A": "1", "B": "2"}},
        lookups=(EnvironmentReference("headers", "C", "TOKEN", "Bearer {}"),),
        env_file=".env",
        headers_helper="helper",
        startup_timeout=5.0,
        only_tools=(),
        without_tools=("x",),
    )
    assert import_entry(found, {}).fields == {
        "type": "http",
        "url": "https://x",
        "headers": {"C": "Bearer ${TOKEN}", "A": "1", "B": "2"},
        "envFile": ".env",
        "headersHelper": "helper",
        "startup_timeout_ms": 5.0,
        "includeTools": [],
        "excludeTools": ["x"],
    }


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"command": "x"}, {"command": "x", "cwd": "/p"}),
        ({"command": "./x"}, {"command": "/p/x", "cwd": "/p"}),
        ({"command": "./x", "cwd": "sub"}, {"command": "/p/sub/x", "cwd": "/p/sub"}),
        ({"command": "/b/x", "cwd": "/c"}, {"command": "/b/x", "cwd": "/c"}),
        ({"command": "~/x", "cwd": "$HOME"}, {"command": "~/x", "cwd": "$HOME"}),
    ],
)
def test_imported_paths_of_a_project_become_absolute(
    entry: dict[str, Any], expected: dict[str, Any]
) -> None:
    for level in ("project", "local"):
        found = found_server(entry, dialect="fairlead", level=level)
        assert import_entry(found).fields == expected
        assert import_entry(found, anchored=False).fields == entry
    assert import_entry(found_server(entry, dialect="fairlead")).fields == entry


@pytest.mark.parametrize(
    ("level", "notes"),
    [
        ("project", ("it reads variables from /p/.env, which the project can change",)),
        ("local", ()),
    ],
)
def test_the_imported_env_file_of_a_project_becomes_absolute(
    level: str, notes: tuple[str, ...]
) -> None:
    entry = {"url": "https://x", "type": "http"}
    adopted = import_entry(found_server(entry, level=level, env_file=".env"), {})
    assert adopted.fields == {**entry, "envFile": "/p/.env"}
    assert adopted.notes == notes


def test_imported_variables_are_looked_up_in_the_process_environment_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SET_HERE", "1")
    found = found_server({"command": "c", "env": {"A": "SET_HERE"}}, dialect="claude")
    assert len(import_entry(found).notes) == 1
    assert import_entry(found, {}).notes == ()
