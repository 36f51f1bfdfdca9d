"""Web pages cannot make a browser call tools: every entry point requires a preflight."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl

LIMIT = 20.0
ADMIN = "open sesame"

# Content types that a browser sends across origins without a preflight.
SIMPLE = [
    None,
    "",
    "text/plain",
    "text/plain;charset=UTF-8",
    "text/plain; application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
]
JSON = ["application/json", "application/json; charset=utf-8", "Application/JSON"]
FOREIGN = ["https://evil.example", "http://localhost.evil.example", "null", "file://", ""]
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "spend"}}


class Place:
    """A server on a real port, and the number of calls to its tool."""

    def __init__(self, url: str) -> None:
        self.port = int(url.split(":")[2].split("/")[0])
        self.calls = 0

    async def send(
        self, method: str, path: str, body: bytes, headers: dict[str, str | None]
    ) -> tuple[int, str]:
        """Send a request with exactly these headers, and return status and body."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **headers}
        lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, f"Content-Length: {len(body)}"])
        async with asyncio.timeout(LIMIT):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(head.encode() + b"\r\n\r\n" + body)
                said = (await reader.read()).decode()
            finally:
                writer.close()
                await writer.wait_closed()
        return int(said.split()[1]), said.partition("\r\n\r\n")[2]


@contextlib.asynccontextmanager
async def serving(server: Any) -> AsyncIterator[Place]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Place(ready.result())
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def spending(**options: Any) -> AsyncIterator[Place]:
    """Run a server whose only tool has a side effect."""
    server = MCPServer("bank", rate_limit_rate=0, **options)
    calls: list[str] = []

    @server.tool()
    async def spend() -> str:
        calls.append("spent")
        return "spent"

    async with serving(server) as place:
        yield place
        place.calls = len(calls)


@pytest.mark.covers("SRV-41", "SRV-46")
@pytest.mark.parametrize("origin", [None, "http://localhost:3000"])
@pytest.mark.parametrize("kind", SIMPLE)
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_call_without_a_json_content_type_is_rejected(
    kind: str | None, origin: str | None, body: bytes
) -> None:
    async with spending() as place:
        headers = {"Content-Type": kind, "Origin": origin}
        status, said = await place.send("POST", "/tools/spend/call", body, headers)
        assert (status, "application/json" in said) == (415, True)
        frame = json.dumps(CALL).encode()
        for path in ("/mcp", "/mcp/", "/"):
            assert (await place.send("POST", path, frame, headers))[0] == 415
    assert place.calls == 0


@pytest.mark.parametrize("kind", [*JSON, "application/problem+json"])
async def test_a_call_with_a_json_content_type_is_accepted(kind: str) -> None:
    async with spending() as place:
        for body in (b"", b"{}"):
            headers: dict[str, str | None] = {"Content-Type": kind}
            assert (await place.send("POST", "/tools/spend/call", body, headers))[0] == 200
    assert place.calls == 2


@pytest.mark.covers("SRV-46")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/tools/spend/call", "/tools", "/mcp", "/messages", "/sse", "/"])
async def test_requests_with_a_foreign_origin_host_or_site_are_rejected_on_every_path(
    method: str, path: str
) -> None:
    wrong: list[dict[str, str | None]] = [{"Origin": origin} for origin in FOREIGN]
    wrong += [{"Host": "evil.example"}, {"Host": "evil.example:80", "Origin": "http://localhost"}]
    wrong += [{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}]
    async with spending() as place:
        for headers in wrong:
            sent = {"Content-Type": "application/json", **headers}
            assert (await place.send(method, path, b"{}", sent))[0] == 403, headers
    assert place.calls == 0


async def test_a_link_on_another_site_can_open_the_status_page() -> None:
    headers: dict[str, str | None] = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
    }
    async with spending() as place:
        assert (await place.send("GET", "/", b"", headers))[0] == 200


@pytest.mark.parametrize("name", ["Host", "Origin", "Content-Type"])
async def test_repeated_security_headers_are_rejected(name: str) -> None:
    good = {"Host": "127.0.0.1", "Origin": "http://localhost", "Content-Type": "application/json"}
    async with spending() as place:
        # A dictionary would keep only the last value, which is the valid one.
        headers: dict[str, str | None] = {name: f"text/plain\r\n{name}: {good[name]}"}
        sent = {"Content-Type": "application/json", **headers}
        assert (await place.send("POST", "/tools/spend/call", b"{}", sent))[0] == 400
    assert place.calls == 0


@pytest.mark.parametrize("kind", [*SIMPLE, *JSON])
async def test_http_sse_messages_require_a_json_content_type(kind: str | None) -> None:
    async with spending() as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        try:
            async with asyncio.timeout(LIMIT):
                writer.write(f"GET /sse HTTP/1.1\r\nHost: 127.0.0.1:{place.port}\r\n\r\n".encode())
                while not (line := (await reader.readline()).decode()).startswith("data: "):
                    assert line
            path = line.removeprefix("data: ").strip()
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
            status, _ = await place.send("POST", path, body, {"Content-Type": kind})
            assert status == (202 if kind in JSON else 415)
        finally:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("kind", [*SIMPLE, *JSON])
async def test_bodies_of_the_admin_api_require_a_json_content_type(
    kind: str | None, tmp_path: Path
) -> None:
    observing = Observability(tapes=TapeControl(tmp_path))
    async with (
        Gateway(admin_token=ADMIN, observing=observing) as gateway,
        serving(gateway) as place,
    ):
        headers = {"Content-Type": kind, "X-Admin-Token": ADMIN}
        status, _ = await place.send("POST", "/admin/tapes", b'{"name": "one"}', headers)
        assert status == (200 if kind in JSON else 415)
        assert (observing.tapes.recording is not None) == (kind in JSON)  # type: ignore[union-attr]
        # The admin token header causes a preflight, so requests without a body need no type.
        assert (await place.send("POST", "/admin/reload", b"", headers))[0] == 200
        for wrong in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            status, _ = await place.send("POST", "/admin/reload", b"", {**headers, **wrong})
            assert status == 403
