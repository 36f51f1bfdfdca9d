"""Stateless clients with stateless servers and with handshake servers."""

import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, Raw, structs

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import ConnectFailed, FairleadError, RpcError
from fairlead.gateway import Relay, RelaySettings
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.protocol.sealed_state import KeyRing
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.bridge.stateless_to_handshake import StatelessToHandshake
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.upstream.connection.caller_subscriptions import CallerSubscriptions
from fairlead.upstream.connection.upstream_connection import Turn, TurnLock
from fairlead.wire import to_json
from tests.support.raw_relay import ASKED, META, Client, Scene, Server, members, scene
from tests.support.single_exchange import exchange

SUBSCRIPTION = f"{META}subscriptionId"


async def asked(place: Scene, client: Client, method: str, **params: Any) -> tuple[Any, Server]:
    call = client.stateless(method, params)
    return call, await place.server()


def listen(client: Client, **wanted: Any) -> Any:
    return client.stateless("subscriptions/listen", {"notifications": wanted})


@pytest.mark.covers("GTW-03")
async def test_clients_with_the_same_request_ids_get_their_own_responses() -> None:
    async with scene("stateless") as place:
        one, other = await place.client(), await place.client()
        for client, name in ((one, "one"), (other, "other")):
            stamp = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
            params = {"name": name, "_meta": {**stamp, "progressToken": "t"}}
            client.ask("tools/call", params, 1)
        server = await place.server()
        for _ in range(2):
            request = await server.method("tools/call")
            token = request["params"]["_meta"]["progressToken"]
            server.tell("notifications/progress", {"progressToken": token, "progress": token})
            server.reply(request, {"resultType": "complete", "name": request["params"]["name"]})
        for client, name in ((one, "one"), (other, "other")):
            assert (await client.answer_to(1))["result"]["name"] == name
            assert [m["params"]["progressToken"] for m in client.skipped] == ["t"]
        assert len(place.servers) == 1


async def test_input_requests_and_their_state_are_forwarded_unchanged() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        call = client.stateless("tools/call", {"name": "x"}, ASKED)
        server = await place.server()
        request = await server.method("tools/call")
        result = '{"resultType":"input_required","requestState":"\\u0041/\\/","inputRequests":{}}'
        server.send(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{result}}}')
        assert members(await client.line())["result"] == result.encode()
        params = {"name": "x", "requestState": "A//", "inputResponses": {"a": {"n": 1}}}
        client.stateless("tools/call", params, ASKED)
        request = await server.method("tools/call")
        assert request["params"]["requestState"] == "A//"
        assert request["params"]["inputResponses"] == {"a": {"n": 1}}
        assert call


async def test_a_log_message_is_forwarded_only_if_one_request_is_pending() -> None:
    async with scene("stateless") as place:
        one, other = await place.client(), await place.client()
        level = {f"{META}logLevel": "info"}
        call = one.stateless("tools/call", {"name": "x"}, **level)
        server = await place.server()
        first = await server.method("tools/call")
        assert first["params"]["_meta"][f"{META}logLevel"] == "info"
        server.tell("notifications/message", {"level": "info", "data": 1})
        second = other.stateless("tools/call", {"name": "y"}, **level)
        request = await server.method("tools/call")
        server.tell("notifications/message", {"level": "info", "data": "whose?"})
        server.reply(first, {"resultType": "complete"})
        server.reply(request, {"resultType": "complete"})
        await one.answer_to(call)
        await other.answer_to(second)
        assert [m["params"]["data"] for m in one.skipped] == [1]
        assert other.skipped == []


async def test_client_and_server_have_different_ids_for_a_subscription() -> None:
    async with scene("stateless") as place:
        one, other = await place.client(), await place.client()
        subscription = listen(one, toolsListChanged=True)
        server = await place.server()
        request = await server.method("subscriptions/listen")
        another = listen(other, toolsListChanged=True)
        second = await server.method("subscriptions/listen")
        tag = {SUBSCRIPTION: request["id"]}
        acknowledged = {"notifications": {"toolsListChanged": True}, "_meta": tag}
        server.tell("notifications/subscriptions/acknowledged", acknowledged)
        server.tell("notifications/tools/list_changed", {"_meta": {**tag, "vendor": 1}})
        got = await one.method("notifications/subscriptions/acknowledged")
        assert got["params"]["_meta"] == {SUBSCRIPTION: subscription}
        got = await one.method("notifications/tools/list_changed")
        assert got["params"]["_meta"] == {SUBSCRIPTION: subscription, "vendor": 1}
        # A server can end a subscription with a result or by cancelling it.
        server.tell("notifications/cancelled", {"requestId": request["id"]})
        ended = (await one.answer_to(subscription))["result"]
        assert ended["_meta"] == {SUBSCRIPTION: subscription}
        server.reply(second, {"resultType": "complete", "_meta": {SUBSCRIPTION: second["id"]}})
        ended = (await other.answer_to(another))["result"]
        assert ended["_meta"] == {SUBSCRIPTION: another}


async def test_a_subscription_that_the_client_ends_is_cancelled_at_the_server() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        subscription = listen(client, toolsListChanged=True)
        server = await place.server()
        request = await server.method("subscriptions/listen")
        client.tell("notifications/cancelled", {"requestId": subscription})
        told = await server.method("notifications/cancelled")
        assert told["params"]["requestId"] == request["id"]


async def test_an_unknown_notification_is_forwarded_while_one_request_is_pending() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        call, server = await asked(place, client, "vendor/x")
        request = await server.method("vendor/x")
        server.tell("notifications/vendor", {"n": 1})
        client.tell("notifications/vendor", {"n": 2})
        assert (await server.method("notifications/vendor"))["params"] == {"n": 2}
        server.reply(request, {"resultType": "complete"})
        await client.answer_to(call)
        assert [m["params"] for m in client.skipped] == [{"n": 1}]


# Stateless clients that subscribe to changes of a handshake server


async def test_changes_of_a_handshake_server_are_sent_to_subscribed_clients() -> None:
    async with scene() as place:
        one, other = await place.client(), await place.client()
        subscription = listen(one, toolsListChanged=True, resourceSubscriptions=["x:1"])
        server = await place.server()
        got = await one.method("notifications/subscriptions/acknowledged")
        assert got["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["x:1"],
        }
        second = listen(other, promptsListChanged=True, resourceSubscriptions=["x:1", "x:2"])
        got = await other.method("notifications/subscriptions/acknowledged")
        assert got["params"]["notifications"] == {"resourceSubscriptions": ["x:1", "x:2"]}
        asked_for = [m["params"]["uri"] for m in server.seen if m["method"].endswith("/subscribe")]
        assert asked_for == ["x:1", "x:2"]
        server.tell("notifications/resources/updated", {"uri": "x:1"})
        server.tell("notifications/tools/list_changed")
        for client, tag in ((one, subscription), (other, second)):
            got = await client.method("notifications/resources/updated")
            assert got["params"] == {"uri": "x:1", "_meta": {SUBSCRIPTION: tag}}
        assert (await one.method("notifications/tools/list_changed"))["params"] == {
            "_meta": {SUBSCRIPTION: subscription}
        }
        # The subscription at the server ends with its last subscriber.
        other.tell("notifications/cancelled", {"requestId": second})
        await server.heard("resources/unsubscribe", "x:2")
        await other.answer_to(other.stateless("server/discover"))
        assert sum(m["method"] == "resources/unsubscribe" for m in server.seen) == 1
        one.tell("notifications/cancelled", {"requestId": subscription})
        await server.heard("resources/unsubscribe", "x:1")


async def test_a_resource_whose_subscription_is_refused_is_not_acknowledged() -> None:
    async with scene(quiet={"resources/subscribe"}) as place:
        client = await place.client()
        listen(client, toolsListChanged=True, resourceSubscriptions=["x:1", "x:2"])
        server = await place.server()
        for _ in range(2):
            request = await server.method("resources/subscribe")
            if request["params"]["uri"] == "x:1":
                server.refuse(request, -32602, "no")
            else:
                server.reply(request, {})
        got = await client.method("notifications/subscriptions/acknowledged")
        assert got["params"]["notifications"] == {
            "toolsListChanged": True,
            "resourceSubscriptions": ["x:2"],
        }


async def test_a_subscription_ends_when_the_server_disconnects() -> None:
    async with scene() as place:
        client = await place.client()
        subscription = listen(client, toolsListChanged=True)
        server = await place.server()
        await client.method("notifications/subscriptions/acknowledged")
        await server.close()
        ended = await client.answer_to(subscription)
        assert ended["result"]["_meta"] == {SUBSCRIPTION: subscription}
        listen(client, toolsListChanged=True)
        await place.server()
        await client.method("notifications/subscriptions/acknowledged")


async def test_a_list_change_during_a_call_is_sent_only_to_subscriptions() -> None:
    async with scene() as place:
        client = await place.client()
        subscription = listen(client, toolsListChanged=True)
        server = await place.server()
        await client.method("notifications/subscriptions/acknowledged")
        call = client.stateless("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.tell("notifications/tools/list_changed")
        got = await client.method("notifications/tools/list_changed")
        assert got["params"]["_meta"] == {SUBSCRIPTION: subscription}
        server.reply(request, {"content": []})
        await client.answer_to(call)
        assert client.skipped == []


async def test_a_call_continues_if_the_server_refuses_the_log_level() -> None:
    async with scene(quiet={"logging/setLevel"}) as place:
        client = await place.client()
        call = client.stateless("tools/call", {"name": "x"}, **{f"{META}logLevel": "debug"})
        server = await place.server()
        server.refuse(await server.method("logging/setLevel"), -32603, "no")
        server.reply(await server.method("tools/call"), {"content": []})
        assert (await client.answer_to(call))["result"]["content"] == []


async def test_results_and_errors_of_the_handshake_era_are_converted() -> None:
    async with scene() as place:
        client = await place.client()
        call, server = await asked(place, client, "tools/list")
        tool = {"name": "t", "inputSchema": {}, "execution": {"taskSupport": "optional"}}
        server.reply(await server.method("tools/list"), {"tools": [tool], "vendor": 1})
        result = (await client.answer_to(call))["result"]
        assert result["resultType"] == "complete"
        assert result["cacheScope"] == "private"
        assert result["vendor"] == 1
        assert result["tools"] == [{"name": "t", "inputSchema": {}}]
        assert result["_meta"] == {f"{META}serverInfo": {"name": "raw", "version": "1"}}
        call = client.stateless("resources/read", {"uri": "x:1"})
        server.refuse(await server.method("resources/read"), -32002, "gone", {"uri": "x:1"})
        error = (await client.answer_to(call))["error"]
        assert error == {"code": -32602, "message": "gone", "data": {"uri": "x:1"}}
        call = client.stateless("vendor/x")
        server.refuse(await server.method("vendor/x"), -32050, "mine", {"n": 1})
        error = (await client.answer_to(call))["error"]
        assert error["code"] == -32603
        assert error["data"]["original"] == {"code": -32050, "message": "mine", "data": {"n": 1}}
        for gone in ("ping", "logging/setLevel", "resources/subscribe", "tasks/list"):
            refused = await client.answer_to(client.stateless(gone))
            assert refused["error"]["code"] == -32601


async def test_a_server_that_exits_during_the_probe_is_restarted_with_initialize() -> None:
    program = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if m.get('method') == 'server/discover': sys.exit(1)\n"
        "    r = {'tools': []}\n"
        "    if m.get('method') == 'initialize':\n"
        "        r = {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}},\n"
        "             'serverInfo': {'name': 'x', 'version': '1'}}\n"
        "    if 'id' in m:\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "shy.py"
        place.write_text(program)
        relay = Relay({"command": sys.executable, "args": ["-S", "-E", str(place)]}, "shy")
        try:
            async with MCPClient.connect_inprocess(relay) as client:
                assert client.protocol_version == "2026-07-28"
                assert await client.list_tools() == []
                assert relay.pool.opener.speaks_stateless is False
        finally:
            await relay.close()


@pytest.mark.parametrize("session", [True, False])
async def test_a_server_that_restarts_in_the_other_era_is_detected(session: bool) -> None:
    async with scene() as place:
        client = await place.session() if session else await place.client()
        if session:
            await place.server()
        for era in ("handshake", "stateless"):
            place.era = era
            for server in place.servers:
                await server.close()
            call = client.ask("tools/list") if session else client.stateless("tools/list")
            server = await place.server()
            if session and era == "stateless":
                request = await server.method("subscriptions/listen")
                server.refuse(request, -32601, "Method not found")
            server.reply(await server.method("tools/list"), {"tools": []})
            assert (await client.answer_to(call))["result"]["tools"] == []


@pytest.mark.parametrize("share", ["alike", "session"])
async def test_a_process_that_rejects_the_handshake_is_not_started_again(
    tmp_path: Path, share: Any
) -> None:
    starts = tmp_path / "starts"
    program = (
        "import sys, json\n"
        f"open({str(starts)!r}, 'a').write('x')\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' not in m: continue\n"
        "    a = {'error': {'code': -32601, 'message': 'Method not found'}}\n"
        "    if m['method'] == 'server/discover':\n"
        "        a = {'result': {'resultType': 'complete', 'supportedVersions': ['2026-07-28'],\n"
        "             'capabilities': {'tools': {}}}}\n"
        "    elif m['method'] == 'tools/list':\n"
        "        a = {'result': {'resultType': 'complete', 'tools': []}}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], **a}), flush=True)\n"
    )
    place = tmp_path / "strict.py"
    place.write_text(program)
    entry = {"command": sys.executable, "args": ["-S", "-E", str(place)]}
    relay = Relay(entry, "strict", share=share)
    config = MCPClientConfig(protocol_version="2025-11-25")
    try:
        for _ in range(2):
            async with MCPClient.connect_inprocess(relay, config) as client:
                assert await client.list_tools() == []
        assert relay.pool.opener.speaks_handshake is False
        assert starts.read_text() == "x"
    finally:
        await relay.close()


async def test_a_process_that_exits_before_it_reads_the_probe_is_not_started_again(
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"
    program = f"import sys; open({str(starts)!r}, 'a').write('x'); sys.exit(7)"
    entry = {"command": sys.executable, "args": ["-S", "-E", "-c", program]}
    relay = Relay(entry, "broken")
    try:
        with pytest.raises(FairleadError, match="exited with code 7"):
            async with MCPClient.connect_inprocess(relay) as client:
                await client.list_tools()
        assert starts.read_text() == "x"
        with pytest.raises(ConnectFailed, match="exited with code 7"):
            await MCPClient.connect_entry(entry)
        assert starts.read_text() == "xx"
    finally:
        await relay.close()


# The bridge, tested without connections


class OneConnection:
    """Fake connection to a handshake server that returns given results."""

    preparing = 0

    def __init__(
        self, capabilities: bytes = b'{"logging":{},"resources":{"subscribe":true}}'
    ) -> None:
        self.name = "raw"
        self.server_info = b'{"name":"raw","version":"1"}'
        self.agreement = Agreement(revision=NEWEST_HANDSHAKE, capabilities=capabilities)
        self.level: str | None = None
        self.uris: dict[str, set[Any]] = {}
        self.interceptors: tuple[Any, ...] = ()
        self.changes: Any = None
        self.stream_count = 0
        self.alive = True
        self.peer = self
        self.asked: list[Any] = []
        self.passed: list[Any] = []
        self.refused: set[str] = set()
        self.result: Raw | Exception = Raw(b'{"content":[]}')
        self.goes_on: asyncio.Event | None = None

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, *params.values()))
        if params.get("uri") in self.refused:
            raise RpcError(-32602, "no")

    def background(self, work: Any) -> None:
        with contextlib.suppress(StopIteration):
            work.send(None)

    async def pass_on(self, call: Any, passing: Any, *, timeout: float, turn: Any = None) -> Raw:
        params = passing.fill(9)
        self.passed.append(None if params is UNSET else json.loads(bytes(params)))
        self.passed.append((timeout, turn))
        if self.goes_on is not None:
            await self.goes_on.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Bridged:
    """A bridge with a connection and a turn for calls that may need input."""

    def __init__(self, connection: OneConnection | None = None, **settings: Any) -> None:
        self.connection: Any = connection or OneConnection()
        self.settings = RelaySettings(**settings)
        self.turns = TurnLock()
        self.turn: Turn | None = self.turns.try_take("me")
        self.other: Any = OneConnection()
        self.busy = False
        pool: Any = self
        self.parked = ParkedCalls(self.settings.max_parked, KeyRing())
        self.quota = SubscriptionQuota()
        self.callers = CallerSubscriptions(list, lambda connection, caller: False)
        self.bridge = StatelessToHandshake(pool, self.parked, self.quota)

    async def for_asking(self, caller: Any) -> Any:
        if self.busy:
            raise TimeoutError
        return self.other, self.turn

    async def ask(self, method: str = "tools/call", params: Any = None, **about: Any) -> Any:
        given = {"name": "x"} if params is None else params
        asked = exchange(method, given, **about)
        answer = await self.bridge.answer(asked, None, self.connection)
        return json.loads(bytes(answer or b""))


ASKABLE = b'{"roots":{}}'


@pytest.mark.parametrize(
    "method",
    [
        *("initialize", "ping", "logging/setLevel"),
        *("resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result"),
    ],
)
async def test_session_methods_are_unknown_to_stateless_clients(method: str) -> None:
    bridged = Bridged()
    with pytest.raises(RpcError, match=f"Method not found: {method}") as refused:
        await bridged.ask(method)
    assert (refused.value.code, bridged.connection.passed) == (-32601, [])


@pytest.mark.parametrize(
    ("method", "capabilities", "own"),
    [
        ("tools/call", ASKABLE, True),
        ("prompts/get", ASKABLE, True),
        ("resources/read", ASKABLE, True),
        ("tools/list", ASKABLE, False),
        ("tools/call", b"{}", False),
        ("vendor/x", ASKABLE, False),
    ],
)
async def test_calls_that_may_need_input_have_their_own_connection(
    method: str, capabilities: bytes, own: bool
) -> None:
    bridged = Bridged(call_timeout=7.0)
    answer = await bridged.ask(method, capabilities=capabilities)
    assert (answer["content"], answer["resultType"]) == ([], "complete")
    used, unused = (
        (bridged.other, bridged.connection) if own else (bridged.connection, bridged.other)
    )
    assert used.passed == [{"name": "x"}, (7.0, bridged.turn if own else None)]
    assert unused.passed == []
    assert bridged.turns.free is own
    assert len(bridged.parked) == 0


async def test_the_turn_of_a_call_that_was_never_sent_is_released() -> None:
    bridged = Bridged()
    bridged.other.goes_on = asyncio.Event()
    asking = asyncio.create_task(bridged.ask(capabilities=ASKABLE))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait({asking})
    await asyncio.sleep(0)
    assert bridged.turns.free


async def test_a_connection_whose_calls_have_their_own_streams_needs_no_turns() -> None:
    bridged = Bridged()
    bridged.turn = None
    assert (await bridged.ask(capabilities=ASKABLE))["content"] == []


async def test_a_call_is_refused_if_all_connections_are_in_use() -> None:
    bridged = Bridged()
    bridged.busy = True
    with pytest.raises(
        RpcError, match="raw is busy: calls that may request input occupy all connections"
    ) as refused:
        await bridged.ask(capabilities=ASKABLE)
    assert refused.value.code == -32603
    assert (await bridged.ask(capabilities=b"{}"))["content"] == []


@pytest.mark.parametrize(
    ("params", "passed"),
    [
        ({"name": "x", "inputResponses": {"q1": {}}}, {"name": "x"}),
        ({"name": "x", "_meta": {"k": 1}}, {"name": "x", "_meta": {"k": 1}}),
    ],
)
async def test_params_that_exist_only_in_the_stateless_era_are_removed(
    params: Any, passed: Any
) -> None:
    bridged = Bridged()
    await bridged.ask(params=params)
    assert bridged.connection.passed[0] == passed


async def test_a_request_state_that_is_not_a_string_is_rejected() -> None:
    with pytest.raises(
        RpcError, match="requestState must be a string, as returned by the server"
    ) as refused:
        await Bridged().ask(params={"name": "x", "requestState": 7})
    assert refused.value.code == -32602


async def test_a_call_is_sent_again_after_a_page_visit() -> None:
    bridged = Bridged()
    pages = {"elicitations": [{"url": "https://x.example/"}, {"url": "https://y.example/"}]}
    error = {"code": -32042, "message": "visit", "data": pages}
    bridged.other.result = RpcError(-32042, "visit", raw=to_json(error))
    declared = b'{"elicitation":{"url":{}}}'
    first = await bridged.ask(capabilities=declared)
    assert list(first["inputRequests"]) == ["u1", "u2"]
    bridged.other.result = Raw(b'{"content":[]}')
    again = {"name": "x", "requestState": first["requestState"], "inputResponses": {"u1": {}}}
    assert (await bridged.ask(params=again, capabilities=declared))["content"] == []
    assert bridged.other.passed[2] == {"name": "x"}


async def test_the_log_level_is_set_before_the_request_is_sent() -> None:
    bridged = Bridged()
    meta = {"io.modelcontextprotocol/logLevel": "info"}
    asked = exchange("tools/list", {"_meta": meta})
    asked.caller = structs.replace(asked.caller, log_level="info")
    await bridged.bridge.answer(asked, None, bridged.connection)
    assert bridged.connection.asked == [("logging/setLevel", "info")]
    assert bridged.connection.passed[0] == {"_meta": {}}


async def test_errors_are_converted_to_the_era_of_the_client() -> None:
    bridged = Bridged()
    bridged.connection.result = RpcError(-32002, "gone")
    with pytest.raises(RpcError, match="gone") as refused:
        await bridged.ask("resources/read", {"uri": "a:1"})
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        (b'{"resources":{"subscribe":true}}', ["a:1", "b:1"]),
        (b'{"resources":{}}', []),
    ],
)
async def test_a_subscription_is_counted_while_it_is_open(
    capabilities: bytes, asked: list[str]
) -> None:
    bridged = Bridged(OneConnection(capabilities))
    connection = bridged.connection
    connection.refused = {"b:1"}
    wanted = {"notifications": {"resourceSubscriptions": ["a:1", "b:1"]}}
    listening = [asyncio.create_task(bridged.ask("subscriptions/listen", wanted)) for _ in range(2)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.stream_count == 2
    assert [uri for _, uri in connection.asked][:2] == asked
    assert {uri: len(who) for uri, who in connection.uris.items()} == ({"a:1": 2} if asked else {})
    assert bridged.quota.uris.total == 2 * len(asked)
    first = connection.changes
    listening[0].cancel()
    await asyncio.wait({listening[0]})
    assert connection.stream_count == 1
    connection.changes.stop()
    assert (await listening[1])["resultType"] == "complete"
    assert (connection.stream_count, connection.uris, bridged.quota.uris.total) == (0, {}, 0)
    assert connection.changes is first
    unwatched = [uri for method, uri in connection.asked if method == "resources/unsubscribe"]
    assert unwatched == (["a:1"] if asked else [])
