"""Requests through HTTP proxies, forwarded or tunnelled, over real sockets and TLS."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.errors import ConnectFailed
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http1.proxy_tunnel import Proxy
from fairlead.transport.http.client.http1.url import EndpointUrl
from tests.support.scripted_http_server import Call, RawServer, raw_server

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
LOGIN = "Basic YWRhOnNlY3JldA=="  # ada:secret


async def hello(call: Call) -> None:
    await call.answer(200, "hello")


class ForwardProxy:
    """A proxy that forwards requests and opens tunnels, or responds to CONNECT with given bytes."""

    def __init__(self, answer: bytes | None = ESTABLISHED) -> None:
        self.heads: list[str] = []
        self.connections = 0
        self.port = 0
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        self._answer = answer
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.left.set()
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await self._head(reader)
        method, target, _ = head.split(" ", 2)
        if method == "CONNECT":
            if self._answer is None:
                await reader.read()
                return None
            writer.write(self._answer)
            if self._answer != ESTABLISHED:
                return await writer.drain()
            host, _, port = target.rpartition(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            await _both(_pump(reader, far_writer), _pump(far_reader, writer))
            return None
        far_writer = None
        try:
            while True:
                origin, slash, path = target.removeprefix("http://").partition("/")
                if far_writer is None:
                    host, _, port = origin.rpartition(":")
                    far_reader, far_writer = await asyncio.open_connection(host, int(port))
                lines = head.split("\r\n")[1:]
                lines = [n for n in lines if not n.lower().startswith("proxy-")]
                start = f"{method} {slash}{path} HTTP/1.1\r\n"
                far_writer.write((start + "\r\n".join(lines)).encode())
                far_writer.write(await reader.readexactly(_length(head)))
                answer = (await far_reader.readuntil(b"\r\n\r\n")).decode()
                writer.write(answer.encode() + await far_reader.readexactly(_length(answer)))
                head = await self._head(reader)
                method, target, _ = head.split(" ", 2)
        finally:
            if far_writer is not None:
                far_writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> str:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        self.asked.set()
        return head

    async def stop(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _length(head: str) -> int:
    fields = dict(line.lower().split(": ", 1) for line in head.strip().split("\r\n")[1:])
    return int(fields.get("content-length", "0"))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.transport.abort()


async def _both(*pumps: "asyncio.Future[None] | object") -> None:
    tasks = [asyncio.ensure_future(pump) for pump in pumps]  # type: ignore[arg-type]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@contextlib.asynccontextmanager
async def forward_proxy(
    answer: bytes | None = ESTABLISHED, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ForwardProxy]:
    proxy = ForwardProxy(answer)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, ssl=tls)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()


@contextlib.asynccontextmanager
async def secure_server(certificate: tuple[Path, Path]) -> AsyncIterator[RawServer]:
    served = RawServer(hello)
    context = _server_context(certificate)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context, limit=1 << 26)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await served.stop()


@contextlib.asynccontextmanager
async def door_to(url: str, **options: object) -> AsyncIterator[HttpClient]:
    door = HttpClient(EndpointUrl.parse(url), **options)  # type: ignore[arg-type]
    try:
        yield door
    finally:
        await door.close()


@pytest.fixture(autouse=True)
def _no_proxies_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("all_proxy", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("avoided", [False, True])
async def test_proxy_settings_are_read_from_the_environment(
    avoided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(hello) as proxy, raw_server(hello) as server:
        monkeypatch.setenv("http_proxy", f"http://ada:secret@127.0.0.1:{proxy.port}")
        if avoided:
            monkeypatch.setenv("no_proxy", "127.0.0.1")
        door = HttpClient(EndpointUrl.parse(server.url))
        await (await door.open("POST", {}, b"x")).read()
        await door.close()
        used, unused = (server, proxy) if avoided else (proxy, server)
        assert unused.calls == []
        assert used.calls[0].path == ("/mcp" if avoided else server.url)
        if not avoided:
            assert used.calls[0].headers["proxy-authorization"] == "Basic YWRhOnNlY3JldA=="


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_requests_without_tls_are_forwarded_by_the_proxy(
    scheme: str,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    loop_kind: str,
) -> None:
    tls = _server_context(certificate) if scheme == "https" else None
    async with forward_proxy(tls=tls) as proxy, raw_server(hello) as server:
        monkeypatch.setenv("http_proxy", f"{scheme}://ada:secret@127.0.0.1:{proxy.port}")
        async with door_to(server.url, ca_file=str(certificate[0])) as door:
            for _ in range(3):
                assert await (await door.open("POST", {"X-A": "1"}, b"x")).read() == b"hello"
        assert proxy.connections == 1
        for head in proxy.heads:
            assert head.startswith(
                f"POST {server.url} HTTP/1.1\r\nProxy-Authorization: {LOGIN}\r\n"
            )
        call = server.calls[-1]
        assert (call.path, call.body, call.headers["x-a"]) == ("/mcp", b"x", "1")
        assert call.headers["host"] == f"127.0.0.1:{server.port}"
        assert "proxy-authorization" not in call.headers


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_requests_with_tls_use_a_tunnel_through_the_proxy(
    scheme: str,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    loop_kind: str,
) -> None:
    tls = _server_context(certificate) if scheme == "https" else None
    large = b"x" * (1 << 20)
    async with forward_proxy(tls=tls) as proxy, secure_server(certificate) as server:
        monkeypatch.setenv("https_proxy", f"{scheme}://ada:secret@127.0.0.1:{proxy.port}")
        url = f"https://127.0.0.1:{server.port}/mcp"
        async with door_to(url, ca_file=str(certificate[0])) as door:
            for body in (b"x", large, b"z"):  # TLS messages between responses do not end the tunnel
                assert await (await door.open("POST", {}, body)).read() == b"hello"
            assert door.reached
        authority = f"127.0.0.1:{server.port}"
        assert proxy.heads == [
            f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n"
            f"Proxy-Authorization: {LOGIN}\r\n\r\n"
        ]
        assert [call.body for call in server.calls] == [b"x", large, b"z"]
        assert {call.path for call in server.calls} == {"/mcp"}
        assert not any("proxy-authorization" in call.headers for call in server.calls)


async def test_the_certificate_of_a_server_is_verified_through_a_tunnel(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, loop_kind: str
) -> None:
    async with forward_proxy() as proxy, secure_server(certificate) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with door_to(f"https://127.0.0.1:{server.port}") as door:
            with pytest.raises(ConnectFailed, match="certificate"):
                await door.open("POST", {}, b"x")
            assert not door.reached
        assert server.calls == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 407 Who?\r\nProxy-Authenticate: Basic\r\n\r\nno",
            "the proxy answered 407 Proxy Authentication Required",
        ),
        (b"HTTP/1.0 502 Oops\r\n\r\n", "the proxy answered 502 Bad Gateway"),
        (b"HTTP/1.1 599\r\n\r\n", "the proxy answered 599"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the proxy does not speak HTTP/1.1"),
        (b"x" * (65 << 10), "the proxy does not speak HTTP/1.1"),
        (ESTABLISHED + b"hello", "the proxy sent data before the tunnel was used"),
        (b"HTTP/1.1 200", "the proxy closed the connection"),
    ],
)
async def test_the_error_explains_why_a_proxy_refused_a_tunnel(
    answer: bytes,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    loop_kind: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with forward_proxy(answer) as proxy:
        monkeypatch.setenv("https_proxy", f"http://ada:secret@127.0.0.1:{proxy.port}")
        async with door_to("https://a.example") as door:
            with pytest.raises(ConnectFailed) as failed:
                await door.open("POST", {}, b"x")
        name = f"127.0.0.1:{proxy.port}"
        expected = f"Could not connect to a.example through the proxy {name}: {why}"
        assert str(failed.value) == expected
        assert not failed.value.delivered
        assert "secret" not in caplog.text
        assert LOGIN not in caplog.text


async def test_a_407_for_a_forwarded_request_is_reported_as_a_refusal_by_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(call: Call) -> None:
        await call.answer(407, "who are you?", Proxy_Authenticate="Basic")

    async with raw_server(refuse) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        async with door_to("http://a.example") as door:
            why = "through the proxy .*: the proxy answered 407 Proxy Authentication Required"
            with pytest.raises(ConnectFailed, match=why) as failed:
                await door.open("POST", {}, b"x")
        assert not failed.value.delivered


async def test_opening_a_tunnel_times_out(monkeypatch: pytest.MonkeyPatch, loop_kind: str) -> None:
    async with forward_proxy(answer=None) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with door_to("https://a.example", connect_timeout=0.2) as door:
            with pytest.raises(ConnectFailed, match=r"through the proxy .*within 0\.2 s"):
                await door.open("POST", {}, b"x")
        async with asyncio.timeout(10):
            await proxy.left.wait()


@pytest.mark.parametrize("answer", [None, ESTABLISHED])
async def test_a_cancelled_request_closes_its_tunnel(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch, loop_kind: str
) -> None:
    """Cancel before the proxy responds, and during the TLS handshake with the server."""
    silent = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        silent.set()
        await reader.read()
        writer.transport.abort()

    async with (
        asyncio.timeout(10),
        await asyncio.start_server(accept, "127.0.0.1", 0) as server,
        forward_proxy(answer) as proxy,
    ):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with door_to(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}") as door:
            opening = asyncio.ensure_future(door.open("POST", {}, b"x"))
            await (proxy.asked if answer is None else silent).wait()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await proxy.left.wait()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_error_names_an_unreachable_proxy(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", "http://ada:secret@127.0.0.1:9")
    async with door_to(f"{scheme}://a.example") as door:
        why = "Could not connect to a.example through the proxy 127.0.0.1:9: "
        with pytest.raises(ConnectFailed, match=why) as failed:
            await door.open("POST", {}, b"x")
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("url", ["socks5://ada:secret@h:1", "http://ada:secret@h:port", "http://"])
async def test_an_invalid_proxy_url_is_rejected(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", url)
    async with door_to("https://a.example") as door:
        with pytest.raises(ConnectFailed, match="Invalid proxy .*expected http://HOST:PORT") as bad:
            await door.open("POST", {}, b"x")
    assert "secret" not in str(bad.value)


@pytest.mark.parametrize(
    ("status", "opens"), [(199, False), (200, True), (299, True), (300, False), (999, False)]
)
async def test_only_2xx_responses_open_a_tunnel(status: int, opens: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    proxy = Proxy("http://ada:secret@p.example", ssl.create_default_context)
    with theirs:
        opening = asyncio.create_task(proxy.open_tunnel(ours, "h.example:443"))
        async with asyncio.timeout(5):
            asked = await asyncio.to_thread(theirs.recv, 1000)
            theirs.sendall(b"HTTP/1.1 %d Words\r\n\r\n" % status)
            assert asked.decode() == (
                "CONNECT h.example:443 HTTP/1.1\r\nHost: h.example:443\r\n"
                f"Proxy-Authorization: {LOGIN}\r\n\r\n"
            )
            if opens:
                (await opening).abort()
            else:
                with pytest.raises(OSError, match=f"the proxy answered {status}"):
                    await opening
            assert await asyncio.to_thread(theirs.recv, 10) == b""
