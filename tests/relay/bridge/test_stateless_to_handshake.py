"""Stateless clients and stateless servers, and stateless clients that listen to the others."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.gateway import Relay
from tests.support.raw_relay import ASKED, META, Client, Scene, Server, members, scene

SUBSCRIPTION = f"{META}subscriptionId"


async def asked(place: Scene, client: Client, method: str, **params: Any) -> tuple[Any, Server]:
    call = client.stateless(method, params)
    return call, await place.server()


def listen(client: Client, **wanted: Any) -> Any:
    return client.stateless("subscriptions/listen", {"notifications": wanted})


@pytest.mark.covers("GTW-03")
async def test_clients_with_the_same_ids_share_a_server_and_nothing_else() -> None:
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


async def test_rounds_and_their_state_pass_untouched() -> None:
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


async def test_logs_go_with_the_only_request_or_nowhere() -> None:
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


async def test_a_subscription_passes_with_each_sides_own_id() -> None:
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
        # Each way in which a server ends one is the end of it.
        server.tell("notifications/cancelled", {"requestId": request["id"]})
        ended = (await one.answer_to(subscription))["result"]
        assert ended["_meta"] == {SUBSCRIPTION: subscription}
        server.reply(second, {"resultType": "complete", "_meta": {SUBSCRIPTION: second["id"]}})
        ended = (await other.answer_to(another))["result"]
        assert ended["_meta"] == {SUBSCRIPTION: another}


async def test_a_subscription_that_the_client_ends_ends_at_the_server() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        subscription = listen(client, toolsListChanged=True)
        server = await place.server()
        request = await server.method("subscriptions/listen")
        client.tell("notifications/cancelled", {"requestId": subscription})
        told = await server.method("notifications/cancelled")
        assert told["params"]["requestId"] == request["id"]


async def test_a_notification_nobody_knows_passes_while_only_one_is_served() -> None:
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


# Stateless clients that listen to a server with a handshake.


async def test_changes_of_a_server_with_a_handshake_are_told_to_those_who_listen() -> None:
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
        # Only the last one to go ends the subscription.
        other.tell("notifications/cancelled", {"requestId": second})
        await server.heard("resources/unsubscribe", "x:2")
        await other.answer_to(other.stateless("server/discover"))
        assert sum(m["method"] == "resources/unsubscribe" for m in server.seen) == 1
        one.tell("notifications/cancelled", {"requestId": subscription})
        await server.heard("resources/unsubscribe", "x:1")


async def test_a_resource_that_the_server_does_not_tell_of_is_not_acknowledged() -> None:
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


async def test_who_listens_hears_when_the_server_has_gone() -> None:
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


async def test_a_list_that_changes_during_a_call_is_told_to_who_listens_only() -> None:
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


async def test_a_server_that_refuses_a_log_level_answers_all_the_same() -> None:
    async with scene(quiet={"logging/setLevel"}) as place:
        client = await place.client()
        call = client.stateless("tools/call", {"name": "x"}, **{f"{META}logLevel": "debug"})
        server = await place.server()
        server.refuse(await server.method("logging/setLevel"), -32603, "no")
        server.reply(await server.method("tools/call"), {"content": []})
        assert (await client.answer_to(call))["result"]["content"] == []


async def test_results_and_refusals_of_the_handshake_era_are_put_into_new_words() -> None:
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


async def test_a_server_that_dies_of_a_first_word_it_does_not_know_gets_the_one_it_does() -> None:
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
                assert relay.upstream.speaks_stateless is False
        finally:
            await relay.close()


@pytest.mark.parametrize("session", [True, False])
async def test_a_server_that_comes_back_in_the_other_era_is_found_out_about(session: bool) -> None:
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


@pytest.mark.parametrize("upstream", ["shared", "per-session"])
async def test_a_process_that_refuses_the_handshake_is_not_started_once_more(
    tmp_path: Path, upstream: Any
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
    relay = Relay(entry, "strict", upstream=upstream)
    config = MCPClientConfig(protocol_version="2025-11-25")
    try:
        for _ in range(2):
            async with MCPClient.connect_inprocess(relay, config) as client:
                assert await client.list_tools() == []
        assert relay.upstream.speaks_handshake is False
        assert starts.read_text() == "x"
    finally:
        await relay.close()


async def test_a_process_that_never_read_the_probe_is_not_started_once_more(
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
