"""Policies identify the target of a request; irrelevant members must not affect it."""

import asyncio
from typing import Any, ClassVar

import pytest
from msgspec import Raw, structs

from fairlead.errors import RpcError
from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    Interceptor,
    Proceed,
    ReplyPathBase,
    SyncInterceptor,
)
from fairlead.policy.actions import Allow, RateLimit
from fairlead.policy.rules import RuleSet
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.revisions import NEWEST
from fairlead.wire import Notification, Request, to_json
from tests.support.raw_relay import scene

CALL = "tools/call"


def asked(method: str, params: Any) -> Exchange:
    raw = Raw(to_json(params))
    return Exchange(
        Request(1, method, raw),
        Caller(NEWEST, True, ANONYMOUS),
        read_params_head(raw),
        Direction.CLIENT_TO_SERVER,
        TransportContext(transport_type="memory"),
        None,  # type: ignore[arg-type]  # not used
    )


def allowed(limit: RateLimit, exchange: Exchange) -> bool:
    try:
        limit.before(exchange)
    except RpcError:
        return False
    return True


def test_an_extra_uri_does_not_change_the_rate_limit_bucket_of_a_tool_call() -> None:
    limit = RateLimit(1, 1, per="tool", clock=lambda: 0.0)
    calls = [asked(CALL, {"name": "x", "uri": f"a:{number}"}) for number in range(5)]
    assert [allowed(limit, call) for call in calls] == [True, False, False, False, False]


@pytest.mark.parametrize("per", ["client", "session"])
def test_a_client_cannot_change_its_rate_limit_bucket_by_choosing_another_name(per: Any) -> None:
    """Clients on a Unix socket have no address."""
    limit = RateLimit(1, 1, per=per, clock=lambda: 0.0)
    named = [Caller(NEWEST, True, ANONYMOUS, info=b'{"name":"%d"}' % number) for number in range(5)]
    calls = [structs.replace(asked(CALL, {}), caller=one, edge=Alone()) for one in named]
    assert [allowed(limit, call) for call in calls] == [True, False, False, False, False]


class Alone(ReplyPathBase):
    """The reply path of a request without a session."""

    session = SessionContext(state=SessionState.ACTIVE)


@pytest.mark.parametrize(
    ("address", "other"),
    [
        ("10.0.0.1", "10.0.0.2"),
        ("10.0.0.1:5000", "10.0.0.2:5000"),
        ("2001:db8:0:1::1", "2001:db8:0:2::1"),
        ("[2001:db8:0:1::1]:5000", "[2001:db8:0:2::1]:5000"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2"),
    ],
)
def test_clients_with_different_addresses_have_separate_rate_limit_buckets(
    address: str, other: str
) -> None:
    limit = RateLimit(1, 1, per="client", clock=lambda: 0.0)
    places = [TransportContext(transport_type="http", peer_address=one) for one in (address, other)]
    calls = [structs.replace(asked(CALL, {}), transport=place) for place in places * 2]
    assert [allowed(limit, call) for call in calls] == [True, True, False, False]


GUARDS: tuple[Interceptor, ...] = (
    Allow(deny=["file:///secret*"]),
    RuleSet.of_data({"rules": [{"when": {"resource": "file:///secret*"}, "do": "block"}]}),
    RuleSet.of_data({"rules": [{"when": {"target": "file:///secret*"}, "do": "block"}]}),
)


@pytest.mark.parametrize("guard", GUARDS)
async def test_an_extra_name_does_not_hide_the_uri_of_a_resource(guard: Interceptor) -> None:
    async with scene(interceptors=[guard]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("resources/read", {"uri": "file:///secret/1", "name": "harmless"})
        asking = asyncio.ensure_future(server.method("resources/read"))
        answer = asyncio.ensure_future(client.answer_to(call))
        done, _ = await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        assert done == {answer}
        assert "error" in answer.result()


@pytest.mark.parametrize("rate", [1 / 3, 1, 3, 7, 10, 50, 1000])
@pytest.mark.parametrize("now", [0.0, 1.0, 123456.789, 3e8 + 0.1])
def test_a_burst_allows_exactly_its_configured_number_of_calls(rate: float, now: float) -> None:
    """The clock does not advance during the burst."""
    for burst in range(1, 40):
        limit = RateLimit(rate, burst, per="all", clock=lambda: now)
        call = asked(CALL, {"name": "x"})
        assert [allowed(limit, call) for _ in range(burst + 2)] == [True] * burst + [False] * 2


class Nonsense(SyncInterceptor):
    """An interceptor that turns calls into invalid exchanges."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method != CALL:
            return exchange, None
        if self.kind == "nothing":
            return None, None  # type: ignore[return-value]
        if self.kind == "a message":
            return exchange.message, None  # type: ignore[return-value]
        return structs.replace(exchange, message=Notification("x", Raw(b"{}"))), None


class LedNonsense(Nonsense):
    """A `Nonsense` coroutine that is called without a task."""

    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(self.before(exchange)[0])


class Counts(SyncInterceptor):
    def __init__(self) -> None:
        self.begun = self.ended = 0

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method != CALL:
            return exchange, None
        self.begun += 1
        return exchange, self._over

    def _over(self, outcome: Any) -> Any:
        self.ended += 1
        return outcome


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *((Nonsense, "nothing"), (Nonsense, "a message"), (Nonsense, "a notification")),
        *((LedNonsense, "nothing"), (LedNonsense, "a message")),
    ],
)
async def test_an_invalid_exchange_returned_by_an_interceptor_is_an_internal_error(
    make: type[Nonsense], kind: str
) -> None:
    counts = Counts()
    async with scene(interceptors=[counts, make(kind)]) as place:
        client = await place.session()
        await (await place.server()).method("notifications/initialized")
        answer = await client.answer_to(client.ask(CALL, {"name": "x", "arguments": {}}))
        assert answer["error"]["code"] == -32603
        await client.sync()
    assert (counts.begun, counts.ended) == (1, 1)
