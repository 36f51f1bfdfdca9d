"""Interceptors that allow, reject and limit requests, in a relay with real connections."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.policy.actions import Allow, Block, RateLimit, SizeLimit, TimeLimit
from fairlead.protocol.envelope import Direction
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene


async def answered(server: Server, client: Client, call: Any, result: Any = None) -> Any:
    """Answer the next request at the server, and return the response at the client."""
    request = await server.until(lambda m: "id" in m)
    server.reply(request, {"content": []} if result is None else result)
    return await client.answer_to(call)


async def opened(place: Scene, capabilities: Any = None) -> tuple[Client, Server]:
    client = await place.session(capabilities)
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


async def test_only_allowed_requests_are_forwarded_to_the_server() -> None:
    allow = Allow(["fs_*", "file:///ok/*"], ["*_delete"], deny_methods=["prompts/*"])
    async with scene(interceptors=[allow]) as place:
        client, server = await opened(place)
        for method, params, words in [
            ("tools/call", {"name": "net_get"}, "net_get is not allowed here"),
            ("tools/call", {"name": "fs_delete"}, "fs_delete is not allowed here"),
            ("resources/read", {"uri": "file:///etc/passwd"}, "file:///etc/passwd is not"),
            ("prompts/list", None, "prompts/list is not allowed here"),
        ]:
            error = (await client.answer_to(client.ask(method, params)))["error"]
            assert words in error["message"]
            assert error["data"]["source"] == "proxy"
        call = client.ask("tools/call", {"name": "fs_read"})
        assert "result" in await answered(server, client, call)
        call = client.ask("tools/list")
        assert "result" in await answered(server, client, call, {"tools": []})
        assert [m["method"] for m in server.seen if "id" in m][1:] == ["tools/call", "tools/list"]


@pytest.mark.covers("GTW-06")
async def test_a_block_action_rejects_requests_and_drops_notifications_in_both_directions() -> None:
    class Some:
        """An interceptor that blocks messages about mice."""

        def __init__(self) -> None:
            self.block = Block("no mice", -32050)
            self.did: list[tuple[Direction, str, list[str] | None]] = []

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            if "mouse" not in exchange.method:
                return await proceed(exchange)
            try:
                return await self.block(exchange, proceed)
            finally:
                self.did.append((exchange.direction, exchange.method, exchange.did))

    some = Some()
    async with scene(interceptors=[some]) as place:
        client, server = await opened(place, ASKED)
        for end, other in ((client, server), (server, client)):
            end.tell("notifications/mouse")
            refused = end.ask("vendor/mouse")
            error = (await end.answer_to(refused))["error"]
            assert (error["code"], error["message"]) == (-32050, "no mice")
            assert error["data"] == {"source": "proxy", "method": "vendor/mouse"}
            end.tell("notifications/dog")
            assert (await other.read())["method"] == "notifications/dog"
    up, down = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
    assert sorted(some.did, key=lambda one: (one[0], one[1])) == [
        (up, "notifications/mouse", ["dropped: no mice"]),
        (up, "vendor/mouse", ["blocked: no mice"]),
        (down, "notifications/mouse", ["dropped: no mice"]),
        (down, "vendor/mouse", ["blocked: no mice"]),
    ]


@pytest.mark.parametrize(
    ("per", "names", "limited"),
    [
        ("all", ["a", "b"], [False, True]),
        ("tool", ["a", "b", "a"], [False, False, True]),
        ("identity", ["a", "b"], [False, True]),
        (["session", "tool"], ["a", "b", "b"], [False, False, True]),
    ],
)
async def test_a_rate_limited_request_gets_a_retry_time(
    per: Any, names: list[str], limited: list[bool]
) -> None:
    now = 100.0
    rate = RateLimit(0.5, 1, per=per, clock=lambda: now)
    async with scene(interceptors=[rate]) as place:
        client, server = await opened(place)
        outcome = []
        for name in names:
            call = client.ask("tools/call", {"name": name})
            if limited[len(outcome)]:
                answer = await client.answer_to(call)
                assert answer["error"]["message"] == "Too many requests: try again in 2 s"
                assert answer["error"]["data"] == {"source": "proxy", "retryAfter": 2.0}
            else:
                answer = await answered(server, client, call)
            outcome.append("error" in answer)
        assert outcome == limited
        call = client.ask("tools/list")  # the limit applies only to `tools/call`
        assert "result" in await answered(server, client, call, {"tools": []})
        now += 2.0
        call = client.ask("tools/call", {"name": names[-1]})
        assert "result" in await answered(server, client, call)


async def test_client_identities_have_separate_rate_limit_buckets() -> None:
    who = iter(["ann", "bob"])
    rate = RateLimit(0.001, 1, per="identity")
    async with scene(interceptors=[rate], principal=lambda: next(who)) as place:
        for _ in range(2):
            client = await place.session()
            server = await place.server()
            call = client.ask("tools/call", {"name": "x"})
            assert "result" in await answered(server, client, call)
            again = await client.answer_to(client.ask("tools/call", {"name": "x"}))
            assert "Too many requests" in again["error"]["message"]


async def test_messages_over_the_size_limit_are_rejected() -> None:
    async with scene(interceptors=[SizeLimit(params=300, result=300)]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x", "arguments": {"a": "b" * 400}})
        error = (await client.answer_to(call))["error"]
        assert "bytes exceed the limit of 300 bytes" in error["message"]
        call = client.ask("tools/call", {"name": "x"})
        large = {"content": [{"type": "text", "text": "c" * 400}]}
        error = (await answered(server, client, call, large))["error"]
        assert "bytes exceeds the limit of 300 bytes" in error["message"]


async def test_a_request_over_the_time_limit_is_cancelled() -> None:
    async with scene(interceptors=[TimeLimit(0.1)]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        error = (await client.answer_to(call))["error"]
        assert error["message"] == "No response within 0.1 s"
        stop = await server.method("notifications/cancelled")
        assert stop["params"]["requestId"] == request["id"]


async def test_a_time_limit_does_not_replace_the_timeout_of_another_component() -> None:
    async def elsewhere(exchange: Exchange) -> Answer:
        raise TimeoutError("elsewhere")

    async def tell(exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await TimeLimit(5)(exchange, elsewhere)
        except TimeoutError as exc:
            seen.append(str(exc))
        return await proceed(exchange)

    seen: list[str] = []
    async with scene(interceptors=[tell]) as place, asyncio.timeout(10):
        await opened(place)
    assert "elsewhere" in seen


@pytest.mark.parametrize(
    "made",
    [
        lambda: RateLimit(1.0, per=[]),
        lambda: RateLimit(0),
        lambda: RateLimit(1.0, -1),
        lambda: RateLimit(1.0, 0.5),
        lambda: SizeLimit(params=-1),
        lambda: SizeLimit(result=-1),
    ],
)
def test_invalid_limits_of_actions_are_rejected(made: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="`"):
        made()
