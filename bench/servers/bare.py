"""Minimal stdio server: the cost of Python without a runtime.

An asyncio protocol on the stdin pipe (uvloop), decoding and encoding by msgspec, one task per
request, one write. It has no validation, errors or cancellation. It also answers the opening
requests of clients, so that clients can be measured against it.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop


class Params(msgspec.Struct):
    """The params of `tools/call`."""

    name: str = ""
    arguments: dict[str, Any] = {}


class Request(msgspec.Struct):
    """A request, or a notification when it has no id."""

    method: str
    id: int | str | None = None
    params: Params = msgspec.field(default_factory=Params)


class Text(msgspec.Struct, tag_field="type", tag="text"):
    """A text block."""

    text: str


class CallResult(msgspec.Struct, rename="camel"):
    """The result of a call; both eras accept it."""

    content: list[Text]
    structured_content: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    result_type: str = "complete"


class Response(msgspec.Struct):
    """An answer."""

    id: int | str
    result: CallResult | msgspec.Raw
    jsonrpc: str = "2.0"


async def echo(text: str) -> str:
    return text


async def add(a: int, b: int) -> str:
    return str(a + b)


async def order(items: list[dict[str, Any]]) -> str:
    last = items[-1]
    return f"{last['quantity']} of {last['name']} at {last['price']:.2f}, {last['labels'][-1]}"


async def describe(text: str) -> dict[str, Any]:
    return {"text": text, "size": len(text), "labels": ["short", "plain"]}


TOOLS = {"echo": echo, "add": add, "order": order, "describe": describe}

INTEGER = {"type": "integer"}
LISTED = [
    {
        "name": "echo",
        "description": "Say it again.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": INTEGER, "b": INTEGER},
            "required": ["a", "b"],
        },
    },
    {
        "name": "order",
        "description": "Order some items.",
        "inputSchema": {
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"type": "object"}}},
            "required": ["items"],
        },
    },
]
CACHEABLE = {"resultType": "complete", "ttlMs": 3_600_000, "cacheScope": "public"}
SERVER_INFO = {"name": "bare", "version": "1.0.0"}
FIXED = {
    method: msgspec.Raw(msgspec.json.encode(result))
    for method, result in {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": SERVER_INFO,
        },
        "server/discover": {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": SERVER_INFO},
            **CACHEABLE,
        },
        "tools/list": {"tools": LISTED, **CACHEABLE},
        "ping": {},
    }.items()
}

decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode


def as_result(value: str | dict[str, Any]) -> CallResult:
    if isinstance(value, str):
        return CallResult([Text(value)], {"result": value})
    return CallResult([Text(encode(value).decode())], value)


class Server(asyncio.Protocol):
    """Cuts stdin into lines and starts a task for each request."""

    def __init__(self, write: Callable[[bytes], None], ended: asyncio.Event) -> None:
        self._write = write
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []  # of a line whose end has not arrived
        self._tasks: set[asyncio.Task[None]] = set()

    def data_received(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts = []
        if rest:
            self._parts.append(rest)
        for line in lines:
            request = decode(line)
            if request.id is not None:
                task = self._loop.create_task(self._answer(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    async def _answer(self, request: Request) -> None:
        result: CallResult | msgspec.Raw
        if request.method == "tools/call":
            result = as_result(await TOOLS[request.params.name](**request.params.arguments))
        else:
            result = FIXED[request.method]
        self._write(encode(Response(request.id, result)) + b"\n")


async def main() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: Server(writer.write, ended), sys.stdin)
    await ended.wait()


if __name__ == "__main__":
    uvloop.run(main())
