"""HTTP requests as raw bytes, and their responses, without a library."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from fairlead.wire import to_json
from tests.support.http_server import BOTH, Web, stateless

ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}


def request(
    params: dict[str, Any] | None = None,
    *extra: str,
    method: str = "tools/call",
    line: str = "POST /mcp HTTP/1.1",
    host: str | None = "localhost",
    body: bytes | None = None,
    length: int | None = None,
    leave_out: str = "",
    session: dict[str, str] | None = None,
    **meta: Any,
) -> bytes:
    """Return a valid stateless request, modified by the arguments.

    `session` replaces the headers of a stateless request.
    """
    message, headers = stateless(
        method, params or ADD, {leave_out: ""} if leave_out else {}, **meta
    )
    headers = headers if session is None else session
    body = to_json(message) if body is None else body
    fields = [f"{name}: {value}" for name, value in headers.items()]
    if host is not None:
        fields.insert(0, f"Host: {host}")
    fields += ["Content-Type: application/json", f"Accept: {BOTH}", *extra]
    if length != -1:
        fields.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([line, *fields, "", ""]).encode("latin-1") + body


def chunked(whole: bytes, trailers: bytes = b"") -> bytes:
    """Return a request with its body in one chunk instead of a `Content-Length`."""
    head, _, body = whole.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    head = b"\r\n".join([*lines, b"Transfer-Encoding: chunked"])
    return b"%b\r\n\r\n%x\r\n%b\r\n0\r\n%b\r\n" % (head, len(body), body, trailers)


class Line:
    """One HTTP connection over a raw socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, limit: float = 5.0) -> "Got":
        """Return the next response, or what was received of it before the connection ended."""
        async with asyncio.timeout(limit):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as exc:
                return Got(exc.partial, b"")
            got = Got(head, b"")
            if got.status == 100:
                return got
            with contextlib.suppress(asyncio.IncompleteReadError):
                if got.fields.get("transfer-encoding") == "chunked":
                    while size := int(await self.reader.readline(), 16):
                        got.body += (await self.reader.readexactly(size + 2))[:-2]
                    await self.reader.readline()
                elif "content-length" in got.fields:
                    got.body = await self.reader.readexactly(int(got.fields["content-length"]))
                else:
                    got.body = await self.reader.read()
            return got

    async def closed(self, limit: float = 5.0) -> bool:
        """Return True if the server closes the connection in time; data before that is ignored."""
        try:
            async with asyncio.timeout(limit):
                while await self.reader.read(1 << 16):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def drop(self) -> None:
        self.writer.transport.abort()


class Got:
    """A parsed HTTP response."""

    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0  # 0 if no response was received
        self.fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
        }
        self.body = body

    @property
    def text(self) -> str:
        """Return the text of a tool's result."""
        return str(json.loads(self.body)["result"]["content"][0]["text"])


@contextlib.asynccontextmanager
async def line_to(web: Web) -> AsyncIterator[Line]:
    host, _, port = web.url.removeprefix("http://").removesuffix("/mcp").partition(":")
    line = Line(*await asyncio.open_connection(host, int(port), limit=1 << 24))
    try:
        yield line
    finally:
        line.drop()


async def ask(web: Web, data: bytes) -> Got:
    """Send data on a new connection and return one response."""
    async with line_to(web) as line:
        line.send(data)
        return await line.answer()


class Program:
    """A server in its own process."""

    def __init__(self, process: asyncio.subprocess.Process, web: Web) -> None:
        self.process = process
        self.web = web

    @property
    def memory(self) -> float:
        """Return the resident memory in MiB."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096 / (1 << 20)

    async def alive(self) -> tuple[int, int, int]:
        """Return the numbers of tasks, open files and allocated memory blocks."""
        answer = await self.web.stateless("tools/call", {"name": "alive", "arguments": {}})
        tasks, files, blocks = json.loads(answer.text)
        return tasks, files, blocks


@contextlib.asynccontextmanager
async def program() -> AsyncIterator[Program]:
    place = Path(__file__).with_name("measured_http_server.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(place), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            url = (await process.stdout.readline()).decode().strip()
        async with aiohttp.ClientSession() as http:
            yield Program(process, Web(url, http))
    finally:
        process.terminate()
        await process.wait()
