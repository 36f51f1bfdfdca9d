"""Slow and missing bodies over raw sockets: the token is checked first, then a deadline applies.

Each entry point that accepts a POST is tested with both framings, with and without the fast path.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import pytest

from fairlead import MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.limits import BODY_RATE
from fairlead.policy.hold_desk import HoldDesk

LIMIT = 10.0
TOKEN = "right"
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
STATELESS = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/list",
        "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        },
    }
).encode()

LANES = pytest.mark.parametrize("fast_path", [True, False], ids=["lane", "asgi"])
FRAMES = pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])


class Entry(NamedTuple):
    """A path that accepts a POST. To test another path, add a row to `ENTRIES`."""

    path: str
    body: bytes
    headers: str = ""
    only: str = ""  # "server" or "gateway" if only that kind serves the path


ENTRIES = {
    "endpoint": Entry("/mcp", BODY),
    "stateless": Entry("/mcp", STATELESS, "Mcp-Method: tools/list\r\n"),
    "legacy messages": Entry("/messages?session_id=SESSION", BODY),
    "rest": Entry("/tools/add/call", b'{"a": 1, "b": 2}', only="server"),
    "admin": Entry("/admin/paused/1/block", b"{}", "X-Admin-Token: admin\r\n", only="gateway"),
}
SERVED = pytest.mark.parametrize("served", ["server", "gateway"])
Outcome = tuple[int, str]  # the status, and the `connection` header


class Place(NamedTuple):
    port: int
    session: str  # the session id of the open HTTP+SSE stream

    def head(self, entry: Entry, *, token: str, chunked: bool, size: int | None = None) -> bytes:
        length = len(entry.body) if size is None else size
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
        return (
            f"POST {entry.path.replace('SESSION', self.session)} HTTP/1.1\r\n"
            f"Host: localhost:{self.port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\n{entry.headers}{framing}\r\n\r\n"
        ).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def serving(kind: str, **options: Any) -> AsyncIterator[Place]:
    """Serve a server or gateway on a real port, with one open HTTP+SSE stream."""
    served: Any = _gateway() if kind == "gateway" else _server()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        served.run_http(port=0, started=ready.set_result, auth_token=TOKEN, **options)
    )
    try:
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
        port = int(ready.result().removesuffix("/mcp").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /sse HTTP/1.1\r\nHost: localhost:{port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        opening = await reader.readuntil(b"session_id=")
        assert opening.startswith(b"HTTP/1.1 200")
        yield Place(port, (await reader.readline()).strip().decode())
        writer.close()
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        if kind == "gateway":
            await served.close()


def _server() -> MCPServer:
    server = MCPServer("s", rate_limit_rate=0)

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    return server


def _gateway() -> Gateway:
    return Gateway(admin_token="admin", observing=Observability(desk=HoldDesk()))


def framed(data: bytes, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if chunked else data


async def outcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Outcome:
    """Read a response, and wait until the server closes the connection."""
    try:
        async with asyncio.timeout(LIMIT):
            head, _, _ = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first, *lines = head.decode().lower().split("\r\n")
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split(" ")[1]), headers.get("connection", "")


async def everywhere(
    served: str, attack: Callable[[Entry, bool], Coroutine[Any, Any, Outcome]]
) -> set[Outcome]:
    """Run an attack on every entry point in both framings, and return all outcomes."""
    tried = [
        (name, chunked)
        for name, entry in ENTRIES.items()
        for chunked in (False, True)
        if entry.only in ("", served)
    ]
    found = await asyncio.gather(*(attack(ENTRIES[name], chunked) for name, chunked in tried))
    print(*zip(tried, found, strict=True), sep="\n")
    return set(found)


@LANES
@SERVED
async def test_a_wrong_token_is_rejected_before_the_body_is_received(
    served: str, fast_path: bool
) -> None:
    async with serving(served, fast_path=fast_path) as place:

        async def attack(entry: Entry, chunked: bool) -> Outcome:
            found = set()
            for begun in (b"", framed(entry.body[:1], chunked)):
                reader, writer = await place.connect()
                writer.write(place.head(entry, token="wrong", chunked=chunked) + begun)
                found.add(await outcome(reader, writer))
            (same,) = found
            return same

        assert await everywhere(served, attack) == {(401, "close")}


@LANES
@FRAMES
async def test_a_wrong_admin_token_is_rejected_before_the_body_is_received(
    chunked: bool, fast_path: bool
) -> None:
    entry = ENTRIES["admin"]._replace(headers="X-Admin-Token: wrong\r\n")
    async with serving("gateway", fast_path=fast_path) as place:
        reader, writer = await place.connect()
        writer.write(place.head(entry, token=TOKEN, chunked=chunked))
        assert await outcome(reader, writer) == (401, "close")


@LANES
@SERVED
async def test_a_missing_body_is_answered_with_408(served: str, fast_path: bool) -> None:
    async with serving(served, fast_path=fast_path, body_timeout=0.2) as place:

        async def attack(entry: Entry, chunked: bool) -> Outcome:
            reader, writer = await place.connect()
            writer.write(place.head(entry, token=TOKEN, chunked=chunked))
            return await outcome(reader, writer)

        assert await everywhere(served, attack) == {(408, "close")}


@LANES
@SERVED
async def test_a_trickling_body_is_answered_with_408(served: str, fast_path: bool) -> None:
    """Each byte would reset an idle timeout, so a deadline must end the request."""
    async with serving(served, fast_path=fast_path, body_timeout=0.3) as place:

        async def attack(entry: Entry, chunked: bool) -> Outcome:
            reader, writer = await place.connect()
            writer.write(place.head(entry, token=TOKEN, chunked=chunked, size=1 << 20))
            answered = asyncio.create_task(outcome(reader, writer))
            async with asyncio.timeout(LIMIT):
                while not answered.done():
                    writer.write(framed(b" ", chunked))
                    await asyncio.wait({answered}, timeout=0.01)
            return await answered

        assert await everywhere(served, attack) == {(408, "close")}


@LANES
@FRAMES
async def test_a_large_body_at_a_sufficient_rate_gets_more_time(
    chunked: bool, fast_path: bool
) -> None:
    """Received bytes extend the deadline, so that slow links can send large bodies."""
    size = BODY_RATE.value * 2
    entry = ENTRIES["endpoint"]._replace(body=BODY + b" " * (size - len(BODY)))
    async with serving("server", fast_path=fast_path, body_timeout=0.2) as place:
        reader, writer = await place.connect()
        writer.write(place.head(entry, token=TOKEN, chunked=chunked))
        writer.write(framed(entry.body[: size // 2], chunked))  # extends the deadline by a second
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.6):
                await reader.read(1)
        writer.write(framed(entry.body[size // 2 :], chunked) + (b"0\r\n\r\n" if chunked else b""))
        async with asyncio.timeout(LIMIT):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@LANES
async def test_an_answered_request_gets_no_second_response_at_the_body_timeout(
    fast_path: bool,
) -> None:
    entry = ENTRIES["endpoint"]
    async with serving("server", fast_path=fast_path, body_timeout=0.2) as place:
        reader, writer = await place.connect()
        head = place.head(entry, token=TOKEN, chunked=False)
        writer.write(head.replace(b"POST /mcp", b"GET /health"))
        async with asyncio.timeout(LIMIT):
            answer = await reader.read()
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.startswith(b"HTTP/1.1 200")
        writer.close()


@LANES
async def test_a_wrong_path_host_or_content_type_is_rejected_before_the_body_is_received(
    fast_path: bool,
) -> None:
    entry = ENTRIES["endpoint"]
    async with serving("server", fast_path=fast_path, body_timeout=60) as place:
        for change, expected in (
            ((b"application/json", b"text/plain"), b"415"),
            ((b"POST /mcp", b"POST /nowhere"), b"404"),
            ((b"Host: localhost", b"Host: evil.example"), b"403"),
        ):
            reader, writer = await place.connect()
            writer.write(place.head(entry, token=TOKEN, chunked=False).replace(*change))
            async with asyncio.timeout(LIMIT):
                assert (await reader.readline()).split()[1] == expected
            writer.close()
