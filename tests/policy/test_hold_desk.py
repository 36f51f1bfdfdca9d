"""Tests of messages that are held until a decision or a timeout."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fairlead.errors import ConfigError
from fairlead.interceptor import Exchange
from fairlead.limits import HELD_MESSAGES
from fairlead.policy.actions.pause import Pause
from fairlead.policy.hold_desk import SHOWN, HeldMessage, HoldDecision, HoldDesk, NotHeld
from fairlead.redaction.redact_messages import Redactor
from fairlead.redaction.redact_text import REDACTED
from tests.support.raw_relay import ASKED, LIMIT, Client, Scene, Server, scene
from tests.support.single_exchange import exchange

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
async def test_a_held_request_is_listed_and_can_be_resumed() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", {**CALL, "password": "hunter22"})
        held = await desk.wait()
        assert (held.phase, held.method, held.target) == ("request", "tools/call", "add")
        assert msgspec.json.decode(held.message)["arguments"] == {"a": 1}
        assert "hunter22" not in str(held)
        await client.sync()  # messages of other methods are not held
        desk.resume(held.id)
        request = await server.method("tools/call")
        assert request["params"]["password"] == "hunter22"
        server.reply(request, {"content": []})
        assert (await client.answer_to(asked))["result"] == {"content": []}
        assert desk.list() == []
        with pytest.raises(ConfigError, match="is not held"):
            desk.resume(held.id)


@pytest.mark.covers("GTW-08")
async def test_an_operator_can_change_the_params_of_a_held_request() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", {**CALL, "_meta": {"vendor": 1}})
        held = await desk.wait()
        with pytest.raises(ConfigError, match="exactly one of"):
            desk.change(held.id)
        with pytest.raises(ConfigError, match="objects"):
            desk.change(held.id, params=[1])
        desk.change(held.id, params={"name": "sub", "arguments": {"a": 2}})
        request = await server.method("tools/call")
        meta = {"vendor": 1}  # kept, although the new params do not contain it
        assert request["params"] == {"name": "sub", "arguments": {"a": 2}, "_meta": meta}
        server.reply(request, {"content": []})
        assert "result" in await client.answer_to(asked)


@pytest.mark.covers("GTW-08")
async def test_an_operator_can_answer_a_held_request_without_the_server() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", CALL)
        desk.change((await desk.wait()).id, result={"content": [], "by": "hand"})
        assert (await client.answer_to(asked))["result"] == {"content": [], "by": "hand"}
        await client.sync()
        assert [one["method"] for one in server.seen if one["method"] == "tools/call"] == []


async def test_a_result_from_an_operator_gets_the_result_type_of_the_stateless_era() -> None:
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
async def test_a_held_request_can_be_blocked_with_a_reason() -> None:
    desk = HoldDesk()
    async with held_up(desk) as (_, client, _server):
        asked = client.ask("tools/call", CALL)
        desk.block((await desk.wait()).id, "not on a Friday")
        error = (await client.answer_to(asked))["error"]
        assert error["message"] == "not on a Friday"
        assert error["data"]["source"] == "proxy"


async def test_an_operator_can_change_or_resume_a_held_response() -> None:
    desk = HoldDesk()
    async with held_up(desk, when="answer") as (_, client, server):
        for verdict, expected in (("change", {"content": [], "n": 2}), ("resume", {"n": 1})):
            asked = client.ask("tools/call", CALL)
            server.reply(await server.method("tools/call"), {"n": 1})
            held = await desk.wait()
            assert (held.phase, msgspec.json.decode(held.message)) == ("answer", {"n": 1})
            if verdict == "change":
                with pytest.raises(ConfigError, match="is a response"):
                    desk.change(held.id, params={})
                desk.change(held.id, result=expected)
            else:
                desk.resume(held.id)
            assert (await client.answer_to(asked))["result"] == expected


async def test_notifications_and_requests_from_servers_can_be_held() -> None:
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
async def test_a_held_message_times_out_with_the_default_outcome(otherwise: Any) -> None:
    desk = HoldDesk(limit=0.05, otherwise=otherwise)
    async with held_up(desk) as (_, client, server):
        asked = client.ask("tools/call", CALL)
        if otherwise == "resume":
            server.reply(await server.method("tools/call"), {"content": []})
            assert "result" in await client.answer_to(asked)
        else:
            message = (await client.answer_to(asked))["error"]["message"]
            assert message == "no decision within 0.05 s"
        assert desk.list() == []


@pytest.mark.covers("GTW-08")
async def test_held_messages_are_removed_when_their_client_cancels_or_disconnects() -> None:
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


async def test_messages_over_the_limit_of_the_desk_are_blocked() -> None:
    desk = HoldDesk(max_held=2)
    async with held_up(desk) as (_, client, _server):
        asked = [client.ask("tools/call", CALL) for _ in range(3)]
        error = (await client.answer_to(asked[2]))["error"]
        assert error["message"] == "too many messages are held"
        assert len(desk.list()) == 2


async def test_a_breakpoint_may_have_its_own_time_limit_and_reason() -> None:
    desk = HoldDesk(limit=60)
    pause = Pause(desk, limit=0.05, otherwise="block", reason="look at it")
    async with asyncio.timeout(LIMIT), scene(interceptors=[pause]) as place:
        client = await place.client()
        asking = asyncio.ensure_future(client.initialize())
        assert (await desk.wait()).reason == "look at it"
        assert "error" in await asking


def test_time_limits_of_desks_and_breakpoints_must_be_positive() -> None:
    with pytest.raises(ValueError):
        HoldDesk(limit=0)
    with pytest.raises(ValueError):
        Pause(HoldDesk(), limit=-1)


@contextlib.asynccontextmanager
async def holding(
    desk: HoldDesk,
    phase: Any = "request",
    *,
    target: str | None = None,
    message: Any = None,
    **options: Any,
) -> AsyncIterator[tuple[HeldMessage, "asyncio.Task[HoldDecision]"]]:
    """Hold one message at the desk."""
    asked = exchange("m") if target is None else exchange(params={"name": target})
    task = asyncio.create_task(desk.hold(phase, asked, message, **options))
    async with asyncio.timeout(LIMIT):
        await asyncio.sleep(0)
        held = desk.list()[-1]
        yield held, task
        task.cancel()
        await asyncio.wait([task])
    assert held not in desk.list()


@pytest.mark.parametrize(
    ("phase", "question", "change", "why"),
    [
        ("request", False, {}, "exactly one of `params` and `result` must be given"),
        (
            "request",
            False,
            {"params": {}, "result": {}},
            "exactly one of `params` and `result` must be given",
        ),
        ("request", True, {"params": {}}, "message 1 cannot be changed: resume or block it"),
        ("answer", False, {"params": {}}, "message 1 is a response: set its `result`"),
        ("error", False, {"params": {}}, "message 1 is a response: set its `result`"),
        ("notification", False, {"result": {}}, "message 1 is a notification, which has no result"),
        ("request", False, {"params": [1]}, "`params` and `result` must be JSON objects"),
        (
            "request",
            False,
            {"result": msgspec.Raw(b"1")},
            "`params` and `result` must be JSON objects",
        ),
        ("request", False, {"params": {"a": 1}}, None),
        ("request", False, {"result": msgspec.Raw(b' {"a":1}')}, None),
        ("answer", False, {"result": {"a": 1}}, None),
        ("notification", False, {"params": {"a": 1}}, None),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_allowed_changes_of_a_held_message_depend_on_its_phase(
    phase: Any, question: bool, change: dict[str, Any], why: str | None
) -> None:
    desk = HoldDesk()
    async with holding(desk, phase, question=question) as (held, task):
        assert (held.id, held.question) == (1, question)
        if why is not None:
            with pytest.raises(ConfigError, match=why):
                desk.change(held.id, **change)
            assert desk.list() == [held]
            return
        desk.change(held.id, **change)
        decided = await task
        (changed,) = [one for one in (decided.params, decided.result) if one is not None]
        assert (decided.action, msgspec.json.decode(changed)) == ("change", {"a": 1})
        assert (decided.params is None) is ("result" in change)


async def test_held_messages_have_increasing_ids_and_can_be_decided_once() -> None:
    desk = HoldDesk()
    async with holding(desk) as (first, task), holding(desk) as (second, _):
        assert await desk.wait() is first  # `wait` returns the oldest held message
        assert desk.list() == [first, second]
        assert (first.id, second.id) == (1, 2)
        desk.block(1)
        assert [one.id for one in desk.list()] == [2]
        with pytest.raises(NotHeld, match="message 1 is not held: it was decided or cancelled"):
            desk.block(1, "again")
        with pytest.raises(NotHeld, match="message 3 is not held"):
            desk.resume(3)
        assert await task == HoldDecision("block", "refused by the operator")


async def test_block_all_blocks_messages_without_a_decision() -> None:
    desk = HoldDesk()
    async with holding(desk) as (_, one), holding(desk) as (_, other):
        desk.resume(1)
        desk.block_all("the end")
        assert (await one).action == "resume"
        assert await other == HoldDecision("block", "the end")


@pytest.mark.parametrize(("size", "shown"), [(0, False), (SHOWN, True), (SHOWN + 1, False)])
async def test_only_the_size_of_a_long_message_is_shown(size: int, shown: bool) -> None:
    message = b'"' + b"x" * (size - 2) + b'"' if size else None
    async with holding(HoldDesk(), message=message) as (held, _):
        assert held.size == size
        assert (held.message is not msgspec.UNSET) is shown


async def test_a_held_message_is_shown_with_its_deadline_and_without_secrets() -> None:
    desk = HoldDesk(limit=7, otherwise="resume")
    target, reason = "x?token=abcdef123456", "password=hunter2-hunter2"
    async with holding(desk, target=target, reason=reason) as (held, _):
        assert held.until - held.at == pytest.approx(7)
        assert held.otherwise == "resume"
        assert "abcdef123456" not in (held.target or "abcdef123456")
        assert "hunter2" not in (held.reason or "hunter2")
    async with holding(HoldDesk(), limit=3, otherwise="resume") as (held, _):
        assert held.until - held.at == pytest.approx(3)
        assert (held.otherwise, held.target, held.reason) == ("resume", None, None)


async def test_the_target_of_a_held_message_is_truncated_after_redaction() -> None:
    desk = HoldDesk(redactor=Redactor(values=["hunter2-hunter2"]))
    async with holding(desk, target="x" * (SHOWN - 7) + "hunter2-hunter2") as (held, _):
        assert held.target == ("x" * (SHOWN - 7) + REDACTED)[:SHOWN]


@pytest.mark.parametrize(("room", "held"), [(1, False), (2, True)])
async def test_the_number_of_held_messages_is_limited(room: int, held: bool) -> None:
    desk, hits = HoldDesk(max_held=room), HELD_MESSAGES.hits
    async with holding(desk) as (_, _):
        task = asyncio.create_task(desk.hold("request", exchange("m"), None))
        await asyncio.sleep(0)
        assert len(desk.list()) == room
        assert HELD_MESSAGES.hits - hits == (not held)
        task.cancel()
        await asyncio.wait([task])


async def test_cancelling_one_wait_for_held_messages_does_not_affect_others() -> None:
    desk = HoldDesk()
    waiting = [asyncio.create_task(desk.wait()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait([waiting[0]])
    async with holding(desk) as (held, _):
        assert await waiting[1] is held
