"""Tests of listening addresses and of the uvicorn runner."""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

import aiohttp
import pytest

from fairlead import MCPServer
from fairlead.errors import ConfigError
from fairlead.server.http_app import uvicorn_runner
from fairlead.server.http_app.request_drain import DrainPlan
from fairlead.server.http_app.uvicorn_runner import _bind_unix, bind, is_exposed, url_of
from fairlead.transport.http.server.http_settings import HttpSettings
from tests.support.http_server import serving


@pytest.mark.parametrize(
    ("host", "exposed"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("192.168.1.2", True),
        ("example.com", True),
    ],
)
def test_only_loopback_addresses_need_no_token(host: str, exposed: bool) -> None:
    assert is_exposed(host, HttpSettings()) is exposed
    assert is_exposed(host, HttpSettings(auth_token="t")) is False
    assert is_exposed(host, HttpSettings(verify_token=lambda token: None)) is False


def test_a_unix_socket_is_private_and_replaces_a_stale_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    mask = os.umask(0o022)
    try:
        with _bind_unix(path) as listening:
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert url_of(listening, "/mcp", tls=False) == f"unix://{path}#/mcp"
            with pytest.raises(ConfigError, match=f"Cannot listen on {path}: "):
                _bind_unix(path)
        with _bind_unix(path):  # a stale socket file
            pass
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(ConfigError):
        _bind_unix(str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "mine"


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")],
)
def test_the_server_url_contains_the_listening_address_and_port(
    family: int, host: str, shown: str
) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip("this machine does not have the address")
        port = listening.getsockname()[1]
        assert url_of(listening, "/mcp", tls=False) == f"http://{shown}:{port}/mcp"
        assert url_of(listening, "/mcp", tls=True) == f"https://{shown}:{port}/mcp"


def test_an_address_reachable_from_other_machines_is_rejected_without_a_token() -> None:
    with pytest.raises(ConfigError) as refused:
        bind("0.0.0.0", 0, None, HttpSettings(), insecure=False)
    assert str(refused.value).startswith(
        "0.0.0.0 can be reached from other machines: set auth, auth_token or verify_token, or pass "
    )


def test_the_error_names_the_port_that_is_in_use() -> None:
    settings = HttpSettings()
    with bind("127.0.0.1", 0, None, settings, insecure=False) as taken:
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert taken.family == socket.AF_INET
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            bind("127.0.0.1", port, None, settings, insecure=False)
    assert str(refused.value) == f"Cannot listen on 127.0.0.1:{port}: Address already in use"


def test_the_insecure_option_allows_an_exposed_address(tmp_path: Path) -> None:
    with bind("0.0.0.0", 0, None, HttpSettings(), insecure=True) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"
    with bind("0.0.0.0", 0, None, HttpSettings(auth_token="t"), insecure=False) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"
    path = str(tmp_path / "folder" / "s")
    with bind("0.0.0.0", 0, path, HttpSettings(), insecure=False) as listening:
        assert listening.getsockname() == path
        assert os.stat(tmp_path / "folder").st_mode & 0o777 == 0o700


async def test_a_stopped_server_closes_its_connections_and_socket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    listened = asyncio.Event()

    class Listened(MCPServer):
        async def end_streams(self) -> None:
            listened.set()
            await super().end_streams()

    server = Listened("s")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    async with asyncio.timeout(10):
        url = await ready
        port = int(url.rpartition(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        assert head[0] == "http/1.1 200 ok"
        assert [one for one in caplog.records if one.name == "uvicorn.access"] == []
        names = {line.partition(":")[0] for line in head[1:] if line}
        assert names == {"content-type", "content-length"}
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert listened.is_set()
        await reader.read()  # returns at EOF, because the server closed the connection
        writer.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)


async def test_a_running_request_is_answered_during_the_shutdown() -> None:
    server, begun, go_on = MCPServer("s"), asyncio.Event(), asyncio.Event()

    @server.tool()
    async def work() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    async with asyncio.timeout(10):
        port = int((await ready).rpartition(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /tools/work/call HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        await begun.wait()
        running.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert b'"text":"done"' in await reader.read()
        writer.close()


async def test_an_open_stream_does_not_delay_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_runner, "DrainPlan", lambda: DrainPlan(limit=600.0))
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(MCPServer("s").run_http(port=0, started=ready.set_result))
    async with asyncio.timeout(10):
        port = int((await ready).rpartition(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await reader.read()
        writer.close()


def test_closing_the_event_loop_closes_all_connections() -> None:
    """`asyncio.run` cancels every task at once, including the tasks of uvicorn."""

    async def main() -> socket.socket:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(MCPServer("s").run_http(port=0, started=ready.set_result))
        async with asyncio.timeout(10):
            port = int((await ready).rpartition(":")[2].partition("/")[0])
            client = socket.create_connection(("127.0.0.1", port), timeout=10)
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await asyncio.to_thread(client.recv, 12) == b"HTTP/1.1 200"
        assert not running.done()
        return client

    with asyncio.run(main()) as client:
        address = client.getpeername()
        with contextlib.suppress(ConnectionError):
            while client.recv(1000):
                pass  # read until the connection is closed
    with pytest.raises(OSError):
        socket.create_connection(address, timeout=10)


@pytest.mark.covers("AUT-06")
async def test_a_refused_websocket_is_not_logged_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvicorn would log an error for each, which a client without a token could repeat."""
    async with serving(MCPServer("s"), auth_token="secret") as web:
        for _ in range(3):
            with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
                await web.http.ws_connect(f"{web.url.removesuffix('/mcp')}/ws")
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == []
