"""Tests of access rules, including denied server requests in each era and between eras."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import RpcError
from fairlead.gateway import Gateway
from fairlead.policy.actions import Allow
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import BOTH, LIMIT, config, make, serving
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene

SAMPLING, ELICITING = "sampling/createMessage", "elicitation/create"
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
ACCEPT: dict[str, Any] = {"action": "accept", "content": {}}
WORDS = f"{SAMPLING} is not allowed here"


def denying(*methods: str) -> Allow:
    return Allow(deny_methods=methods)


async def opened(place: Scene) -> tuple[Client, Server]:
    client = await place.session(ASKED)
    server = await place.server()
    if place.era == "handshake":
        await server.method("notifications/initialized")
    return client, server


def wanted(**questions: str) -> dict[str, Any]:
    asked = {
        key: {"method": method, "params": SAMPLE if method == SAMPLING else FORM}
        for key, method in questions.items()
    }
    return {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("as_rule", [False, True])
async def test_denied_requests_and_notifications_from_a_server_are_rejected(as_rule: bool) -> None:
    denied = [SAMPLING, "notifications/message"]
    rule = {"do": {"access": {"deny_methods": denied}}}
    access = RuleSet.of_data({"rules": [rule]}) if as_rule else denying(*denied)
    async with scene(interceptors=[access]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        error = (await server.answer_to(server.ask(SAMPLING, SAMPLE)))["error"]
        assert (error["message"], error["data"]["source"]) == (WORDS, "proxy")
        asked = server.ask(ELICITING, FORM)
        client.reply(await client.method(ELICITING), ACCEPT)
        assert (await server.answer_to(asked))["result"] == ACCEPT
        server.tell("notifications/message", {"level": "info", "data": "x"})
        server.tell("notifications/tools/list_changed")
        server.reply(request, {"content": []})
        await client.answer_to(call)
        heard = [message["method"] for message in client.skipped]
        assert heard == ["notifications/tools/list_changed"]


async def test_allow_patterns_do_not_apply_to_messages_from_servers() -> None:
    access = Allow(["fs_*"], ["*_delete"], methods=["initialize", "notifications/*", "tools/*"])
    async with scene(interceptors=[access]) as place:
        client, server = await opened(place)
        client.ask("tools/call", {"name": "fs_read"})
        await server.method("tools/call")
        asked = server.ask(ELICITING, {**FORM, "name": "fs_delete"})
        client.reply(await client.method(ELICITING), ACCEPT)
        assert (await server.answer_to(asked))["result"] == ACCEPT


async def test_a_cached_decision_applies_only_to_one_direction() -> None:
    access = Allow(["a"], deny_methods=[SAMPLING])
    async with scene(interceptors=[access]) as place:
        client, server = await opened(place)
        asked = server.ask("vendor/ask", {"name": "b"})
        client.reply(await client.method("vendor/ask"), {})
        await server.answer_to(asked)
        refused = await client.answer_to(client.ask("vendor/ask", {"name": "b"}))
        assert refused["error"]["message"] == "b is not allowed here"


@pytest.mark.parametrize(
    "result",
    [
        wanted(a=SAMPLING),
        wanted(a=ELICITING, b=SAMPLING),
        json.dumps(wanted(a=SAMPLING)).replace("inputRequests", r"input\u0052equests"),
        json.dumps(wanted(a=SAMPLING)).replace("sampling/", r"s\u0061mpling\/"),
    ],
)
async def test_a_result_with_a_denied_input_request_is_refused(result: Any) -> None:
    async with scene("stateless", interceptors=[denying("sampling/*")]) as place:
        client = await place.client()
        text = result if isinstance(result, str) else json.dumps(result)
        for _ in range(2):  # Repeat the call: the decision about it is now cached.
            call = client.stateless("tools/call", {"name": "x"}, ASKED)
            server = place.servers[0] if place.servers else await place.server()
            request = await server.method("tools/call")
            server.send(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{text}}}')
            error = (await client.answer_to(call))["error"]
            assert (error["message"], error["data"]["source"]) == (WORDS, "proxy")


@pytest.mark.parametrize("last", [json.dumps(wanted(a=ELICITING)["inputRequests"]), "null"])
async def test_an_input_request_with_a_duplicate_name_is_refused(last: str) -> None:
    async with scene("stateless", interceptors=[denying(SAMPLING)]) as place:
        client = await place.client()
        call = client.stateless("tools/call", {"name": "x"}, ASKED)
        server = await place.server()
        request = await server.method("tools/call")
        first = json.dumps(wanted(a=SAMPLING)["inputRequests"])
        said = f'"inputRequests":{first},"inputRequests":{last},"resultType":"input_required"'
        server.send(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{{{said}}}}}')
        error = (await client.answer_to(call))["error"]
        assert "duplicate member name" in error["message"]


async def test_results_without_denied_input_requests_pass_unchanged() -> None:
    async with scene("stateless", interceptors=[denying(SAMPLING)]) as place:
        client = await place.client()
        text = {"type": "text", "text": f'ü "inputRequests" {SAMPLING}'}
        complete = {"resultType": "complete", "content": [text], "inputRequests": None}
        for result in (wanted(a=ELICITING), complete):
            call = client.stateless("tools/call", {"name": "x"}, ASKED)
            server = place.servers[0] if place.servers else await place.server()
            server.reply(await server.method("tools/call"), result)
            assert (await client.answer_to(call))["result"] == result


async def test_a_denied_request_from_a_stateless_server_does_not_reach_a_session_client() -> None:
    async with scene("stateless", interceptors=[denying(SAMPLING)]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), wanted(a=SAMPLING))
        assert (await client.answer_to(call))["error"]["message"] == WORDS
        assert client.skipped == []


async def test_a_denied_request_from_a_session_server_does_not_reach_a_stateless_client() -> None:
    async with scene("handshake", interceptors=[denying(SAMPLING)]) as place:
        client = await place.client()
        call = client.stateless("tools/call", {"name": "x"}, ASKED)
        server = await place.server()
        request = await server.method("tools/call")
        assert (await server.answer_to(server.ask(SAMPLING, SAMPLE)))["error"]["message"] == WORDS
        server.reply(request, {"content": []})
        assert (await client.answer_to(call))["result"]["resultType"] == "complete"


async def test_a_notification_with_a_denied_input_request_is_refused() -> None:
    async with scene(interceptors=[denying(SAMPLING)]) as place:
        client, server = await opened(place)
        for number, method in enumerate((SAMPLING, ELICITING)):
            server.tell("notifications/vendor", {"n": number, **wanted(a=method)})
        assert (await client.method("notifications/vendor"))["params"]["n"] == 1


@pytest.mark.parametrize("version", BOTH)
async def test_denied_requests_do_not_reach_clients_of_a_gateway(version: str) -> None:
    asked = []

    def on_elicit(question: object) -> dict[str, Any]:
        asked.append(question)
        return ACCEPT

    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[denying(ELICITING)]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(version), on_elicit=on_elicit) as client,
        ):
            with pytest.raises(RpcError, match=f"{ELICITING} is not allowed here"):
                await client.call("red_ask")
    assert asked == []
