"""Tests of rate limits for input rounds, which need no further token unless forged."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import RpcError
from fairlead.gateway import Gateway
from fairlead.policy.actions import RateLimit
from fairlead.policy.actions.rate_limit import MAX_ROUNDS
from tests.support.gateway_servers import BOTH, LIMIT, config, make, serving
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene

FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
ACCEPT = {"action": "accept", "content": {}}
GIVEN = {"inputResponses": {"a": ACCEPT}}
CALL = {"name": "x", "arguments": {"n": 1}}
DONE = {"resultType": "complete", "content": []}


def one_call() -> RateLimit:
    """Return a rate limit with one token that is never restored."""
    return RateLimit(0.001, 1, clock=lambda: 0.0)


def wanted(state: str | None) -> dict[str, Any]:
    asked = {"a": {"method": "elicitation/create", "params": FORM}}
    said = {"resultType": "input_required", "inputRequests": asked}
    return said if state is None else {**said, "requestState": state}


async def told(place: Scene, client: Client, params: Any, result: Any) -> Any:
    """Return the result that the client gets if the server sends `result`."""
    server = place.servers[0]
    call = client.stateless("tools/call", params, ASKED)
    server.reply(await server.method("tools/call"), result)
    return (await client.answer_to(call))["result"]


async def refused(client: Client, params: Any, capabilities: Any = ASKED) -> bool:
    answer = await client.answer_to(client.stateless("tools/call", params, capabilities))
    return "Too many requests" in answer.get("error", {}).get("message", "")


async def met(place: Scene) -> tuple[Client, Server]:
    client = await place.client()
    call = client.stateless("tools/list")
    server = await place.server()
    server.reply(await server.method("tools/list"), {**DONE, "tools": []})
    await client.answer_to(call)
    return client, server


@pytest.mark.parametrize("states", [("s-1", "s-2"), (None, None), ("s", "s")])
async def test_responses_to_input_requests_need_no_further_tokens(
    states: tuple[str | None, ...],
) -> None:
    async with scene("stateless", interceptors=[one_call()]) as place:
        client, _ = await met(place)
        first, second = ({} if one is None else {"requestState": one} for one in states)
        assert await told(place, client, CALL, wanted(states[0])) == wanted(states[0])
        # The member order and `_meta` may differ.
        again = {**first, **GIVEN, "arguments": {"n": 1}, "name": "x"}
        assert await told(place, client, again, wanted(states[1])) == wanted(states[1])
        assert await told(place, client, {**CALL, **GIVEN, **second}, DONE) == DONE
        assert await refused(client, CALL)


async def test_an_unknown_request_state_counts_as_a_new_call() -> None:
    async with scene("stateless", interceptors=[one_call()]) as place:
        client, server = await met(place)
        await told(place, client, {**CALL, **GIVEN, "requestState": "made up"}, wanted("s"))
        for claimed in (
            {**CALL, **GIVEN, "requestState": "made up"},
            {**CALL, **GIVEN},
            {"name": "y", "arguments": {"n": 1}, **GIVEN, "requestState": "s"},
            {"name": "x", "arguments": {"n": 2}, **GIVEN, "requestState": "s"},
            {"name": "x", "arguments": {"requestState": "s", "n": 1}},
        ):
            assert await refused(client, claimed)
        # The valid state is still accepted, but only once.
        true = {**CALL, **GIVEN, "requestState": "s"}
        assert await told(place, client, true, DONE) == DONE
        assert await refused(client, true)
        assert sum(m["method"] == "tools/call" for m in server.seen) == 2


async def test_an_input_round_sent_by_another_principal_counts_as_a_new_call() -> None:
    who = iter(["ann", "bob"])
    async with scene("stateless", interceptors=[one_call()], principal=lambda: next(who)) as place:
        ann, _ = await met(place)
        bob = await place.client()
        assert await told(place, bob, CALL, DONE) == DONE
        question = await told(place, ann, CALL, wanted("s"))
        returned = {**CALL, **GIVEN, "requestState": question["requestState"]}
        assert await refused(bob, returned)
        assert await told(place, ann, returned, DONE) == DONE


async def test_the_number_of_input_rounds_without_a_token_is_limited() -> None:
    async with scene("stateless", interceptors=[one_call()]) as place:
        client, _ = await met(place)
        params: dict[str, Any] = CALL
        for number in range(MAX_ROUNDS + 1):
            state = f"s-{number}"
            assert await told(place, client, params, wanted(state)) == wanted(state)
            params = {**CALL, **GIVEN, "requestState": state}
        assert await refused(client, params)


async def test_a_stateless_call_to_a_session_server_continues_without_a_token() -> None:
    async with scene("handshake", interceptors=[one_call()]) as place:
        client = await place.client()
        call = client.stateless("tools/call", CALL, ASKED)
        server = await place.server()
        request = await server.method("tools/call")
        asked = server.ask("elicitation/create", FORM)
        result = (await client.answer_to(call))["result"]
        assert result["resultType"] == "input_required"
        (key,) = result["inputRequests"]
        given = {"inputResponses": {key: ACCEPT}, "requestState": result["requestState"]}
        call = client.stateless("tools/call", {**CALL, **given}, ASKED)
        assert (await server.answer_to(asked))["result"] == ACCEPT
        server.reply(request, {"content": []})
        assert (await client.answer_to(call))["result"]["resultType"] == "complete"
        assert await refused(client, CALL)


@pytest.mark.parametrize("version", BOTH)
async def test_input_responses_through_a_gateway_need_no_token(version: str) -> None:
    def on_elicit(question: object) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "Ada"}}

    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[one_call()]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(version), on_elicit=on_elicit) as client,
        ):
            assert (await client.call("red_ask")).text.startswith("Ada to red")
            with pytest.raises(RpcError, match="Too many requests"):
                await client.call("red_ask")


@pytest.mark.parametrize("version", BOTH)
async def test_all_requests_of_a_client_share_one_session_bucket(version: str) -> None:
    limit = RateLimit(0.001, 2, per="session", clock=lambda: 0.0)
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(interceptors=[limit]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(version)) as client,
        ):
            for _ in range(2):
                assert (await client.call("red_who")).text.startswith("red")
            for _ in range(5):
                with pytest.raises(RpcError, match="Too many requests"):
                    await client.call("red_who")
