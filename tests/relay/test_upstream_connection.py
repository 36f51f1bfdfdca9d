"""What is left of calls and clients on a connection: nothing, however they end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.relay.upstream_connection import Link
from tests.support.raw_relay import ASKED, LIMIT, META, Scene, scene, two_sessions


async def watching(exchange: Exchange, proceed: Proceed) -> Answer:
    return await proceed(exchange)


either_way = pytest.mark.parametrize(
    "interceptors", [(), (watching,)], ids=["without a task", "in a task"]
)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0)


def only_link(place: Scene) -> Link:
    (link,) = place.relay.upstream.links
    return link


@either_way
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("end", ["result", "error", "cancel"])
async def test_nothing_is_left_of_a_call_however_it_ended(
    interceptors: Any, era: str, end: str
) -> None:
    async with scene(era, interceptors=interceptors) as place:
        client = await place.session() if era == "handshake" else await place.client()
        given_up: list[str] = []
        for method in ("warm/up", "x/y"):  # the first one opens the connection
            asks = client.ask if era == "handshake" else client.stateless
            call = asks(method, {})
            server = place.servers[-1] if place.servers else await place.server()
            request = await server.method(method)
            link = only_link(place)
            link.on_unanswered = lambda: given_up.append("given up")
            assert list(link.calls) == [request["id"]]
            assert not link.idle
            before = link.used
            if end == "result" or method == "warm/up":
                server.reply(request, {"resultType": "complete"})
                assert "result" in await client.answer_to(call)
            elif end == "error":
                server.refuse(request, -5, "no")
                assert (await client.answer_to(call))["error"]["code"] == -5
            else:
                client.tell("notifications/cancelled", {"requestId": call, "reason": "so"})
                told = await server.method("notifications/cancelled")
                assert told["params"] == {"requestId": request["id"], "reason": "so"}
            await eventually(lambda link=link: not link.calls)  # type: ignore[misc]
            assert link.used >= before
        await eventually(lambda: given_up == (["given up"] if end == "cancel" else []))
        assert link.idle is (era == "stateless")  # a session stays


@either_way
async def test_a_call_that_the_server_does_not_answer_is_given_up(interceptors: Any) -> None:
    async with scene(interceptors=interceptors, call_timeout=0.05) as place:
        client = await place.session()
        await place.server()
        link = only_link(place)
        given_up = asyncio.Event()
        link.on_unanswered = given_up.set
        answer = await client.answer_to(client.ask("x/y", {}))
        assert answer["error"]["data"]["source"] == "proxy"
        async with asyncio.timeout(LIMIT):
            await given_up.wait()
        assert link.calls == {}


async def test_nothing_is_left_of_a_client_that_went() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("resources/subscribe", {"uri": "a:1"}))
        link, quota = only_link(place), place.relay.quota
        assert (list(link.uris), quota.uris.total) == (["a:1"], 1)
        (front,) = link.fronts
        await client.close()
        await server.heard("resources/unsubscribe", "a:1")
        await eventually(lambda: not place.relay._fronts and not link.fronts)
        assert (link.uris, quota.uris.total, quota.uris.counts) == ({}, 0, {})
        assert front.link is None
        assert link.idle
        await eventually(lambda: not place.relay._ending)


async def test_a_resource_is_watched_until_the_last_client_goes() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for client in (one, other):
            await client.answer_to(client.ask("resources/subscribe", {"uri": "a:1"}))
        link = only_link(place)
        await one.close()
        await eventually(lambda: len(link.fronts) == 1)
        server.tell("notifications/resources/updated", {"uri": "a:1"})
        assert (await other.method("notifications/resources/updated"))["params"] == {"uri": "a:1"}
        assert not any(m.get("method") == "resources/unsubscribe" for m in server.seen)
        assert place.relay.quota.uris.total == 1
        await other.close()
        await server.heard("resources/unsubscribe", "a:1")


async def test_a_client_that_may_not_hear_of_a_resource_any_more_does_not() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for uri in ("a:1", "a:2", "a:3"):
            await one.answer_to(one.ask("resources/subscribe", {"uri": uri}))
        await other.answer_to(other.ask("resources/subscribe", {"uri": "a:2"}))
        link = only_link(place)
        front, _ = link.fronts
        place.relay.unwatch(front, lambda uri: uri == "a:1")
        assert set(front.uris) == {"a:1"}
        assert set(link.uris) == {"a:1", "a:2"}
        await server.heard("resources/unsubscribe", "a:3")
        await other.sync()
        gone = [m["params"]["uri"] for m in server.seen if m["method"] == "resources/unsubscribe"]
        assert gone == ["a:3"]  # the other client still watches the second one
        assert place.relay.quota.uris.total == 2


async def test_a_connection_that_is_lost_is_forgotten_and_told_of() -> None:
    async with scene() as place:
        upstream = place.relay.upstream
        opened: list[Link] = []
        lost: list[Link] = []
        upstream.on_link = opened.append
        told = upstream.on_lost
        upstream.on_lost = lambda link, end: (lost.append(link), told and told(link, end))[0]
        client = await place.session()
        server = await place.server()
        link = only_link(place)
        (front,) = link.fronts
        assert (opened, lost, upstream.error) == ([link], [], None)
        await server.close()
        await eventually(lambda: lost)
        assert (lost, upstream.links, link.fronts, front.link) == ([link], [], {}, None)
        assert not link.alive
        assert upstream._timers == {}
        call = client.ask("x/y", {})
        server = await place.server()
        server.reply(await server.method("x/y"), {})
        assert "result" in await client.answer_to(call)
        assert opened == [link, only_link(place)]


async def test_a_connection_that_we_close_is_ending_and_its_background_work_with_it() -> None:
    async with scene(quiet={"slow/work"}) as place:
        await place.session()
        server = await place.server()
        link = only_link(place)
        link.background(link.peer.request("slow/work", {}))
        await server.method("slow/work")
        (work,) = link._background
        assert not link.ending
        await link.close()
        assert link.ending
        assert not link.alive
        await asyncio.wait([work])
        assert work.cancelled()
        assert link._background == set()


async def test_what_a_stateless_client_tells_passes_unless_it_names_a_request() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        client.stateless("x/y", {})
        server = await place.server()
        await server.method("x/y")
        for method in ("notifications/cancelled", "notifications/progress"):
            client.tell(method, {"requestId": 12345, "progressToken": 12345})
        client.tell("notifications/vendor", {"n": 1})
        told = await server.method("notifications/vendor")
        assert told["params"] == {"n": 1}
        assert [m["method"] for m in server.seen if "id" not in m] == ["notifications/vendor"]


@pytest.mark.parametrize("everybody", [True, False])
async def test_who_listens_is_hung_up_on(everybody: bool) -> None:
    async with scene("stateless") as place:
        one, other = await place.client(), await place.client()
        wanted = {"notifications": {"toolsListChanged": True}}
        first = one.stateless("subscriptions/listen", wanted)
        server = await place.server()
        await server.method("subscriptions/listen")
        second = other.stateless("subscriptions/listen", wanted)
        await server.method("subscriptions/listen")
        quota = place.relay.quota
        assert quota.streams.total == 2
        edges = list(place.relay._same_era._listening.values())
        place.relay.hang_up(None if everybody else edges[0])
        ended = (await one.answer_to(first))["result"]
        assert ended == {
            "resultType": "complete",
            "_meta": {f"{META}subscriptionId": first},
        }
        assert (await server.method("notifications/cancelled"))["params"]["requestId"]
        if everybody:
            assert "result" in await other.answer_to(second)
        await eventually(lambda: quota.streams.total == (0 if everybody else 1))
        assert len(place.relay._same_era._listening) == (0 if everybody else 1)


async def test_a_question_is_over_when_it_was_answered() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        (front,) = only_link(place).fronts
        question = server.ask("roots/list")
        asked = await client.method("roots/list")
        assert (front.asked, len(front._questions)) == (1, 1)
        client.reply(asked, {"roots": []})
        await server.answer_to(question)
        assert (front.asked, front._questions) == (0, {})
        server.reply(request, {"content": []})
        await client.answer_to(call)
