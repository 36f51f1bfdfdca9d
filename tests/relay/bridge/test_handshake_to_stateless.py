"""Clients of the handshake era with a stateless server."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import RpcError
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST
from fairlead.relay.bridge.handshake_to_stateless import HandshakeToStateless
from tests.support.raw_relay import ASKED, LIMIT, META, Client, Scene, Server, scene
from tests.support.single_exchange import exchange

FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
ACCEPT = {"action": "accept", "content": {}}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}


def wanted(state: Any, **questions: tuple[str, Any]) -> dict[str, Any]:
    return {
        "resultType": "input_required",
        "inputRequests": {k: {"method": m, "params": p} for k, (m, p) in questions.items()},
        "requestState": state,
    }


async def opened(place: Scene, capabilities: Any = None, version: str = "2025-11-25") -> Client:
    return await place.session(ASKED if capabilities is None else capabilities, version)


async def listening(server: Server) -> dict[str, Any]:
    """Receive the relay's listen request and acknowledge it."""
    request = await server.method("subscriptions/listen")
    acknowledge(server, request)
    return request


def acknowledge(server: Server, request: dict[str, Any]) -> None:
    tag = {f"{META}subscriptionId": request["id"]}
    params = {"notifications": request["params"]["notifications"], "_meta": tag}
    server.tell("notifications/subscriptions/acknowledged", params)


@pytest.mark.covers("GTW-04")
async def test_two_rounds_of_two_input_requests_become_requests_to_the_client() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x", "arguments": {"n": 1}, "task": {"ttl": 1}})
        request = await server.method("tools/call")
        meta = request["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == "2026-07-28"
        assert meta[f"{META}clientCapabilities"]["roots"] == {}
        assert "task" not in request["params"]
        server.reply(
            request,
            wanted("s-1", a=("elicitation/create", FORM), b=("sampling/createMessage", SAMPLE)),
        )
        for _ in range(2):
            question = await client.until(lambda m: "id" in m and "method" in m)
            form = question["method"] == "elicitation/create"
            client.reply(question, ACCEPT if form else SAMPLED)
        second = await server.method("tools/call")
        assert second["params"]["requestState"] == "s-1"
        assert second["params"]["inputResponses"] == {"a": ACCEPT, "b": SAMPLED}
        assert second["id"] != request["id"]
        server.reply(second, wanted("s-2", a=("roots/list", {}), c=("elicitation/create", FORM)))
        for _ in range(2):
            question = await client.until(lambda m: "id" in m and "method" in m)
            client.reply(question, {"roots": []} if question["method"] == "roots/list" else ACCEPT)
        third = await server.method("tools/call")
        assert third["params"]["inputResponses"] == {"a": {"roots": []}, "c": ACCEPT}
        assert third["params"]["requestState"] == "s-2"
        server.reply(third, {"resultType": "complete", "content": [], "vendor": 1.5})
        assert (await client.answer_to(call))["result"] == {"content": [], "vendor": 1.5}


async def test_a_rejected_form_is_answered_with_cancel() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), wanted("s", a=("elicitation/create", FORM)))
        client.refuse(await client.method("elicitation/create"), -32603, "no window")
        second = await server.method("tools/call")
        assert second["params"]["inputResponses"] == {"a": {"action": "cancel"}}
        server.reply(second, {"resultType": "complete", "content": []})
        assert "result" in await client.answer_to(call)


async def test_a_call_fails_if_the_client_rejects_sampling() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        server.reply(
            await server.method("tools/call"), wanted("s", a=("sampling/createMessage", SAMPLE))
        )
        client.refuse(await client.method("sampling/createMessage"), -1, "User rejected", {"k": 1})
        error = (await client.answer_to(call))["error"]
        assert error == {"code": -1, "message": "User rejected", "data": {"k": 1}}
        await client.sync()
        assert sum(m.get("method") == "tools/call" for m in server.seen) == 1


async def test_a_missing_capability_of_the_client_is_named_in_the_error() -> None:
    url = {"mode": "url", "message": "go", "url": "https://x.example/"}
    async with scene("stateless") as place:
        client = await opened(place, {"elicitation": {}})
        server = await place.server()
        for method, params, missing in (
            ("sampling/createMessage", SAMPLE, {"sampling": {}}),
            ("elicitation/create", url, {"elicitation": {"url": {}}}),
        ):
            call = client.ask("tools/call", {"name": "x"})
            server.reply(await server.method("tools/call"), wanted("s", a=(method, params)))
            error = (await client.answer_to(call))["error"]
            assert error["code"] == -32021
            assert error["data"] == {"source": "proxy", "requiredCapabilities": missing}


async def test_a_call_ends_if_its_client_disconnects_during_an_input_request() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), wanted("s", a=("elicitation/create", FORM)))
        await client.method("elicitation/create")
        await client.close()
        other = await opened(place)
        call = other.ask("tools/call", {"name": "y"})
        request = await server.method("tools/call")
        assert request["params"]["name"] == "y"  # the first call was not sent again
        server.reply(request, {"resultType": "complete", "content": []})
        assert "result" in await other.answer_to(call)


async def test_cancelling_a_call_cancels_its_input_request() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), wanted("s", a=("elicitation/create", FORM)))
        question = await client.method("elicitation/create")
        client.tell("notifications/cancelled", {"requestId": call})
        told = await client.method("notifications/cancelled")
        assert told["params"]["requestId"] == question["id"]
        await client.sync()
        assert sum(m.get("method") == "tools/call" for m in server.seen) == 1


async def test_reported_progress_increases_across_input_rounds() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x", "_meta": {"progressToken": "t"}})
        for answer in (wanted("s"), {"resultType": "complete", "content": []}):
            request = await server.method("tools/call")
            token = request["params"]["_meta"]["progressToken"]
            assert token == request["id"]
            for progress in (1, 2, 3) if "requestState" not in request["params"] else (1, 3, 4, 4):
                server.tell(
                    "notifications/progress", {"progressToken": token, "progress": progress}
                )
            server.reply(request, answer)
        await client.answer_to(call)
        assert [m["params"]["progress"] for m in client.skipped] == [1, 2, 3, 4]
        assert {m["params"]["progressToken"] for m in client.skipped} == {"t"}


async def test_the_number_of_input_rounds_is_limited() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        rounds = 0
        while rounds < 20:
            server.reply(
                await server.method("tools/call"), wanted("s", a=("elicitation/create", FORM))
            )
            client.reply(await client.method("elicitation/create"), ACCEPT)
            rounds += 1
        server.reply(await server.method("tools/call"), wanted("s", a=("elicitation/create", FORM)))
        assert (
            "still requests input after 20 rounds"
            in (await client.answer_to(call))["error"]["message"]
        )


@pytest.mark.parametrize("kind", ['"task"', "7", "null"])
async def test_a_result_of_an_unknown_type_is_refused(kind: str) -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.send(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"resultType":{kind}}}}}')
        error = (await client.answer_to(call))["error"]
        assert error["code"] == -32603
        assert error["data"]["source"] == "proxy"


async def test_a_page_is_opened_once_and_the_client_is_notified_of_its_completion() -> None:
    url = {"mode": "url", "message": "go", "url": "https://x.example/"}
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        for _ in range(2):
            server.reply(
                await server.method("tools/call"), wanted("s", a=("elicitation/create", url))
            )
            if not client.skipped:
                question = await client.method("elicitation/create")
                client.skipped.append(question)
                visit = question["params"]["elicitationId"]
                client.reply(question, {"action": "accept"})
        server.reply(await server.method("tools/call"), {"resultType": "complete", "content": []})
        done = await client.method("notifications/elicitation/complete")
        assert done["params"] == {"elicitationId": visit}
        assert "result" in await client.answer_to(call)


async def test_the_log_level_of_a_session_is_sent_with_each_request() -> None:
    async with scene("stateless") as place:
        one, two = await opened(place), await opened(place)
        server = await place.server()
        assert (await one.answer_to(one.ask("logging/setLevel", {"level": "warning"})))[
            "result"
        ] == {}
        wrong = await one.answer_to(one.ask("logging/setLevel", {"level": "loud"}))
        assert wrong["error"]["code"] == -32602
        calls = [(end, end.ask("tools/call", {"name": "x"})) for end in (one, two)]
        levels = []
        for _ in calls:
            request = await server.method("tools/call")
            levels.append(request["params"]["_meta"].get(f"{META}logLevel"))
            server.reply(request, {"resultType": "complete", "content": []})
        assert sorted(levels) == ["info", "warning"]
        for end, call in calls:
            await end.answer_to(call)
        assert not any(m.get("method") == "logging/setLevel" for m in server.seen)


@pytest.mark.parametrize(
    ("wanted", "capabilities", "level"),
    [
        ("info", {"logging": {}}, "info"),
        ("error", {"logging": {}}, "error"),
        ("off", {"logging": {}}, None),
        ("info", {}, None),  # the server does not support logging
    ],
)
async def test_a_session_without_a_log_level_gets_the_default_level(
    wanted: str, capabilities: dict[str, Any], level: str | None
) -> None:
    offers = {"capabilities": {"tools": {}, **capabilities}}
    async with scene("stateless", offers=offers, log_level=wanted) as place:
        client = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        server = await place.server()
        request = await server.method("tools/call")
        assert request["params"]["_meta"].get(f"{META}logLevel") == level
        server.reply(request, {"resultType": "complete", "content": []})
        await client.answer_to(call)


async def test_notifications_of_changes_reach_the_subscribed_clients() -> None:
    async with scene("stateless") as place:
        one, two = await opened(place), await opened(place)
        server = await place.server()
        first = await listening(server)
        assert first["params"]["notifications"] == {
            "resourcesListChanged": True,
            "toolsListChanged": True,
        }
        asked = one.ask("resources/subscribe", {"uri": "x:1"})
        second = await listening(server)
        assert second["params"]["notifications"]["resourceSubscriptions"] == ["x:1"]
        assert (await one.answer_to(asked))["result"] == {}
        # The previous listen request ends after its successor is open, so that no change is missed.
        gone = await server.method("notifications/cancelled")
        assert gone["params"]["requestId"] == first["id"]
        tag = {f"{META}subscriptionId": second["id"]}
        server.tell("notifications/resources/updated", {"uri": "x:1", "_meta": tag, "v": 1})
        server.tell("notifications/tools/list_changed", {"_meta": tag})
        updated = await one.method("notifications/resources/updated")
        assert updated["params"] == {"uri": "x:1", "v": 1}
        assert "params" not in await one.method("notifications/tools/list_changed")
        assert (await two.read())["method"] == "notifications/tools/list_changed"
        asked = one.ask("resources/unsubscribe", {"uri": "x:1"})
        third = await listening(server)
        assert "resourceSubscriptions" not in third["params"]["notifications"]
        assert (await one.answer_to(asked))["result"] == {}


async def test_the_end_of_a_session_ends_its_subscriptions() -> None:
    async with scene("stateless") as place:
        one, two = await opened(place), await opened(place)
        server = await place.server()
        await listening(server)
        for end, uri in ((one, "x:1"), (two, "x:2")):
            asked = end.ask("resources/subscribe", {"uri": uri})
            await listening(server)
            assert "result" in await end.answer_to(asked)
        await one.close()
        last = await listening(server)
        assert last["params"]["notifications"]["resourceSubscriptions"] == ["x:2"]


async def test_a_lost_subscription_is_reopened_and_all_sessions_are_notified_of_changes() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        await listening(server)
        asked = client.ask("resources/subscribe", {"uri": "x:1"})
        request = await listening(server)
        await client.answer_to(asked)
        server.reply(request, {"resultType": "complete"})  # the server ends the subscription
        await listening(server)
        methods = [(await client.read())["method"] for _ in range(3)]
        assert methods == [
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        ]


async def test_subscriptions_are_restored_after_a_restart_of_the_server() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        await listening(server)
        asked = client.ask("resources/subscribe", {"uri": "x:1"})
        await listening(server)
        await client.answer_to(asked)
        await server.close()
        call = client.ask("tools/list")
        server = await place.server()
        first = await listening(server)
        if "resourceSubscriptions" not in first["params"]["notifications"]:
            first = await listening(server)
        assert first["params"]["notifications"]["resourceSubscriptions"] == ["x:1"]
        server.reply(await server.method("tools/list"), {"resultType": "complete", "tools": []})
        assert (await client.answer_to(call))["result"] == {"tools": []}
        assert {m["method"] for m in client.skipped} >= {
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        }


async def test_a_relay_answers_ping_drops_roots_changes_and_converts_errors_and_results() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        assert (await client.answer_to(client.ask("ping")))["result"] == {}
        client.tell("notifications/roots/list_changed")
        client.tell("notifications/vendor", {"n": 1})
        assert (await server.method("notifications/vendor"))["params"] == {"n": 1}
        assert not any(
            m.get("method") in ("ping", "notifications/roots/list_changed") for m in server.seen
        )
        call = client.ask("resources/read", {"uri": "x:9"})
        request = await server.method("resources/read")
        server.refuse(request, -32602, "No such resource", {"uri": "x:9"})
        assert (await client.answer_to(call))["error"]["code"] == -32002
        call = client.ask("tools/list")
        listed = {"resultType": "complete", "tools": [], "ttlMs": 5}
        server.reply(await server.method("tools/list"), listed)
        assert (await client.answer_to(call))["result"] == {"tools": []}


async def test_a_client_can_request_the_page_after_an_empty_cursor() -> None:
    """Many clients of the handshake era treat an empty cursor as the end of the list."""
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/list")
        listed = {"resultType": "complete", "tools": []}
        request = await server.method("tools/list")
        assert "cursor" not in request["params"]
        server.reply(request, {**listed, "nextCursor": ""})
        cursor = (await client.answer_to(call))["result"]["nextCursor"]
        assert cursor
        call = client.ask("tools/list", {"cursor": cursor})
        request = await server.method("tools/list")
        assert request["params"]["cursor"] == ""
        server.reply(request, {**listed, "nextCursor": "3"})
        assert (await client.answer_to(call))["result"]["nextCursor"] == "3"
        call = client.ask("tools/list", {"cursor": "3"})
        request = await server.method("tools/list")
        assert request["params"]["cursor"] == "3"
        server.reply(request, listed)
        assert (await client.answer_to(call))["result"] == {"tools": []}


async def test_a_form_that_the_revision_of_the_client_does_not_support_is_refused() -> None:
    several = {"type": "object", "properties": {"x": {"type": "array", "items": {}}}}
    async with scene("stateless") as place:
        client = await opened(place, {"elicitation": {}}, "2025-06-18")
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        question = {"message": "?", "requestedSchema": several}
        server.reply(
            await server.method("tools/call"), wanted("s", a=("elicitation/create", question))
        )
        error = (await client.answer_to(call))["error"]
        assert error["code"] == -32601
        assert "several choices" in error["message"]


async def test_a_call_to_a_hanging_server_times_out() -> None:
    async with scene("stateless", call_timeout=0.1) as place:
        client = await opened(place)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        await server.method("tools/call")
        async with asyncio.timeout(LIMIT):
            error = (await client.answer_to(call))["error"]
        assert "did not answer within" in error["message"]
        await server.method("notifications/cancelled")


async def test_a_subscription_that_the_server_does_not_acknowledge_is_refused() -> None:
    async with scene("stateless") as place:
        client = await opened(place)
        server = await place.server()
        await listening(server)
        asked = client.ask("resources/subscribe", {"uri": "x:1"})
        request = await server.method("subscriptions/listen")
        tag = {f"{META}subscriptionId": request["id"]}
        honoured = {"notifications": {"toolsListChanged": True}, "_meta": tag}
        server.tell("notifications/subscriptions/acknowledged", honoured)
        error = (await client.answer_to(asked))["error"]
        assert "x:1" in error["message"]
        assert error["data"]["source"] == "proxy"


# Single requests, without connections


class OneConnection:
    """Fake connection to a stateless server that returns given results."""

    def __init__(self, *results: bytes, logs: bool = True) -> None:
        self.name = "raw"
        capabilities = b'{"logging":{}}' if logs else b"{}"
        self.agreement = Agreement(revision=NEWEST, capabilities=capabilities)
        self.on_news: Any = None
        self.sessions: list[Any] = []
        self.results = list(results or [b'{"resultType":"complete","content":[]}'])
        self.sent: list[Any] = []

    async def pass_on(self, call: Any, passing: Any, *, timeout: float) -> Raw:
        assert timeout == 7.0
        self.sent.append(json.loads(bytes(passing.fill(9))))
        return Raw(self.results.pop(0))


class Outbox:
    """Fake outbox of a client, with or without queued notifications."""

    def __init__(self, empty: bool) -> None:
        self.busy, self.flushes = not empty, 0

    async def flushed(self) -> None:
        self.flushes += 1


async def answered(
    connection: OneConnection,
    method: str = "tools/call",
    params: Any = None,
    *,
    session: Any = None,
    level: str | None = None,
    **about: Any,
) -> Any:
    given: Any = connection
    given.settings = lambda: UpstreamSettings(call_timeout=7.0, log_level=level or "off")  # type: ignore[arg-type]
    bridge = HandshakeToStateless(given)
    asked = exchange(method, params, stateless=False, **about)
    return json.loads(bytes(await bridge.answer(asked, session) or b""))


def session_of(level: str | None = None, empty: bool = True) -> Any:
    return SimpleNamespace(level=level, outbox=Outbox(empty))


VERSION, DECLARED = f"{META}protocolVersion", f"{META}clientCapabilities"
STAMP = {VERSION: "2026-07-28", DECLARED: {}}


@pytest.mark.parametrize(
    ("info", "level", "default", "logs", "added"),
    [
        (None, None, "off", True, {}),
        (None, None, None, True, {}),
        (b'{"name":"c"}', None, "off", True, {f"{META}clientInfo": {"name": "c"}}),
        (None, None, "info", True, {f"{META}logLevel": "info"}),
        (None, "error", "info", True, {f"{META}logLevel": "error"}),
        (None, None, "info", False, {}),
        (None, "error", "info", False, {f"{META}logLevel": "error"}),
    ],
)
async def test_each_request_contains_the_metadata_of_the_client(
    info: bytes | None, level: str | None, default: str | None, logs: bool, added: dict[str, Any]
) -> None:
    connection = OneConnection(logs=logs)
    session = session_of(level)
    await answered(connection, params={"name": "x"}, session=session, level=default, info=info)
    assert connection.sent == [{"name": "x", "_meta": {**STAMP, **added}}]


async def test_a_request_outside_of_a_session_has_no_log_level() -> None:
    connection = OneConnection()
    await answered(connection, level="info")
    assert connection.sent == [{"_meta": STAMP}]


@pytest.mark.parametrize(
    ("params", "sent"),
    [
        ({"name": "x", "task": {"ttl": 1}}, {"name": "x"}),
        ({"cursor": "fairlead:empty-cursor"}, {"cursor": ""}),
        ({"cursor": "c"}, {"cursor": "c"}),
        ({"_meta": {"k": 1}}, {"_meta": {"k": 1}}),
    ],
)
async def test_params_are_converted_for_the_stateless_era(params: Any, sent: Any) -> None:
    connection = OneConnection()
    await answered(connection, params=params)
    assert connection.sent == [{**sent, "_meta": {**sent.get("_meta", {}), **STAMP}}]


@pytest.mark.parametrize(("empty", "flushes"), [(True, 0), (False, 1)])
async def test_a_result_is_sent_after_queued_notifications(empty: bool, flushes: int) -> None:
    session = session_of(empty=empty)
    assert await answered(OneConnection(), session=session) == {"content": []}
    assert session.outbox.flushes == flushes


@pytest.mark.parametrize("kind", ["poem", 7])
async def test_a_result_of_an_unknown_type_raises_an_error(kind: Any) -> None:
    shown = "malformed" if kind == 7 else kind
    with pytest.raises(
        RpcError, match=f"Unknown resultType in the server's result: '{shown}'"
    ) as refused:
        await answered(OneConnection(json.dumps({"resultType": kind}).encode()))
    assert refused.value.code == -32603


async def test_ping_and_set_level_requests_are_answered_by_the_bridge() -> None:
    connection, session = OneConnection(), session_of()
    assert await answered(connection, "ping") == {}
    assert await answered(connection, "logging/setLevel", {"level": "error"}, session=session) == {}
    assert session.level == "error"
    assert await answered(connection, "logging/setLevel", {"level": "info"}) == {}
    for wrong in ({"level": "loud"}, {"level": 7}, {}, None):
        with pytest.raises(RpcError, match="Unknown log level .*: expected one of debug, ") as no:
            await answered(connection, "logging/setLevel", wrong, session=session)
        assert no.value.code == -32602
    assert (session.level, connection.sent) == ("error", [])
