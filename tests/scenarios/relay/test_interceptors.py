"""Interceptors of a relay, which are called in order for both directions."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.envelope import Direction
from tests.support.raw_relay import ASKED, scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


class Watch:
    """An interceptor that records every exchange with its response."""

    def __init__(self) -> None:
        self.seen: list[tuple[Direction, str, Any]] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        envelope = exchange.envelope()
        assert envelope.message is exchange.message
        assert envelope.direction is exchange.direction
        answer = await proceed(exchange)
        plain = None if answer is None else msgspec.json.decode(answer)
        self.seen.append((exchange.direction, exchange.method, plain))
        return answer


@pytest.mark.covers("GTW-01")
async def test_interceptors_get_every_message_with_its_direction() -> None:
    watch = Watch()
    async with scene(interceptors=[watch]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        client.tell("notifications/vendor/up")
        call = client.ask("tools/call", {"name": "x", "_meta": {"progressToken": 1}})
        request = await server.method("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        server.tell("notifications/vendor/down", {"n": 1})
        server.tell("notifications/progress", {"progressToken": token, "progress": 1})
        sample = {"messages": [], "maxTokens": 1, "_meta": {"progressToken": "s"}}
        server.ask("sampling/createMessage", sample, "s1")
        asked = await client.method("sampling/createMessage")
        theirs = asked["params"]["_meta"]["progressToken"]
        client.tell("notifications/progress", {"progressToken": theirs, "progress": 1})
        client.reply(asked, {"role": "assistant"})
        await server.answer_to("s1")
        server.reply(request, {"content": [], "n": 7})
        await client.answer_to(call)
        assert watch.seen[0][:2] == (UP, "initialize")
        assert watch.seen[1:] == [
            (UP, "notifications/initialized", None),
            (UP, "notifications/vendor/up", None),
            (DOWN, "notifications/vendor/down", None),
            (DOWN, "notifications/progress", None),
            (UP, "notifications/progress", None),
            (DOWN, "sampling/createMessage", {"role": "assistant"}),
            (UP, "tools/call", {"content": [], "n": 7}),
        ]
        assert [m["method"] for m in client.skipped] == [
            "notifications/vendor/down",
            "notifications/progress",
        ]


class Meddle:
    """An interceptor that rejects, changes or delays messages by their method."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        message = exchange.message
        if "secret" in exchange.method:
            raise RpcError(-32001, "not here")
        if "broken" in exchange.method:
            raise ZeroDivisionError
        if "change" in exchange.method:
            changed = msgspec.structs.replace(message, params=Raw(b'{"changed":true}'))
            return await proceed(msgspec.structs.replace(exchange, message=changed))
        return await proceed(exchange)


async def test_rejected_messages_are_dropped_and_changed_ones_are_forwarded() -> None:
    async with scene(interceptors=[Meddle()]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        await server.method("notifications/initialized")
        for end, other in ((client, server), (server, client)):
            end.tell("notifications/secret", {"n": 1})
            end.tell("notifications/broken", {"n": 2})
            end.tell("notifications/change", {"n": 3})
            end.tell("notifications/plain", {"n": 4})
            assert (await other.read())["params"] == {"changed": True}
            assert (await other.read())["params"] == {"n": 4}
        server.ask("vendor/secret", None, "s1")
        assert (await server.answer_to("s1"))["error"]["code"] == -32001
        server.ask("vendor/change", {"n": 5}, "s2")
        asked = await client.method("vendor/change")
        assert asked["params"] == {"changed": True}
        client.reply(asked, {"ok": 1})
        assert (await server.answer_to("s2"))["result"] == {"ok": 1}


async def test_a_slow_interceptor_does_not_reorder_messages() -> None:
    class Slow:
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            if exchange.method.startswith("notifications/"):
                for _ in range(20):
                    await asyncio.sleep(0)
            return await proceed(exchange)

    async with scene(interceptors=[Slow()]) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        for n in range(10):
            client.tell("notifications/vendor", {"n": n})
        call = client.ask("tools/call", {"name": "x", "_meta": {"progressToken": 1}})
        heard = [await server.read() for _ in range(11)]
        assert [m["params"].get("n") for m in heard] == [*range(10), None]
        token = heard[-1]["params"]["_meta"]["progressToken"]
        for n in range(10):
            server.tell("notifications/progress", {"progressToken": token, "progress": n})
        server.reply(heard[-1], {"content": []})
        await client.answer_to(call)
        assert [m["params"]["progress"] for m in client.skipped] == list(range(10))
