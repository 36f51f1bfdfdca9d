"""Tests of running a server as a program: defaults, signals and exit."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import MCPServer, MCPServerConfig
from fairlead.errors import ConfigError
from fairlead.server import ServerAuth
from fairlead.server import run_program as program
from fairlead.server.http_app import uvicorn_runner as run_http

STUCK = """
import asyncio
import sys
import threading
from fairlead import MCPServer
from fairlead.server import run_program as run
run.STOP_LIMIT = 0.7
server = MCPServer("stuck")

@server.tool()
async def wait() -> None:
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.to_thread(threading.Event().wait)

server.run()
"""


def test_a_process_with_a_stuck_thread_exits_in_time_with_a_message() -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "wait", "arguments": {}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(call) + "\n")
        process.stdin.flush()
        assert process.stderr.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said == "fairlead: shutdown timed out; exiting without waiting for running functions\n"


@pytest.mark.covers("SRV-09")
async def test_http_is_served_on_port_8080_of_localhost_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places: list[Any] = []

    def bind(host: str, port: int, *args: Any, **options: Any) -> None:
        places.append((host, port))
        raise ConfigError("refused")

    monkeypatch.setattr(run_http, "bind", bind)
    for options in ({}, {"port": 0}):
        with pytest.raises(ConfigError, match="^refused$"):
            await MCPServer("s").run_http(**options)
    assert places == [("127.0.0.1", 8080), ("127.0.0.1", 0)]


class Handled(asyncio.SelectorEventLoop):
    """Event loop whose signals are raised by tests."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: dict[int, Any] = {}

    def add_signal_handler(self, number: int, callback: Any, *args: Any) -> None:
        self.handlers[number] = partial(callback, *args)


class Process:
    """Recorder of calls that would end the process."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self._left = threading.Event()

    def leave(self, limit: float) -> None:
        assert threading.current_thread().daemon
        self.did.append("leaves")
        self._left.set()

    def wait_until_left(self) -> None:
        assert self._left.wait(5)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    did = made.did
    monkeypatch.setattr(program, "new_loop", Handled)
    monkeypatch.setattr(program, "_leaving", threading.Event())
    monkeypatch.setattr(program, "_leave_hard", made.leave)
    monkeypatch.setattr(program.gc, "collect", lambda: did.append("collect"))
    monkeypatch.setattr(program.gc, "freeze", lambda: did.append("freeze"))
    monkeypatch.setattr(program.gc, "set_threshold", lambda *numbers: did.append(numbers))
    return made


def handlers() -> dict[int, Any]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Handled)
    return loop.handlers


def test_a_program_runs_to_its_end_and_exits_in_time(process: Process) -> None:
    async def main() -> None:
        assert handlers().keys() == {signal.SIGINT, signal.SIGTERM}
        process.did.append("main")

    program.run_program(main)
    process.wait_until_left()
    assert process.did == ["collect", "freeze", (10_000, 10, 10), "main", "leaves"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_interrupt_the_cleanup(process: Process, number: int) -> None:
    async def main() -> None:
        stop = handlers()[number]
        stop()
        try:
            await asyncio.sleep(0)
            process.did.append("went on")
        finally:
            process.wait_until_left()  # waits for the exit that the signal has scheduled
            stop()
            await asyncio.sleep(0)
            process.did.append("tidied up")

    program.run_program(main)
    process.wait_until_left()
    assert sorted(process.did[3:]) == ["leaves", "tidied up"]


def test_the_exception_of_a_program_is_raised(process: Process) -> None:
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        program.run_program(main)


async def test_the_cancellation_of_a_program_is_propagated() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(program._until_signal(main, 5.0))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_process_exits_even_if_a_function_is_still_running(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[int] = []
    waited: list[float] = []
    monkeypatch.setattr(program.threading, "Event", lambda: SimpleNamespace(wait=waited.append))
    monkeypatch.setattr(program.os, "_exit", left.append)
    program._leave_hard(5.0)
    assert (waited, left) == ([4.5], [1])
    text = capsys.readouterr().err
    assert text == "fairlead: shutdown timed out; exiting without waiting for running functions\n"


class Runnable:
    """Server that records how it is run."""

    def __init__(self, transport: str) -> None:
        self.config = MCPServerConfig(
            name="n", transport=transport, host="::1", port=7, auth_token="t"
        )
        self.auth: ServerAuth | None = None
        self.runs: list[Any] = []

    async def run_stdio(self) -> None:
        self.runs.append("stdio")

    async def run_http(self, host: str, port: int, *, started: Any = None, **options: Any) -> None:
        self.runs.append((host, port, options))
        started("http://here/mcp")


@pytest.mark.parametrize("terminal", [True, False, None], ids=["terminal", "pipe", "closed"])
def test_a_server_runs_on_the_transport_of_its_configuration(
    process: Process,
    terminal: bool | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = None if terminal is None else SimpleNamespace(isatty=lambda: terminal)
    monkeypatch.setattr(sys, "stdin", given)
    stdio, http, other = Runnable("stdio"), Runnable("http"), Runnable("http")
    other.config.transport = "pigeon"
    program.run_server(stdio)
    assert stdio.runs == ["stdio"]
    said = "serving: n on stdin and stdout. Stop with Ctrl-C or Ctrl-D.\n"
    assert capsys.readouterr().err == (said if terminal else "")
    program.run_server(http)
    assert http.runs == [("::1", 7, {"auth_token": "t"})]
    assert capsys.readouterr().err == (
        "serving: n at http://here/mcp\n"
        "connect: fairlead tools http://here/mcp --token TOKEN\n"
        "stop: Ctrl-C or SIGTERM\n"
    )
    with pytest.raises(ConfigError, match="^invalid transport 'pigeon': expected 'stdio' or"):
        program.run_server(other)
    assert other.runs == []


def test_server_run_starts_the_program_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[Any] = []
    monkeypatch.setattr(program, "run_server", run.append)
    server = MCPServer("s")
    server.run()
    assert run == [server]


ISSUER = "https://login.example"


@pytest.mark.parametrize(
    ("auth", "lines"),
    [
        (None, []),
        (
            ServerAuth(issuer=ISSUER),
            ["log in: fairlead login http://here/mcp", "connect: fairlead tools http://here/mcp"],
        ),
        (
            ServerAuth(issuer=ISSUER, public_url="https://h.example/a&b/"),
            [
                "log in: fairlead login 'https://h.example/a&b/mcp'",
                "connect: fairlead tools 'https://h.example/a&b/mcp'",
            ],
        ),
        (
            ServerAuth(tokens={"secret": "ci"}),
            ["connect: fairlead tools http://here/mcp --token TOKEN"],
        ),
    ],
    ids=["open", "local", "public", "tokens"],
)
def test_a_server_says_how_its_clients_log_in_and_connect(
    process: Process,
    auth: ServerAuth | None,
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Runnable("http")
    server.config.auth_token, server.auth = None, auth
    program.run_server(server)
    first, *shown, last = capsys.readouterr().err.splitlines()
    assert (first, last) == ("serving: n at http://here/mcp", "stop: Ctrl-C or SIGTERM")
    assert shown == lines


@pytest.mark.parametrize(
    ("transport", "method"), [("stdio", "run_stdio()"), ("http", "run_http(port=8080)")]
)
async def test_run_in_an_event_loop_names_the_method_to_await(transport: str, method: str) -> None:
    with pytest.raises(RuntimeError) as failed:
        MCPServer("s", transport=transport).run()
    assert str(failed.value) == (
        "`server.run()` starts an event loop, but one is running: "
        f"use `await server.{method}`, or call `run()` outside of coroutines"
    )
