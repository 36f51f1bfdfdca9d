"""Servers that exit, hang or flood a relay, whose calls must all get a response."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway import Relay
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection import notification_outbox as outbox
from fairlead.wire import Notification
from tests.support.faulty_servers import Rough, nothing_left, until
from tests.support.line_sockets import listen_unix
from tests.support.raw_relay import ASKED, LIMIT, Client, scene


async def raw_client(relay: Relay, folder: Path, stack: Any) -> Client:
    place = str(folder / "s")
    await stack.enter_async_context(
        listen_unix(place, lambda c: relay.attach(c, ANONYMOUS) and None)
    )
    client = Client(*await asyncio.open_unix_connection(place))
    stack.push_async_callback(client.close)
    return client


async def call(client: Client, name: str = "whoami", **arguments: Any) -> dict[str, Any]:
    return await client.answer_to(client.ask("tools/call", {"name": name, "arguments": arguments}))


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_server_that_exits_during_a_call_is_restarted_for_the_next_call(
    tmp_path: Path, era: str
) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough", {"die": "tools/call", "grandchild": True}, {})
        relay = Relay(rough.entry, "rough", era="handshake")
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        if era == "handshake":
            await client.initialize()
            died, works = await call(client), await call(client)
        else:
            params = {"name": "whoami", "arguments": {}}
            died = await client.answer_to(client.stateless("tools/call", params))
            works = await client.answer_to(client.stateless("tools/call", params))
        assert died["error"]["data"] == {"source": "proxy", "server": "rough"}
        assert str(rough.pids[1]) in works["result"]["content"][0]["text"]


async def test_calls_of_a_hanging_server_time_out_and_the_server_is_killed_at_the_end(
    tmp_path: Path,
) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough", {"hang": "tools/call", "deaf": True})
        relay = Relay(rough.entry, "rough", era="handshake", call_timeout=0.2)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        await client.initialize()
        answers = [client.ask("tools/call", {"name": "whoami"}) for _ in range(3)]
        for one in answers:
            assert "did not answer within" in (await client.answer_to(one))["error"]["message"]
        await client.sync()


@pytest.mark.parametrize("plan", [{"hang": "initialize"}, {"exit": 3}, {"die": "initialize"}])
async def test_requests_to_a_server_that_does_not_start_get_errors_and_cause_few_starts(
    tmp_path: Path, plan: dict[str, Any]
) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough", plan)
        relay = Relay(rough.entry, "rough", era="handshake", connect_timeout=1.0)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        answer = await client.initialize()
        assert answer["error"]["data"]["source"] == "proxy"
        for _ in range(5):  # the server is not restarted for every request
            refused = await client.answer_to(client.stateless("tools/list"))
            assert refused["error"]["data"]["source"] == "proxy"
        assert len(rough.pids) <= 3


async def test_a_server_that_exits_after_the_handshake_is_not_restarted_endlessly(
    tmp_path: Path,
) -> None:
    program = tmp_path / "short.py"
    program.write_text(
        "import sys, json\n"
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if m.get('method') == 'server/discover':\n"
        "        e = {'code': -32601, 'message': 'no'}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'error': e}), flush=True)\n"
        "    elif m.get('method') == 'initialize':\n"
        "        r = {'protocolVersion': '2025-06-18', 'capabilities': {},\n"
        "             'serverInfo': {'name': 'x', 'version': '1'}}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
        "    else:\n"
        "        sys.exit(0)\n"
    )
    async with AsyncExitStack() as stack:
        relay = Relay({"command": sys.executable, "args": ["-S", "-E", str(program)]}, "short")
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        answer = await client.answer_to(client.stateless("tools/list"))
        assert answer["error"]["data"]["source"] == "proxy"
        assert len((tmp_path / "starts").read_text()) <= 3


async def test_a_server_that_closes_its_input_is_replaced(tmp_path: Path) -> None:
    program = tmp_path / "deaf.py"
    program.write_text(
        "import json, os, sys, time\n"
        f"starts = open({str(tmp_path / 'starts')!r}, 'a')\n"
        "print(os.getpid(), file=starts, flush=True)\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if m.get('method') == 'initialize':\n"
        "        r = {'protocolVersion': '2025-06-18', 'capabilities': {},\n"
        "             'serverInfo': {'name': 'x', 'version': '1'}}\n"
        "    elif m.get('method') == 'tools/call':\n"
        "        os.close(0)\n"
        "        time.sleep(60)\n"
        "    else:\n"
        "        r = {'tools': []}\n"
        "    if 'id' in m:\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        entry = {"command": sys.executable, "args": ["-S", "-E", str(program)]}
        relay = Relay(entry, "deaf", era="handshake")
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        await client.initialize()
        lost = client.ask("tools/call", {"name": "x"})
        assert "closed its input" in (await client.answer_to(lost))["error"]["message"]
        listed = client.ask("tools/list")
        assert (await client.answer_to(listed))["result"] == {"tools": []}
        assert len((tmp_path / "starts").read_text().splitlines()) == 2


@pytest.mark.covers("GTW-03")
async def test_invalid_repeated_and_unexpected_messages_are_ignored() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        call_id = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.send(b"not a message")
        server.send(b'{"jsonrpc":"2.0"}')
        server.send(b'{"jsonrpc":"2.0","id":"nobody","result":{}}')
        server.send(b'{"jsonrpc":"2.0","id":123456,"error":{"code":1,"message":"x"}}')
        server.send(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}')
        server.send(b"[]")
        server.tell("notifications/progress", {"progressToken": "nobody", "progress": 1})
        server.tell("notifications/cancelled", {"requestId": "nobody"})
        server.tell("notifications/progress", "no object")
        server.reply(request, {"content": [], "n": 1})
        server.reply(request, {"content": [], "n": 2})
        server.refuse(request, 1, "three")
        assert (await client.answer_to(call_id))["result"]["n"] == 1
        server.send(b'{"jsonrpc":"2.0","id":"s","method":"ping"}')
        assert (await server.answer_to("s"))["result"] == {}
        await client.sync()
        assert client.skipped == []


async def test_a_response_over_the_size_limit_fails_the_call() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        call_id = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.reply(request, {"big": "x" * (17 << 20)})
        error = (await client.answer_to(call_id))["error"]
        assert error["data"]["source"] == "proxy"
        call_id = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"n": 1})
        assert (await client.answer_to(call_id))["result"] == {"n": 1}


@pytest.mark.parametrize(
    "result",
    [b'{"n":NaN}', b'{"text":"\xff"}', b'{"n":1,}', b"[" * 100_000 + b"]" * 100_000],
    ids=["nan", "bad utf-8", "trailing comma", "too deep"],
)
@pytest.mark.parametrize("client_era", ["handshake", "stateless"])
async def test_an_unreadable_response_fails_the_call(client_era: str, result: bytes) -> None:
    async with scene() as place:
        if client_era == "handshake":
            client = await place.session()
            call_id = client.ask("tools/call", {"name": "x"})
        else:
            client = await place.client()
            call_id = client.stateless("tools/call", {"name": "x", "arguments": {}})
        server = await place.server()
        request = await server.method("tools/call")
        server.send(b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (request["id"], result))
        error = (await client.answer_to(call_id))["error"]
        assert error["message"] == "server 'raw' sent a message that cannot be read"
        assert error["data"] == {"source": "proxy", "server": "raw"}
        await client.sync()
        assert client.skipped == []


async def test_an_unreadable_client_response_fails_the_servers_request() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        server.ask("roots/list", None, "s1")
        question = await client.method("roots/list")
        client.send(b'{"jsonrpc":"2.0","id":%d,"result":{"n":NaN}}' % question["id"])
        assert (await server.answer_to("s1"))["error"]["data"]["source"] == "proxy"
        told = await client.until(lambda message: "error" in message)
        assert told["error"]["code"] == -32700
        # null, because the error does not answer a request of the client
        assert told.get("id") is None


async def test_a_flood_of_notifications_stays_in_order_and_does_not_block_calls() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        call_id = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        for n in range(5000):
            server.tell("notifications/vendor", {"n": n})
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(call_id)
        assert [m["params"]["n"] for m in client.skipped] == list(range(5000))


async def test_notifications_for_a_client_that_does_not_read_are_limited() -> None:
    async with scene() as place:
        slow, other = await place.session(), await place.client(limit=64 << 20)
        await other.initialize()
        server = await place.server()
        await slow.sync()
        session = next(iter(place.relay._sessions_by_peer.values()))
        waiting = session.outbox
        for _ in range(60):
            server.tell("notifications/vendor", {"big": "x" * 1_000_000})
        await server.sync()
        await until(lambda: waiting.dropped > 0)
        assert waiting.bytes <= outbox.MAX_BYTES + 1_100_000
        call_id = other.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"n": 1})
        assert (await other.answer_to(call_id))["result"] == {"n": 1}


async def test_closing_an_outbox_before_its_task_has_run_does_not_hang() -> None:
    async with scene() as place:
        client = await place.session()
        await client.sync()
        session = next(iter(place.relay._sessions_by_peer.values()))
        waiting = session.outbox
        waiting.enqueue((Notification("notifications/vendor"), None))
        session.outbox.close()  # closed before the outbox task has run
        async with asyncio.timeout(LIMIT):
            await session.outbox.flushed()
        waiting.enqueue((Notification("notifications/vendor"), None))
        assert (await client.read())["method"] == "notifications/vendor"


@pytest.mark.covers("GTW-05")
async def test_a_disconnect_cancels_only_the_calls_of_that_client() -> None:
    async with scene() as place:
        one, other = await place.session(), await place.session()
        server = await place.server()
        one.ask("tools/call", {"name": "one"}, 1)
        first = await server.method("tools/call")
        other.ask("tools/call", {"name": "other"}, 1)
        second = await server.method("tools/call")
        await one.close()
        told = await server.method("notifications/cancelled")
        assert told["params"]["requestId"] == first["id"]
        server.reply(first, {"whose": "one"})
        server.reply(second, {"whose": "other"})
        assert (await other.answer_to(1))["result"] == {"whose": "other"}


async def test_a_request_from_the_server_fails_when_its_client_disconnects() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        server.ask("roots/list", None, "s1")
        await client.method("roots/list")
        await client.close()
        answer = await server.answer_to("s1")
        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"]["source"] == "proxy"


async def test_a_request_from_the_server_times_out_if_the_client_does_not_respond() -> None:
    async with scene(input_timeout=0.1) as place:
        client = await place.session(ASKED)
        server = await place.server()
        server.ask("roots/list", None, "s1")
        await client.method("roots/list")
        answer = await server.answer_to("s1")
        assert "not answered" in answer["error"]["message"]
        await client.method("notifications/cancelled")


async def test_closing_a_relay_ends_every_pending_call() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        for n in range(5):
            client.ask("tools/call", {"name": "x"}, n)
            await server.method("tools/call")
        await place.relay.close()
        while await server.line():
            pass
        while await client.line():
            pass
        assert place.relay.pool.connections == []


async def test_a_closed_relay_opens_no_connections() -> None:
    async with scene() as place:
        await place.relay.close()
        near, far = memory_pair()
        peer = place.relay.attach(far, ANONYMOUS)
        await near.close()
        await peer.close()
        client = await place.client()
        answer = await client.initialize()
        assert answer["error"]["data"]["source"] == "proxy"
        assert place.servers == []
