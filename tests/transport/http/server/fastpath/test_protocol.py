"""Reuse of parsed request heads, which must not change any response."""

import asyncio
import json
import random
import re
from typing import Any

import pytest

from fairlead.transport.http.server.guarded_protocol import GuardedProtocol
from tests.support.http_server import (
    BOTH,
    LIMIT,
    META,
    Web,
    call,
    introduction,
    make_server,
    serving,
)


def piece(body: Any, *extra: str, path: str = "/mcp") -> bytes:
    """Return one complete request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Accept: {BOTH}",
        f"Content-Length: {len(data)}",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def stateless_piece(tool: str, arguments: dict[str, Any], number: int, named: str = "") -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    fields = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call")
    return piece(body, *fields, f"Mcp-Name: {named or tool}")


class Line:
    """A connection from which complete responses are read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, web: Web) -> "Line":
        host, _, port = web.url.removeprefix("http://").removesuffix("/mcp").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Return the next response: status, headers, body."""
        async with asyncio.timeout(LIMIT):
            status = int((await self.reader.readline()).split()[1])
            headers: dict[str, str] = {}
            while line := (await self.reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            if headers.get("transfer-encoding") == "chunked":
                body = b""
                while size := int(await self.reader.readline(), 16):
                    body += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readline()
                return status, headers, body
            return (
                *(status, headers),
                await self.reader.readexactly(int(headers.get("content-length", 0))),
            )

    async def open_session(self) -> tuple[str, ...]:
        """Open a session and return the headers of requests in it."""
        await self.send(piece(introduction("2025-11-25")))
        _, headers, _ = await self.answer()
        fields = f"Mcp-Session-Id: {headers['mcp-session-id']}", "MCP-Protocol-Version: 2025-11-25"
        await self.send(piece({"jsonrpc": "2.0", "method": "notifications/initialized"}, *fields))
        assert (await self.answer())[0] == 202
        return fields


def requests(session: tuple[str, ...]) -> list[bytes]:
    """Return valid and invalid requests that share a few heads."""
    strange = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
    sent = []
    for n in range(10, 30):
        sent.append(piece(call("add", {"a": n, "b": 1}, n), *session))
        sent.append(stateless_piece("add", {"a": n, "b": 2}, n))
    sent += [
        piece({"jsonrpc": "2.0", "method": "notifications/nothing"}, *session),
        piece({"jsonrpc": "2.0", "id": 40, "method": "no/such"}, *session),
        piece(b"this is no json", *session),
        piece({"jsonrpc": "2.0", "id": 41, "method": "ping"}, *session),
        piece({"jsonrpc": "2.0", "id": 42, "method": "tools/call", "params": strange}, *session),
        piece(introduction("2025-11-25"), *session),
        piece(call("add", {"a": 1, "b": "no"}, 43), *session),
        piece(call("steps", {}, 44, progressToken=1), *session),  # progress precedes the response
        stateless_piece("add", {"a": 1, "b": 2}, 45, named="other"),
        stateless_piece("nobody", {}, 46),
        piece(call("add", {"a": 5, "b": 5}, 47), *session),
        piece(call("add", {"a": 5, "b": 5}, 47), *session, path="/elsewhere"),
        piece(call("add", {"a": 5, "b": 5}, 48), *session, "Origin: http://evil.example"),
        piece(call("add", {"a": 5, "b": 5}, 49), "Mcp-Session-Id: nobodys", *session[1:]),
        piece(call("add", {"a": 6, "b": 5}, 50), *session),
    ]
    return sent


@pytest.mark.parametrize("cuts", ["whole", "together", *range(6)])
async def test_responses_do_not_depend_on_how_requests_are_split(cuts: str | int) -> None:
    """Responses must be the same on the fast path and through ASGI."""
    heard = []
    for lane in (True, False):
        async with serving(make_server(), fast_path=lane) as web:
            line = await Line.to(web)
            sent = requests(await line.open_session())
            random.Random(7).shuffle(sent)
            answers = []
            if cuts == "whole":
                for one in sent:
                    await line.send(one)
                    answers.append(await line.answer())
            else:
                stream = b"".join(sent)
                writing = asyncio.create_task(write_in_pieces(line, stream, cuts))
                answers = [await line.answer() for _ in sent]
                await writing
            line.writer.close()
        heard.append([plain(answer) for answer in answers])
    assert heard[0] == heard[1]
    assert sum(status == 200 for status, _ in heard[0]) > 40


async def write_in_pieces(line: Line, stream: bytes, cuts: str | int) -> None:
    if cuts == "together":
        await line.send(stream)
        return
    dice = random.Random(cuts)
    while stream:
        size = dice.choice((1, 10, 100, 400, 2000))
        await line.send(stream[:size])
        stream = stream[size:]
        await asyncio.sleep(0)


def plain(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, Any]:
    status, headers, body = answer
    # Correlation ids differ in every response.
    body = re.sub(rb"(correlation_id[^0-9a-f]+)[0-9a-f]{16}", rb"\1", body)
    if headers.get("content-type", "").startswith("text/event-stream"):
        lines = body.decode().splitlines()
        return status, [line for line in lines if line.startswith("data: {")]
    if headers.get("content-type") == "application/json" and body:
        return status, json.loads(body)
    return status, None


async def test_identical_request_heads_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[bytes] = []
    feed = GuardedProtocol._feed

    def watched(self: GuardedProtocol, data: bytes) -> None:
        fed.append(data)
        feed(self, data)

    monkeypatch.setattr(GuardedProtocol, "_feed", watched)
    async with serving(make_server()) as web:
        line = await Line.to(web)
        session = await line.open_session()
        fed.clear()
        for n in range(10, 20):
            await line.send(piece({"jsonrpc": "2.0", "id": n, "method": "ping"}, *session))
            assert json.loads((await line.answer())[2])["id"] == n
        assert len(fed) == 1
        line.writer.close()


@pytest.mark.covers("GTW-05")
async def test_a_cached_head_is_refused_after_its_session_is_terminated() -> None:
    async with serving(make_server()) as web:
        line = await Line.to(web)
        session = await line.open_session()
        ping = piece({"jsonrpc": "2.0", "id": 1, "method": "ping"}, *session)
        for _ in range(2):
            await line.send(ping)
            assert (await line.answer())[0] == 200
        fields = "\r\n".join(session)
        await line.send(f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}\r\n\r\n".encode())
        assert (await line.answer())[0] in (200, 202, 204)
        await line.send(ping)
        assert (await line.answer())[0] == 404
        line.writer.close()


async def test_a_token_is_verified_for_every_request() -> None:
    good = {"secret"}
    verify = {"verify_token": lambda token: "me" if token in good else None}
    async with serving(make_server(), **verify) as web:
        line = await Line.to(web)
        body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
        fields = "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"
        ask = piece(body, "Authorization: Bearer secret", *fields)
        for _ in range(3):
            await line.send(ask)
            assert (await line.answer())[0] == 200
        good.clear()
        await line.send(ask)
        assert (await line.answer())[0] == 401
        line.writer.close()
