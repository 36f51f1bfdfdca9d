"""Streams that a client listens to or resumes, and the end of a session."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import Context
from tests.support.http_server import (
    Desk,
    call,
    happens,
    make_server,
    next_event,
    next_message,
    serving,
)


@pytest.mark.covers("SSE-10", "SSE-11")
async def test_a_caller_with_a_session_that_leaves_cancels_nothing_and_may_come_back() -> None:
    desk = Desk()
    server = make_server(desk)

    @server.tool()
    async def talk(ctx: Context) -> str:
        await ctx.progress(1)
        desk.started.set()
        await desk.go_on.wait()
        await ctx.progress(2)
        return "told"

    async with serving(server) as web:
        session = await web.initialize("2025-06-18")
        async with session.stream(call("talk", progressToken="t")) as response:
            first = await next_event(response)
            await happens(desk.started)
        desk.go_on.set()
        async with session.stream(**{"Last-Event-ID": first["id"]}) as response:
            assert (await next_message(response))["params"]["progress"] == 2
            assert (await next_message(response))["result"]["content"][0]["text"] == "told"
            assert await next_event(response) == {}
        # Once more, after it is over: the store still has it, and only that stream.
        async with session.stream(**{"Last-Event-ID": first["id"]}) as response:
            assert (await next_message(response))["params"]["progress"] == 2


async def test_an_event_nobody_knows_cannot_be_resumed() -> None:
    async with serving(make_server()) as web:
        session = await web.initialize()
        for last in ("nonsense", "p99_1", "p1_99999999999999999999999"):
            async with session.stream(**{"Last-Event-ID": last}) as response:
                assert response.status == 400
        for last, said in (
            ("x" * 60, f"Last-Event-ID '{'x' * 50}' is none of ours"),
            ("p99_1", "The stream of event 'p99_1' is over"),
        ):
            async with session.stream(**{"Last-Event-ID": last}) as response:
                error = (await response.json(content_type=None))["error"]
                assert (error["code"], error["message"]) == (-32600, said)


@pytest.mark.covers("SSE-10")
async def test_a_server_may_hang_up_and_be_asked_again() -> None:
    desk = Desk()
    async with serving(make_server(desk), retry=0.01) as web:
        session = await web.initialize("2025-11-25")
        answer = await session.call("come_back")
        assert answer.kind == "text/event-stream"
        (priming,) = answer.events
        assert priming["data"] == ""
        desk.go_on.set()
        async with session.stream(**{"Last-Event-ID": priming["id"]}) as response:
            assert (await next_message(response))["result"]["content"][0]["text"] == "here it is"


@pytest.mark.covers("SSE-11")
async def test_what_belongs_to_no_request_goes_to_the_listening_stream_alone() -> None:
    server = make_server()
    async with serving(server) as web:
        session = await web.initialize("2025-06-18")
        async with session.stream() as response:
            server.remove_tool("fail")
            told = await next_event(response)
            assert json.loads(told["data"])["method"] == "notifications/tools/list_changed"
            answer = await session.call("add", {"a": 1, "b": 2})
            assert answer.kind == "application/json"
        # What happens while nobody listens is heard by the one who comes back.
        await asyncio.sleep(0)
        server.remove_tool("steps")
        async with session.stream(**{"Last-Event-ID": told["id"]}) as response:
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"


async def test_news_from_before_the_first_listener_waits_for_it() -> None:
    server = make_server()
    async with serving(server) as web:
        session = await web.initialize()
        server.remove_tool("fail")
        await session.call("add", {"a": 1, "b": 2})
        async with session.stream() as response:
            assert (await next_message(response))["method"] == "notifications/tools/list_changed"


@pytest.mark.covers("SRV-40", "SRV-44")
async def test_a_session_ends_when_its_client_says_so() -> None:
    desk = Desk()
    async with serving(make_server(desk)) as web:
        session = await web.initialize()
        waiting = asyncio.create_task(session.call("wait"))
        await happens(desk.started)
        async with session.stream() as listening:
            async with web.http.delete(web.url, headers=session.headers) as response:
                assert response.status == 200
            assert await next_event(listening) in ({}, _priming(listening))
        await happens(desk.cancelled)
        await waiting
        assert (await session.call("add", {"a": 1, "b": 2})).status == 404
        async with web.http.delete(web.url, headers=session.headers) as response:
            assert response.status == 404
        async with web.http.delete(web.url) as response:
            assert response.status == 405


def _priming(_: object) -> Any:
    class Priming(dict[str, str]):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, dict) and other.get("data") == ""

        __hash__ = None  # type: ignore[assignment]

    return Priming()
