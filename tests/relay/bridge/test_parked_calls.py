"""Server requests that a stateless client receives in results and answers in further requests."""

import asyncio
from typing import Any

import pytest

from fairlead.relay.bridge import parked_calls as parking
from tests.support.raw_relay import ASKED, LIMIT, Client, Scene, Server, scene

FORM = {"mode": "form", "message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
CALL = {"name": "greet", "arguments": {"a": 1}}


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.002)


async def begun(place: Scene, client: Client, **more: Any) -> tuple[Any, Server, dict[str, Any]]:
    """Start a call; return its id, the server and the request that the server received."""
    call = client.stateless("tools/call", CALL, ASKED, **more)
    server = await place.server()
    return call, server, await server.method("tools/call")


def again(client: Client, state: str, answers: Any, params: Any = None) -> Any:
    params = {**(params or CALL), "requestState": state, "inputResponses": answers}
    return client.stateless("tools/call", params, ASKED)


async def asked(client: Client, call: Any) -> dict[str, Any]:
    """Return the result that requests input."""
    result: dict[str, Any] = (await client.answer_to(call))["result"]
    assert result["resultType"] == "input_required"
    return result


async def parked(place: Scene, client: Client) -> tuple[Server, dict[str, Any], dict[str, Any]]:
    """Start and park a call; return the server, the call request and the client's result."""
    call, server, request = await begun(place, client)
    server.ask("elicitation/create", FORM, "s1")
    return server, request, await asked(client, call)


ACCEPT = {"action": "accept", "content": {"name": "Ann"}}


@pytest.mark.covers("GTW-04")
async def test_two_rounds_of_two_input_requests_continue_the_same_call() -> None:
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        server.ask("elicitation/create", {**FORM, "vendor": 9007199254740993}, "s1")
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s2")
        first = await asked(client, call)
        questions = first["inputRequests"]
        assert sorted(q["method"] for q in questions.values()) == [
            "elicitation/create",
            "sampling/createMessage",
        ]
        form = next(k for k, q in questions.items() if q["method"] == "elicitation/create")
        other = next(k for k in questions if k != form)
        assert questions[form]["params"]["vendor"] == 9007199254740993
        sampled = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
        second = again(client, first["requestState"], {form: ACCEPT, other: sampled})
        answers = {m["id"]: m["result"] for m in (await server.read(), await server.read())}
        assert answers == {"s1": ACCEPT, "s2": sampled}
        server.ask("roots/list", None, "s3")
        server.ask("elicitation/create", FORM, "s4")
        third = await asked(client, second)
        # keys of input requests are never reused
        assert not set(third["inputRequests"]) & set(questions)
        given = {
            key: {"roots": []} if question["method"] == "roots/list" else {"action": "decline"}
            for key, question in third["inputRequests"].items()
        }
        last = again(client, third["requestState"], given)
        assert {(await server.read())["id"], (await server.read())["id"]} == {"s3", "s4"}
        server.reply(request, {"content": [], "vendor": 1})
        result = (await client.answer_to(last))["result"]
        assert result["vendor"] == 1
        assert result["resultType"] == "complete"
        assert len(place.relay.parked) == 0
        assert sum(m.get("method") == "tools/call" for m in server.seen) == 1


async def test_only_input_requests_without_a_valid_response_are_sent_again() -> None:
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        server.ask("elicitation/create", FORM, "s1")
        server.ask("elicitation/create", {**FORM, "message": "two"}, "s2")
        first = await asked(client, call)
        keys = list(first["inputRequests"])
        second = await asked(client, again(client, first["requestState"], {keys[0]: ACCEPT}))
        assert list(second["inputRequests"]) == keys[1:]
        # Responses that are not objects or have unknown keys are ignored.
        state, wrong = second["requestState"], {keys[1]: None, "q99": ACCEPT}
        third = await asked(client, again(client, state, wrong))
        assert list(third["inputRequests"]) == keys[1:]
        last = again(client, third["requestState"], {keys[1]: ACCEPT})
        assert {(await server.read())["id"] for _ in keys} == {"s1", "s2"}
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(last)


async def test_a_call_whose_arguments_contain_huge_numbers_can_be_continued() -> None:
    async with scene() as place:
        client = await place.client()
        meta = '"io.modelcontextprotocol/protocolVersion":"2026-07-28"'
        declared = '"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}'
        params = '"name":"x","arguments":{"n":1e400,"m":' + "9" * 4000 + "}"
        head = '{"jsonrpc":"2.0","method":"tools/call","id":'
        client.send(f'{head}1,"params":{{{params},"_meta":{{{meta},{declared}}}}}}}')
        server = await place.server()
        assert await server.line() == INITIALIZED
        assert b'"n":1e400' in await server.line()
        server.ask("elicitation/create", FORM, "s1")
        first = await asked(client, 1)
        state = f'"requestState":"{first["requestState"]}"'
        answers = '"inputResponses":{"q1":{"action":"decline"}}'
        client.send(
            f'{head}2,"params":{{{params},{state},{answers},"_meta":{{{meta},{declared}}}}}}}'
        )
        assert (await server.read())["result"] == {"action": "decline"}


async def test_a_request_state_is_rejected_if_modified_or_sent_with_another_request() -> None:
    async with scene() as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        state = first["requestState"]
        changed = state[:-4] + ("AAAA" if not state.endswith("AAAA") else "BBBB")
        other = {"name": "greet", "arguments": {"a": 2}}
        for bad, params in ((changed, CALL), ("v1.p.x", CALL), ("nonsense", CALL), (state, other)):
            refusal = await client.answer_to(again(client, bad, {"q1": ACCEPT}, params))
            assert refusal["error"]["code"] == -32602
            assert refusal["error"]["data"]["source"] == "proxy"
        refusal = await client.answer_to(again(client, 7, {"q1": ACCEPT}))  # type: ignore[arg-type]
        assert refusal["error"]["code"] == -32602
        # The call can still be continued after the rejected requests.
        last = again(client, state, {"q1": ACCEPT})
        assert (await server.read())["result"] == ACCEPT
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(last)


@pytest.mark.covers("GTW-05")
async def test_a_request_state_is_rejected_from_another_client() -> None:
    who = iter(["ann", "bob"])
    async with scene(principal=lambda: next(who)) as place:
        ann, bob = await place.client(), await place.client()
        server, request, first = await parked(place, ann)
        refusal = await bob.answer_to(again(bob, first["requestState"], {"q1": ACCEPT}))
        assert refusal["error"]["code"] == -32602
        last = again(ann, first["requestState"], {"q1": {"action": "decline"}})
        assert (await server.read())["result"] == {"action": "decline"}
        server.reply(request, {"content": []})
        assert "result" in await ann.answer_to(last)
        call, bobs, _ = await begun(place, bob)
        assert bobs is not server  # authenticated clients do not share a connection
        bob.tell("notifications/cancelled", {"requestId": call})


async def test_a_repeated_retry_of_a_parked_call_gets_the_same_outcome() -> None:
    async with scene() as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        one = again(client, first["requestState"], {"q1": ACCEPT})
        two = again(client, first["requestState"], {"q1": {"action": "decline"}})
        assert (await server.read())["result"] == ACCEPT
        server.reply(request, {"content": [], "n": 5})
        assert (await client.answer_to(one))["result"]["n"] == 5
        assert (await client.answer_to(two))["result"]["n"] == 5
        late = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await client.answer_to(late))["result"]["n"] == 5
        assert sum(m.get("method") == "tools/call" for m in server.seen) == 1


async def test_a_repeated_retry_of_a_parked_call_gets_the_same_error() -> None:
    async with scene() as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        one = again(client, first["requestState"], {"q1": ACCEPT})
        await server.read()
        server.refuse(request, -32602, "no")
        assert (await client.answer_to(one))["error"]["message"] == "no"
        two = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await client.answer_to(two))["error"]["message"] == "no"


async def test_a_repeated_retry_gets_an_error_when_the_first_one_is_cancelled() -> None:
    async with scene() as place:
        client = await place.client()
        server, _, first = await parked(place, client)
        one = again(client, first["requestState"], {"q1": ACCEPT})
        two = again(client, first["requestState"], {"q1": ACCEPT})
        await server.read()
        client.tell("notifications/cancelled", {"requestId": one, "reason": "enough"})
        assert (await client.answer_to(two))["error"]["code"] == -32602
        cancelled = await server.method("notifications/cancelled")
        assert cancelled["params"]["reason"] == "enough"


async def test_a_call_that_the_client_does_not_continue_is_cancelled() -> None:
    async with scene(park_timeout=0.1) as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        answer = await server.answer_to("s1")
        assert answer["error"]["data"]["source"] == "proxy"
        cancelled = await server.method("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]
        assert len(place.relay.parked) == 0
        late = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await client.answer_to(late))["error"]["code"] == -32602


async def test_a_result_that_arrives_while_the_call_is_parked_is_kept_for_the_retry() -> None:
    async with scene(park_timeout=5.0) as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        server.tell("notifications/cancelled", {"requestId": "s1"})
        server.reply(request, {"content": [], "n": 1})
        await server.sync()
        late = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await client.answer_to(late))["result"]["n"] == 1


async def test_a_result_that_the_client_does_not_retrieve_is_dropped_after_the_timeout() -> None:
    async with scene(park_timeout=0.1) as place:
        server, request, _ = await parked(place, await place.client())
        server.reply(request, {"content": []})
        await server.sync()
        await until(lambda: len(place.relay.parked) == 0)


async def test_a_server_request_cancelled_by_the_server_is_not_sent_to_the_client() -> None:
    async with scene(collect=0.2) as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        server.ask("elicitation/create", FORM, "s1")
        server.tell("notifications/cancelled", {"requestId": "s1"})
        server.reply(request, {"content": [], "n": 1})
        assert (await client.answer_to(call))["result"]["n"] == 1


async def test_a_client_that_cancels_its_first_round_cancels_the_call() -> None:
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        client.tell("notifications/cancelled", {"requestId": call, "reason": "bored"})
        cancelled = await server.method("notifications/cancelled")
        assert cancelled["params"] == {"requestId": request["id"], "reason": "bored"}
        # The connection is free for the next call after the cancellation.
        second = client.stateless("tools/call", CALL, ASKED)
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(second)
        assert len(place.servers) == 1


async def test_a_client_that_disconnects_during_a_round_cancels_the_call() -> None:
    async with scene() as place:
        client = await place.client()
        _, server, request = await begun(place, client)
        await client.close()
        cancelled = await server.method("notifications/cancelled")
        assert cancelled["params"]["requestId"] == request["id"]


async def test_a_parked_call_survives_the_disconnection_of_its_client() -> None:
    """The client may continue the call on another connection."""
    async with scene() as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        await client.close()
        client = await place.client()
        last = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await server.read())["result"] == ACCEPT
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(last)


async def test_a_call_whose_server_dies_while_it_is_parked_fails() -> None:
    async with scene() as place:
        client = await place.client()
        server, _, first = await parked(place, client)
        await server.close()
        late = again(client, first["requestState"], {"q1": ACCEPT})
        refusal = await client.answer_to(late)
        assert refusal["error"]["data"]["source"] == "proxy"
        call = client.stateless("tools/call", CALL, ASKED)
        server = await place.server()
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(call)


async def test_closing_the_relay_ends_parked_calls() -> None:
    async with scene() as place:
        server, _, _ = await parked(place, await place.client())
        await place.relay.close()
        assert len(place.relay.parked) == 0
        while await server.line():
            pass  # read until the connection ends


async def test_a_server_request_is_refused_if_too_many_calls_are_parked() -> None:
    async with scene(max_parked=1) as place:
        client = await place.client()
        await parked(place, client)
        call, server, request = await begun(place, client)
        server.ask("elicitation/create", FORM, "s1")
        answer = await server.answer_to("s1")
        assert "too many" in answer["error"]["message"]
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(call)


async def test_progress_and_log_messages_are_sent_in_the_current_round() -> None:
    level = {"io.modelcontextprotocol/logLevel": "info"}
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client, progressToken="t1", **level)
        token = request["params"]["_meta"]["progressToken"]
        server.tell("notifications/progress", {"progressToken": token, "progress": 1})
        server.tell("notifications/message", {"level": "info", "data": "one"})
        server.tell("notifications/message", {"level": "debug", "data": "hidden"})
        server.ask("elicitation/create", FORM, "s1")
        first = await asked(client, call)
        assert [m["method"] for m in client.skipped] == [
            "notifications/progress",
            "notifications/message",
        ]
        assert client.skipped[0]["params"]["progressToken"] == "t1"
        server.tell("notifications/progress", {"progressToken": token, "progress": 2})
        await server.sync()
        client.skipped.clear()
        params = {**CALL, "requestState": first["requestState"], "inputResponses": {"q1": ACCEPT}}
        last = client.stateless("tools/call", params, ASKED, progressToken="t2")
        await server.answer_to("s1")
        server.tell("notifications/progress", {"progressToken": token, "progress": 3})
        server.reply(request, {"content": []})
        await client.answer_to(last)
        assert [
            (m["params"]["progressToken"], m["params"]["progress"]) for m in client.skipped
        ] == [("t2", 3)]


async def test_a_page_visit_is_requested_only_from_clients_that_support_it() -> None:
    url = {"mode": "url", "message": "go", "url": "https://x.example/", "elicitationId": "e1"}
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        server.ask("elicitation/create", url, "s1")
        first = await asked(client, call)
        question = first["inputRequests"]["q1"]["params"]
        assert question == {"mode": "url", "message": "go", "url": "https://x.example/"}
        last = again(client, first["requestState"], {"q1": {"action": "accept"}})
        assert (await server.answer_to("s1"))["result"] == {"action": "accept"}
        server.reply(request, {"content": []})
        await client.answer_to(last)
        # Clients that support only forms get no page visits,
        # and clients that support only page visits get no forms.
        for declared, params in (({"form": {}}, url), ({"url": {}}, FORM)):
            call = client.stateless("tools/call", CALL, {"elicitation": declared})
            other = await place.server()
            request = await other.method("tools/call")
            other.ask("elicitation/create", params, "s2")
            assert (await other.answer_to("s2"))["error"]["code"] == -32601
            other.reply(request, {"content": []})
            await client.answer_to(call)


async def test_an_error_that_requires_a_page_visit_becomes_an_input_request() -> None:
    pages = {"elicitations": [{"url": "https://x.example/", "message": "m", "elicitationId": "e"}]}
    async with scene() as place:
        client = await place.client()
        call, server, request = await begun(place, client)
        server.refuse(request, -32042, "visit", pages)
        first = await asked(client, call)
        assert first["inputRequests"]["u1"]["params"] == {
            "url": "https://x.example/",
            "message": "m",
            "mode": "url",
        }
        second = again(client, first["requestState"], {"u1": {"action": "accept"}})
        request = await server.method("tools/call")
        assert "requestState" not in request["params"]
        assert "inputResponses" not in request["params"]
        server.refuse(request, -32042, "visit", pages)
        third = await asked(client, second)
        # A declined page visit is not requested again.
        last = again(client, third["requestState"], {"u1": {"action": "decline"}})
        assert (await client.answer_to(last))["error"]["data"]["source"] == "proxy"
        call = client.stateless("tools/call", CALL, {"sampling": {}})
        other = await place.server()
        other.refuse(await other.method("tools/call"), -32042, "visit", pages)
        refusal = (await client.answer_to(call))["error"]
        assert refusal["code"] == -32603
        assert refusal["data"]["original"]["code"] == -32042


async def test_server_requests_outside_of_calls_are_refused() -> None:
    async with scene() as place:
        client = await place.client()
        call = client.stateless("tools/list", {}, ASKED)
        server = await place.server()
        request = await server.method("tools/list")
        server.ask("roots/list", None, "s1")
        assert (await server.answer_to("s1"))["error"]["code"] == -32601
        server.reply(request, {"tools": []})
        assert (await client.answer_to(call))["result"]["tools"] == []
        server.ask("elicitation/create", FORM, "s2")
        refusal = (await server.answer_to("s2"))["error"]
        assert refusal["code"] == -32601
        assert refusal["data"]["source"] == "proxy"


async def test_server_requests_without_a_declared_capability_are_refused() -> None:
    async with scene() as place:
        client = await place.client()
        call = client.stateless("tools/call", CALL, {"roots": {}})
        server = await place.server()
        request = await server.method("tools/call")
        assert server.seen[1]["params"]["capabilities"] == {"roots": {}}
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s1")
        assert (await server.answer_to("s1"))["error"]["code"] == -32601
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(call)


async def test_the_fifth_call_that_may_need_input_waits_for_one_of_four_connections() -> None:
    async with scene() as place:
        client = await place.client()
        calls, servers, requests = [], [], []
        for _ in range(4):
            call, server, request = await begun(place, client)
            server.ask("elicitation/create", FORM, "s1")
            calls.append(await asked(client, call))
            servers.append(server)
            requests.append(request)
        fifth = client.stateless("tools/call", CALL, ASKED)
        plain = [client.stateless("tools/call", CALL, {}) for _ in range(3)]
        # Calls without input capabilities share one more connection and run concurrently.
        other = await place.server()
        for request in [await other.method("tools/call") for _ in plain]:
            other.reply(request, {"content": []})
        for call in plain:
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 5
        last = again(client, calls[2]["requestState"], {"q1": ACCEPT})
        await servers[2].answer_to("s1")
        servers[2].reply(requests[2], {"content": []})
        assert "result" in await client.answer_to(last)
        # The fifth call gets the first free connection; three calls are still parked.
        servers[2].reply(await servers[2].method("tools/call"), {"content": [], "n": 5})
        assert (await client.answer_to(fifth))["result"]["n"] == 5
        assert len(place.relay.parked) == 3


async def test_a_call_that_waits_too_long_for_its_turn_is_rejected() -> None:
    async with scene(max_connections=1, turn_wait=0.01, turn_timeout=0.05) as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        refusal = await client.answer_to(client.stateless("tools/call", CALL, ASKED))
        assert "busy" in refusal["error"]["message"]
        last = again(client, first["requestState"], {"q1": ACCEPT})
        await server.answer_to("s1")
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(last)
        call = client.stateless("tools/call", CALL, ASKED)
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(call)


@pytest.mark.covers("PRO-37")
async def test_the_timeout_of_a_parked_call_is_suspended() -> None:
    async with scene(call_timeout=0.3) as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        # Wait for longer than the timeout of the call.
        loop = asyncio.get_running_loop()
        long = loop.create_future()
        loop.call_later(0.7, long.set_result, None)
        await long
        last = again(client, first["requestState"], {"q1": ACCEPT})
        await server.answer_to("s1")
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(last)
        assert not any(m.get("method") == "notifications/cancelled" for m in server.seen)
        # The timeout applies, because the server has sent no input request.
        call = client.stateless("tools/call", CALL, ASKED)
        await server.method("tools/call")
        refusal = await client.answer_to(call)
        assert "did not answer within" in refusal["error"]["message"]
        await server.method("notifications/cancelled")


async def test_outcomes_of_parked_calls_are_stored_within_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parking, "MAX_KEPT_BYTES", 1000)
    async with scene() as place:
        client = await place.client()
        server, request, first = await parked(place, client)
        one = again(client, first["requestState"], {"q1": ACCEPT})
        await server.answer_to("s1")
        server.reply(request, {"content": [], "big": "x" * 2000})
        assert "result" in await client.answer_to(one)
        late = again(client, first["requestState"], {"q1": ACCEPT})
        assert (await client.answer_to(late))["error"]["code"] == -32602
