"""Digests of parked requests, and parked calls without connections."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.limits import PARKED_CALLS
from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.protocol.json_edit import members_of
from fairlead.protocol.sealed_state import KeyRing
from fairlead.relay.bridge import parked_calls as parking
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.wire import to_json
from fairlead.wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from tests.support.raw_relay import ASKED
from tests.support.single_exchange import DOWN, exchange
from tests.support.virtual_time import VirtualTime


def members(value: Any) -> dict[str, Raw]:
    found = members_of(json.dumps(value).encode())
    assert found is not None
    return found


def digest(value: Any, method: str = "tools/call") -> bytes:
    return parking._digest(method, None if value is None else members(value))


def test_the_digest_of_a_request_is_the_same_in_each_round() -> None:
    first = digest({"name": "a", "arguments": {"x": 1, "y": 2}})
    assert digest({"arguments": {"y": 2, "x": 1}, "name": "a"}) == first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 2}, "_meta": {"k": 1}}) == first
    again = {"name": "a", "arguments": {"x": 1, "y": 2}, "requestState": "s", "inputResponses": {}}
    assert digest(again) == first
    assert digest({"name": "b", "arguments": {"x": 1, "y": 2}}) != first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 3}}) != first
    assert digest({"name": "a", "arguments": {"x": 1, "y": 2}}, "prompts/get") != first
    assert digest(None) == digest({})


@pytest.mark.parametrize(
    ("params", "question"),
    [
        (None, {"method": "elicitation/create"}),
        ({}, {"method": "elicitation/create", "params": {}}),
        (
            {"message": "m", "task": {}, "elicitationId": "e"},
            {"method": "elicitation/create", "params": {"message": "m"}},
        ),
        (
            {"message": "m", "_meta": {"progressToken": 1}},
            {"method": "elicitation/create", "params": {"message": "m"}},
        ),
        (
            {"_meta": {"progressToken": 1, "k": 2}},
            {"method": "elicitation/create", "params": {"_meta": {"k": 2}}},
        ),
    ],
)
def test_a_server_request_is_converted_to_an_input_request(params: Any, question: Any) -> None:
    asked = exchange("elicitation/create", params, way=DOWN)
    assert json.loads(bytes(parking._embedded(asked))) == question


@pytest.mark.parametrize(
    ("responses", "action"),
    [
        (None, None),
        ({}, None),
        ({"q": {"action": "accept"}}, None),
        ({"q": 1}, None),
        ({"q": {"action": "decline"}}, "decline"),
        ({"p": {"action": "accept"}, "q": {"action": "cancel"}}, "cancel"),
    ],
)
def test_a_declined_page_visit_raises_an_error(responses: Any, action: str | None) -> None:
    given = members({} if responses is None else {"inputResponses": responses})
    if action is None:
        parking._check_visited(given)
        return
    with pytest.raises(RpcError) as refused:
        parking._check_visited(given)
    assert (refused.value.code, refused.value.message) == (
        -32603,
        f"The server requires a visit to a page, but the user chose {action!r}",
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a":1,"b":[2,3]}', '{ "b":[2, 3], "a":1 }', True),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"a":1e400}', '{"a":1e400}', True),
        ('{"a":1e400}', '{"a":1e401}', False),
        ('{"x":{"b":1,"a":2}}', '{"x":{"a":2,"b":1}}', True),
    ],
)
def test_the_digest_of_a_request_ignores_the_order_of_members(
    one: str, other: str, same: bool
) -> None:
    digests = {parking._digest("m", {"arguments": Raw(text.encode())}) for text in (one, other)}
    assert len(digests) == (1 if same else 2)


# Parked calls without connections


class LiveCall:
    """A call for which the test acts as server and client."""

    def __init__(
        self,
        lot: ParkedCalls,
        principal: Principal = ANONYMOUS,
        declared: Any = None,
        **settings: float,
    ) -> None:
        self.lot = lot
        self.settings = UpstreamSettings(**settings)  # type: ignore[arg-type]
        self.exchange = self.request(principal, declared)
        self.parking: Any = None
        self.moves: list[Exchange] = []
        self.flushes = 0
        self.result: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.work = asyncio.ensure_future(self._work())

    @staticmethod
    def request(principal: Principal = ANONYMOUS, declared: Any = None) -> Exchange:
        capabilities = to_json(ASKED if declared is None else declared)
        return exchange("tools/call", {"name": "x"}, capabilities=capabilities, principal=principal)

    async def _work(self) -> Raw:
        return await self.result

    def moved_to(self, exchange: Exchange) -> None:
        self.moves.append(exchange)

    async def flushed(self) -> None:
        self.flushes += 1

    def begin(self) -> "asyncio.Task[Raw]":
        """Send the first request."""
        call: Any = self
        begun = self.lot.begin(call, members({"name": "x"}), self.work, self.settings)
        return asyncio.ensure_future(begun)

    def ask(self, method: str = "roots/list", params: Any = None) -> "asyncio.Task[Raw]":
        """Send a server request to the client."""
        return asyncio.ensure_future(self.parking.ask(exchange(method, params, way=DOWN)))

    async def park(self) -> dict[str, Any]:
        """Start the call, send a server request, and return the input request for the client."""
        begun = self.begin()
        await asyncio.sleep(0)
        self.asked = self.ask()
        return round_of(await begun)

    def resume(self, state: str, answers: Any = None, **other: Any) -> "asyncio.Task[Raw | None]":
        """Continue the call with input responses."""
        given = {"name": "x", **other}
        if answers is not None:
            given["inputResponses"] = answers
        request = self.request(self.exchange.caller.principal)
        return asyncio.ensure_future(self.lot.resume(request, members(given), state))


def round_of(result: Raw | None) -> dict[str, Any]:
    assert result is not None
    found: dict[str, Any] = json.loads(bytes(result))
    return found


def lot(limit: int = 64) -> ParkedCalls:
    return ParkedCalls(limit, KeyRing())


@pytest.mark.parametrize(
    ("method", "params", "declared", "missing"),
    [
        ("roots/list", None, {"roots": {}}, None),
        ("roots/list", None, {"sampling": {}}, "roots"),
        ("sampling/createMessage", {}, {"sampling": {}}, None),
        ("sampling/createMessage", {}, {"roots": {}}, "sampling"),
        ("elicitation/create", {}, {"elicitation": {}}, None),
        ("elicitation/create", {"mode": "form"}, {"elicitation": {"form": {}}}, None),
        ("elicitation/create", {"mode": "form"}, {"elicitation": {"url": {}}}, "elicitation.form"),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}, None),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {}}, "elicitation.url"),
        ("vendor/ask", {}, ASKED, ""),
    ],
)
async def test_a_server_request_needs_a_declared_capability(
    virtual_time: VirtualTime, method: str, params: Any, declared: Any, missing: str | None
) -> None:
    call = LiveCall(lot(), declared=declared)
    begun = call.begin()
    await asyncio.sleep(0)
    asked = call.ask(method, params)
    if missing is None:
        question = round_of(await begun)["inputRequests"]["q1"]
        assert question == {"method": method, **({} if params is None else {"params": params})}
        assert not asked.done()
    else:
        with pytest.raises(RpcError) as refused:
            await asked
        assert refused.value.code == METHOD_NOT_FOUND
        assert (
            refused.value.message
            == f"{method}: the client did not declare the capability {missing or None!r}"
        )
        assert not begun.done()
    call.lot.close()
    await asyncio.wait({begun, asked, call.work})


async def test_server_requests_within_a_short_time_are_sent_together(
    virtual_time: VirtualTime,
) -> None:
    call, begun = LiveCall(lot(), collect=0.5), virtual_time.now
    first = call.begin()
    await asyncio.sleep(3.1)
    assert not first.done()
    asked = [call.ask(), call.ask()]
    result = round_of(await first)
    assert virtual_time.now - begun == pytest.approx(3.6)
    assert list(result["inputRequests"]) == ["q1", "q2"]
    assert (call.flushes, call.moves) == (1, [call.exchange])
    second = call.resume(result["requestState"], {"q1": {"a": 1}, "q2": {"b": 2}})
    assert [json.loads(bytes(await one)) for one in asked] == [{"a": 1}, {"b": 2}]
    await asyncio.sleep(0.3)
    third = call.ask()
    result = round_of(await second)
    assert virtual_time.now - begun == pytest.approx(4.4)
    assert list(result["inputRequests"]) == ["q3"]
    assert len(call.moves) == 2
    last = call.resume(result["requestState"], {"q3": {}})
    assert bytes(await third) == b"{}"
    call.result.set_result(Raw(b'{"n":1}'))
    assert round_of(await last) == {"n": 1}
    assert len(call.lot) == 0


async def test_a_server_request_cancelled_while_others_are_collected_is_not_sent(
    virtual_time: VirtualTime,
) -> None:
    call, begun = LiveCall(lot(), collect=0.5), virtual_time.now
    first = call.begin()
    await asyncio.sleep(0)
    asked = call.ask()
    await asyncio.sleep(0.1)
    asked.cancel()
    await asyncio.sleep(10)
    assert not first.done()
    assert call.flushes == 0
    again = call.ask()
    assert list(round_of(await first)["inputRequests"]) == ["q2"]
    assert virtual_time.now - begun == pytest.approx(10.6)
    call.lot.close()
    await asyncio.wait({again, call.work})


async def test_a_result_that_arrives_while_requests_are_being_collected_is_returned_at_once(
    virtual_time: VirtualTime,
) -> None:
    call, begun = LiveCall(lot(), collect=5.0), virtual_time.now
    first = call.begin()
    await asyncio.sleep(0)
    asked = call.ask()
    await asyncio.sleep(0.1)
    call.result.set_result(Raw(b"{}"))
    assert bytes(await first) == b"{}"
    assert virtual_time.now - begun == pytest.approx(0.1)
    assert (call.flushes, len(call.lot)) == (0, 0)
    asked.cancel()


async def test_input_requests_without_a_valid_response_are_sent_again(
    virtual_time: VirtualTime,
) -> None:
    call = LiveCall(lot())
    first = call.begin()
    await asyncio.sleep(0)
    asked = [call.ask() for _ in range(3)]
    result = round_of(await first)
    second = call.resume(result["requestState"], {"q1": [], "q3": {"a": 1}, "other": {}})
    assert json.loads(bytes(await asked[2])) == {"a": 1}
    result = round_of(await second)
    assert list(result["inputRequests"]) == ["q1", "q2"]
    call.lot.close()
    await asyncio.wait({*asked, call.work})


async def test_a_parked_call_ends_when_the_client_does_not_continue_it(
    virtual_time: VirtualTime,
) -> None:
    call = LiveCall(lot(), park_timeout=30.0)
    begun = virtual_time.now
    result = await call.park()
    parked = virtual_time.now
    assert parked - begun == pytest.approx(0.02)
    with pytest.raises(
        RpcError, match="No response: the client did not continue the call"
    ) as refused:
        await call.asked
    assert refused.value.code == METHOD_NOT_FOUND
    assert virtual_time.now - parked == pytest.approx(30.0)
    with pytest.raises(asyncio.CancelledError, match="the client did not continue the call"):
        await call.work
    assert len(call.lot) == 0
    with pytest.raises(RpcError, match="requestState has already been used, or its call has ended"):
        await call.resume(result["requestState"], {"q1": {}})


async def test_a_parked_call_does_not_expire_while_a_request_of_the_client_is_pending(
    virtual_time: VirtualTime,
) -> None:
    call = LiveCall(lot(), park_timeout=30.0)
    result = await call.park()
    await asyncio.sleep(29)
    last = call.resume(result["requestState"], {"q1": {}})
    await asyncio.sleep(100)
    assert not last.done()
    call.result.set_result(Raw(b"{}"))
    assert bytes(await last or b"") == b"{}"


@pytest.mark.parametrize(
    ("reason", "told"), [((), "the client disconnected"), (("enough",), "enough")]
)
async def test_cancelling_the_request_of_the_client_ends_the_parked_call(
    virtual_time: VirtualTime, reason: tuple[str, ...], told: str
) -> None:
    call = LiveCall(lot())
    first = call.begin()
    await asyncio.sleep(0)
    first.cancel(*reason)
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(asyncio.CancelledError, match=told):
        await call.work
    assert len(call.lot) == 0


async def test_closing_the_bridge_ends_all_parked_calls(virtual_time: VirtualTime) -> None:
    several = lot()
    calls = [LiveCall(several), LiveCall(several)]
    for call in calls:
        await call.park()
    assert len(several) == 2
    several.close()
    assert len(several) == 0
    for call in calls:
        with pytest.raises(RpcError, match="No response: the gateway is closing"):
            await call.asked
        assert await asyncio.wait({call.work})
        assert call.work.cancelled()


async def test_parked_calls_of_one_principal_are_limited(virtual_time: VirtualTime) -> None:
    several, hits = lot(2), PARKED_CALLS.hits
    states = {}
    for name in ("ann", "ann", "bob"):
        call = LiveCall(several, name)
        states[call] = (await call.park())["requestState"]
    third = LiveCall(several, "ann")
    first = third.begin()
    await asyncio.sleep(0)
    assert PARKED_CALLS.hits == hits
    with pytest.raises(RpcError, match="roots/list: too many calls of this client wait for input"):
        await third.ask()
    assert PARKED_CALLS.hits == hits + 1
    # A call that the client has continued does not count as parked.
    earlier, state = next(iter(states.items()))
    resumed = earlier.resume(state, {"q1": {}})
    await asyncio.sleep(0)
    asked = third.ask()
    result = round_of(await first)
    # A call that is already parked may send further requests.
    again = third.ask()
    await asyncio.sleep(0)
    assert not again.done()
    assert list(result["inputRequests"]) == ["q1"]
    several.close()
    await asyncio.wait({asked, again, resumed})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("nonsense", "requestState is not valid: the state was not created by this server"),
        ("other ring", "requestState is not valid: the state was modified"),
        ("other content", "requestState is not valid: "),
        ("other principal", "requestState was issued to another client"),
        ("other request", "requestState belongs to another request"),
    ],
)
async def test_invalid_request_states_are_rejected(
    virtual_time: VirtualTime, change: str, words: str
) -> None:
    several = lot()
    call, other = LiveCall(several, "ann"), LiveCall(several, "bob")
    state = (await call.park())["requestState"]
    more = {"arguments": {}} if change == "other request" else {}
    if change == "nonsense":
        state = "nonsense"
    elif change == "other ring":
        state = KeyRing().seal(b"[]", ttl=9)
    elif change == "other content":
        state = several.keys.seal(b"[]", ttl=9)
    who = other if change == "other principal" else call
    with pytest.raises(RpcError, match=words) as refused:
        await who.resume(state, {"q1": {}}, **more)
    assert (refused.value.code, refused.value.data) == (INVALID_PARAMS, {"source": "proxy"})
    assert not call.asked.done()
    several.close()
    await asyncio.wait({call.asked})
    other.work.cancel()


async def test_a_retry_state_causes_the_request_to_be_sent_again(virtual_time: VirtualTime) -> None:
    call = LiveCall(lot())
    state = call.lot.retry_state(call.exchange, members({"name": "x"}), 300.0)
    assert await call.resume(state, {"u1": {"action": "accept"}}) is None
    assert await call.resume(state) is None
    with pytest.raises(RpcError, match="requires a visit to a page, but the user chose .decline."):
        await call.resume(state, {"u1": {"action": "decline"}})
    with pytest.raises(RpcError, match="belongs to another request"):
        await call.resume(state, arguments={})
    call.work.cancel()


async def test_the_outcome_of_a_parked_call_is_kept_for_a_minute(
    virtual_time: VirtualTime,
) -> None:
    call = LiveCall(lot())
    state = (await call.park())["requestState"]
    first, second = call.resume(state, {"q1": {}}), call.resume(state, {"q1": {"a": 1}})
    assert bytes(await call.asked) == b"{}"
    second.cancel()  # cancelling the second retry does not affect the first
    await asyncio.sleep(1000)  # the outcome does not expire while the call is pending
    assert not first.done()
    third = call.resume(state, {"q1": {}})
    await asyncio.sleep(0)
    call.result.set_result(Raw(b'{"n":1}'))
    assert [round_of(await one) for one in (first, third)] == [{"n": 1}] * 2
    await asyncio.sleep(59.9)
    assert round_of(await call.resume(state, {"q1": {}})) == {"n": 1}
    await asyncio.sleep(0.1)
    with pytest.raises(RpcError, match="requestState has already been used"):
        await call.resume(state, {"q1": {}})


async def test_the_state_of_an_earlier_round_is_rejected(virtual_time: VirtualTime) -> None:
    call = LiveCall(lot())
    first = (await call.park())["requestState"]
    resumed = call.resume(first, {"q1": {}})
    await call.asked
    asked = call.ask()
    second = round_of(await resumed)
    # A repeated retry returns the same input requests.
    assert round_of(await call.resume(first, {"q1": {}})) == second
    await asyncio.sleep(61)
    with pytest.raises(RpcError, match="requestState has already been used"):
        await call.resume(first, {"q1": {}})
    last = call.resume(second["requestState"], {"q2": {}})
    assert bytes(await asked) == b"{}"
    call.result.set_exception(RpcError(-5, "no"))
    for retry in (last, call.resume(second["requestState"], {"q2": {}})):
        with pytest.raises(RpcError, match="no"):
            await retry


async def test_cancelling_a_retry_fails_its_duplicates(
    virtual_time: VirtualTime,
) -> None:
    call = LiveCall(lot())
    state = (await call.park())["requestState"]
    first = call.resume(state, {"q1": {}})
    await call.asked
    second = call.resume(state, {"q1": {}})
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(RpcError, match="The request with this state was cancelled") as refused:
        await second
    assert refused.value.code == INVALID_PARAMS
    assert first.cancelled()


async def outcome(several: ParkedCalls, result: bytes | None) -> Callable[[], Awaitable[bool]]:
    """End a call with a result or an error; return a check whether its outcome is still kept."""
    call = LiveCall(several)
    state = (await call.park())["requestState"]
    resumed = call.resume(state, {"q1": {}})
    await call.asked
    if result is None:
        call.result.set_exception(RpcError(-5, "no"))
    else:
        call.result.set_result(Raw(result))
    await asyncio.wait({resumed})
    resumed.exception()

    async def known() -> bool:
        again = call.resume(state, {"q1": {}})
        await asyncio.wait({again})
        error = again.exception()
        return not isinstance(error, RpcError) or error.code == -5

    return known


@pytest.mark.parametrize(
    ("most", "room", "results", "kept"),
    [
        (2, 100, [b"{}", b"{}", b"{}"], [False, True, True]),
        (3, 100, [b"{}", b"{}", b"{}"], [True, True, True]),
        (2, 100, [b"{}", None, None], [False, True, True]),
        (9, 4, [b"{}", b"{}"], [True, True]),
        (9, 3, [b"{}", b"{}"], [False, True]),
        (9, 4, [b"{}", None, b"{}"], [True, True, True]),
        (9, 4, [b'{"a":1}', b"{}"], [False, True]),
    ],
)
async def test_the_latest_outcomes_of_parked_calls_are_kept(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    room: int,
    results: list[bytes | None],
    kept: list[bool],
) -> None:
    monkeypatch.setattr(parking, "MAX_KEPT", most)
    monkeypatch.setattr(parking, "MAX_KEPT_BYTES", room)
    several = lot()
    checks = [await outcome(several, result) for result in results]
    assert [await known() for known in checks] == kept


async def test_expired_outcomes_of_parked_calls_are_dropped(virtual_time: VirtualTime) -> None:
    several = lot()
    await outcome(several, b"{}")
    await asyncio.sleep(59)
    await outcome(several, b"{}")
    assert len(several._recent) == 2
    await asyncio.sleep(1)
    await outcome(several, b"{}")
    assert len(several._recent) == 2


async def test_errors_of_abandoned_calls_are_not_logged(
    virtual_time: VirtualTime,
) -> None:
    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    call = LiveCall(lot(), park_timeout=30.0)
    await call.park()
    call.result.set_exception(RpcError(-5, "no"))
    await asyncio.sleep(31)
    assert call.asked.exception() is not None
    other = LiveCall(lot())
    state = (await other.park())["requestState"]
    resumed = other.resume(state, {"q1": {}})
    await other.asked
    other.lot.close()
    await asyncio.wait({resumed, other.work})
    assert resumed.cancelled()
    del call, other, resumed
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


async def test_an_abandoned_call_leaves_no_timer(virtual_time: VirtualTime) -> None:
    call = LiveCall(lot(), park_timeout=30.0)
    begun = call.begin()
    await asyncio.sleep(0)
    reasons: list[str] = []
    give_up = call.parking.give_up

    def noted(why: str) -> None:
        reasons.append(why)
        give_up(why)

    call.parking.give_up = noted
    asked = call.ask()
    await begun
    call.lot.close()
    await asyncio.sleep(100)
    assert reasons == ["the gateway is closing"]
    await asyncio.wait({asked, call.work})
    asked.exception()


def test_request_states_are_sealed_with_the_given_keys() -> None:
    ring = KeyRing()
    assert ParkedCalls(1, ring).keys is ring
    own = ParkedCalls(1).keys
    assert own.open(own.seal(b"x", ttl=9)) == b"x"
