"""Many concurrent clients over HTTP that disconnect, cancel, pipeline and repeat requests.

Every delivered request must get its own response exactly once, after its notifications, and leave
no state. Each scenario runs with and without the fast path.
"""

import asyncio
import contextlib
import gc
import json
import logging
import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.gateway import Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.relay.fastpath.taskless_forwarder import _ForwardedCall, _TaskedCall
from fairlead.transport.http.server.fastpath.fastpath_call import FastPathCall
from fairlead.transport.socket import connect_unix
from fairlead.upstream.server_target import ServerTarget
from fairlead.wire.error_codes import REQUEST_CANCELLED
from tests.support.http_server import META, Web, introduction, serving
from tests.support.raw_http_client import Got, Line, line_to, request

KINDS = ("echo", "echo", "echo", "chatty", "late", "twice", "fail")
CLIENTS, STEPS = 8, 25


class Raw:
    """A minimal server that answers early, late, twice or never, or closes the connection."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.kills = 0
        self._late: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(**message: Any) -> None:
            if not writer.is_closing():
                writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

        async def later(number: Any, result: Any) -> None:
            await asyncio.sleep(0.002)
            say(id=number, result=result)

        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                number, method = message.get("id"), message.get("method")
                if number is None:
                    continue
                known = "initialize" if self.era == "handshake" else "server/discover"
                if method == known:
                    say(id=number, result=self._introduction())
                elif method != "tools/call":
                    say(id=number, error={"code": -32601, "message": "Method not found"})
                else:
                    params = message["params"]
                    kind, who = params["arguments"]["kind"], params["arguments"]["who"]
                    result = {"content": [{"type": "text", "text": who}]}
                    if self.era == "stateless":
                        result["resultType"] = "complete"
                    if kind == "chatty":
                        token = params["_meta"]["progressToken"]
                        for n in (1, 2):
                            told = {"progressToken": token, "progress": n, "message": who}
                            say(method="notifications/progress", params=told)
                    if kind == "never":
                        continue
                    if kind == "die":
                        self.kills += 1
                        break
                    if kind == "fail":
                        say(id=number, error={"code": 7, "message": who})
                    elif kind == "late":
                        task = asyncio.ensure_future(later(number, result))
                        self._late.add(task)
                        task.add_done_callback(self._late.discard)
                    else:
                        say(id=number, result=result)
                    if kind == "twice":
                        say(id=number, result={"content": [{"type": "text", "text": "again"}]})
        writer.close()

    def _introduction(self) -> dict[str, Any]:
        info = {"name": "raw", "version": "1"}
        if self.era == "handshake":
            said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            return {**said, "serverInfo": info}
        known = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"resultType": "complete", **known, "_meta": meta}


def direct_server() -> MCPServer:
    server = MCPServer("direct", rate_limit_rate=0)

    @server.tool()
    async def do(ctx: Context, kind: str, who: str) -> str:
        if kind == "chatty":
            for n in (1, 2):
                await ctx.progress(n, 2, who)
        if kind == "late":
            await asyncio.sleep(0.002)
        if kind == "never":
            await asyncio.Event().wait()
        if kind == "ask":
            answer = await ctx.elicit("Who?", str)
            return f"{who} {answer.action}"
        return who

    return server


class Looking:
    """An interceptor that forwards every exchange, and whose `waits` depends on `kind`."""

    def __init__(self, kind: str, dice: random.Random) -> None:
        self._kind = kind
        self._dice = dice

    @property
    def waits(self) -> bool:
        return self._kind == "waits" or (self._kind == "both" and self._dice.random() < 0.5)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self._kind == "waits":
            await asyncio.sleep(0)
        return await proceed(exchange)


@contextlib.asynccontextmanager
async def target(behind: str, looking: str, dice: random.Random) -> AsyncIterator[Any]:
    if behind == "direct":
        yield direct_server()
        return
    raw = Raw(behind)
    interceptors = [] if looking == "nobody" else [Looking(looking, dice)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "behind")
        way = ServerTarget(name="raw", open=lambda: connect_unix(path), is_process=True)
        async with await asyncio.start_unix_server(raw.serve, path):
            yield Relay(way, interceptors=interceptors)


class Client:
    """One of many clients, which checks every message that it receives."""

    def __init__(self, web: Web, n: int, era: str, behind: str, dice: random.Random) -> None:
        self.web, self.name, self.era, self.behind, self.dice = web, f"c{n}", era, behind, dice
        self.count = 0
        self.answered = 0
        self.session: dict[str, str] | None = None
        self._lines = contextlib.AsyncExitStack()
        self.line: Line

    async def connect(self) -> None:
        await self._lines.aclose()
        self.line = await self._lines.enter_async_context(line_to(self.web))
        if self.era == "session" and self.session is None:
            self.line.send(request(body=json.dumps(introduction()).encode(), session={}))
            got = await self.line.answer()
            named = got.fields["mcp-session-id"]
            self.session = {"Mcp-Session-Id": named, "MCP-Protocol-Version": "2025-11-25"}
            await self.tell({"method": "notifications/initialized"})

    async def tell(self, message: dict[str, Any]) -> None:
        """Send a notification on a separate connection."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        async with line_to(self.web) as line:
            line.send(request(body=body, session=self.session))
            assert (await line.answer()).status == 202

    def call(self, kind: str) -> tuple[int, str, bytes]:
        self.count += 1
        number, who = self.count, f"{self.name}-{self.count}"
        params: dict[str, Any] = {"name": "do", "arguments": {"kind": kind, "who": who}}
        meta: dict[str, Any] = {"progressToken": f"t{who}"} if kind == "chatty" else {}
        if self.era == "stateless":
            meta = {**META, **meta}
        if meta:
            params["_meta"] = meta
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        indent = self.dice.choice((None, None, 1))
        data = json.dumps(body, indent=indent).encode()
        headers = self.session
        if headers is None:
            headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"}
            headers["Mcp-Name"] = "do"
        return number, who, request(body=data, session=headers)

    def check(self, got: Got, kind: str, number: int, who: str, allowed: tuple[int, ...]) -> None:
        assert got.status in allowed, (got.status, kind, got.body)
        if got.status != 200:
            return
        *told, answer = messages(got)
        self.answered += 1
        assert answer["id"] == number, (answer, number)
        assert all(note["params"]["message"] == who for note in told), (told, who)
        error = answer.get("error")
        if error is not None and self.behind != "direct" and error["message"].startswith("server "):
            return  # another client made the server close the shared connection
        if kind == "fail" and self.behind != "direct":
            assert (error or {}).get("message") == who, answer
        elif error is None:
            assert answer["result"]["content"][0]["text"].split()[0] == who, (answer, who)
            expected = [1, 2] if kind == "chatty" else []
            assert [note["params"]["progress"] for note in told] == expected, (kind, told)
        else:
            raise AssertionError(answer)

    async def run(self) -> None:
        steps = [self.several, self.several, self.pieces, self.leave, self.give_up]
        if self.era == "session":
            steps += [self.cancel, self.repeat, self.end]
            if self.behind == "direct":
                steps.append(self.asked)
        await self.connect()
        try:
            for _ in range(STEPS):
                await self.dice.choice(steps)()
            if self.session is not None:
                await self.delete()
        finally:
            await self._lines.aclose()

    async def several(self) -> None:
        """Send several requests without waiting for the responses."""
        sent = []
        for _ in range(self.dice.choice((1, 1, 1, 2, 4))):
            kind = self.dice.choice(KINDS)
            number, who, data = self.call(kind)
            sent.append((kind, number, who))
            self.line.send(data)
        for kind, number, who in sent:
            self.check(await self.line.answer(), kind, number, who, (200,))

    async def pieces(self) -> None:
        kind = self.dice.choice(KINDS)
        number, who, data = self.call(kind)
        while data:
            cut = self.dice.randrange(1, len(data) + 1)
            self.line.send(data[:cut])
            data = data[cut:]
            await asyncio.sleep(0)
        self.check(await self.line.answer(), kind, number, who, (200,))

    async def leave(self) -> None:
        """Disconnect within a head, within a body, or during a call."""
        _, _, data = self.call(self.dice.choice(("echo", "chatty", "late", "never")))
        self.line.send(data[: self.dice.choice((20, len(data) - 5, len(data)))])
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)
        await self.connect()

    async def give_up(self) -> None:
        """Make the upstream server close its connection before the response."""
        if self.behind == "direct":
            return
        if self.dice.random() < 0.3:
            number, who, data = self.call("die")
            self.line.send(data)
            self.check(await self.line.answer(), "die", number, who, (200,))

    async def cancel(self) -> None:
        """Cancel before the response, after it, or at the same time."""
        kind = self.dice.choice(("never", "late", "echo", "chatty"))
        number, who, data = self.call(kind)
        self.line.send(data)
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)
        told = {"method": "notifications/cancelled", "params": {"requestId": number}}
        await self.tell(told)
        if kind == "never":
            # repeated because the first cancellation may have arrived before the request
            await self.tell(told)
        got = await self.line.answer()
        *_, last = messages(got)
        if last.get("error", {}).get("code") == REQUEST_CANCELLED:
            assert last["id"] == number, (last, number)
            return
        self.check(got, kind, number, who, (200,))

    async def repeat(self) -> None:
        """Use an id twice at the same time: one of the requests may be rejected."""
        number, who, data = self.call("late")
        async with line_to(self.web) as other:
            self.line.send(data)
            other.send(data)
            got = [await line.answer() for line in (self.line, other)]
        for one in got:
            if one.status == 200:
                self.check(one, "late", number, who, (200,))
        assert sorted(one.status for one in got) in ([200, 200], [200, 400])

    async def end(self) -> None:
        """End the session during a call."""
        kind = self.dice.choice(("never", "late", "chatty"))
        _, _, data = self.call(kind)
        self.line.send(data)
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)
        await self.delete()
        got = await self.line.answer()
        assert got.status in (200, 202, 404), got.status
        await self.connect()

    async def delete(self) -> None:
        async with line_to(self.web) as line:
            line.send(request(line="DELETE /mcp HTTP/1.1", body=b"", session=self.session))
            assert (await line.answer()).status == 200
        self.session = None

    async def asked(self) -> None:
        """Answer an elicitation that arrives before the response to a call."""
        await self.delete()
        body = json.dumps(introduction(elicitation={"form": {}})).encode()
        async with line_to(self.web) as line:
            line.send(request(body=body, session={}))
            named = (await line.answer()).fields["mcp-session-id"]
        self.session = {"Mcp-Session-Id": named, "MCP-Protocol-Version": "2025-11-25"}
        await self.tell({"method": "notifications/initialized"})
        number, who, data = self.call("ask")
        self.line.send(data)
        async with asyncio.timeout(5):
            head = await self.line.reader.readuntil(b"\r\n\r\n")
            asking = b""
            while b"elicitation/create" not in asking or not asking.endswith(b"\n\n"):
                size = int(await self.line.reader.readline(), 16)
                asking += (await self.line.reader.readexactly(size + 2))[:-2]
        question = messages(Got(head, asking))[-1]
        await self.tell({"id": question["id"], "result": {"action": "decline"}})
        async with asyncio.timeout(5):
            rest = b""
            while size := int(await self.line.reader.readline(), 16):
                rest += (await self.line.reader.readexactly(size + 2))[:-2]
            await self.line.reader.readline()
        self.check(Got(head, rest), "ask", number, who, (200,))


def messages(got: Got) -> list[Any]:
    if got.body.startswith(b"{"):
        return [json.loads(got.body)]
    lines = got.body.decode().splitlines()
    events = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(event) for event in events if event]


def alive() -> list[Any]:
    """Return the calls that are still referenced."""
    gc.collect()
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, FastPathCall | _TaskedCall | _ForwardedCall)
    ]


SCENES = [
    *(("direct", "nobody", lane) for lane in (True, False)),
    *(("handshake", looking, True) for looking in ("nobody", "never waits", "both", "waits")),
    *(("stateless", looking, True) for looking in ("nobody", "never waits", "both")),
    ("handshake", "nobody", False),
]


async def storm(behind: str, looking: str, lane: bool) -> None:
    seed = f"{behind} {looking}"
    dice = random.Random(seed)
    async with target(behind, looking, dice) as served:
        async with serving(served, fast_path=lane, heartbeat=0.004) as web:
            clients = [
                Client(web, n, ("session", "stateless")[n % 2], behind, random.Random(f"{seed}{n}"))
                for n in range(CLIENTS)
            ]
            async with asyncio.TaskGroup() as group:
                for client in clients:
                    group.create_task(client.run())
            assert all(client.answered >= STEPS / 4 for client in clients)
            if isinstance(served, Relay):
                # wait until the relay has noticed the disconnected clients
                async with asyncio.timeout(10):
                    while served._sessions_by_peer or any(
                        connection.calls for connection in served.pool.connections
                    ):
                        await asyncio.sleep(0.002)


@pytest.mark.parametrize(("behind", "looking", "lane"), SCENES)
async def test_every_client_gets_its_own_responses_and_no_call_object_is_leaked(
    behind: str, looking: str, lane: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "fairlead")  # log records keep references to their origin
    # calls of earlier tests, which are referenced by log records that pytest keeps
    others = alive()
    await asyncio.create_task(storm(behind, looking, lane))
    assert [record.getMessage() for record in caplog.records] == []
    for _ in range(20):  # the loop still has to drop cancelled timers
        if len(alive()) <= len(others):
            break
        await asyncio.sleep(0.05)
    assert [one for one in alive() if one not in others] == []
