"""Tests of log messages about failed interceptors, and of interceptor time limits."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.policy.interceptor_failures import with_failure_policy
from tests.support.single_exchange import Behind, exchange
from tests.support.virtual_time import VirtualTime

LOG = "fairlead.gateway.interceptors"


async def breaks(exchange: Exchange, proceed: Proceed) -> Answer:
    raise ZeroDivisionError("a secret")


@pytest.mark.parametrize(
    ("policy", "fate"),
    [
        ("fail_closed", "the message is refused"),
        ("fail_open", "the message passes"),
        ("skip", "the message passes, and the interceptor is skipped for 7 s"),
    ],
)
async def test_the_log_states_whether_the_message_was_rejected_or_forwarded(
    policy: Any, fate: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, LOG)
    guard = with_failure_policy(breaks, policy, rest=7.0)
    asked = exchange("x/y")
    if policy == "fail_closed":
        with pytest.raises(RpcError, match="Interceptor breaks failed") as refused:
            await guard(asked, Behind())
        assert refused.value.code == -32603
    else:
        assert await guard(asked, Behind()) == b"{}"
    (said,) = [one.getMessage() for one in caplog.records]
    assert said == f"interceptor breaks failed on x/y (ZeroDivisionError): {fate}"
    assert asked.did == ["breaks failed"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "the response is of type NoneType"),
        ("text", "the response is of type str"),
        (b"[1]", "the response is not a JSON object"),
        (Raw(b"5"), "the response is not a JSON object"),
    ],
    ids=["nothing", "text", "list", "number"],
)
async def test_an_invalid_response_from_an_interceptor_is_logged(
    answer: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, LOG)

    async def nonsense(exchange: Exchange, proceed: Proceed) -> Any:
        return answer

    guard = with_failure_policy(nonsense, "fail_open", name="mine")
    behind = Behind()
    assert await guard(exchange(), behind) == b"{}"
    assert len(behind.seen) == 1
    assert f"mine failed on tools/call ({why})" in caplog.text
    # the result of a notification is ignored
    assert await guard(exchange(request=False), Behind(None)) is None


async def test_an_invalid_response_from_the_server_is_forwarded() -> None:
    async def passes(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    odd = b"[1]"
    assert await with_failure_policy(passes)(exchange(), Behind(odd)) is odd


async def test_an_interceptor_cannot_replace_a_request_by_a_notification() -> None:
    async def changes_kind(asked: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange(request=False))

    behind = Behind()
    with pytest.raises(RpcError, match="changes_kind failed"):
        await with_failure_policy(changes_kind)(exchange(), behind)
    assert behind.seen == []


@pytest.mark.parametrize(("own", "late"), [(9.9, False), (10.1, True)])
async def test_the_time_limit_of_an_interceptor_excludes_the_time_spent_in_proceed(
    virtual_time: VirtualTime, own: float, late: bool
) -> None:
    async def slow(exchange: Exchange, proceed: Proceed) -> Answer:
        await asyncio.sleep(own / 2)
        answer = await proceed(exchange)
        await asyncio.sleep(own / 2)
        return answer

    async def behind(exchange: Exchange) -> Answer:
        await asyncio.sleep(1000)
        return b"{}"

    guard = with_failure_policy(slow, "fail_closed", timeout=10.0)
    if late:
        with pytest.raises(RpcError, match="Interceptor slow failed"):
            await guard(exchange(), behind)
    else:
        assert await guard(exchange(), behind) == b"{}"


async def test_a_timeout_inside_an_interceptor_is_a_failure(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, LOG)

    async def impatient(exchange: Exchange, proceed: Proceed) -> Answer:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()
        return None

    guard = with_failure_policy(impatient, "fail_open", timeout=10.0)
    assert await guard(exchange(), Behind()) == b"{}"
    assert "(TimeoutError)" in caplog.text
    hangs = with_failure_policy(impatient, "fail_open", timeout=0.5)
    assert await hangs(exchange(), Behind()) == b"{}"
    assert "(timeout after 0.5 s)" in caplog.text


async def test_an_exception_from_proceed_is_raised_even_if_the_interceptor_fails() -> None:
    error = ConnectionError("behind")

    async def fails(exchange: Exchange) -> Answer:
        raise error

    async def swallows(exchange: Exchange, proceed: Proceed) -> Answer:
        try:
            return await proceed(exchange)
        except ConnectionError:
            raise ZeroDivisionError from None

    async def passes(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    for one in (swallows, passes):
        with pytest.raises(ConnectionError, match="behind"):
            await with_failure_policy(one, "fail_open")(exchange(), fails)


@pytest.mark.parametrize("end", [KeyboardInterrupt, GeneratorExit])
async def test_keyboard_interrupt_and_generator_exit_are_not_interceptor_failures(
    end: type[BaseException],
) -> None:
    async def ends(exchange: Exchange, proceed: Proceed) -> Answer:
        raise end

    guard: Any = with_failure_policy(ends, "fail_open")
    work = guard(exchange(), Behind())
    with pytest.raises(end):
        work.send(None)
    with pytest.raises(RuntimeError, match="cannot reuse"):
        work.send(None)
