"""Limits of the HTTP server for slow clients and large heads, and TLS, sockets and mounting."""

import asyncio
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fairlead.transport.http.server.guarded_protocol as connection
from fairlead.errors import ConfigError
from tests.support.http_server import LIMIT, Web, make_server, serving, stateless


async def connect(web: Web) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = web.url.removeprefix("http://").removesuffix("/mcp").partition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.covers("SRV-41")
async def test_a_request_head_over_the_size_limit_is_refused() -> None:
    async with serving(make_server()) as web:
        for chunk in (b"X-Big: " + b"a" * 70_000 + b"\r\n\r\n", b"X-Big: " + b"a" * 70_000):
            reader, writer = await connect(web)
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + chunk)
            async with asyncio.timeout(LIMIT):
                assert (await reader.readline()).startswith(b"HTTP/1.1 431")
                await reader.read()
            writer.close()
        assert (await web.stateless("server/discover")).status == 200


@pytest.mark.covers("SRV-41")
async def test_connections_that_send_no_request_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIME", 0.2)
    async with serving(make_server()) as web:
        silent = [await connect(web) for _ in range(200)]
        silent[0][1].write(b"POST /mcp HTTP/1.1\r\nHost: loc")
        assert (await web.stateless("server/discover")).status == 200
        async with asyncio.timeout(LIMIT):
            for reader, writer in silent:
                assert await reader.read() == b""
                writer.close()


@pytest.mark.covers("SRV-41")
async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED", 0.3)
    server = make_server()

    @server.tool()
    async def big() -> str:
        return "x" * 12_000_000

    async with serving(server) as web:
        reader, writer = await connect(web)
        body, headers = stateless("tools/call", {"name": "big", "arguments": {}})
        text = __import__("json").dumps(body).encode()
        lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}"
        writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        transport: Any = writer.transport
        transport.pause_reading()
        await asyncio.sleep(1.0)  # longer than a client may leave data unread
        transport.resume_reading()
        async with asyncio.timeout(LIMIT):
            got = 0
            try:
                while chunk := await reader.read(1 << 20):
                    got += len(chunk)
            except ConnectionError:
                pass
        assert got < 12_000_000
        writer.close()


@pytest.mark.covers("SRV-45")
async def test_a_public_address_requires_a_token() -> None:
    with pytest.raises(ConfigError, match="auth_token"):
        await make_server().run_http("0.0.0.0", 0)
    async with serving(make_server(), host="0.0.0.0", auth_token="s") as web:
        url = web.url.replace("0.0.0.0", "127.0.0.1")
        assert (await web.get(url)).status == 401
    async with serving(make_server(), host="0.0.0.0", insecure=True) as web:
        assert (await web.get(web.url.replace("0.0.0.0", "127.0.0.1"))).status == 405


async def test_the_error_for_a_port_in_use_names_the_port() -> None:
    async with serving(make_server()) as web:
        port = int(web.url.removesuffix("/mcp").rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"):
            await make_server().run_http(port=port)


async def test_a_unix_socket_is_private_and_serves_the_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    for _ in range(2):  # the second server replaces the socket file left by the first
        async with serving(make_server(), uds=str(path)) as web:
            assert web.url == f"unix://{path}#/mcp"
            assert path.stat().st_mode & 0o777 == 0o600
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http:
                local = Web("http://anything/mcp", http)
                params = {"name": "add", "arguments": {"a": 1, "b": 2}}
                assert (await local.stateless("tools/call", params)).text == "3"


@pytest.mark.covers("SRV-49")
async def test_the_endpoint_is_served_over_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    _certificate(key, certificate)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=str(certificate))
    async with serving(make_server(), tls=theirs) as web:
        assert web.url.startswith("https://")
        body, headers = stateless("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        sent = {**headers, "Content-Type": "application/json"}
        async with web.http.post(web.url, json=body, headers=sent, ssl=ours) as response:
            assert (await response.json())["result"]["content"][0]["text"] == "3"


def _certificate(key: Path, certificate: Path) -> None:
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(secret, hashes.SHA256())
    )
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))


@pytest.mark.covers("SRV-11")
async def test_the_application_can_be_mounted_in_other_asgi_applications() -> None:
    """Mount under Starlette and plain uvicorn, with a path prefix."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def home(_: Any) -> PlainTextResponse:
        return PlainTextResponse("home")

    ours = make_server().create_http_app()
    app = Starlette(routes=[Route("/", home), Mount("/tools-of-mine", ours)])
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server._serve())
    async with asyncio.timeout(LIMIT):
        while not server.started:
            await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with aiohttp.ClientSession() as http:
        web = Web(f"http://127.0.0.1:{port}/tools-of-mine/mcp", http)
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        assert (await web.stateless("tools/call", params)).text == "3"
        session = await web.initialize()
        assert (await session.call("steps")).text == "done"
        assert (await web.get(f"http://127.0.0.1:{port}/")).body == b"home"
        page = await web.get(f"http://127.0.0.1:{port}/tools-of-mine/")
        assert web.url in page.body.decode()
    await ours.close()
    server.should_exit = True
    await running


@pytest.mark.covers("SRV-09", "SRV-10")
def test_an_http_server_process_stops_on_a_signal(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from fairlead import MCPServer\n"
        "server = MCPServer('p', transport='http', port=0)\n"
        "server.tool('t')(lambda: 'x')\n"
        "server.run()\n"
    )
    import sys

    with subprocess.Popen(
        [sys.executable, str(program)], stderr=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert "http://127.0.0.1:" in said
        import urllib.request

        url = said.partition("http://")[2].split()[0].removesuffix("/mcp")
        with urllib.request.urlopen(f"http://{url}/health", timeout=5) as answer:
            assert answer.status == 200
        process.terminate()
        assert process.wait(5) in (0, -15, 143)
