"""A client that sends hostile or harmless requests at a steady rate, until its stdin closes.

attacker.py attack|harmless PORT TOKEN RATE: prints a line when it is ready, and one JSON object
when it ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from .attacks import BODIES, MAX_BODY, call

_OUTSTANDING = 32  # attacks under way at once
_HELD = 40  # connections that are kept open and do nothing
_FRAMES = 500  # calls over one WebSocket, all at once
_PATIENCE = 20.0  # seconds for one answer


class Attacker:
    """Sends one attack after the other, each on a connection of its own."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self.outcomes: Counter[str] = Counter()
        self.largest = 0  # bytes of one answer
        self.messages = 0  # that were sent
        self._held: list[asyncio.StreamWriter] = []
        self._special = {
            "wrong token": self._wrong_token,
            "large headers": self._large_headers,
            "slow body": self._slow_body,
            "session left open": self._session,
            "stream left open": self._stream,
            "answers not read": self._not_read,
            "REST": self._rest,
            "WebSocket frames": self._websocket,
        }
        self.names = [*BODIES, *self._special]

    async def attack(self, number: int) -> None:
        """Send one attack; which one depends on the number."""
        name = self.names[number % len(self.names)]
        self.messages += 1
        try:
            async with asyncio.timeout(_PATIENCE):
                if name in self._special:
                    await self._special[name]()
                else:
                    await self._post(*BODIES[name])
        except (OSError, EOFError, asyncio.IncompleteReadError):
            self.outcomes["connection closed"] += 1
        except TimeoutError:
            self.outcomes[f"no answer to {name!r}"] += 1

    async def harmless(self, number: int) -> None:
        """Call a tool."""
        self.messages += 1
        await self._post(
            *call("instant_echo", text=f"{number:010d} and forty bytes of text beside it")
        )

    def close(self) -> None:
        """Close all open connections."""
        for writer in self._held:
            writer.close()

    async def _post(
        self, body: bytes, headers: Mapping[str, str], path: str = "/mcp", token: str | None = None
    ) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(self._head(len(body), headers, path, token) + body)
            await self._read(reader)
        finally:
            writer.close()

    def _head(
        self,
        length: int,
        headers: Mapping[str, str] = {},
        path: str = "/mcp",
        token: str | None = None,
        verb: str = "POST",
    ) -> bytes:
        lines = [
            f"{verb} {path} HTTP/1.1",
            f"host: 127.0.0.1:{self._port}",
            f"authorization: Bearer {token or self._token}",
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            f"content-length: {length}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)

    async def _read(self, reader: asyncio.StreamReader) -> dict[str, str]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        size = len(head)
        if "content-length" in fields:
            length = int(fields["content-length"])
            size += length
            await reader.readexactly(length)
        elif "chunked" in fields.get("transfer-encoding", ""):
            size += len(await reader.read(1 << 16))  # a stream: its beginning
        self.outcomes[head.split()[1]] += 1
        self.largest = max(self.largest, size)
        return fields

    def _hold(self, writer: asyncio.StreamWriter) -> None:
        self._held.append(writer)
        if len(self._held) > _HELD:
            self._held.pop(0).close()

    async def _wrong_token(self) -> None:
        await self._post(b"x" * MAX_BODY, {}, token="wrong")

    async def _large_headers(self) -> None:
        headers = {f"x-header-{n}": "x" * 100 for n in range(500)}
        await self._post(b"{}", headers)

    async def _slow_body(self) -> None:
        _, writer = await self._connect()
        writer.write(self._head(1000) + b"{")
        self._hold(writer)

    async def _session(self) -> None:
        reader, writer = await self._connect()
        opening = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"elicitation": {}, "roots": {}},
                "clientInfo": {"name": "attacker", "version": str(time.time())},
            },
        }
        body = json.dumps(opening).encode()
        writer.write(self._head(len(body)) + body)
        await self._read(reader)
        self._hold(writer)

    async def _stream(self) -> None:
        reader, writer = await self._connect()
        writer.write(self._head(0, path="/sse", verb="GET"))
        await reader.readuntil(b"\r\n\r\n")
        self.outcomes["stream"] += 1
        self._hold(writer)

    async def _not_read(self) -> None:
        _, writer = await self._connect()
        body, headers = BODIES["batch of lists"]
        writer.write((self._head(len(body), headers) + body) * 4)
        self._hold(writer)

    async def _rest(self) -> None:
        body = json.dumps({"items": [], **{f"x{n}": 1 for n in range(5000)}}).encode()
        await self._post(body, {}, path="/tools/attacked_order/call")

    async def _websocket(self) -> None:
        reader, writer = await self._connect()
        key = base64.b64encode(os.urandom(16)).decode()
        fields = {"upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13"}
        head = self._head(0, {**fields, "sec-websocket-key": key}, path="/ws", verb="GET")
        writer.write(head.replace(b"content-length: 0\r\n", b""))
        await reader.readuntil(b"\r\n\r\n")
        frame = json.dumps({"id": "1", "name": "attacked_order", "arguments": {"x": 1}}).encode()
        masked = bytes([0x81, 0x80 | len(frame)]) + bytes(4) + frame
        writer.write(masked * _FRAMES)
        self.messages += _FRAMES - 1
        self.outcomes["frames"] += 1
        self._hold(writer)


async def main(kind: str, port: int, token: str, rate: float) -> None:
    attacker = Attacker(port, token)
    send = attacker.attack if kind == "attack" else attacker.harmless
    await send_until_stopped(attacker, send, rate)


async def send_until_stopped(
    attacker: Attacker, send: Callable[[int], Awaitable[None]], rate: float
) -> None:
    """Call `send` `rate` times per second until stdin closes, and print what was sent."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 1) or ended.set())
    tasks: set[asyncio.Task[None]] = set()
    print("ready", flush=True)
    start, number, skipped = loop.time(), 0, 0
    while not ended.is_set():
        due = int((loop.time() - start) * rate)
        while number < due:
            if len(tasks) < _OUTSTANDING:
                task = asyncio.ensure_future(send(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                skipped += 1
            number += 1
        try:
            async with asyncio.timeout(0.005):
                await ended.wait()
        except TimeoutError:
            pass
    seconds = loop.time() - start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    attacker.close()
    facts = {
        "sent": attacker.messages,
        "skipped": skipped,
        "seconds": seconds,
        "largest": attacker.largest,
        "outcomes": dict(attacker.outcomes),
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
