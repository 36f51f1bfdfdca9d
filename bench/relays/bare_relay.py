"""Minimal relay: it splits lines, decodes the envelope, replaces the id and forwards.

bare_relay.py COMMAND...: between its own stdin and stdout and those of the command. It uses uvloop
and msgspec; params and results are not decoded. It has no errors, limits or sessions.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop

Raw = msgspec.Raw
UNSET = msgspec.UNSET


class Request(msgspec.Struct):
    """A request, or a notification when it has no id."""

    method: str
    id: int | str | msgspec.UnsetType = UNSET
    params: Raw | msgspec.UnsetType = UNSET
    jsonrpc: str = "2.0"


class Answer(msgspec.Struct):
    """An answer of either kind."""

    id: int | str
    result: Raw | msgspec.UnsetType = UNSET
    error: Raw | msgspec.UnsetType = UNSET
    jsonrpc: str = "2.0"


decode_request = msgspec.json.Decoder(Request).decode
decode_answer = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.Encoder().encode


class Lines:
    """Splitter of incoming bytes into lines."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._parts: list[bytes] = []  # of a line whose end has not arrived

    def feed(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts = []
        if rest:
            self._parts.append(rest)
        for line in lines:
            self._take(line)


class Relay:
    """Replacement of request ids, and of the ids of responses."""

    def __init__(self) -> None:
        self._ids: dict[int, int | str] = {}
        self._next = 0
        self.up: Any = None  # transports to write to
        self.down: Any = None

    def asked(self, line: bytes) -> None:
        request = decode_request(line)
        if request.id is not UNSET:
            self._next += 1
            self._ids[self._next] = request.id
            request.id = self._next
        self.up.write(encode(request) + b"\n")

    def answered(self, line: bytes) -> None:
        answer = decode_answer(line)
        answer.id = self._ids.pop(answer.id)  # type: ignore[arg-type] # the ids are ours
        self.down.write(encode(answer) + b"\n")


class Near(asyncio.Protocol):
    """Protocol for its own stdin."""

    def __init__(self, relay: Relay) -> None:
        self.data_received = Lines(relay.asked).feed  # type: ignore[method-assign]
        self._relay = relay

    def eof_received(self) -> None:
        self._relay.up.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.up.close()


class Far(asyncio.SubprocessProtocol):
    """Protocol for the server's stdout."""

    def __init__(self, relay: Relay, ended: asyncio.Event) -> None:
        self._feed = Lines(relay.answered).feed
        self._ended = ended

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._feed(data)

    def process_exited(self) -> None:
        self._ended.set()


async def main(command: list[str]) -> None:
    loop, ended, relay = asyncio.get_running_loop(), asyncio.Event(), Relay()
    relay.down, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    child, _ = await loop.subprocess_exec(lambda: Far(relay, ended), *command, stderr=None)
    relay.up = child.get_pipe_transport(0)
    await loop.connect_read_pipe(lambda: Near(relay), sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1:]))
