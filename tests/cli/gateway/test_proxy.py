"""Tests of `fairlead proxy` with real clients and servers."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import TextContent

from fairlead import MCPClient, MCPClientConfig
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.cli_process import LIMIT, fairlead, run_by, server_file, talk
from tests.support.cli_user import Person, person

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

TOOLS = """
    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.tool()
    def shout(text: str) -> str:
        print(f"heard {text}", file=sys.stderr, flush=True)
        return text.upper()

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)

    @server.tool()
    async def wait() -> None:
        await asyncio.sleep(3600)
"""
ANYWHERE = "http://127.0.0.1:0"
VERSIONS = [NEWEST.value, NEWEST_HANDSHAKE.value]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return server_file(tmp_path, TOOLS)


class Proxy:
    """A running `fairlead proxy --listen ...` whose stdout must stay empty."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", "proxy", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            # Tests that a shell runs in the background would ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
        )
        self.said = ""

    def wait_for(self, words: str) -> str:
        """Return the first line that contains the given words."""
        assert self.process.stderr is not None
        while not (found := [line for line in self.said.splitlines() if words in line]):
            assert select.select([self.process.stderr], [], [], LIMIT)[0], self.said
            some = os.read(self.process.stderr.fileno(), 65536)
            assert some, f"the process ended without the words {words!r} but: {self.said}"
            self.said += some.decode()
        return found[0]

    @property
    def url(self) -> str:
        return self.wait_for("connect: ").split("'")[1]

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=LIMIT)
        assert (self.process.returncode, out) == (0, b"")


@contextlib.contextmanager
def proxy(*args: str, env: Mapping[str, str] | None = None) -> Iterator[Proxy]:
    running = Proxy(*args, env=env)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.communicate(timeout=LIMIT)


@contextlib.contextmanager
def gone_afterwards(pid: int) -> Iterator[None]:
    process = os.pidfd_open(pid)
    try:
        yield
        assert select.select([process], [], [], LIMIT)[0], "the server is still running"
    finally:
        os.close(process)


@contextlib.asynccontextmanager
async def connected(url: str, version: str = "auto", **options: Any) -> AsyncIterator[MCPClient]:
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    connect = MCPClient.connect_websocket if url.startswith("ws") else MCPClient.connect_http
    async with asyncio.timeout(LIMIT), connect(url, config, **options) as client:
        yield client


async def shouted(client: MCPClient) -> str:
    result = await client.call_tool("shout", {"text": "aloud"})
    return str(result["content"][0]["text"])


async def pid_of(client: MCPClient) -> int:
    return int((await client.call_tool("pid", {}))["content"][0]["text"])


async def confirm(_: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": True}}


# stdio


@pytest.mark.covers("GTW-02")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("era", ["auto", "handshake", "stateless"])
async def test_a_stdio_client_uses_a_stdio_server_in_any_era(
    file: Path, version: str, era: str
) -> None:
    command = [sys.executable, "-m", "fairlead", "proxy", "--era", era, *run_by(file)]
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    said: list[str] = []
    connecting = MCPClient.connect_stdio(command, config, on_stderr=said.append, on_elicit=confirm)
    async with asyncio.timeout(LIMIT), connecting as client:
        assert client.protocol_version == version
        assert await shouted(client) == "ALOUD"
        assert (await client.call_tool("ask", {}))["content"][0]["text"] == "True"
        pid = await pid_of(client)
        with gone_afterwards(pid):
            await client.close()
    assert said == ["heard aloud"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_sdk_client_can_use_a_proxy_over_stdio(file: Path, mode: Any) -> None:
    args = ["-m", "fairlead", "proxy", *run_by(file)]
    program = StdioServerParameters(command=sys.executable, args=args)
    async with (
        asyncio.timeout(LIMIT),
        Client(stdio_client(program, errlog=sys.__stderr__), mode=mode) as client,
    ):
        result = await client.call_tool("shout", {"text": "aloud"})
    assert isinstance(result.content[0], TextContent)
    assert result.content[0].text == "ALOUD"


def test_requests_before_the_end_of_stdin_are_answered(file: Path) -> None:
    call = {"method": "tools/call", "params": {"name": "shout", "arguments": {"text": "aloud"}}}
    done = fairlead("proxy", *run_by(file), input=talk(*({"id": i, **call} for i in (1, 2, 3))))
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(m["id"] for m in messages if "result" in m) == [0, 1, 2, 3]
    assert done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_call_stops_the_proxy_and_its_server(tmp_path: Path, number: int) -> None:
    file = server_file(tmp_path, TOOLS, "sys.stderr.write(f'pid {os.getpid()}\\n')")
    call = {"id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "proxy", *run_by(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(talk(call))
        process.stdin.flush()
        pid = int(process.stderr.readline().removeprefix("pid "))
        assert json.loads(process.stdout.readline())["id"] == 0
        with gone_afterwards(pid):
            process.send_signal(number)
            out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0
    assert [line for line in out.splitlines() if "result" in json.loads(line)] == []


def test_calls_get_an_error_response_if_the_server_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "no-program").write_text("not executable")
    done = fairlead("proxy", "--", str(tmp_path / "no-program"), input=talk())
    [message] = [json.loads(line) for line in done.stdout.splitlines()]
    assert message["id"] == 0
    assert message["error"]["data"]["source"] == "proxy"
    assert done.returncode == 0


# Network


@pytest.mark.covers("GTW-02")
@pytest.mark.parametrize("version", VERSIONS)
async def test_http_and_websocket_clients_use_a_stdio_server(file: Path, version: str) -> None:
    with proxy("--listen", ANYWHERE, *run_by(file)) as running:
        url = running.url
        async with connected(url, version, on_elicit=confirm) as client:
            assert client.protocol_version == version
            assert await shouted(client) == "ALOUD"
            assert (await client.call_tool("ask", {}))["content"][0]["text"] == "True"
        async with connected(url.replace("http", "ws").replace("/mcp", "/ws"), version) as client:
            assert await shouted(client) == "ALOUD"
            pid = await pid_of(client)
        running.wait_for("heard aloud")
        with gone_afterwards(pid):
            running.end()


async def test_the_official_sdk_client_can_use_a_proxy_over_http(file: Path) -> None:
    with proxy("--listen", ANYWHERE, *run_by(file)) as running:
        for mode in ("auto", "legacy"):
            async with asyncio.timeout(LIMIT), Client(running.url, mode=mode) as client:
                result = await client.call_tool("shout", {"text": "aloud"})
                assert isinstance(result.content[0], TextContent)
                assert result.content[0].text == "ALOUD"
        running.end(signal.SIGINT)


async def test_the_endpoint_of_a_proxy_has_the_path_in_the_listen_option(file: Path) -> None:
    with proxy("--listen", "ws://127.0.0.1:0/talk", *run_by(file)) as running:
        assert running.url.startswith("ws://127.0.0.1:")
        assert running.url.endswith("/talk")
        async with connected(running.url) as client:
            assert await shouted(client) == "ALOUD"
    with proxy("--listen", f"{ANYWHERE}/a/b", *run_by(file)) as running:
        assert running.url.endswith("/a/b")
        async with connected(running.url) as client:
            assert await shouted(client) == "ALOUD"


def test_the_listen_option_accepts_a_port_without_a_host(file: Path) -> None:
    with proxy("--listen", "0", *run_by(file)) as running:
        assert running.url.startswith("http://127.0.0.1:")


async def test_a_proxy_listens_on_a_unix_socket(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "proxy.sock"
    with proxy("--listen", f"unix:{path}", *run_by(file)) as running:
        assert running.url == f"unix://{path}#/mcp"
        # the same syntax as for --listen
        assert "(protocol 20" in fairlead("ping", f"unix:{path}").stdout
        async with connected(running.url) as client:
            pid = await pid_of(client)
        with gone_afterwards(pid):
            running.end()
    assert not path.exists()


@pytest.mark.covers("GTW-02")
@pytest.mark.parametrize("way", ["http", "sse", "ws"])
async def test_a_stdio_client_uses_a_remote_server_that_requires_a_token(
    file: Path, way: str
) -> None:
    listen = f"{'ws' if way == 'ws' else 'http'}://127.0.0.1:0"
    with proxy("--listen", listen, "--token", "sesame", *run_by(file)) as far:
        url = [far.url]
        if way == "sse":
            url = ["--sse", far.url.replace("/mcp", "/sse")]
        header = ("--header", "Authorization: Bearer sesame")
        command = [sys.executable, "-m", "fairlead", "proxy", *url, *header]
        version = NEWEST_HANDSHAKE.value if way == "sse" else "auto"
        config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
        connecting = MCPClient.connect_stdio(command, config, on_elicit=confirm)
        async with asyncio.timeout(LIMIT), connecting as client:
            assert await shouted(client) == "ALOUD"
            assert (await client.call_tool("ask", {}))["content"][0]["text"] == "True"
        done = fairlead("proxy", *url, input=talk(), env={"FAIRLEAD_TOKEN": "sesame"})
        assert "result" in json.loads(done.stdout)
        refused = fairlead("proxy", *url, input=talk())
        assert json.loads(refused.stdout)["error"]["data"]["source"] == "proxy"


async def test_the_upstream_option_decides_whether_sessions_share_a_process(file: Path) -> None:
    for upstream, processes in (("shared", 1), ("per-session", 2)):
        with proxy("--listen", ANYWHERE, "--upstream", upstream, *run_by(file)) as running:
            async with (
                connected(running.url, NEWEST_HANDSHAKE.value) as one,
                connected(running.url, NEWEST_HANDSHAKE.value) as other,
            ):
                assert len({await pid_of(one), await pid_of(other)}) == processes


# Configured servers, and invalid command lines


def test_a_proxy_connects_to_a_configured_server_by_name(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {**person.server(), "env": {"WHO": "${OUTSIDE}"}}})
    call = {"method": "tools/call", "params": {"name": "variable", "arguments": {"name": "WHO"}}}
    env = {**person.env, "OUTSIDE": "Ada"}
    text = talk({"id": 1, **call})
    done = fairlead("proxy", "notes", input=text, env=env, cwd=person.project)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {m["id"]: m["result"] for m in messages if "id" in m}
    assert answers[1]["content"][0]["text"] == "Ada"
    unknown = person.does("proxy", "note")
    assert (unknown.code, unknown.out) == (2, "")
    assert "did you mean 'notes'?" in unknown.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "Missing server: pass a configured name, a URL, or a command after `--`"),
        (("python", "server.py"), "`fairlead proxy -- python server.py`"),
        (("http://127.0.0.1:1", "--", "x"), "More than one server is given"),
        (("--listen", "ftp://x:1", "--", "x"), "Invalid listen address 'ftp://x:1'"),
        (("--listen", ":8080", "--", "x"), "Invalid listen address"),
        (("http://",), "Invalid server URL"),
        (("ws://:80",), "Invalid server URL"),
        (("--listen", "http://127.0.0.1", "--", "x"), "Invalid listen address"),
        (("--listen", "http://127.0.0.1:99999", "--", "x"), "Invalid listen address"),
        (("--listen", "https://127.0.0.1:0", "--", "x"), "https requires a certificate"),
        (
            ("--listen", "http://0.0.0.0:0", "--", "x"),
            "0.0.0.0 can be reached from other machines, and no token is required",
        ),
        (("--token", "t", "--", "x"), "--token only applies to a proxy on the network"),
        (("--header", "A: b", "--", "x"), "--header only applies to a server with a URL"),
        (("--era", "new", "--", "x"), "invalid choice: 'new'"),
    ],
)
def test_invalid_command_lines_of_proxy_are_rejected(
    args: tuple[str, ...], words: str, person: Person
) -> None:
    done = person.does("proxy", *args)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize("command", ["/nowhere/at-all", "no-such-program", "./nothing"])
@pytest.mark.parametrize("listen", ["stdio", ANYWHERE])
def test_the_proxy_command_reports_a_missing_program(command: str, listen: str) -> None:
    done = fairlead("proxy", "--listen", listen, "--", command)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"Program not found: {command!r}" in done.stderr


def test_a_proxy_reports_that_stdin_closed_before_any_request() -> None:
    done = fairlead("proxy", "--", "false")
    assert (done.returncode, done.stdout) == (0, "")
    assert "stdin closed before any request; false was not used" in done.stderr


def test_a_server_that_exits_at_once_is_reported_to_the_client_and_on_stderr() -> None:
    done = fairlead("proxy", "--", "false", input=talk())
    assert "exited with code 1" in json.loads(done.stdout.splitlines()[0])["error"]["message"]
    assert "exited with code 1" in done.stderr
    assert "was not used" not in done.stderr


def test_the_stderr_of_a_server_that_cannot_start_is_shown_once_behind_a_proxy() -> None:
    broken = (sys.executable, "-c", "import nosuchmodule")
    done = fairlead("tools", "--", sys.executable, "-m", "fairlead", "proxy", "--", *broken)
    assert done.returncode == 3
    assert done.stderr.count("ModuleNotFoundError: No module named 'nosuchmodule'") == 1
    done = fairlead("proxy", "--", *broken, input=talk())
    assert done.stderr.count("ModuleNotFoundError: No module named 'nosuchmodule'") == 1


def test_proxy_output_does_not_contain_credentials_in_the_url() -> None:
    url = "http://me:pass@127.0.0.1:9/mcp?api_key=hush#hush"
    done = fairlead("proxy", url, input=talk())
    error = json.loads(done.stdout.splitlines()[0])["error"]
    assert error["data"] == {"source": "proxy", "server": "127.0.0.1:9"}
    for said in (done.stdout, done.stderr):
        assert "hush" not in said
        assert "pass" not in said


def test_the_command_of_a_server_is_not_revealed_to_clients() -> None:
    done = fairlead("proxy", "--", sys.executable, "-c", "exit(3)", "hush)hush", input=talk())
    error = json.loads(done.stdout.splitlines()[0])["error"]
    assert error["message"].endswith("exited with code 3 during start-up")
    assert "hush" not in done.stdout
