"""Requests between a client and a server of the same era."""

import asyncio
from typing import Any

import pytest

from tests.support.raw_relay import LIMIT, SERVER_CAPABILITIES, members, scene, two_sessions


async def test_initialize_and_its_result_are_forwarded_with_unknown_members() -> None:
    offers: dict[str, Any] = {
        "instructions": "hé",
        "vendor": {"n": 9007199254740993},
        "capabilities": {**SERVER_CAPABILITIES, "vendor": {"deep": [1]}},
    }
    async with scene(offers=offers) as place:
        client = await place.client()
        params = (
            '{"protocolVersion":"2025-11-25","capabilities":{"vendor":{"n":1.50}},'
            '"clientInfo":{"name":"c","version":"1","vendor":1e400},"more":[1 ,2]}'
        )
        client.send(f'{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{params}}}')
        got = await client.line()
        server = await place.server()
        answered = members(members(got)["result"])
        assert answered["vendor"] == b'{"n": 9007199254740993}'
        assert b'"deep": [1]' in answered["capabilities"]
        assert server.seen[0]["params"]["more"] == [1, 2]
        client.send('{"jsonrpc":"2.0","method":"notifications/initialized","params":{"k":1.0}}')
        client.send('{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}')
        first, second = await server.line(), await server.line()
        assert members(first)["params"] == b'{"k":1.0}'
        assert members(second)["method"] == b'"notifications/roots/list_changed"'


@pytest.mark.covers("GTW-04")
async def test_client_and_server_use_the_older_protocol_version_of_the_server() -> None:
    async with scene(version="2025-03-26") as place:
        client = await place.client()
        answer = await client.initialize(version="2025-11-25")
        assert answer["result"]["protocolVersion"] == "2025-03-26"
        server = await place.server()
        await server.method("notifications/initialized")
        # The negotiated revision allows batches, whose requests are forwarded one by one.
        client.send('[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]')
        for name in "ab":
            server.reply(await server.method(name), {"was": name})
        answers = {m["id"]: m["result"]["was"] for m in (await client.read(), await client.read())}
        assert answers == {1: "a", 2: "b"}


async def test_results_from_a_newer_server_are_adapted_to_the_client_version() -> None:
    async with scene(version="2025-11-25") as place:
        client = await place.client()
        answer = await client.initialize(version="2024-11-05")
        assert answer["result"]["protocolVersion"] == "2024-11-05"
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        audio = {"type": "audio", "data": "aa", "mimeType": "audio/wav"}
        server.reply(await server.method("tools/call"), {"content": [audio]})
        got = await client.answer_to(call)
        assert got["result"]["content"][0]["type"] == "text"


@pytest.mark.covers("GTW-05")
async def test_log_messages_are_sent_only_to_the_client_whose_call_caused_them() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        await one.answer_to(one.ask("logging/setLevel", {"level": "error"}))
        await other.answer_to(other.ask("logging/setLevel", {"level": "info"}))
        assert server.seen[-1]["params"]["level"] == "info"
        await one.answer_to(one.ask("logging/setLevel", {"level": "warning"}))
        # the server keeps the lower level of the other session
        assert server.seen[-1]["params"]["level"] == "info"
        call = other.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.tell("notifications/message", {"level": "info", "data": "mine"})
        server.tell("notifications/message", {"level": "debug", "data": "too much"})
        second = one.ask("tools/call", {"name": "y"})
        another = await server.method("tools/call")
        server.tell("notifications/message", {"level": "emergency", "data": "whose?"})
        server.reply(request, {"content": []})
        await other.answer_to(call)
        server.tell("notifications/message", {"level": "warning", "data": "ones"})
        server.reply(another, {"content": []})
        await one.answer_to(second)
        assert [m["params"]["data"] for m in other.skipped] == ["mine"]
        assert [m["params"]["data"] for m in one.skipped] == ["ones"]


async def test_an_invalid_log_level_is_forwarded_so_that_the_server_rejects_it() -> None:
    async with scene(quiet={"logging/setLevel"}) as place:
        one, other, server = await two_sessions(place)
        await server.method("notifications/initialized")
        call = other.ask("logging/setLevel", {"level": "info"})
        server.reply(await server.method("logging/setLevel"), {})
        await other.answer_to(call)
        call = one.ask("logging/setLevel", {"level": "loud"})
        request = await server.method("logging/setLevel")
        assert request["params"]["level"] == "loud"
        server.refuse(request, -32602, "no such level")
        assert (await one.answer_to(call))["error"]["message"] == "no such level"


@pytest.mark.covers("GTW-05")
async def test_resource_updates_are_sent_only_to_subscribed_sessions() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for end, uri in ((one, "x:1"), (other, "x:2"), (one, "x:both"), (other, "x:both")):
            await end.answer_to(end.ask("resources/subscribe", {"uri": uri}))
        for uri in ("x:1", "x:2", "x:both"):
            server.tell("notifications/resources/updated", {"uri": uri})
        await server.sync()
        assert [(await one.read())["params"]["uri"] for _ in range(2)] == ["x:1", "x:both"]
        assert [(await other.read())["params"]["uri"] for _ in range(2)] == ["x:2", "x:both"]
        # The subscription at the server ends with its last subscriber.
        await one.answer_to(one.ask("resources/unsubscribe", {"uri": "x:both"}))
        assert not any(m.get("method") == "resources/unsubscribe" for m in server.seen)
        await other.answer_to(other.ask("resources/unsubscribe", {"uri": "x:both"}))
        assert server.seen[-1]["method"] == "resources/unsubscribe"
        await one.close()
        async with asyncio.timeout(LIMIT):
            while server.seen[-1].get("params", {}).get("uri") != "x:1":
                await asyncio.sleep(0.002)
        assert server.seen[-1]["method"] == "resources/unsubscribe"


async def test_a_session_gets_no_updates_after_a_refused_subscription() -> None:
    async with scene(quiet={"resources/subscribe"}) as place:
        one, other, server = await two_sessions(place)
        call = one.ask("resources/subscribe", {"uri": "x:1"})
        server.refuse(await server.method("resources/subscribe"), -32602, "no")
        assert (await one.answer_to(call))["error"]["message"] == "no"
        server.tell("notifications/resources/updated", {"uri": "x:1"})
        server.tell("notifications/tools/list_changed")
        assert (await one.read())["method"] == "notifications/tools/list_changed"
        assert (await other.read())["method"] == "notifications/tools/list_changed"


async def test_a_rejected_log_level_keeps_the_earlier_one_in_effect() -> None:
    async with scene(quiet={"logging/setLevel"}) as place:
        client = await place.client()
        await client.initialize()
        server = await place.server()
        first = client.ask("logging/setLevel", {"level": "debug"})
        server.reply(await server.method("logging/setLevel"), {})
        assert "result" in await client.answer_to(first)
        second = client.ask("logging/setLevel", {"level": "emergency"})
        server.refuse(await server.method("logging/setLevel"), -32603, "not now")
        assert "error" in await client.answer_to(second)
        server.tell("notifications/message", {"level": "debug", "data": "still here"})
        message = await client.method("notifications/message")
        assert message["params"]["data"] == "still here"


async def test_a_rejected_subscription_is_not_recorded() -> None:
    async with scene(quiet={"resources/subscribe"}) as place:
        client = await place.client()
        await client.initialize()
        server = await place.server()
        for uri, accepted in (("a://1", True), ("a://2", False), ("a://1", False)):
            request = client.ask("resources/subscribe", {"uri": uri})
            heard = await server.method("resources/subscribe")
            if accepted:
                server.reply(heard, {})
            else:
                server.refuse(heard, -32603, "not now")
            await client.answer_to(request)
        [connection] = place.relay.pool.connections
        # The refused second request does not end the first subscription.
        assert list(connection.uris) == ["a://1"]
        [session] = connection.sessions
        assert sorted(session.uris) == ["a://1"]


# Requests that need a capability which the client did not declare

ELICIT = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}


async def test_an_undeclared_request_is_forwarded_to_the_only_client_and_rejected_there() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        number = client.ask("tools/call", {"name": "x"})
        call = await server.method("tools/call")
        asked = server.ask("elicitation/create", ELICIT)
        client.refuse(await client.method("elicitation/create"), -32600, "not supported")
        assert (await server.answer_to(asked))["error"] == {
            "code": -32600,
            "message": "not supported",
        }
        server.reply(call, {"content": []})
        assert "result" in await client.answer_to(number)


async def test_an_undeclared_request_is_rejected_if_several_clients_share_the_connection() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        number = one.ask("tools/call", {"name": "x"})
        call = await server.method("tools/call")
        error = (await server.answer_to(server.ask("elicitation/create", ELICIT)))["error"]
        assert (error["code"], error["data"]) == (-32601, {"source": "proxy"})
        server.reply(call, {"content": []})
        assert "result" in await one.answer_to(number)
        await other.sync()
        assert (one.skipped, other.skipped) == ([], [])


async def test_a_method_outside_the_revision_of_the_only_client_is_rejected() -> None:
    async with scene(version="2024-11-05") as place:
        client = await place.session(version="2024-11-05")
        server = await place.server()
        error = (await server.answer_to(server.ask("elicitation/create", ELICIT)))["error"]
        assert (error["code"], error["data"]) == (-32601, {"source": "proxy"})
        await client.sync()
        assert client.skipped == []


# Progress and cancellations from clients that refer to unknown requests


def _naming(name: Any) -> list[tuple[str, Any]]:
    return [
        ("notifications/progress", {"progressToken": name, "progress": 0.5}),
        ("notifications/cancelled", {"requestId": name}),
    ]


@pytest.mark.parametrize(
    ("name", "alone", "forwarded"), [("own", True, True), (9, True, False), ("own", False, False)]
)
async def test_unknown_progress_and_cancellations_with_a_string_id_are_forwarded(
    name: Any, alone: bool, forwarded: bool
) -> None:
    """A number may be an id that the relay uses, and other clients may use the same string."""
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        if not alone:
            await place.session()
        for method, params in _naming(name):
            client.tell(method, params)
        number = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"content": []})
        await client.answer_to(number)
        heard = [(one["method"], one.get("params")) for one in server.skipped]
        expected = _naming(name) if forwarded else []
        assert [one for one in heard if one[0] != "notifications/initialized"] == expected
