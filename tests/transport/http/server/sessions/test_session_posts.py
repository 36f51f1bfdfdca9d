"""POSTs that open a session, belong to one, or contain a batch."""

import asyncio
from typing import Any

import pytest

from tests.support.http_server import (
    BOTH,
    Desk,
    call,
    happens,
    introduction,
    make_server,
    next_event,
    next_message,
    serving,
)


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("1999-01-01", "2025-11-25")],
)
async def test_a_handshake_never_negotiates_a_stateless_revision(asked: str, agreed: str) -> None:
    async with serving(make_server()) as web:
        answer = await web.post(introduction(asked))
        assert answer.result["protocolVersion"] == agreed
        assert answer.headers["mcp-session-id"].isascii()


@pytest.mark.covers("RPC-13", "PRO-04")
async def test_batches_are_accepted_only_in_revisions_that_allow_them() -> None:
    batch = [call("add", {"a": 1, "b": 2}, 1), call("add", {"a": 3, "b": 4}, 2)]
    async with serving(make_server()) as web:
        old = await web.initialize("2025-03-26")
        both = (await old.post(batch)).json
        assert sorted(answer["id"] for answer in both) == [1, 2]
        new = await web.initialize("2025-06-18")
        refused = await new.post(batch)
        assert (refused.status, refused.error) == (400, -32600)
        # Without a session and a version header, the revision that allows batches applies.
        alone = await web.post(batch)
        assert [answer["id"] for answer in sorted(alone.json, key=lambda a: a["id"])] == [1, 2]
        assert (await web.post(batch, {"MCP-Protocol-Version": "2026-07-28"})).error == -32600
        only_told = [{"jsonrpc": "2.0", "method": "notifications/x"}]
        assert (await old.post(only_told)).status == 202


@pytest.mark.covers("SRV-40", "SSE-10")
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_events_have_ids_and_only_the_newest_handshake_revision_has_a_priming_event(
    version: str,
) -> None:
    async with serving(make_server(), retry=0.25) as web:
        session = await web.initialize(version)
        answer = await session.post(call("steps", progressToken="t"))
        assert answer.kind == "text/event-stream"
        ids = [event["id"] for event in answer.events]
        assert len(ids) == len(set(ids))
        assert len({name.rpartition("_")[0] for name in ids}) == 1
        primed = answer.events[0].get("data") == ""
        assert primed == (version == "2025-11-25")
        if primed:
            assert answer.events[0]["retry"] == "250"
        assert answer.messages[-1]["id"] == 7


async def test_every_response_is_a_stream_if_answers_is_sse_and_the_client_accepts_it() -> None:
    async with serving(make_server(), answers="sse") as web:
        session = await web.initialize()
        answer = await session.call("add", {"a": 1, "b": 2})
        assert answer.kind == "text/event-stream"
        assert answer.messages[-1]["result"]["content"][0]["text"] == "3"
        only_json = await session.post(
            call("add", {"a": 1, "b": 2}), {"Accept": "application/json"}
        )
        assert only_json.kind == "application/json"


async def test_an_elicitation_is_sent_on_the_stream_of_its_call() -> None:
    async with serving(make_server()) as web:
        session = await web.initialize(elicitation={})
        async with session.stream(call("name")) as response:
            question = await next_message(response)
            assert question["method"] == "elicitation/create"
            reply = {"action": "accept", "content": {"value": "Ada"}}
            told = await session.post({"jsonrpc": "2.0", "id": question["id"], "result": reply})
            assert (told.status, told.body) == (202, b"")
            answer = await next_message(response)
            assert answer["result"]["content"][0]["text"] == "accept Ada"
            assert await next_event(response) == {}  # SSE-11: the stream ends after the response


async def test_a_request_id_in_use_is_refused() -> None:
    desk = Desk()
    async with serving(make_server(desk)) as web:
        session = await web.initialize()
        waiting = asyncio.create_task(session.call("wait", request_id=3))
        await happens(desk.started)
        again = await session.call("add", {"a": 1, "b": 2}, request_id=3)
        assert (again.status, again.error) == (400, -32600)
        desk.go_on.set()
        assert (await waiting).text == "waited"


@pytest.mark.parametrize("accept", ["application/json", BOTH])
@pytest.mark.parametrize("answers", ["auto", "sse"])
async def test_a_cancelled_request_is_answered_with_an_error(answers: Any, accept: str) -> None:
    desk = Desk()
    async with serving(make_server(desk), answers=answers) as web:
        session = await web.initialize()
        session.headers["Accept"] = accept
        waiting = asyncio.create_task(session.call("wait", request_id=3))
        await happens(desk.started)
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
        assert (await session.post(told)).status == 202
        await happens(desk.cancelled)
        answer = await waiting
        error = {"code": -32800, "message": "Request cancelled"}
        messages = answer.messages if accept == BOTH else [answer.json]
        assert messages == [{"jsonrpc": "2.0", "id": 3, "error": error}]


async def test_a_client_that_accepts_only_json_gets_only_the_final_response() -> None:
    async with serving(make_server()) as web:
        session = await web.initialize()
        body = call("steps", progressToken="t")
        answer = await session.post(body, {"Accept": "application/json"})
        assert answer.kind == "application/json"
        assert answer.text == "done"
