"""Tests of reading the files of every host program: entries, disabled servers, units and lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.found_server import EnvironmentReference, FoundServer, Input, Problem
from fairlead.config.host_files.host import ConfigLocation, named_items
from fairlead.config.hosts import HOSTS, Host, find_servers
from fairlead.config.paths import HostPaths
from tests.support.home_directory import (
    HOME,
    PROJECT,
    PROJECT_FILES,
    USER_FILES,
    full_home,
    machine_in,
    write,
)

BY_ID = {host.id: host for host in HOSTS}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FoundServer]:
    machine = full_home(tmp_path_factory.mktemp("machine"))
    files = ConfigReader()
    found = [one for host in HOSTS for one in find_servers(host, machine, files)]
    assert files.problems == []
    return {one.name: one for one in found}


def read(host: str, machine: HostPaths) -> list[FoundServer]:
    return list(find_servers(BY_ID[host], machine, ConfigReader()))


# Server name, program, and expected entry.
ENTRIES: list[tuple[str, str, Any]] = [
    (
        "own",
        "fairlead",
        MCPStdioServerConfig(command="own-mcp", env={"KEY": "${OWN_KEY:-none}"}, lazy=True),
    ),
    ("own-toml", "fairlead", MCPStdioServerConfig(command="own-toml")),
    ("own-yaml", "fairlead", MCPHttpServerConfig(url="https://own.example/mcp")),
    ("cc-local", "claude-code", MCPStdioServerConfig(command="local-mcp")),
    (
        "cc-user",
        "claude-code",
        MCPHttpServerConfig(
            url="https://cc.example/mcp",
            headers={"Authorization": "Bearer ${CC_TOKEN}"},
            oauth={"clientId": "abc", "callbackPort": 8080},
        ),
    ),
    (
        "desktop",
        "claude-desktop",
        MCPStdioServerConfig(command="uvx", args=["d-mcp"], env={"A": "${A}"}),
    ),
    (
        "cursor-local",
        "cursor",
        MCPStdioServerConfig(command="${userHome}/bin/mcp", args=["${workspaceFolder}"]),
    ),
    (
        "cursor-remote",
        "cursor",
        MCPHttpServerConfig(
            url="https://cur.example/mcp",
            headers={"X": "${env:CUR}"},
            oauth={"clientId": "id", "clientSecret": "s", "scopes": ["a"]},
        ),
    ),
    (
        "code-stdio",
        "vscode",
        MCPStdioServerConfig(command="code-mcp", env={"GH": "${input:gh-token}", "PORT": "8080"}),
    ),
    ("code-sse", "vscode", MCPSseServerConfig(url="https://code.example/sse")),
    ("code-profile", "vscode", MCPHttpServerConfig(url="https://profile.example/mcp")),
    ("code-server", "vscode", MCPStdioServerConfig(command="server-mcp")),
    ("insiders", "vscode-insiders", MCPStdioServerConfig(command="insiders-mcp")),
    (
        "codex-stdio",
        "codex",
        MCPStdioServerConfig(
            command="codex-mcp", args=["--x"], env={"PLAIN": "${NOT_EXPANDED}"}, timeout=45500
        ),
    ),
    (
        "codex.http",
        "codex",
        MCPHttpServerConfig(
            url="https://codex.example/mcp",
            headers={"X-A": "1"},
            oauth={"clientId": "cid", "callbackPort": 99, "scopes": ["read"]},
        ),
    ),
    ("gem-stdio", "gemini", MCPStdioServerConfig(command="g", timeout=30000)),
    (
        "gem-http",
        "gemini",
        MCPHttpServerConfig(url="https://gem.example/mcp", headers={"K": "$GEM_KEY"}),
    ),
    ("gem-auto", "gemini", MCPHttpServerConfig(url="https://gem.example/auto")),
    ("gem-tcp", "gemini", MCPWebSocketServerConfig(url="wss://gem.example/ws")),
    ("antigravity", "antigravity", MCPHttpServerConfig(url="https://anti.example/mcp")),
    (
        "wind",
        "windsurf",
        MCPHttpServerConfig(url="https://wind.example/mcp", headers={"A": "Bearer ${env:WIND}"}),
    ),
    ("zed-new", "zed", MCPStdioServerConfig(command="zed-mcp", args=["a"], timeout=30000)),
    ("zed-old", "zed", MCPStdioServerConfig(command="old-mcp", args=["b"], env={"E": "1"})),
    (
        "oc-local",
        "opencode",
        MCPStdioServerConfig(
            command="bun", args=["x", "oc-mcp"], env={"K": "{env:OC_KEY}"}, timeout=7000
        ),
    ),
    ("omp", "omp", MCPStdioServerConfig(command="omp-mcp", env={"T": "!echo hi"})),
    ("cline-sse", "cline", MCPSseServerConfig(url="https://cline.example/sse", timeout=60000)),
    ("cline-http", "cline", MCPHttpServerConfig(url="https://cline.example/mcp")),
    ("cline-nested", "cline", MCPStdioServerConfig(command="c", args=["n"])),
    ("roo", "roo", MCPStdioServerConfig(command="r", env={"A": "${env:ROO}"})),
    (
        "goose-stdio",
        "goose",
        MCPStdioServerConfig(
            command="goose-mcp", args=["run"], env={"MODE": "fast"}, timeout=300000
        ),
    ),
    ("cont-stdio", "continue", MCPStdioServerConfig(command="cont-mcp", args=["a"])),
    (
        "cont-http",
        "continue",
        MCPHttpServerConfig(
            url="https://cont.example/mcp",
            headers={"Authorization": "Bearer ${{ secrets.CONT_KEY }}"},
        ),
    ),
    (
        "crush",
        "crush",
        MCPHttpServerConfig(
            url="https://mcp.example.com/mcp", headers={"X-Key": "k3y"}, timeout=120000
        ),
    ),
    ("kilo", "kilo", MCPStdioServerConfig(command="kilo-mcp", timeout=2000)),
    ("vibe-http", "vibe", MCPHttpServerConfig(url="https://vibe.example/mcp")),
    ("vibe-stdio", "vibe", MCPStdioServerConfig(command="vibe-mcp")),
    ("grok", "grok", MCPHttpServerConfig(url="https://grok.example/mcp")),
    (
        "porter",
        "mcporter",
        MCPHttpServerConfig(url="https://porter.example/mcp", headers={"A": "$env:PORTER"}),
    ),
]


@pytest.mark.covers("CFG-02")
@pytest.mark.parametrize(("name", "host", "entry"), ENTRIES, ids=[row[0] for row in ENTRIES])
def test_an_entry_of_each_program_is_read(
    everything: dict[str, FoundServer], name: str, host: str, entry: Any
) -> None:
    found = everything[name]
    assert (found.host, found.entry, found.enabled) == (host, entry, True)


@pytest.mark.parametrize(
    "name",
    [
        "omp-work",
        "qwen",
        "cont-extra",
        "copilot",
        "lmstudio",
        "amp",
        "trae",
        "kimi",
        "qoder",
        "sema4",
        "5ire",
        "mastra",
        "pi",
        "fx",
    ],
)
def test_an_entry_in_the_common_format_is_read(
    everything: dict[str, FoundServer], name: str
) -> None:
    usual = MCPStdioServerConfig(command="npx", args=["-y", "thing-mcp"], env={"TOKEN": "t0p"})
    assert everything[name].entry == usual


@pytest.mark.parametrize("name", ["kiro", "factory"])
def test_a_remote_entry_in_the_common_format_is_read(
    everything: dict[str, FoundServer], name: str
) -> None:
    usual = MCPHttpServerConfig(url="https://mcp.example.com/mcp", headers={"X-Key": "k3y"})
    assert everything[name].entry == usual


def test_the_fixture_has_an_entry_for_every_program(everything: dict[str, FoundServer]) -> None:
    assert {found.host for found in everything.values()} == set(BY_ID)


def test_entries_of_project_files_have_the_level_project(
    everything: dict[str, FoundServer],
) -> None:
    of_project = {name for name, found in everything.items() if found.level == "project"}
    assert of_project == {name for name in everything if name.startswith("p-")} | {"shared-refused"}
    assert len(of_project) == len(PROJECT_FILES) + 1


def test_sections_of_a_file_that_do_not_configure_servers_are_ignored(
    everything: dict[str, FoundServer],
) -> None:
    assert {"developer", "zed-extension", "cc-elsewhere", "timeout"} & everything.keys() == set()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("own-off", "disabled in the entry"),
        ("cc-disabled", "disabled in Claude Code for this project"),
        ("shared-refused", "disabled in Claude Code's settings"),
        ("codex-off", "disabled in the entry"),
        ("gem-excluded", "excluded by `mcp.excluded`"),
        ("gem-switched", "disabled in mcp-server-enablement.json"),
        ("qwen-not-allowed", "not in `mcp.allowed`"),
        ("wind-off", "disabled in the entry"),
        ("zed-off", "disabled in the entry"),
        ("oc-remote", "disabled in the entry"),
        ("omp-off", "listed in `disabledServers`"),
        ("cline-off", "disabled in the entry"),
        ("goose-http", "disabled in the entry"),
        ("kilo-off", "disabled in the entry"),
    ],
)
def test_each_disabled_server_has_a_reason(
    everything: dict[str, FoundServer], name: str, why: str
) -> None:
    assert (everything[name].enabled, everything[name].notes[-1]) == (False, why)


def test_references_to_environment_variables_are_kept(everything: dict[str, FoundServer]) -> None:
    assert everything["codex-stdio"].lookups == (
        EnvironmentReference("env", "HOME_TOKEN", "HOME_TOKEN"),
        EnvironmentReference("env", "OTHER", "OTHER"),
    )
    assert everything["codex.http"].lookups == (
        EnvironmentReference("headers", "Authorization", "CODEX_TOKEN", "Bearer {}"),
        EnvironmentReference("headers", "X-B", "B_VAR"),
    )
    assert everything["goose-stdio"].lookups == (
        EnvironmentReference("env", "GOOSE_KEY", "GOOSE_KEY"),
    )
    assert everything["vibe-http"].lookups == (
        EnvironmentReference("headers", "X-Api-Key", "VIBE_KEY", "{}"),
    )


def test_start_up_timeouts_and_tool_filters_are_read(everything: dict[str, FoundServer]) -> None:
    codex, kilo = everything["codex-stdio"], everything["kilo"]
    assert (codex.startup_timeout, codex.without_tools) == (20000, ("rm",))
    assert (kilo.startup_timeout, kilo.only_tools) == (1000, None)
    assert everything["cont-stdio"].startup_timeout == 9000
    assert everything["codex.http"].only_tools == ("search",)
    assert everything["copilot"].only_tools is None
    assert everything["wind"].without_tools == ("a",)
    assert "a timeout out of range is ignored: the default applies" in everything["omp"].notes


def test_inputs_of_vscode_are_read_with_their_descriptions(
    everything: dict[str, FoundServer],
) -> None:
    assert everything["code-stdio"].needs_input == (
        Input("gh-token", "GitHub token", password=True),
    )
    assert "GONE is null and ignored" in everything["code-stdio"].notes
    assert everything["code-sse"].needs_input == ()


def test_header_helpers_and_env_files_are_kept_as_configured(
    everything: dict[str, FoundServer],
) -> None:
    assert everything["cc-user"].headers_helper == "print-headers"
    assert everything["cursor-local"].env_file == "${workspaceFolder}/.env"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cc-local", 6),
        ("cc-user", 15),
        ("code-stdio", 7),
        ("code-sse", 12),
        ("codex-stdio", 3),
        ("codex.http", 14),
        ("zed-old", 6),
        ("oc-remote", 10),
        ("goose-stdio", 6),
        ("cont-http", 7),
        ("vibe-stdio", 9),
        ("own-yaml", 2),
    ],
)
def test_each_found_server_has_the_line_of_its_entry(
    everything: dict[str, FoundServer], name: str, line: int
) -> None:
    assert everything[name].line == line


def test_claude_code_has_local_user_and_project_entries(everything: dict[str, FoundServer]) -> None:
    assert [everything[n].level for n in ("cc-local", "cc-user", "p-shared")] == [
        "local",
        "user",
        "project",
    ]


def test_a_warning_names_values_that_look_like_variables(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    write(tmp_path / HOME, {".fx/mcp.json": {"mcp": {"a": {"command": "x", "args": ["${B}"]}}}})
    [found] = read("fx", machine)
    assert found.notes == ("values look like variables, but the variable syntax of fx is unknown",)


def test_managed_servers_of_claude_code_are_exclusive(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    write(
        tmp_path,
        {
            "etc/claude-code/managed-mcp.json": {"mcpServers": {"boss": {"command": "b"}}},
            f"{HOME}/.claude.json": {"mcpServers": {"mine": {"command": "m"}}},
        },
    )
    found = read("claude-code", machine)
    assert [(one.name, one.level, one.enabled) for one in found] == [
        ("boss", "managed", True),
        ("mine", "user", False),
    ]


def test_managed_settings_of_claude_code_deny_and_allow_servers(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    servers = {
        "by-name": {"command": "a"},
        "by-command": {"command": "npx", "args": ["evil"]},
        "by-url": {"type": "http", "url": "https://evil.example/mcp"},
        "fine": {"type": "http", "url": "https://fine.example/mcp"},
        "forgotten": {"command": "z"},
    }
    rules = {
        "deniedMcpServers": [
            {"serverName": "by-name"},
            {"serverCommand": ["npx", "evil"]},
            {"serverUrl": "https://evil.example/*"},
            "nonsense",
        ],
        "allowedMcpServers": [{"serverUrl": "https://*"}, {"serverName": "by-name"}],
    }
    write(tmp_path, {"etc/claude-code/managed-settings.json": rules})
    write(tmp_path / HOME, {".claude.json": {"mcpServers": servers}})
    assert [one.name for one in read("claude-code", machine) if one.enabled] == ["fine"]


def test_claude_config_dir_sets_the_folder_of_the_claude_code_files(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, CLAUDE_CONFIG_DIR=str(tmp_path / "moved"))
    write(tmp_path, {"moved/.claude.json": {"mcpServers": {"a": {"command": "a"}}}})
    assert [one.name for one in read("claude-code", machine)] == ["a"]


def test_servers_of_a_vscode_devcontainer_are_read(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    inside = {"customizations": {"vscode": {"mcp": {"servers": {"a": {"command": "a"}}}}}}
    write(tmp_path / PROJECT, {".devcontainer/devcontainer.json": inside})
    assert [(one.name, one.level) for one in read("vscode", machine)] == [("a", "project")]


def test_managed_codex_files_take_precedence_over_project_and_user_files(tmp_path: Path) -> None:
    machine = machine_in(tmp_path, CODEX_HOME=str(tmp_path / "codex"))
    for place in ("etc/codex/managed_config", f"{PROJECT}/.codex/config", "codex/config"):
        write(tmp_path, {f"{place}.toml": '[mcp_servers.a]\ncommand = "a"\n'})
    assert [one.level for one in read("codex", machine)] == ["managed", "project", "user"]


def test_opencode_files_are_read_up_to_the_repository_root(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    entry = {"type": "local", "command": ["a"]}
    write(
        tmp_path / HOME,
        {
            "opencode.json": {"mcp": {"above": entry}},
            "lab/.git/HEAD": "ref",
            "lab/opencode.jsonc": {"mcp": {"root": entry}},
            "lab/engine/.opencode/opencode.json": {"mcp": {"here": entry}},
        },
    )
    assert [one.name for one in read("opencode", machine)] == ["here", "root"]


def test_an_opencode_server_may_have_the_name_servers(tmp_path: Path) -> None:
    machine = machine_in(tmp_path)
    entry = {"type": "local", "command": ["a"]}
    write(tmp_path / HOME, {".config/opencode/opencode.json": {"mcp": {"servers": entry}}})
    assert [one.name for one in read("opencode", machine)] == ["servers"]


def test_unnamed_servers_in_a_list_are_named_by_their_index() -> None:
    items = [{"name": "a"}, {"name": ""}, {}, "x", None]
    named = [("a", items[0]), ("k[1]", items[1]), ("k[2]", {}), ("k[3]", "x"), ("k[4]", None)]
    assert list(named_items("k", items)) == named
    assert list(named_items("k", {"a": 1})) == [("a", 1)]
    assert list(named_items("k", 5)) == [("k", 5)]


def test_a_file_that_is_listed_twice_is_read_once(tmp_path: Path) -> None:
    entry = {"command": "a"}
    write(
        tmp_path, {"a.json": {"mcpServers": {"a": entry}}, "b.json": {"mcpServers": {"b": entry}}}
    )
    first, second = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    places = [
        ConfigLocation(first, "project"),
        ConfigLocation(first, "user"),
        ConfigLocation(first, "user"),
        ConfigLocation(str(tmp_path / "gone.json"), "user"),
        ConfigLocation(second, "user"),
    ]
    host = Host(id="x", title="X", places=lambda *_: places)
    found = list(find_servers(host, machine_in(tmp_path), ConfigReader()))
    assert [(one.name, one.level) for one in found] == [("a", "user"), ("b", "user")]


def test_an_invalid_entry_does_not_affect_other_entries_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, {"a.json": {"mcpServers": {"a": {"x": 1}, "b": 5, "c": {"command": "c"}}}})
    path = str(tmp_path / "a.json")

    def adapt(raw: dict[str, Any]) -> dict[str, Any]:
        if "x" in raw:
            raise RuntimeError
        return raw

    host = Host(id="x", title="X", places=lambda *_: [ConfigLocation(path, "user")], adapt=adapt)
    files = ConfigReader()
    assert [one.name for one in find_servers(host, machine_in(tmp_path), files)] == ["c"]
    assert files.problems == [
        Problem(path, 1, 'Server "a": the entry cannot be read (RuntimeError)'),
        Problem(path, 1, 'Server "b": the entry must be a map'),
    ]


def test_disabled_entries_have_a_reason_and_inputs_are_read(tmp_path: Path) -> None:
    inputs = [
        {"id": "a", "description": "A", "password": True, "default": "x", "options": ["x", 1]},
        {"id": "b", "password": "yes", "default": 5, "options": "x"},
        {"id": 7},
        "odd",
    ]
    entry = {"command": "c", "args": ["${input:a} ${input:b} ${input:c}"], "enabled": False}
    write(
        tmp_path / HOME, {".config/Code/User/mcp.json": {"servers": {"s": entry}, "inputs": inputs}}
    )
    [one] = read("vscode", machine_in(tmp_path))
    assert one.notes == ("disabled in the entry",)
    assert not one.enabled
    assert one.needs_input == (
        Input("a", "A", True, ("x", "1"), "x"),
        Input("b"),
        Input("c"),
    )


def test_the_content_of_referenced_files_is_recorded_only_for_project_entries(
    tmp_path: Path,
) -> None:
    entry = {"mcpServers": {"s": {"command": "c", "envFile": "/none/.env"}}}
    write(tmp_path, {"a.json": entry, "b.json": entry})
    places = [
        ConfigLocation(str(tmp_path / "a.json"), "project"),
        ConfigLocation(str(tmp_path / "b.json"), "user"),
    ]
    host = Host(id="x", title="X", places=lambda *_: places)
    project, user = find_servers(host, machine_in(tmp_path), ConfigReader())
    assert (project.contents, user.contents) == ({"/none/.env": None}, {})


def test_a_user_file_in_the_home_folder_is_not_read_as_a_project_file(tmp_path: Path) -> None:
    write(tmp_path, {".cursor/mcp.json": {"mcpServers": {"a": {"command": "a"}}}})
    machine = HostPaths(platform="linux", home=str(tmp_path), cwd=str(tmp_path), env={})
    assert [one.level for one in read("cursor", machine)] == ["user"]


# Configuration files of each program on each platform, relative to a home folder.
WINDOWS = r"C:\Users\Ada"
ROAMING = rf"{WINDOWS}\AppData\Roaming"
LOCAL = rf"{WINDOWS}\AppData\Local"
SUPPORT = "/Users/ada/Library/Application Support"
STORE = rf"{LOCAL}\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude"
CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
CLINE_WINDOWS = CLINE.replace("/", "\\")
ROO = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
PATHS: list[tuple[str, str, str]] = [
    ("claude-code", "darwin", "/Users/ada/.claude.json"),
    ("claude-code", "darwin", "/Library/Application Support/ClaudeCode/managed-mcp.json"),
    ("claude-code", "win32", rf"{WINDOWS}\.claude.json"),
    ("claude-code", "win32", r"C:\Program Files\ClaudeCode\managed-mcp.json"),
    ("claude-desktop", "darwin", f"{SUPPORT}/Claude/claude_desktop_config.json"),
    ("claude-desktop", "win32", rf"{ROAMING}\Claude\claude_desktop_config.json"),
    ("claude-desktop", "win32", rf"{STORE}\claude_desktop_config.json"),
    ("cursor", "win32", rf"{WINDOWS}\.cursor\mcp.json"),
    ("cursor", "win32", r"C:\lab\.cursor\mcp.json"),
    ("vscode", "darwin", f"{SUPPORT}/Code/User/mcp.json"),
    ("vscode", "win32", rf"{ROAMING}\Code\User\mcp.json"),
    ("vscode-insiders", "darwin", f"{SUPPORT}/Code - Insiders/User/mcp.json"),
    ("codex", "win32", rf"{WINDOWS}\.codex\config.toml"),
    ("gemini", "darwin", "/Library/Application Support/GeminiCli/settings.json"),
    ("gemini", "win32", r"C:\ProgramData\gemini-cli\system-defaults.json"),
    ("windsurf", "win32", rf"{WINDOWS}\.codeium\windsurf\mcp_config.json"),
    ("zed", "darwin", "/Users/ada/.config/zed/settings.json"),
    ("zed", "win32", rf"{ROAMING}\Zed\settings.json"),
    ("opencode", "darwin", "/Users/ada/.config/opencode/opencode.json"),
    ("opencode", "darwin", "/Library/Application Support/opencode/opencode.json"),
    ("opencode", "win32", rf"{WINDOWS}\.config\opencode\opencode.jsonc"),
    ("opencode", "win32", rf"{ROAMING}\opencode\opencode.json"),
    ("omp", "win32", rf"{WINDOWS}\.omp\agent\mcp.json"),
    ("cline", "darwin", f"{SUPPORT}/Code/{CLINE}"),
    ("cline", "win32", rf"{ROAMING}\Cursor\{CLINE_WINDOWS}"),
    ("roo", "darwin", f"{SUPPORT}/Code/{ROO}"),
    ("goose", "darwin", "/Users/ada/.config/goose/config.yaml"),
    ("goose", "win32", rf"{ROAMING}\Block\goose\config\config.yaml"),
    ("continue", "win32", rf"{WINDOWS}\.continue\config.yaml"),
    ("amp", "darwin", "/Users/ada/.config/amp/settings.json"),
    ("amp", "win32", rf"{ROAMING}\amp\settings.json"),
    ("trae", "darwin", f"{SUPPORT}/Trae/User/mcp.json"),
    ("crush", "win32", rf"{LOCAL}\crush\crush.json"),
    ("qoder", "darwin", "/Users/ada/.qoder/mcp.json"),
    ("qoder", "win32", rf"{ROAMING}\Qoder\SharedClientCache\mcp.json"),
    ("5ire", "darwin", f"{SUPPORT}/5ire/mcp.json"),
    ("5ire", "win32", rf"{ROAMING}\5ire\mcp.json"),
    ("fairlead", "darwin", "/Users/ada/.config/fairlead/mcp.json"),
    ("fairlead", "win32", rf"{ROAMING}\fairlead\mcp.toml"),
    ("dot-mcp-json", "win32", r"C:\lab\.mcp.json"),
]


@pytest.mark.parametrize(("host", "platform", "path"), PATHS)
def test_files_of_host_programs_on_windows_and_macos_are_found(
    host: str, platform: str, path: str
) -> None:
    home, cwd = {"win32": (WINDOWS, r"C:\lab"), "darwin": ("/Users/ada", "/lab")}[platform]
    machine = HostPaths(platform=platform, home=home, cwd=cwd, env={})
    assert path in paths_of(BY_ID[host], machine)


def paths_of(host: Host, machine: HostPaths) -> list[str]:
    return [place.path for place in host.places(machine, ConfigReader())]


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.id)
def test_every_program_has_files_on_every_platform(host: Host) -> None:
    for platform, home, cwd in (
        ("linux", "/home/ada", "/lab"),
        ("darwin", "/Users/ada", "/lab"),
        ("win32", WINDOWS, r"C:\lab"),
    ):
        machine = HostPaths(platform=platform, home=home, cwd=cwd, env={})
        paths = paths_of(host, machine)
        assert paths
        assert all(machine.path.isabs(path) for path in paths)
        assert all(("/" in path) != (platform == "win32") for path in paths)


def test_folders_on_windows_are_read_from_the_environment() -> None:
    env = {"APPDATA": r"D:\Roaming", "LOCALAPPDATA": r"D:\Local"}
    machine = HostPaths(platform="win32", home=WINDOWS, cwd=r"C:\lab", env=env)
    assert paths_of(BY_ID["amp"], machine) == [r"D:\Roaming\amp\settings.json"]
    assert paths_of(BY_ID["crush"], machine)[-1] == r"D:\Local\crush\crush.json"


def test_project_paths_on_windows_ignore_case_and_slashes(tmp_path: Path) -> None:
    from fairlead.config.hosts.claude_code import project_keys

    machine = HostPaths(platform="win32", home=WINDOWS, cwd=r"C:\Lab\Engine", env={})
    assert project_keys(machine) == ["c:/lab/engine"]


def test_the_json_files_of_the_fixture_are_valid() -> None:
    for name, text in USER_FILES.items():
        if name.endswith(".json") and "//" not in text.replace("://", ""):
            json.loads(text)
