"""Messages that are held until somebody decides, and what happens if nobody does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fairlead.errors import ConfigError
from fairlead.interceptor import Exchange
from fairlead.policy.actions.pause import Pause
from fairlead.policy.hold_desk import HeldMessage, HoldDesk
from tests.support.raw_relay import ASKED, LIMIT, Client, Scene, Server, scene

CALL = {"name": "add", "arguments": {"a": 1}}


def calls(exchange: Exchange) -> bool:
    return exchange.method in ("tools/call", "vendor/ask", "notifications/vendor")


@contextlib.asynccontextmanager
async def held_up(desk: HoldDesk, **options: Any) -> AsyncIterator[tuple[Scene, Client, Server]]:
    async with (
        asyncio.timeout(LIMIT * 2),
        scene(interceptors=[Pause(desk, calls, **options)]) as place,
    ):
        client = await place.session(ASKED)
        server = await place.server()
        await server.method("notifications/initialized")
        yield place, client, server


async def gone(desk: HoldDesk) -> None:
    while desk.list():
        await asyncio.sleep(0.002)


@pytest.mark.covers("GTW-08")
async def test_a_request_is_held_listed_and_resumed() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", {**CALL, "password": "hunter22"})
        held = await desk.wait()
        assert (held.phase, held.method, held.target) == ("request", "tools/call", "add")
        assert msgspec.json.decode(held.message)["arguments"] == {"a": 1}
        assert "hunter22" not in str(held)
        await client.sync()  # others pass
        desk.resume(held.id)
        request = await server.method("tools/call")
        assert request["params"]["password"] == "hunter22"
        server.reply(request, {"content": []})
        assert (await client.answer_to(asked))["result"] == {"content": []}
        assert desk.list() == []
        with pytest.raises(ConfigError, match="nothing is held under"):
            desk.resume(held.id)


@pytest.mark.covers("GTW-08")
async def test_params_are_changed_on_the_way() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", {**CALL, "_meta": {"vendor": 1}})
        held = await desk.wait()
        with pytest.raises(ConfigError, match="either"):
            desk.change(held.id)
        with pytest.raises(ConfigError, match="objects"):
            desk.change(held.id, params=[1])
        desk.change(held.id, params={"name": "sub", "arguments": {"a": 2}})
        request = await server.method("tools/call")
        meta = {"vendor": 1}  # nobody has to repeat it
        assert request["params"] == {"name": "sub", "arguments": {"a": 2}, "_meta": meta}
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(asked)


@pytest.mark.covers("GTW-08")
async def test_a_request_is_answered_without_the_server() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", CALL)
        desk.change((await desk.wait()).id, result={"content": [], "by": "hand"})
        assert (await client.answer_to(asked))["result"] == {"content": [], "by": "hand"}
        await client.sync()
        assert [one["method"] for one in server.seen if one["method"] == "tools/call"] == []


async def test_who_answers_by_hand_need_not_know_the_era() -> None:
    desk = HoldDesk()
    async with (
        asyncio.timeout(LIMIT * 2),
        scene("stateless", interceptors=[Pause(desk, calls)]) as place,
    ):
        client = await place.client()
        asked = client.stateless("tools/call", CALL)
        desk.change((await desk.wait()).id, result={"content": []})
        assert (await client.answer_to(asked))["result"] == {
            "resultType": "complete",
            "content": [],
        }


@pytest.mark.covers("GTW-08")
async def test_a_request_is_blocked_with_a_reason() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, _server):
        asked = client.ask("tools/call", CALL)
        desk.block((await desk.wait()).id, "not on a Friday")
        error = (await client.answer_to(asked))["error"]
        assert error["message"] == "not on a Friday"
        assert error["data"]["source"] == "proxy"


async def test_an_answer_is_held_and_changed() -> None:
    desk = HoldDesk()
    async with held_up(desk, when="answer") as (_, client, server):
        for verdict, expected in (("change", {"content": [], "n": 2}), ("resume", {"n": 1})):
            asked = client.ask("tools/call", CALL)
            server.reply(await server.method("tools/call"), {"n": 1})
            held = await desk.wait()
            assert (held.phase, msgspec.json.decode(held.message)) == ("answer", {"n": 1})
            if verdict == "change":
                with pytest.raises(ConfigError, match="answer"):
                    desk.change(held.id, params={})
                desk.change(held.id, result=expected)
            else:
                desk.resume(held.id)
            assert (await client.answer_to(asked))["result"] == expected


async def test_both_directions_and_notifications_are_held() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        server.ask("vendor/ask", {"n": 1}, "s1")
        held = await desk.wait()
        assert held.dir == "server_to_client"
        desk.change(held.id, params={"n": 2})
        question = await client.method("vendor/ask")
        assert question["params"] == {"n": 2}
        client.reply(question, {"ok": 1})
        await server.answer_to("s1")
        for number in (1, 2, 3):
            client.tell("notifications/vendor", {"n": number})
        held = await desk.wait()
        assert held.phase == "notification"
        desk.block(held.id)
        await _next(desk, held)
        desk.change((held := await desk.wait()).id, params={"n": 20})
        await _next(desk, held)
        desk.resume((await desk.wait()).id)
        assert (await server.read())["params"] == {"n": 20}
        assert (await server.read())["params"] == {"n": 3}


async def _next(desk: HoldDesk, before: HeldMessage) -> None:
    while (await desk.wait()).id == before.id:
        await asyncio.sleep(0)


@pytest.mark.covers("GTW-08")
@pytest.mark.parametrize("otherwise", ["resume", "block"])
async def test_after_its_time_it_is_decided_without_anybody(otherwise: Any) -> None:
    desk = HoldDesk(limit=0.05, otherwise=otherwise)
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", CALL)
        if otherwise == "resume":
            server.reply(await server.method("tools/call"), {"content": []})
            assert "result" in await client.answer_to(asked)
        else:
            message = (await client.answer_to(asked))["error"]["message"]
            assert message == "nobody decided within 0.05 s"
        assert desk.list() == []


@pytest.mark.covers("GTW-08")
async def test_what_is_held_goes_with_its_client() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (place, client, server):
        cancelled = client.ask("tools/call", CALL)
        await desk.wait()
        client.tell("notifications/cancelled", {"requestId": cancelled})
        await gone(desk)
        other = await place.session()
        other.ask("tools/call", CALL)
        other.tell("notifications/vendor", {"n": 1})
        while len(desk.list()) < 2:
            await asyncio.sleep(0.002)
        await other.close()
        await gone(desk)
        await client.sync()
        assert all(one["method"] != "tools/call" for one in server.seen)


async def test_a_full_desk_refuses() -> None:
    desk = HoldDesk(max_held=2)
    async with held_up(desk) as (_, client, _server):
        asked = [client.ask("tools/call", CALL) for _ in range(3)]
        error = (await client.answer_to(asked[2]))["error"]
        assert error["message"] == "too many messages are held already"
        assert len(desk.list()) == 2


async def test_a_breakpoint_has_its_own_limit_and_says_why_it_is_there() -> None:
    desk = HoldDesk(limit=60)
    pause = Pause(desk, limit=0.05, otherwise="block", reason="look at it")
    async with asyncio.timeout(LIMIT), scene(interceptors=[pause]) as place:
        client = await place.client()
        asking = asyncio.ensure_future(client.initialize())
        assert (await desk.wait()).reason == "look at it"
        assert "error" in await asking


def test_a_limit_is_above_zero() -> None:
    with pytest.raises(ValueError):
        HoldDesk(limit=0)
    with pytest.raises(ValueError):
        Pause(HoldDesk(), limit=-1)
