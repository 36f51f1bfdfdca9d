"""Small hostile requests do not cost a server or gateway much more work or output than an echo.

Processor time is compared with that of a call of the same size that only returns its argument, and
the size of the output with the size of the request. The results of tools and the lists of authors
and upstream servers are not limited here; all other output is.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fairlead import MCPServer
from fairlead.gateway import Gateway
from fairlead.limits import BATCH_QUEUE
from fairlead.policy.actions import Allow, Cache, RateLimit, Redact, SchemaCheck
from fairlead.policy.rules import RuleSet
from fairlead.transport.memory import memory_pair
from fairlead.wire import encode
from tests.support.gateway_servers import LIMIT

SIZE = 60_000  # approximate size of a request in bytes
TIMES = 50  # limit, as a multiple of the processor time of an echo
LEAST = 0.0004  # lower bound in seconds for the time of an echo, because of the clock's resolution
FACTOR, MORE = 16, 64 << 10  # allowed output: bytes per byte of input, and additional bytes
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Leaf(msgspec.Struct, tag="leaf"):
    """A leaf of a tree."""

    value: int


class Pair(msgspec.Struct, tag="pair"):
    """A node with two subtrees."""

    left: "Leaf | Pair"
    right: "Leaf | Pair"


class Both(msgspec.Struct, tag="both"):
    """Another kind of node with two subtrees."""

    left: "Leaf | Pair | Both"
    right: "Leaf | Pair | Both"


def make() -> MCPServer:
    server = MCPServer("echo", rate_limit_rate=0)

    @server.tool()
    async def echo(text: str) -> str:
        return text

    @server.tool()
    async def add(a: int, b: float = 1, kind: Literal["x", "y"] = "x") -> str:
        return "sum"

    @server.tool()
    async def tree(root: Leaf | Pair | Both) -> str:
        return "tree"

    @server.tool()
    async def either(value: dict[str, int] | list[int] | int | None = None) -> str:
        return "either"

    @server.tool()
    async def named(name: Annotated[str, msgspec.Meta(pattern="^(a+)+$")]) -> str:
        return "named"

    @server.resource("file:///{+path}")
    async def file(path: str) -> str:
        return "a file"

    @server.resource("db://{table}/{row}{?columns,order}{&limit}")
    async def row(table: str, row: str, columns: str = "", order: str = "", limit: str = "") -> str:
        return "a row"

    @server.prompt()
    async def greet(name: str, style: str = "") -> str:
        return "hello"

    @server.completion("greet", "name")
    async def complete_names(begun: str) -> list[str]:
        return ["Ann", "Ben"]

    return server


class Line:
    """A connection that counts the bytes it receives."""

    def __init__(self, target: Any) -> None:
        self.left, right = memory_pair()
        self.peer = target.attach(right, "ann")
        self.received = 0
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._reading = asyncio.create_task(self.left.run(self._came))

    def _came(self, message: Any) -> None:
        self.received += len(encode(message)) if not isinstance(message, Exception) else 0
        self._answers.put_nowait(message)

    async def send(self, frame: bytes, answers: int) -> None:
        """Send a frame, and wait for `answers` responses to it and one to a following ping."""
        while not self._answers.empty():
            self._answers.get_nowait()
        self.received = 0
        self.left.write(frame + b"\n")
        while answers:
            async with asyncio.timeout(LIMIT):
                await self._answers.get()
            answers -= 1

    async def ask(self, method: str, params: Any, id: Any = 1) -> Any:
        await self.send(request(method, params, id), 0)
        async with asyncio.timeout(LIMIT):
            while True:
                answer = await self._answers.get()
                if getattr(answer, "id", None) == id:
                    return answer

    async def close(self) -> None:
        await self.peer.close()
        await self.left.close()
        await self._reading


def request(method: str, params: Any = None, id: Any = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return json.dumps(message if params is None else {**message, "params": params}).encode()


def call(tool: str, arguments: Any) -> bytes:
    return request("tools/call", {"name": tool, "arguments": arguments})


def batch(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def tree(levels: int) -> Any:
    value: Any = {"type": "leaf", "value": "wrong"}
    for _ in range(levels):
        value = {"type": "both", "left": value, "right": {"type": "leaf", "value": 1}}
    return {"root": value}


# Each function returns a frame and the expected number of responses to it.
SHAPES: dict[str, Callable[[], tuple[bytes, int]]] = {
    "unknown arguments": lambda: (call("add", {f"x{n}": n for n in range(5000)}), 1),
    "unknown arguments, some": lambda: (call("add", {f"x{n}": n for n in range(900)}), 1),
    "an unknown argument with a huge name": lambda: (call("add", {"x" * SIZE: 1}), 1),
    "wrong types": lambda: (call("either", {"value": ["x"] * 10_000}), 1),
    "wrong types, some": lambda: (call("either", {"value": ["x"] * 900}), 1),
    "numbers in strings": lambda: (call("either", {"value": ["1"] * 10_000}), 1),
    "numbers in strings, some": lambda: (call("either", {"value": ["1"] * 900}), 1),
    "wrong types in an object": lambda: (
        call("either", {"value": {f"k{n}": "x" for n in range(4000)}}),
        1,
    ),
    "a wrong text": lambda: (call("add", {"a": "x" * SIZE}), 1),
    "a wrong object": lambda: (call("add", {"a": {f"k{n}": [n] for n in range(3000)}}), 1),
    "digits": lambda: (call("add", {"a": "9" * 400, "b": "1" * SIZE}), 1),
    "a deep value": lambda: (call("either", {"value": nested(300)}), 1),
    "a very deep value": lambda: (
        call("echo", {"text": 0}).replace(b"0}", b"[" * 20_000 + b"]" * 20_000 + b"}"),
        1,
    ),
    "a deep union": lambda: (call("tree", tree(8)), 1),
    "a deeper union": lambda: (call("tree", tree(100)), 1),
    "the deepest union": lambda: (call("tree", tree(300)), 1),
    "a pattern": lambda: (call("named", {"name": "a" * 40 + "!"}), 1),
    "a long pattern": lambda: (call("named", {"name": "a" * SIZE + "!"}), 1),
    "escapes": lambda: (call("add", {"a": '\x00\x1b\\"' * 3000}), 1),
    "many secrets": lambda: (call("add", {"token": [f"secret{n:05}" for n in range(4000)]}), 1),
    "secrets in a text": lambda: (call("add", {"a": "token=abcdefgh " * 3000}), 1),
    "duplicate names": lambda: (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{'
        + b'"a":1,' * 8000
        + b'"a":"x"}}}',
        1,
    ),
    "an unknown tool": lambda: (call("x" * SIZE, {}), 1),
    "an unknown tool with separators": lambda: (call("echo_" * (SIZE // 5), {}), 1),
    "an unknown method": lambda: (request("x" * SIZE), 1),
    "a long id": lambda: (request("ping", id="x" * SIZE), 1),
    "a long version": lambda: (
        request("tools/list", {"_meta": {**META, next(iter(META)): "x" * SIZE}}),
        1,
    ),
    "large metadata": lambda: (
        request("tools/list", {"_meta": {**META, **{f"k{n}": n for n in range(4000)}}}),
        1,
    ),
    "a bad cursor": lambda: (request("tools/list", {"cursor": "x" * SIZE}), 1),
    "an invalid cursor for resources": lambda: (
        request("resources/list", {"cursor": "A" * SIZE}),
        1,
    ),
    "an unknown prompt": lambda: (request("prompts/get", {"name": "x" * SIZE}), 1),
    "prompt arguments": lambda: (
        request("prompts/get", {"name": "greet", "arguments": {f"x{n}": "y" for n in range(4000)}}),
        1,
    ),
    "wrong prompt arguments": lambda: (
        request("prompts/get", {"name": "greet", "arguments": {f"x{n}": n for n in range(4000)}}),
        1,
    ),
    "an unknown resource": lambda: (request("resources/read", {"uri": "x://" + "y" * SIZE}), 1),
    "a resource that matches a template": lambda: (
        request("resources/read", {"uri": "db://a/b?" + "&" * 15_000 + "#"}),
        1,
    ),
    "a resource with escapes": lambda: (
        request("resources/read", {"uri": "db://" + "%41" * 5000 + "/x?columns=" + "%" * 500}),
        1,
    ),
    "a subscription": lambda: (request("resources/subscribe", {"uri": "x://" + "y" * SIZE}), 1),
    "an unknown level": lambda: (request("logging/setLevel", {"level": "x" * SIZE}), 1),
    "a completion without a reference": lambda: (
        request(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "x" * 30_000},
                "argument": {"name": "n" * 30_000, "value": "v"},
            },
        ),
        1,
    ),
    "a completion for a template": lambda: (
        request(
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "db://{a}" * 7000},
                "argument": {"name": "a", "value": "v"},
            },
        ),
        1,
    ),
    "a completion with a context": lambda: (
        request(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "greet"},
                "argument": {"name": "name", "value": "A" * 20_000},
                "context": {"arguments": {f"x{n}": "y" for n in range(2000)}},
            },
        ),
        1,
    ),
    "params that are a list": lambda: (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[' + b"1," * 30_000 + b"1]}",
        1,
    ),
    "not JSON": lambda: (b'{"jsonrpc":"2.0","id":1,"method":' + b"x" * SIZE, 1),
    "brackets": lambda: (b"[" * SIZE, 1),
    "braces": lambda: (b'{"a":' * (SIZE // 5), 1),
    "a string without an end": lambda: (b'{"jsonrpc":"' + b"\\u0041" * (SIZE // 6), 1),
    "bad UTF-8": lambda: (b'{"jsonrpc":"2.0","id":1,"method":"' + b"\xff" * SIZE + b'"}', 1),
    "half surrogates": lambda: (call("add", {"a": "\ud800" * 10_000}), 1),
    "unknown members": lambda: (
        request("ping")[:-1] + b"," + b",".join(b'"m%d":1' % n for n in range(5000)) + b"}",
        1,
    ),
    "a batch of pings": lambda: (batch([request("ping", id=n) for n in range(128)]), 128),
    "a batch of refused calls": lambda: (
        batch([request("tools/call", {"name": "no"}, id=n) for n in range(128)]),
        128,
    ),
    "a batch of numbers": lambda: (batch([b"1"] * 128), 1),
    "a batch with too many bytes": lambda: (batch([b"1"] * 30_000), 1),
    "a batch with too many messages": lambda: (batch([request("tools/list")] * 1000), 1),
    # This must be last: it starts a new session, which does not support batches.
    "a second initialize": lambda: (
        request(
            "initialize",
            {
                "protocolVersion": "x" * 30_000,
                "capabilities": {f"c{n}": {} for n in range(2000)},
                "clientInfo": {"name": "x", "version": "1"},
            },
        ),
        1,
    ),
}


@contextlib.asynccontextmanager
async def opened(kind: str) -> AsyncIterator[Line]:
    async with contextlib.AsyncExitStack() as stack:
        target: Any = make()
        if kind != "server":
            around: list[Any] = []
            if kind == "guarded gateway":
                rule = {
                    "name": "r",
                    "when": {"params": {"arguments.text": {"matches": "(x+x+)+y"}}},
                    "do": {"block": {"reason": "no"}},
                }
                around = [RuleSet.of_data({"rules": [rule]}), SchemaCheck(), Allow(allow=["*"])]
                around += [RateLimit(1_000_000), Cache(), Redact(patterns=["(a+)+b"])]
            gateway = Gateway(interceptors=around)
            target = await stack.enter_async_context(gateway)
            # the server program imports modules of the tests
            env = {"PYTHONPATH": os.pathsep.join(sys.path)}
            entry = {"command": sys.executable, "args": [str(Path(__file__))], "env": env}
            await gateway.connect({"e": entry})
            async with asyncio.timeout(LIMIT):
                await gateway.members["e"].introduced.wait()
        line = Line(target)
        stack.push_async_callback(line.close)
        hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c"}}
        await line.ask("initialize", hello)
        await line.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 0)
        listed = await line.ask("tools/list", {})
        assert b'"name":' in bytes(listed.result), "the upstream server did not start"
        yield line


async def cost(line: Line, frame: bytes, answers: int) -> float:
    began = time.process_time()
    await line.send(frame, answers)
    return time.process_time() - began


KINDS = ["server", "gateway", "guarded gateway"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_no_request_costs_much_more_processor_time_or_output_than_an_echo(kind: str) -> None:
    prefix = "" if kind == "server" else "e_"
    worst = []
    async with opened(kind) as line:
        for name, shape in SHAPES.items():
            frame, answers = shape()
            frame = frame.replace(b'"name": "', f'"name": "{prefix}'.encode(), 1)
            echo = call(f"{prefix}echo", {"text": "x" * len(frame)})
            await line.send(frame, answers)  # warm up: some caches are filled only once
            spent = min([await cost(line, frame, answers) for _ in range(3)])
            usual = max(median([await cost(line, echo, 1) for _ in range(5)]), LEAST)
            # a busy machine distorts measurements, so measure again before failing
            for _ in range(5):
                if spent > TIMES * usual:
                    spent = min(spent, await cost(line, frame, answers))
                    usual = max(usual, await cost(line, echo, 1))
            await line.send(frame, answers)
            written = line.received
            if spent > TIMES * usual:
                worst.append(f"{name}: {spent:.4f} s, {spent / usual:.0f} times an echo")
            if written > FACTOR * len(frame) + MORE:
                worst.append(f"{name}: {written} bytes for {len(frame)}")
    assert not worst, "\n".join(worst)


async def test_the_responses_to_a_batch_are_limited_in_bytes() -> None:
    """The size of one list is not limited, but the size of all queued responses is."""
    server = make()
    for n in range(60):
        server.tool(name=f"tool_{n}", description="d" * 1000)(lambda: "x")
    line = Line(server)
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c"}}
    await line.ask("initialize", hello)
    await line.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 0)
    size = len(encode(await line.ask("tools/list", {})))
    lists = batch([request("tools/list", id=n) for n in range(128)])
    await line.send(lists, 128)
    assert line.received < size + BATCH_QUEUE.value + 32 * size + 128 * 200
    await line.close()


if __name__ == "__main__":
    make().run()
