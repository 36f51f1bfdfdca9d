"""Tests of `fairlead serve` on the network, and of commands that connect to a URL."""

import contextlib
import http.client
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead import MCPClient
from tests.support.certificates import self_signed
from tests.support.cli_process import LIMIT, fairlead, server_file

pytestmark = pytest.mark.slow  # runs in `make test-all`

TOOLS = """
    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.tool()
    async def ask(ctx: Context) -> str:
        first = await ctx.elicit("first?", bool)
        second = await ctx.elicit("second?", bool)
        return f"{first.data} {second.data}"

    @server.tool()
    def environment() -> list[str]:
        return sorted(name for name in os.environ if name.startswith("FAIRLEAD_"))

    @server.resource("memo://today", name="today")
    def today() -> str:
        return "Buy bread."

    @server.prompt()
    def greet(name: str) -> str:
        return f"Say hello to {name}."

    @server.completion("greet", "name")
    def names(beginning: str) -> list[str]:
        return ["Ada"]
"""
STATELESS = "2026-07-28"


class Serving:
    """A running `fairlead serve` and its output."""

    def __init__(self, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", "serve", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            text=True,
            # Tests that a shell runs in the background would ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
        )
        self.said = ""
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_for(self, words: str) -> str:
        """Return the next line that contains the given words."""
        until = time.monotonic() + LIMIT
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {words!r} but: {self.said}") from None
            assert line, f"the process ended without {words!r} but: {self.said}"
            if words in line:
                return line

    @property
    def url(self) -> str:
        """Return the URL in the printed command for clients."""
        return self.wait_for("connect: ").split("'")[1]

    @property
    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; all processes must end within five seconds."""
        fds = [os.pidfd_open(pid) for pid in self.children]
        self.process.send_signal(number)
        code = self.process.wait(8)  # five seconds, plus a margin for slow machines
        for fd in fds:
            assert select.select([fd], [], [], 5)[0], "a worker is still running"
            os.close(fd)
        self._reader.join(LIMIT)
        return code

    def kill(self) -> None:
        for pid in (*self.children, self.process.pid) if self.process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            self._lines.put(line)
        self._lines.put("")


@contextlib.contextmanager
def serving(*args: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Serving]:
    served = Serving(*map(str, args), env=env)
    try:
        yield served
    finally:
        served.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return server_file(tmp_path, TOOLS)


def called(*args: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed, and return its output."""
    done = fairlead(*args, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def eventually(what: Any, expected: Any) -> None:
    """Repeat a check until it succeeds."""
    until = time.monotonic() + LIMIT
    while (found := what()) != expected:
        assert time.monotonic() < until, found


# Serving and connecting


@pytest.mark.covers("CMD-01", "CMD-02")
def test_every_client_command_can_use_a_server_over_http(file: Path) -> None:
    with serving(file, "--http", "0") as served:
        first = served.wait_for("serving: ")
        url = served.url
        assert first.startswith(f"serving: test at {url} ")
        assert "Ctrl-C" in served.wait_for("stop: ")
        base = url.removesuffix("/mcp")
        assert "4 tools" in called("tools", base)
        assert called("call", "add", "a=1", "b=2", url) == "3\n"
        assert called("call", url, "add", "a=1", "b=2") == "3\n"
        assert called("call", "add", "a=1", "b=2", "--sse", url) == "3\n"
        assert "memo://today" in called("resources", base)
        assert called("read", "memo://today", base) == "Buy bread.\n"
        assert called("read", base, "memo://today") == "Buy bread.\n"
        assert "greet" in called("prompts", base)
        assert "Say hello to Ada." in called("prompt", "greet", "name=Ada", base)
        assert called("complete", "greet", "name", "A", base) == "Ada\n"
        assert "test responded in" in called("ping", base)
        assert served.end() == 0
        assert "Traceback" not in served.said


def test_transport_http_uses_host_and_port(file: Path) -> None:
    options = ("--transport", "http", "--host", "localhost", "--port", "0")
    with serving(file, *options) as served:
        assert called("call", "add", "a=1", "b=2", served.url) == "3\n"
        assert served.end(signal.SIGINT) == 0


def test_the_websocket_url_is_shown_first_and_needs_no_path(file: Path) -> None:
    with serving(file, "--ws", "127.0.0.1:0") as served:
        assert served.wait_for("serving: ").startswith("serving: test at ws://127.0.0.1:")
        url = served.url
        assert url.startswith("ws://")
        assert called("call", "add", "a=1", "b=2", url) == "3\n"
        assert called("call", "add", "a=1", "b=2", url.removesuffix("/ws")) == "3\n"
        wrong = fairlead("tools", "--sse", url)
        assert (wrong.returncode, wrong.stdout) == (2, "")


def test_the_file_of_a_unix_socket_is_removed_when_the_server_stops(
    file: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a socket"
    with serving(file, "--unix", path) as served:
        url = served.url
        assert url == f"unix://{str(path).replace(' ', '%20')}#/mcp"
        assert called("call", "add", "a=1", "b=2", url) == "3\n"
        assert served.end() == 0
        assert not path.exists()


def test_a_file_that_calls_run_itself_is_served(tmp_path: Path) -> None:
    file = server_file(tmp_path, TOOLS, "server.run()")
    with serving(file, "--http", "0") as served:
        assert called("call", "add", "a=1", "b=2", served.url) == "3\n"
        assert served.end() == 0


# Access


@pytest.mark.covers("SRV-47")
def test_an_error_about_a_missing_token_names_the_token_option(file: Path) -> None:
    with serving(file, "--http", "0", "--token", "open-sesame") as served:
        url = served.url
        for address in (url, url.replace("http", "ws").replace("/mcp", "/ws")):
            done = fairlead("tools", address)
            assert (done.returncode, done.stdout) == (1, "")
            assert "error: The server responded with HTTP 401\n" in done.stderr
            assert "--token" in done.stderr
            wrong = fairlead("tools", address, "--token", "open-barley")
            assert wrong.returncode == 1
            assert "open-barley" not in wrong.stderr
            assert "hint: the server rejected the token" in wrong.stderr
            assert "4 tools" in called("tools", address, "--token", "open-sesame")
            assert "4 tools" in called("tools", address, env={"FAIRLEAD_TOKEN": "open-sesame"})
            header = "authorization: Bearer open-sesame"
            assert "4 tools" in called("tools", address, "--header", header)
        assert served.end() == 0
        assert "open-sesame" not in served.said


@pytest.mark.parametrize("option", [(), ("--workers", "2"), ("--reload",)])
def test_the_token_in_the_environment_is_required_from_clients(
    file: Path, option: tuple[str, ...]
) -> None:
    env = {"FAIRLEAD_AUTH_TOKEN": "open-sesame"}
    with serving(file, "--http", "0.0.0.0:0", *option, env=env) as served:
        url = served.url
        assert url.startswith("http://127.0.0.1:")  # clients cannot connect to 0.0.0.0
        assert fairlead("tools", url).returncode == 1
        assert called("call", "add", "a=1", "b=2", url, "--token", "open-sesame") == "3\n"


@pytest.mark.covers("SRV-45")
@pytest.mark.parametrize("option", [(), ("--workers", "2"), ("--reload",)])
def test_a_public_address_requires_a_token_or_the_insecure_option(
    file: Path, option: tuple[str, ...]
) -> None:
    done = fairlead("serve", str(file), "--http", "0.0.0.0:0", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: 0.0.0.0 can be reached from other machines")
    assert "--insecure" in done.stderr
    with serving(file, "--http", "0.0.0.0:0", "--insecure", *option) as served:
        assert called("call", "add", "a=1", "b=2", served.url) == "3\n"


@pytest.mark.parametrize("option", [(), ("--workers", "2"), ("--reload",)])
def test_a_token_set_in_the_server_code_is_required_from_clients(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    file = server_file(tmp_path, "server = MCPServer('test', auth_token='open-sesame')", TOOLS)
    with serving(file, "--http", "0.0.0.0:0", *option) as served:
        line = served.wait_for("connect: ")
        assert line.endswith("' --token TOKEN\n")
        url = line.split("'")[1]
        assert fairlead("tools", url).returncode == 1
        assert "4 tools" in called("tools", url, "--token", "open-sesame")


@pytest.mark.covers("SRV-46")
def test_allowed_hosts_and_origins_are_accepted(file: Path) -> None:
    allowed = ("--allow-host", "tools.example", "--allow-origin", "https://page.example")
    with serving(file, "--http", "0", *allowed) as served:
        url = served.url
        assert "4 tools" in called("tools", url, "--header", "Host: tools.example")
        assert "4 tools" in called("tools", url, "--header", "Origin: https://page.example")
        done = fairlead("tools", url, "--header", "Origin: https://other.example")
        assert done.returncode == 1
        assert "Origin 'https://other.example' may not use this server" in done.stderr


@pytest.mark.covers("SRV-49")
def test_the_certificate_options_enable_https_and_wss(file: Path, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = ("--tls-cert", certificate, "--tls-key", key)
    with serving(file, "--http", "0", *tls) as served:
        url = served.url
        assert url.startswith("https://")
        assert fairlead("tools", url).returncode == 3
        assert "4 tools" in called("tools", url, "--insecure-tls")
        socket_url = url.replace("https", "wss").replace("/mcp", "/ws")
        assert fairlead("tools", socket_url).returncode == 3
        assert "4 tools" in called("tools", socket_url, "--insecure-tls")
    with serving(file, "--http", "0", "--workers", "2", *tls) as served:
        assert "4 tools" in called("tools", served.url, "--insecure-tls")
    done = fairlead("serve", str(file), "--http", "0", "--tls-cert", str(file))
    assert done.returncode == 2
    assert "Cannot use the certificate " in done.stderr


# Errors


@pytest.mark.parametrize("option", [(), ("--workers", "2"), ("--reload",)])
def test_a_port_in_use_is_an_error(file: Path, option: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = fairlead("serve", str(file), "--http", port, *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: Port {port} is in use by process {os.getpid()} (" in done.stderr
    assert "hint: choose another port; --http 0 selects a free port\n" in done.stderr


def test_the_error_for_a_port_of_a_server_with_a_token_says_how_to_use_that_server(
    file: Path,
) -> None:
    with serving(file, "--http", "0", "--token", "sesame") as served:
        url = served.url
        done = fairlead("serve", str(file), "--http", str(urlsplit(url).port))
    assert ", a Fairlead server or gateway that requires a token\n" in done.stderr
    assert f"hint: use it at {url} with its token, or choose another port; " in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--reload",), "--reload only applies to servers on the network"),
        (("--workers", "2"), "--workers only applies to servers on the network"),
        (("--token", "x"), "--token only applies to servers on the network"),
        (("--insecure",), "--insecure only applies to servers on the network"),
        (("--allow-host", "x"), "--allow-host only applies to servers on the network"),
        (("--http", "eighty"), "Invalid listen address 'eighty': expected [HOST:]PORT"),
        (("--http", "localhost"), "Invalid listen address 'localhost': expected [HOST:]PORT"),
        (("--http", "99999"), "Invalid listen address '99999': expected [HOST:]PORT"),
        (("--transport", "http", "--port", "70000"), "'70000' is not a number from 0 to 65535"),
        (("--http", "0", "--port", "1"), "--host and --port cannot be combined with"),
        (("--http", "0", "--ws", "0"), "not allowed with argument"),
        (("--http", "0", "--transport", "stdio"), "cannot be combined"),
        (("--http", "0", "--reload", "--workers", "2"), "cannot be combined"),
        (("--http", "0", "--workers", "0"), "'0' is not a number from 1 to 256"),
        (("--http", "0", "--token", "two words"), "Invalid token: expected ASCII characters"),
        (("--http", "0", "--tls-key", "x"), "--tls-key requires --tls-cert FILE"),
    ],
)
def test_invalid_combinations_of_serve_options_are_rejected(
    file: Path, args: tuple[str, ...], words: str
) -> None:
    done = fairlead("serve", str(file), *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("option", [("--workers", "2"), ("--reload",)])
def test_serve_reports_a_missing_target_once(option: tuple[str, ...]) -> None:
    done = fairlead("serve", "missing.py", "--http", "0", *option)
    assert (done.returncode, done.stderr) == (2, "error: File not found: missing.py\n")
    done = fairlead("serve", "--http", "0", *option)
    assert done.returncode == 2
    assert "Missing server: FILE_OR_MODULE or --module is required" in done.stderr


@pytest.mark.parametrize("option", [(), ("--workers", "2")])
def test_a_server_that_cannot_start_is_an_error(tmp_path: Path, option: tuple[str, ...]) -> None:
    broken = """
        def lifespan(server):
            raise RuntimeError("no database")

        server = MCPServer("test", lifespan=lifespan)
    """
    file = server_file(tmp_path, broken)
    done = fairlead("serve", str(file), "--http", "0", *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no database" in done.stderr
    assert "error: test could not start\n" in done.stderr
    assert "serving:" not in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("http://127.0.0.1:1", "--", "python"), "More than one server is given"),
        (("http://127.0.0.1:1", "ws://127.0.0.1:1"), "More than one server is given"),
        (("--token", "x", "--", "python"), "--token only applies to a server with a URL"),
        (
            ("--header", "no colon", "http://127.0.0.1:1"),
            "Invalid --header: expected 'Name: value'",
        ),
        (("--header", "A: b\nC: d", "http://127.0.0.1:1"), "Invalid --header: expected"),
        (
            ("--header", "Authorization: x", "--token", "y", "http://127.0.0.1:1"),
            "--token and an Authorization header cannot be combined",
        ),
        (
            ("--token", "two words", "http://127.0.0.1:1"),
            "Invalid token: expected ASCII characters",
        ),
        (("unix://relative",), "Invalid unix socket URL: expected unix:///"),
        (("http://[nonsense",), "Invalid server URL: "),
    ],
)
def test_options_that_do_not_apply_to_the_given_server_are_rejected(
    args: tuple[str, ...], words: str
) -> None:
    done = fairlead("tools", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "two words" not in done.stderr


def test_the_error_for_a_refused_connection_does_not_contain_the_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    for scheme in ("http", "ws"):
        done = fairlead("tools", f"{scheme}://me:letmein@127.0.0.1:{port}/mcp")
        assert (done.returncode, done.stdout) == (3, "")
        assert "check that the server is running" in done.stderr
        assert "letmein" not in done.stderr


# Reloading


def test_reload_serves_changed_code_and_continues_after_an_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, TOOLS)
    with serving(file, "--http", "0", "--reload") as served:
        url = served.url
        served.wait_for("watching the Python files")
        (tmp_path / "sibling.py").write_text("MORE = 41\n")
        served.wait_for("sibling.py has changed")
        served.wait_for("serving the new version of")
        more = "import sibling\n@server.tool()\ndef more() -> int: return sibling.MORE\n"
        server_file(tmp_path, TOOLS, more)
        served.wait_for("server.py has changed")
        served.wait_for("serving the new version of")
        assert called("call", "more", url) == "41\n"
        server_file(tmp_path, TOOLS, more, "def broken(:")
        served.wait_for("SyntaxError")
        served.wait_for("waiting for the next change; the previous version keeps serving")
        assert called("call", "more", url) == "41\n"
        (tmp_path / "sibling.py").write_text("MORE = 42\n")  # the new version has the same size
        served.wait_for("waiting for the next change")
        server_file(tmp_path, TOOLS, more)
        served.wait_for("serving the new version of")
        assert called("call", "more", url) == "42\n"
        os.kill(served.children[0], signal.SIGKILL)
        served.wait_for("ended by signal 9")
        assert called("call", "more", url) == "42\n"
        assert served.end(signal.SIGINT) == 0
        assert "Traceback" not in served.said


def test_no_connection_is_refused_during_a_reload(file: Path) -> None:
    with serving(file, "--http", "0", "--reload") as served:
        address = ("127.0.0.1", int(served.url.rpartition(":")[2].removesuffix("/mcp")))
        served.wait_for("watching the Python files")
        refused: list[OSError] = []
        enough = threading.Event()

        def knock() -> None:
            while not enough.wait(0.002):
                try:
                    socket.create_connection(address, LIMIT).close()
                except OSError as exc:
                    refused.append(exc)

        knocking = threading.Thread(target=knock)
        knocking.start()
        try:
            for _ in range(2):
                os.utime(file)
                served.wait_for("serving the new version of")
        finally:
            enough.set()
            knocking.join(LIMIT)
        assert refused == []


def test_reload_waits_for_a_change_if_the_first_version_fails(tmp_path: Path) -> None:
    file = server_file(tmp_path, "def broken(:")
    with serving(file, "--http", "0", "--reload") as served:
        served.wait_for("waiting for the next change; connections wait")
        server_file(tmp_path, TOOLS)
        assert called("call", "add", "a=1", "b=2", served.url) == "3\n"


def test_reload_watches_the_whole_package_of_a_server_given_as_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    server_file(tmp_path / "package", TOOLS, name="weather.py")
    with serving("package.weather:server", "--http", "0", "--reload") as served:
        url = served.url
        served.wait_for("the Python files in package\n")
        (tmp_path / "package" / "other.py").write_text("")
        served.wait_for("serving the new version of")
        assert called("call", "add", "a=1", "b=2", url) == "3\n"


# Several workers


def test_a_call_can_be_continued_by_another_worker_on_the_same_port(file: Path) -> None:
    with serving(file, "--http", "0", "--workers", "2") as served:
        url = served.url
        assert "no session" in served.wait_for("workers: 2 processes")
        eventually(lambda: len(served.children), 2)
        one, two = served.children
        with stopped(one):
            assert text_of(post(url, "pid")) == str(two)
            first = post(url, "ask")
        with stopped(two):
            assert text_of(post(url, "pid")) == str(one)
            second = post(url, "ask", **answer(first, yes=True))
        with stopped(one):
            assert text_of(post(url, "ask", **answer(second, yes=False))) == "True False"
            # Child processes of tools do not inherit the token or the descriptors.
            assert text_of(post(url, "environment")) == '["FAIRLEAD_STATE_KEYS"]'
        assert served.end() == 0


async def test_several_workers_serve_clients_of_both_eras(file: Path) -> None:
    from fairlead import MCPClientConfig

    with serving(file, "--http", "0", "--workers", "2") as served:
        url = served.url
        async with MCPClient.connect_http(
            url, on_elicit=lambda question: {"action": "accept", "content": {"value": True}}
        ) as client:
            assert text_of(await client.call_tool("ask")) == "True True"
        config = MCPClientConfig(protocol_version="2025-11-25")
        async with MCPClient.connect_http(url, config) as client:
            for _ in range(5):
                assert text_of(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_a_worker_that_exits_is_replaced(file: Path) -> None:
    with serving(file, "--http", "0", "--workers", "2") as served:
        url = served.url
        eventually(lambda: len(served.children), 2)
        for pid in served.children:
            os.kill(pid, signal.SIGKILL)
            assert f"worker: {pid} ended by signal 9" in served.wait_for("worker: ")
            assert called("call", "add", "a=1", "b=2", url) == "3\n"
        eventually(lambda: len(served.children), 2)
        assert served.end() == 0


@pytest.mark.parametrize("option", [("--workers", "2"), ("--reload",)])
def test_workers_exit_when_their_parent_is_killed(file: Path, option: tuple[str]) -> None:
    with serving(file, "--http", "0", *option) as served:
        assert called("call", "add", "a=1", "b=2", served.url) == "3\n"
        served.end(signal.SIGKILL)


def test_a_hanging_tool_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    stuck = """
        import time

        @server.tool()
        def stick() -> None:
            sys.stderr.write("stuck\\n")
            while True:
                time.sleep(1)
    """
    file = server_file(tmp_path, stuck)
    with serving(file, "--http", "0", "--workers", "2") as served:
        url = served.url
        caller = subprocess.Popen(
            [sys.executable, "-m", "fairlead", "call", "stick", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        served.wait_for("stuck")
        began = time.monotonic()
        assert served.end() == 0
        assert time.monotonic() - began < 6  # five seconds, plus a margin for slow machines
        caller.kill()
        caller.wait(LIMIT)


# Helpers


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Suspend a worker so that the other worker gets all connections."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def post(url: str, tool: str, **params: Any) -> Any:
    """Send one stateless call on a new connection."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {}, "_meta": meta, **params},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    host = url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(host, timeout=LIMIT)
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        return json.loads(connection.getresponse().read())["result"]
    finally:
        connection.close()


def answer(asked: Any, *, yes: bool) -> dict[str, Any]:
    """Return the params that continue a call after an input request."""
    (key,) = asked["inputRequests"]
    return {
        "inputResponses": {key: {"action": "accept", "content": {"value": yes}}},
        "requestState": asked["requestState"],
    }


def text_of(result: Any) -> str:
    return str(result["content"][0]["text"])
