"""Tests of breakpoints with single exchanges."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.policy.actions.pause import Pause
from fairlead.policy.hold_desk import HeldMessage, HoldDesk
from tests.support.single_exchange import Behind, exchange

Decide = Callable[[HoldDesk, int], None]


async def held(
    desk: HoldDesk, work: Awaitable[Answer], *decide: Decide
) -> tuple[list[HeldMessage], Any]:
    """Apply one decision to each held message; return the messages and the outcome."""
    running = asyncio.ensure_future(work)
    seen = []
    async with asyncio.timeout(5):
        for one in decide:
            seen.append(await desk.wait())
            one(desk, seen[-1].id)
            await asyncio.sleep(0)
        try:
            answer = await running
        except RpcError as exc:
            return seen, exc
    return seen, None if answer is None else json.loads(bytes(answer))


def resume(desk: HoldDesk, number: int) -> None:
    desk.resume(number)


def block(desk: HoldDesk, number: int) -> None:
    desk.block(number, "no")


def with_result(desk: HoldDesk, number: int) -> None:
    desk.change(number, result={"by": "hand"})


def with_params(desk: HoldDesk, number: int) -> None:
    desk.change(number, params={"name": "b"})


@pytest.mark.parametrize(
    ("when", "decide", "phases", "answer", "passed", "did"),
    [
        ("request", [resume], ["request"], {"n": 1}, True, ["resumed"]),
        ("answer", [resume], ["answer"], {"n": 1}, True, ["resumed"]),
        ("both", [resume, resume], ["request", "answer"], {"n": 1}, True, ["resumed", "resumed"]),
        ("request", [block], ["request"], "no", False, ["blocked (no)"]),
        ("answer", [block], ["answer"], "no", True, ["blocked (no)"]),
        ("request", [with_result], ["request"], {"by": "hand"}, False, ["changed"]),
        ("answer", [with_result], ["answer"], {"by": "hand"}, True, ["changed"]),
        ("both", [with_result], ["request"], {"by": "hand"}, False, ["changed"]),
        ("request", [with_params], ["request"], {"n": 1}, True, ["changed"]),
    ],
)
async def test_a_breakpoint_holds_the_request_the_response_or_both(
    when: Any, decide: list[Decide], phases: list[str], answer: Any, passed: bool, did: list[str]
) -> None:
    desk, behind = HoldDesk(), Behind(b'{"n":1}')
    asked = exchange("tools/call", {"name": "a", "_meta": {"k": 1}}, stateless=False)
    seen, outcome = await held(desk, Pause(desk, when=when, reason="why")(asked, behind), *decide)
    assert [one.phase for one in seen] == phases
    assert {(one.method, one.target, one.reason) for one in seen} == {("tools/call", "a", "why")}
    assert (outcome.message if isinstance(outcome, RpcError) else outcome) == answer
    assert len(behind.seen) == passed
    assert [one for one in asked.did or [] if one.startswith("paused")] == [
        f"paused: {one}" for one in did
    ]
    if decide == [with_params]:
        sent = json.loads(bytes(behind.seen[0].message.params))  # type: ignore[arg-type]
        assert sent == {"name": "b", "_meta": {"k": 1}}  # `_meta` need not be repeated


@pytest.mark.parametrize(
    ("decide", "message"), [(resume, "its own"), (block, "no"), (with_result, None)]
)
async def test_an_error_response_is_held_like_a_result(decide: Decide, message: str | None) -> None:
    async def refuses(exchange: Exchange) -> Answer:
        raise RpcError(5, "its own")

    desk = HoldDesk()
    asked = exchange("x", {}, stateless=False)
    (one,), outcome = await held(desk, Pause(desk, when="answer")(asked, refuses), decide)
    assert one.phase == "error"
    assert json.loads(bytes(one.message)) == {"code": 5, "message": "its own"}  # type: ignore[arg-type]
    assert outcome == {"by": "hand"} if message is None else outcome.message == message


@pytest.mark.parametrize(
    ("when", "decide", "phases", "passed"),
    [
        ("request", [resume], ["notification"], True),
        ("both", [resume], ["notification"], True),
        ("request", [block], ["notification"], False),
        ("answer", [], [], True),
    ],
)
async def test_a_notification_is_held_unless_the_breakpoint_selects_only_responses(
    when: Any, decide: list[Decide], phases: list[str], passed: bool
) -> None:
    desk, behind = HoldDesk(), Behind(None)
    told = exchange("notifications/x", request=False)
    seen, outcome = await held(desk, Pause(desk, when=when)(told, behind), *decide)
    assert ([one.phase for one in seen], outcome) == (phases, None)
    assert len(behind.seen) == passed
    assert ("dropped: no" in (told.did or [])) is not passed


async def test_messages_that_do_not_match_a_breakpoint_are_not_held() -> None:
    desk, behind = HoldDesk(), Behind()
    assert await Pause(desk, lambda one: one.method == "y")(exchange("x"), behind) == b"{}"
    assert len(behind.seen) == 1


@pytest.mark.parametrize(
    ("stateless", "result", "answer"),
    [
        (True, {"a": 1}, {"resultType": "complete", "a": 1}),
        (True, {"resultType": "other"}, {"resultType": "other"}),
        (False, {"a": 1}, {"a": 1}),
    ],
)
async def test_a_missing_result_type_is_added_to_the_result_of_an_operator(
    stateless: bool, result: Any, answer: Any
) -> None:
    desk = HoldDesk()
    work = Pause(desk)(exchange("x", {}, stateless=stateless), Behind())
    _, outcome = await held(desk, work, lambda desk, n: desk.change(n, result=result))
    assert outcome == answer


@pytest.mark.parametrize(
    ("before", "given", "sent"),
    [
        ({"_meta": {"k": 1}}, {"b": 1}, {"b": 1, "_meta": {"k": 1}}),
        ({"_meta": {"k": 1}}, {"_meta": {}}, {"_meta": {}}),
        ({"a": 1}, {"b": 1}, {"b": 1}),
        (None, {"b": 1}, {"b": 1}),
    ],
)
async def test_the_meta_of_a_held_request_is_kept_unless_the_operator_replaces_it(
    before: Any, given: Any, sent: Any
) -> None:
    desk, behind = HoldDesk(), Behind()
    work = Pause(desk)(exchange("x", before), behind)
    await held(desk, work, lambda desk, n: desk.change(n, params=given))
    assert json.loads(bytes(behind.seen[0].message.params)) == sent  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1])
def test_the_time_limit_of_a_breakpoint_must_be_positive(limit: float) -> None:
    with pytest.raises(ValueError, match="`limit` must be greater than 0"):
        Pause(HoldDesk(), limit=limit)


async def test_a_breakpoint_overrides_the_defaults_of_its_desk(virtual_time: Any) -> None:
    desk, behind = HoldDesk(), Behind()
    began = virtual_time.now
    pause = Pause(desk, limit=7.0, otherwise="resume")
    asked = exchange("x")
    assert await pause(asked, behind) == b"{}"
    assert virtual_time.now == began + 7.0
    assert asked.did == ["paused: resumed (no decision within 7 s)"]
    with pytest.raises(RpcError, match="no decision within 60 s"):
        await Pause(desk)(exchange("x"), behind)
    assert virtual_time.now == began + 67.0
