"""Tests of `MCPClient.connect` and of the targets that it accepts."""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.client import (
    MCPHttpServerConfig,
    MCPStdioServerConfig,
    MCPTransport,
    MCPWebSocketServerConfig,
)
from fairlead.client.client_target import ConfiguredName, read_target
from fairlead.client.mcp_transport.factory import StdioTransport
from fairlead.config.discovery import load_all_mcp_configs
from fairlead.config.trust import NotApproved, Trust
from fairlead.errors import ChannelClosed, ConfigError

SOURCE = """
from fairlead import MCPServer

server = MCPServer("notes")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

if __name__ == "__main__":
    server.run()
"""

server = MCPServer("here")


@server.tool()
def where() -> str:
    return "in this process"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "my server.py"
    file.write_text(SOURCE)
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory, and make an empty project the current folder."""
    place, project = tmp_path / "home", tmp_path / "project"
    place.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(project)
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


async def total(target: Any) -> str:
    async with asyncio.timeout(20), MCPClient.connect(target) as client:
        return (await client.call_tool("add", {"a": 1, "b": 2})).text


def stdio(command: str, *args: str) -> MCPStdioServerConfig:
    return MCPStdioServerConfig(command=command, args=list(args))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("https://example.com/mcp", MCPHttpServerConfig(url="https://example.com/mcp")),
        ("HTTP://example.com", MCPHttpServerConfig(url="HTTP://example.com")),
        ("ws://example.com/ws", MCPWebSocketServerConfig(url="ws://example.com/ws")),
        ("unix:/run/a.sock", MCPHttpServerConfig(url="unix:///run/a.sock")),
        ("unix:///run/a.sock#/mcp", MCPHttpServerConfig(url="unix:///run/a.sock#/mcp")),
        ("uvx some-server --root 'a b'", stdio("uvx", "some-server", "--root", "a b")),
        (["uvx", "some-server"], stdio("uvx", "some-server")),
        (("server",), stdio("server")),
        (stdio("server"), stdio("server")),
        ({"command": "server"}, stdio("server")),
        ({"mcpServers": {"a": {"command": "server"}}}, stdio("server")),
        ({"servers": {"a": stdio("server")}}, stdio("server")),
        ("notes", ConfiguredName("notes")),
        (" notes ", ConfiguredName("notes")),
        (server, server),
    ],
)
def test_the_form_of_a_target_determines_the_kind_of_server(target: Any, found: Any) -> None:
    assert read_target(target) == found


def test_a_script_is_run_by_its_interpreter(tmp_path: Path, script: Path) -> None:
    assert read_target(script) == stdio(sys.executable, str(script))
    assert read_target(str(script)) == stdio(sys.executable, str(script))
    (tmp_path / "server.mjs").write_text("")
    assert read_target(tmp_path / "server.mjs") == stdio("node", str(tmp_path / "server.mjs"))
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert read_target(program) == stdio(str(program))


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("missing.py", "server script not found: 'missing.py' is not a file"),
        ("./missing", "server script not found: './missing' is not a file"),
        (Path("missing"), "server script not found"),
        (Path(__file__).with_name("missing.js"), "server script not found"),
        ("ftp://example.com", "unknown URL scheme 'ftp': expected http, https, ws, wss or unix"),
        ("", "cannot connect to an empty string"),
        ({"mcpServers": {}}, "the configuration has no servers"),
        ({"mcpServers": {"b": {}, "a": {}}}, r"has several servers \(a, b\)"),
        ({"mcpServers": {"a": 1}}, "the entry of 'a' is not an object"),
        ({"type": "carrier-pigeon"}, "Unknown server type: carrier-pigeon"),
    ],
)
def test_connect_rejects_an_invalid_target_before_it_connects(target: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        MCPClient.connect(target)


def test_a_file_without_an_interpreter_must_be_executable(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError, match=r"is not executable: expected a \.py or \.js file"):
        MCPClient.connect(tmp_path / "notes.txt")


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (1, "an object of type int"),
        (None, "an object of type NoneType"),
        (MCPServer, "the class MCPServer"),
        ([], "an object of type list"),
        ([1], "an object of type list"),
        (b"server", "an object of type bytes"),
    ],
)
def test_a_target_of_a_wrong_type_is_a_type_error(target: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"cannot connect to {kind}: expected a path, a URL"):
        MCPClient.connect(target)


@pytest.mark.parametrize("package", ["fastmcp", "mcp"])
def test_server_objects_of_other_sdks_are_refused_with_a_hint_to_pass_a_path(package: str) -> None:
    if package == "mcp":
        from mcp.server import MCPServer as TheirServer
    else:
        from fastmcp import FastMCP as TheirServer
    text = rf"{TheirServer.__name__} of the package {package} in this process: pass the path"
    with pytest.raises(TypeError, match=text):
        MCPClient.connect(TheirServer("notes"))


async def test_a_file_that_runs_a_server_of_another_sdk_is_connected(tmp_path: Path) -> None:
    file = tmp_path / "theirs.py"
    theirs = SOURCE.replace("fairlead import", "mcp.server import")
    file.write_text(theirs)
    assert await total(file) == "3"


@pytest.mark.parametrize("target", ["server.py", server, None])
def test_the_error_for_calling_the_constructor_names_the_connect_method(target: Any) -> None:
    with pytest.raises(TypeError, match=r"use `async with MCPClient\.connect\("):
        MCPClient(target)


def test_env_applies_only_to_commands_and_headers_only_to_urls() -> None:
    with pytest.raises(TypeError, match="headers apply to URLs only"):
        MCPClient.connect(["server"], headers={"A": "b"})
    with pytest.raises(TypeError, match="env applies to commands only"):
        MCPClient.connect("http://localhost", env={"A": "b"})


@pytest.mark.covers("CLT-01")
async def test_connect_starts_scripts_and_commands(script: Path) -> None:
    entry = {"command": sys.executable, "args": [str(script)]}
    assert await total(script) == "3"
    assert await total(shlex.join([sys.executable, str(script)])) == "3"
    assert await total([sys.executable, str(script)]) == "3"
    assert await total({"mcpServers": {"notes": entry}}) == "3"


async def test_connect_passes_the_environment_to_a_command(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(
        SOURCE.replace('MCPServer("notes")', "MCPServer(os.environ['NAME'])").replace(
            "from fairlead", "import os\nfrom fairlead", 1
        )
    )
    async with MCPClient.connect(file, env={"NAME": "sent"}) as client:
        assert client.server["serverInfo"]["name"] == "sent"


async def test_connect_accepts_urls_and_server_objects() -> None:
    started = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        server.run_http(port=0, auth_token="open", started=started.set_result)
    )
    try:
        url = await started
        async with MCPClient.connect(url, headers={"Authorization": "Bearer open"}) as client:
            assert (await client.call_tool("where")).text == "in this process"
    finally:
        serving.cancel()
        await asyncio.wait([serving])
    client = await MCPClient.connect(server)
    assert (await client.call_tool("where")).text == "in this process"
    await client.close()


def write(file: Path, script: Path) -> None:
    entry = {"command": sys.executable, "args": [str(script)], "env": {"A": "${HOME}"}}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"notes": entry}}))


async def test_connect_finds_configured_servers_by_name(home: Path, script: Path) -> None:
    write(home / ".claude.json", script)
    assert await total("notes") == "3"
    async with asyncio.timeout(20):
        client = await MCPClient.connect("notes")
        transport = client.transport
        assert isinstance(transport, StdioTransport)
        assert transport.entry.env["A"] == str(home)
        await client.close()
        with pytest.raises(ConfigError, match=r"unknown server 'note': did you mean 'notes'\?"):
            await MCPClient.connect("note")
        with pytest.raises(ConfigError, match="it is not in any configuration file"):
            async with MCPClient.connect("weather"):
                pass


async def test_the_error_for_an_address_without_a_scheme_contains_the_url(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs its scheme: http://localhost:80/mcp$"):
        await MCPClient.connect("localhost:80/mcp?token=secret")
    for url, probable in (
        ("127.0.0.1:80", "http://127.0.0.1:80"),
        ("a.de/x?k=1", "https://a.de/x"),
    ):
        with pytest.raises(ConfigError, match=rf"or unix://; did you mean {probable}\?$"):
            await MCPClient.connect_http(url)
    with pytest.raises(ConfigError, match=r"expected http://, https:// or unix://$"):
        await MCPClient.connect_http("server")


async def test_connect_starts_project_servers_only_after_their_approval(
    home: Path, script: Path
) -> None:
    write(Path(".mcp.json"), script)
    with pytest.raises(NotApproved):
        await MCPClient.connect("notes")
    Trust().approve(load_all_mcp_configs().found["notes"])
    assert await total("notes") == "3"


async def test_a_disabled_server_is_not_connected_by_name(home: Path, script: Path) -> None:
    (home / ".cursor").mkdir()
    entry = {"command": "x", "enabled": False}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"off": entry}}))
    with pytest.raises(ConfigError, match="server 'off' is disabled"):
        await MCPClient.connect("off")


def test_the_error_for_using_a_connection_attempt_as_a_client_shows_how_to_connect() -> None:
    attempt: Any = MCPClient.connect(server)
    with pytest.raises(AttributeError, match=r"use `async with MCPClient\.connect\(\.\.\.\)"):
        attempt.call_tool("where")
    with pytest.raises(TypeError, match="use `async with"), attempt:
        pass


async def test_the_error_for_using_an_unconnected_client_shows_how_to_connect() -> None:
    transport = StdioTransport({"command": "server"})
    with pytest.raises(ChannelClosed, match="first await `initialize"):
        await MCPClient(transport).list_tools()
    with pytest.raises(ChannelClosed, match=r"or `connect\(\)` of the transport"):
        await transport.request("ping")
    await transport.close()
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await transport.request("ping")
    assert isinstance(transport, MCPTransport)


async def test_connect_accepts_the_url_of_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    started = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(server.run_http(uds=str(path), started=started.set_result))
    try:
        await started
        async with MCPClient.connect(f"unix:{path}") as client:
            assert (await client.call_tool("where")).text == "in this process"
    finally:
        serving.cancel()
        await asyncio.wait([serving])


@pytest.mark.parametrize(
    ("connect", "given", "closest"),
    [
        (lambda **o: MCPClient.connect(server, **o), "on_elicitation", "on_elicit"),
        (lambda **o: MCPClient.connect("notes", **o), "header", "headers"),
        (lambda **o: MCPClient.connect_inprocess(server, **o), "on_sampling", "on_sample"),
        (lambda **o: MCPClient.connect_stdio(["x"], **o), "envs", "env"),
        (lambda **o: MCPClient.connect_http("http://x", **o), "header", "headers"),
        (lambda **o: MCPClient.connect_websocket("ws://x", **o), "dialct", "dialect"),
        (lambda **o: MCPClient.connect_entry({"command": "x"}, **o), "on_logs", "on_log"),
        (lambda **o: MCPClient.connect_unix("/x", **o), "interceptor", "interceptors"),
        (lambda **o: MCPClient.connect_tcp("x", 1, **o), "onElicit", "on_elicit"),
    ],
)
def test_a_misspelt_keyword_is_a_type_error_with_the_closest_name(
    connect: Any, given: str, closest: str
) -> None:
    text = f"unknown keyword argument '{given}': did you mean '{closest}'"
    with pytest.raises(TypeError, match=text):
        connect(**{given: None})


@pytest.mark.parametrize(
    ("era", "version"), [("handshake", "2025-11-25"), ("stateless", "2026-07-28")]
)
async def test_an_entry_selects_the_era_of_its_server(script: Path, era: str, version: str) -> None:
    entry = {"command": sys.executable, "args": [str(script)], "era": era}
    async with asyncio.timeout(20):
        async with MCPClient.connect(entry) as client:
            assert client.protocol_version == version
        other = MCPClientConfig(protocol_version="2025-06-18")
        async with MCPClient.connect(entry, other) as client:
            assert client.protocol_version == "2025-06-18"
    with pytest.raises(ConfigError, match="era"):
        MCPClient.connect({"command": "x", "era": "old"})


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        (("npx", "server"), {}, "config must be an MCPClientConfig, not 'server'"),
        (("npx server",), {"env": {"PORT": 80}}, "env must be a dict of strings or None"),
        (("http://h/mcp",), {"headers": ["a: b"]}, "headers must be a dict of strings or None"),
        ((MCPServer("s"),), {"env": {"A": "b"}}, "env does not apply to a server in this process"),
        ((MCPServer("s"),), {"headers": {}}, "headers does not apply to a server in this process"),
        ((MCPServer("s"),), {"auth": "oauth"}, "auth does not apply to a server in this process"),
    ],
)
def test_wrong_options_of_connect_are_rejected_at_once(
    arguments: Any, options: Any, reason: str
) -> None:
    with pytest.raises(TypeError, match=f"^{reason}"):
        MCPClient.connect(*arguments, **options)


@pytest.mark.parametrize("words", ["uvx server", b"uvx", [], [1], ["uvx", None], 5])
def test_a_command_must_be_a_list_of_strings_and_paths(words: Any) -> None:
    with pytest.raises(TypeError, match="^command must be a list of "):
        MCPClient.connect_stdio(words)
