"""Tests of discovery: precedence, disabled servers, duplicates and invalid files."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.discovery import DiscoveredServers, Filtered
from fairlead.config.found_server import Problem, Source
from fairlead.config.hosts import HOSTS
from fairlead.manager import FoundServer, Removal, load_all_mcp_configs
from tests.support.home_directory import HOME, PROJECT, full_home, write


def load(root: Path, **more: Any) -> DiscoveredServers:
    (root / PROJECT).mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"home": root / HOME, "env": {}, "platform": "linux", **more}
    return load_all_mcp_configs(root / PROJECT, **options)


def servers(**commands: str) -> dict[str, Any]:
    return {"mcpServers": {name: {"command": command} for name, command in commands.items()}}


@pytest.mark.covers("CFG-03")
def test_discovery_finds_the_servers_of_all_programs(tmp_path: Path) -> None:
    full_home(tmp_path)
    loaded = load(tmp_path)
    assert loaded.warnings == []
    assert loaded.configs["codex-stdio"].timeout == 45500
    assert loaded.configs.keys() == loaded.sources.keys() == loaded.found.keys()
    assert loaded.sources["cc-user"] == Source(
        provider="claude-code",
        provider_name="Claude Code",
        path=str(tmp_path / HOME / ".claude.json"),
        level="user",
        line=15,
    )
    assert {source.provider for source in loaded.sources.values()} | {
        loaded.places[name][0][0].host for name in loaded.duplicates
    } == {host.id for host in HOSTS}


@pytest.mark.covers("CFG-04")
def test_the_first_definition_of_a_name_is_used_without_merging_others(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            f"{PROJECT}/.fairlead/mcp.json": servers(a="1"),
            f"{HOME}/.config/fairlead/mcp.json": servers(a="2", b="2"),
            f"{HOME}/.claude.json": servers(a="3", b="3", c="3"),
            f"{HOME}/.config/Claude/claude_desktop_config.json": servers(c="4", d="4"),
            f"{HOME}/.codex/config.toml": "mcp_servers = {d={command='5'}, e={command='5'}}",
            f"{HOME}/.gemini/settings.json": servers(e="6", f="6"),
            f"{HOME}/.config/opencode/opencode.json": {
                "mcp": {"f": {"command": ["7"]}, "g": {"command": ["7"]}}
            },
            f"{HOME}/.cursor/mcp.json": servers(g="8", h="8"),
            f"{HOME}/.codeium/windsurf/mcp_config.json": servers(h="9", i="9"),
            f"{HOME}/.config/Code/User/mcp.json": {
                "servers": {"i": {"command": "10"}, "j": {"command": "10"}}
            },
            f"{HOME}/.lmstudio/mcp.json": servers(j="11", k="11"),
            f"{PROJECT}/mcp.json": servers(k="12", l="12"),
            f"{PROJECT}/.mcp.json": servers(l="13", m="13"),
        },
    )
    loaded = load(tmp_path)
    commands = {
        n: c.command for n, c in loaded.configs.items() if isinstance(c, MCPStdioServerConfig)
    }
    assert commands == {letter: str(n) for n, letter in enumerate("abcdefghijklm", start=1)}
    root = tmp_path / HOME
    first = f"{tmp_path / PROJECT}/.fairlead/mcp.json:1"
    places = [(one.host_title, one.place, what) for one, what in loaded.places["a"]]
    assert places == [
        ("Fairlead (project)", first, "used"),
        ("Fairlead", f"{root}/.config/fairlead/mcp.json:1", f"not used: {first} takes precedence"),
        ("Claude Code", f"{root}/.claude.json:1", f"not used: {first} takes precedence"),
    ]


@pytest.mark.covers("CFG-05")
def test_project_files_can_be_excluded_from_discovery(tmp_path: Path) -> None:
    write(tmp_path / PROJECT, {".mcp.json": servers(only="p"), ".cursor/mcp.json": servers(a="p")})
    write(tmp_path / PROJECT, {".fairlead/mcp.json": {"disabledServers": ["b"]}})
    write(tmp_path / HOME, {".cursor/mcp.json": servers(a="u", b="u")})
    loaded = load(tmp_path, enable_project_config=False)
    assert {n: s.level for n, s in loaded.sources.items()} == {"a": "user", "b": "user"}
    assert load(tmp_path).sources["a"].level == "project"
    assert load(tmp_path).disabled.keys() == {"b"}


@pytest.mark.covers("CFG-06")
def test_server_lists_in_fairlead_files_apply_to_every_program(tmp_path: Path) -> None:
    own = {
        "mcpServers": {"x": {"command": "x", "enabled": False}},
        "disabledServers": ["hidden"],
        "enabledServers": ["asleep"],
    }
    asleep = {"command": "z", "disabled": True}
    write(
        tmp_path / HOME,
        {
            ".config/fairlead/mcp.json": own,
            ".cursor/mcp.json": {
                "mcpServers": {
                    "hidden": {"command": "h"},
                    "asleep": asleep,
                    "asleep-too": {"command": "y", "disabled": True},
                }
            },
        },
    )
    loaded = load(tmp_path)
    assert loaded.configs == {"asleep": MCPStdioServerConfig(command="z")}
    assert loaded.disabled.keys() == {"x", "hidden", "asleep-too"}
    assert "disabledServers" in loaded.places["hidden"][0][1]


def test_a_project_file_can_disable_a_server_of_the_user(tmp_path: Path) -> None:
    off = {"mcpServers": {"a": {"command": "a", "enabled": False}}}
    write(tmp_path / PROJECT, {".fairlead/mcp.json": off})
    write(tmp_path / HOME, {".cursor/mcp.json": servers(a="a")})
    loaded = load(tmp_path)
    assert (loaded.configs, loaded.disabled.keys()) == ({}, {"a"})


def test_a_project_file_cannot_enable_a_server_that_the_user_disabled(tmp_path: Path) -> None:
    write(tmp_path / PROJECT, {".fairlead/mcp.json": {"enabledServers": ["a", "b"]}})
    own = {"mcpServers": {"a": {"command": "a", "enabled": False}}, "disabledServers": ["b"]}
    write(tmp_path / HOME, {".config/fairlead/mcp.json": own, ".cursor/mcp.json": servers(b="b")})
    assert load(tmp_path).configs == {}


def test_a_server_that_two_programs_configure_under_different_names_is_loaded_once(
    tmp_path: Path,
) -> None:
    entry = {"command": "npx", "args": ["gh"], "env": {"T": "${GH}"}}
    theirs = {"command": "npx", "args": ["gh"], "env": {"T": "${env:GH}"}}
    other = {"command": "npx", "args": ["gh"], "env": {"T": "${env:OTHER_ACCOUNT}"}}
    url = {"type": "http", "url": "HTTPS://Mcp.example.com/x/"}
    write(
        tmp_path / HOME,
        {
            ".claude.json": {"mcpServers": {"github": entry, "web": url, "github-again": entry}},
            ".cursor/mcp.json": {
                "mcpServers": {"gh": theirs, "w": {"url": "https://mcp.example.com/x"}, "o": other}
            },
        },
    )
    loaded = load(tmp_path)
    assert loaded.configs.keys() == {"github", "web", "github-again", "o"}
    assert loaded.duplicates == {"gh": "github", "w": "web"}
    assert 'the same server is configured as "github"' in loaded.places["gh"][0][1]


@pytest.mark.parametrize(
    ("file", "key", "spelled"),
    [
        (".cursor/mcp.json", "mcpServers", "a ${env:GH_KEY}"),
        (".config/opencode/opencode.json", "mcp", "a {env:GH_KEY}"),
        (".gemini/settings.json", "mcpServers", "a $GH_KEY"),
        (".mcporter/mcporter.json", "mcpServers", "a $env:GH_KEY"),
    ],
)
def test_equal_variables_in_different_syntax_are_duplicates(
    tmp_path: Path, file: str, key: str, spelled: str
) -> None:
    for value, same in ((spelled, True), (spelled.replace("GH_KEY", "OTHER"), False)):
        theirs = {"url": "https://x.example/", "headers": {"k": value}, "type": "http"}
        if key == "mcp":
            theirs["type"] = "remote"
        ours = {"url": "https://x.example", "headers": {"K": "a ${GH_KEY}"}, "type": "http"}
        write(
            tmp_path / HOME,
            {
                ".config/fairlead/mcp.json": {"mcpServers": {"ours": ours}},
                file: {key: {"theirs": theirs}},
            },
        )
        assert load(tmp_path).duplicates == ({"theirs": "ours"} if same else {})


def test_a_project_entry_does_not_replace_an_equal_entry_of_the_user(tmp_path: Path) -> None:
    write(tmp_path / PROJECT, {".fairlead/mcp.json": servers(theirs="x")})
    write(tmp_path / HOME, {".cursor/mcp.json": servers(mine="x")})
    assert load(tmp_path).configs.keys() == {"theirs", "mine"}


@pytest.mark.covers("DEC-01")
def test_mcp_server_config_of_the_manager_package_is_the_struct_of_entries() -> None:
    import fairlead
    from fairlead import manager

    assert manager.MCPServerConfig is manager.MCPServerEntry
    assert fairlead.MCPServerConfig is not manager.MCPServerConfig
    assert fairlead.MCPServerConfig(name="x").name == "x"


@pytest.mark.covers("CFG-12", "DEC-21")
def test_discovery_removes_exa_servers_and_returns_their_keys(tmp_path: Path) -> None:
    exa = {"mcpServers": {"exa": {"url": "https://mcp.exa.ai/mcp?exaApiKey=k1", "type": "http"}}}
    write(tmp_path / HOME, {".cursor/mcp.json": exa, ".claude.json": servers(a="a")})
    loaded = load(tmp_path)
    assert (loaded.configs.keys(), loaded.exa_api_keys) == ({"a"}, ["k1"])
    path = str(tmp_path / HOME / ".cursor/mcp.json")
    assert loaded.filtered == [Filtered("exa", path, "Exa is built in")]
    assert "k1" not in repr(loaded)
    kept = load(tmp_path, filter_exa=False)
    assert (kept.configs.keys(), kept.exa_api_keys) == ({"a", "exa"}, [])


@pytest.mark.covers("CFG-12")
def test_custom_filters_remove_servers_and_their_exceptions_become_warnings(tmp_path: Path) -> None:
    def no_a(found: FoundServer, env: Mapping[str, str]) -> Removal | None:
        return Removal("no a", ("key",)) if found.name == "a" else None

    def broken(found: FoundServer, env: Mapping[str, str]) -> Removal | None:
        raise RuntimeError("secret")

    write(tmp_path / HOME, {".cursor/mcp.json": servers(a="a", b="b")})
    loaded = load(tmp_path, filters=[broken, no_a])
    assert loaded.configs.keys() == {"b"}
    assert [one.reason for one in loaded.filtered] == ["no a"]
    assert [one.reason for one in loaded.warnings] == [
        'Server "a": a filter failed (RuntimeError)',
        'Server "b": a filter failed (RuntimeError)',
    ]


@pytest.mark.covers("CFG-07")
@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b'{\n "mcpServers": {\n  oops }\n}', 3, "not valid JSON: Expecting property name"),
        (b"[]", 1, "expected a map, not a list"),
        (b'"text"', 1, "expected a map, not a string"),
        (b"\x7fELF\x00\x00", 1, "the file is binary"),
        (b'{"a":\n"\xff"}', 2, "the file is not UTF-8"),
        (b"[" * 100_000, 1, "the file is nested too deeply"),
        (b'{"n": ' + b"1" * 5000 + b"}", 1, "not valid JSON: Exceeds the limit"),
        (b'{"mcpServers": 7}', 1, 'Server "mcpServers": the entry must be a map'),
        (b'{"mcpServers": {\n"a": null}}', 2, 'Server "a": the entry must be a map'),
        (b'{"mcpServers": {\n\n"a": {}}}', 3, 'Server "a": missing `command`'),
        (b'{"mcpServers": {"a": {"command": 7}}}', 1, 'Server "a": Expected `str`, got `int`'),
        (
            b'{"mcpServers": {"a": {"command": "x", "args": "y"}}}',
            1,
            'Server "a": Expected `array`',
        ),
        (
            b'{"mcpServers": {"a": {"command": "x", "env": []}}}',
            1,
            'Server "a": `env` must be a map',
        ),
        (b'{"mcpServers": {"a": {"type": "pigeon"}}}', 1, "Server \"a\": unknown type 'pigeon'"),
        (b'{"mcpServers": {"a": {"type": "http"}}}', 1, 'Server "a": missing `url`'),
        (b'{"mcpServers": {"a": {"type": ["http"]}}}', 1, 'Server "a": `type` must be a string'),
        (b'{"mcpServers": {"a": {"command": "x", "url": "y"}}}', 1, 'Server "a": `command` and'),
        (b'{"mcpServers": {"a": {"command": []}}}', 1, 'Server "a": missing `command`'),
        (b'{"mcpServers": {"a": {"command": "x", "enabled": "no"}}}', 1, 'Server "a": `enabled`'),
        (b'{"mcpServers": {"a": {"command": "x", "timeout": "9"}}}', 1, 'Server "a": `timeout`'),
    ],
)
def test_invalid_files_are_reported_and_other_files_are_read(
    tmp_path: Path, content: bytes, line: int, reason: str
) -> None:
    write(tmp_path / HOME, {".claude.json": servers(other="o")})
    path = tmp_path / HOME / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(content)
    loaded = load(tmp_path)
    assert loaded.configs.keys() == {"other"}
    [warning] = loaded.warnings
    assert (warning.path, warning.line) == (str(path), line)
    assert warning.reason.startswith(reason)


def test_an_invalid_entry_does_not_affect_others_in_its_file(tmp_path: Path) -> None:
    mixed = {
        "mcpServers": {"a": 1, "b": {"command": "b"}, "c": {"url": 7}, "d": {"url": "http://d"}}
    }
    write(tmp_path / HOME, {".cursor/mcp.json": mixed})
    loaded = load(tmp_path)
    assert loaded.configs.keys() == {"b", "d"}
    assert len(loaded.warnings) == 2


@pytest.mark.parametrize(
    "content", [b"", b"  \n", b"\xef\xbb\xbf", b"{}", b"// nothing\n", b"null"]
)
def test_an_empty_file_is_not_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / HOME / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert load(tmp_path).warnings == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_with_a_byte_order_mark_are_accepted(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / HOME / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(json.dumps(servers(a="ä")).encode(encoding))
    assert load(tmp_path).configs["a"] == MCPStdioServerConfig(command="ä")


def test_paths_that_are_not_regular_files_are_reported(tmp_path: Path) -> None:
    home = tmp_path / HOME
    (home / ".cursor" / "mcp.json").mkdir(parents=True)
    (home / ".claude.json").symlink_to(home / ".claude.json")
    (home / ".lmstudio").mkdir()
    os.mkfifo(home / ".lmstudio" / "mcp.json")
    (home / ".factory").mkdir()
    (home / ".factory" / "mcp.json").symlink_to("/dev/zero")
    (home / ".kimi").write_text("a file where a folder is expected")
    (home / ".fx").mkdir()
    (home / ".fx" / "mcp.json").symlink_to(home / "nowhere")
    loaded = load(tmp_path)
    assert {Path(w.path).parent.name: w.reason for w in loaded.warnings} == {
        "ada": "a symbolic link that points to itself",
        ".cursor": "expected a file, but the path is a directory",
        ".lmstudio": "expected a file, but the path is not a regular file",
        ".factory": "expected a file, but the path is not a regular file",
    }


def test_a_file_over_the_size_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / HOME / ".cursor" / "mcp.json"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(5 << 20)
    assert load(tmp_path).warnings == [Problem(str(path), 1, "larger than 4 MiB")]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_an_unreadable_configuration_file_is_reported(tmp_path: Path) -> None:
    write(tmp_path / HOME, {".cursor/mcp.json": servers(a="a")})
    (tmp_path / HOME / ".cursor/mcp.json").chmod(0)
    [warning] = load(tmp_path).warnings
    assert warning.reason == "cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("name", "text", "line", "reason"),
    [
        (".codex/config.toml", "[a]\nb = \n", 2, "not valid TOML: Invalid value"),
        (".codex/config.toml", 'a = "x', 1, "not valid TOML"),
        (".config/goose/config.yaml", "a: 1\nb: [1\n", 3, "not valid YAML"),
        (".config/goose/config.yaml", "a: &a [*a]\n", 1, "the file is nested too deeply"),
        (".config/goose/config.yaml", "a: !!python/object:os.system x\n", 1, "not valid YAML"),
        (".config/goose/config.yaml", "a: &a x\nb: [" + "*a, " * 40 + "]\n", 1, "more than 30"),
        (".config/goose/config.yaml", "- a\n", 1, "expected a map"),
    ],
)
def test_errors_in_toml_and_yaml_are_reported_with_their_line(
    tmp_path: Path, name: str, text: str, line: int, reason: str
) -> None:
    write(tmp_path / HOME, {name: text})
    [warning] = load(tmp_path).warnings
    assert warning.reason.startswith(reason)
    assert warning.line == line


def test_discovery_warnings_contain_no_secrets(tmp_path: Path) -> None:
    texts = {
        ".cursor/mcp.json": '{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": ["s3cret"]}}}}',
        ".claude.json": '{"mcpServers": {"a": {"env": {"API_KEY": s3cret}}}}',
        ".codex/config.toml": "[mcp_servers.a]\nbearer_token = s3cret\n",
        ".config/goose/config.yaml": "extensions:\n  a: {type: stdio, cmd: [s3cret: *s3cret]}\n",
    }
    write(tmp_path / HOME, texts)
    loaded = load(tmp_path)
    assert len(loaded.warnings) == 4
    assert "s3cret" not in str(loaded.warnings)
    assert "s3cret" not in repr(loaded)


def test_an_entry_with_an_invalid_name_is_reported_and_used(tmp_path: Path) -> None:
    write(tmp_path / HOME, {".cursor/mcp.json": servers(**{"my server": "a", "": "b"})})
    loaded = load(tmp_path)
    assert loaded.configs.keys() == {"my server", ""}
    path = str(tmp_path / HOME / ".cursor/mcp.json")
    reason = "a name should contain only letters, digits, _ - . : (the server is used anyway)"
    assert loaded.warnings == [
        Problem(path, 1, f"Server 'my server': {reason}", harmless=True),
        Problem(path, 1, f"Server '': {reason}", harmless=True),
    ]


def test_a_failing_reader_does_not_affect_other_programs(tmp_path: Path) -> None:
    import msgspec

    def stumble(*_: Any) -> Any:
        raise RuntimeError

    broken = msgspec.structs.replace(HOSTS[0], servers=stumble)
    write(tmp_path / PROJECT, {".fairlead/mcp.json": servers(a="a"), ".mcp.json": servers(b="b")})
    loaded = load(tmp_path, hosts=[broken, *HOSTS[1:]])
    assert loaded.configs.keys() == {"b"}
    assert loaded.warnings == [
        Problem(
            "Fairlead (project)", 1, "the files of Fairlead (project) cannot be read (RuntimeError)"
        )
    ]


def test_discovery_of_large_files_takes_less_than_thirty_milliseconds(tmp_path: Path) -> None:
    projects = {f"/p/{n}": {"mcpServers": {}, "history": ["x" * 200] * 10} for n in range(100)}
    write(
        tmp_path / HOME,
        {
            ".claude.json": {"projects": projects, **servers(a="a")},
            ".cursor/mcp.json": servers(b="b"),
            ".codex/config.toml": '[mcp_servers.c]\ncommand = "c"\n',
        },
    )
    took = []
    for _ in range(7):
        start = time.perf_counter()
        assert load(tmp_path).configs.keys() == {"a", "b", "c"}
        took.append(time.perf_counter() - start)
    assert min(took) < 0.03
