"""Interceptors by themselves: one exchange at a time, without a relay."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import RpcError
from fairlead.gateway.interceptors import Cache, Delay, Fault, RateLimit, Rename
from fairlead.gateway.interceptors import rate as rate_module
from fairlead.gateway.interceptors.timing import TimeLimit
from fairlead.interceptor import Answer, Exchange
from fairlead.interceptor.direct_edge import DirectEdge
from fairlead.protocol.caller import Caller, read_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.principal import ANONYMOUS, Principal
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.wire import Notification, Request

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def exchange(
    method: str = "tools/call",
    params: Any = None,
    *,
    way: Direction = UP,
    request: bool = True,
    stateless: bool = True,
    capabilities: bytes = b"{}",
    principal: Principal = ANONYMOUS,
    address: str | None = None,
    info: bytes | None = None,
    server: str | None = None,
) -> Exchange:
    raw = UNSET if params is None else Raw(json.dumps(params).encode())
    message = Request(1, method, raw) if request else Notification(method, raw)
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    caller = Caller(revision, stateless, principal, capabilities, info)
    context = TransportContext(transport_type="http", peer_address=address)
    return Exchange(
        message, caller, read_head(raw), way, context, DirectEdge(principal), server=server
    )


class Behind:
    """What is behind an interceptor: it counts and answers."""

    def __init__(self, answer: bytes | None = b"{}") -> None:
        self.answer = answer
        self.seen: list[Exchange] = []

    async def __call__(self, exchange: Exchange) -> Answer:
        self.seen.append(exchange)
        return self.answer


# Delay, time limit and faults


@pytest.mark.parametrize(("seconds", "jitter"), [(-0.1, 0.0), (0.0, -0.1)])
def test_a_delay_is_not_negative(seconds: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="not below 0"):
        Delay(seconds, jitter)


async def test_a_delay_varies_by_its_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("fairlead.gateway.interceptors.delaying.asyncio.sleep", sleep)
    for extreme, expected in ((1.0, 0.7), (-1.0, 0.3)):
        with monkeypatch.context() as patched:
            patched.setattr(
                "fairlead.gateway.interceptors.delaying.random.uniform",
                lambda low, high, extreme=extreme: max(low, high) * extreme,
            )
            asked = exchange()
            assert await Delay(0.5, 0.2)(asked, Behind()) == b"{}"
            assert slept.pop() == pytest.approx(expected)
            assert asked.did == [f"delayed {expected:.3g} s"]
            await Delay(0.1, 0.2)(exchange(), Behind())
            assert slept.pop() == pytest.approx(max(0.0, 0.1 + 0.2 * extreme))


async def test_an_answer_that_takes_too_long_is_refused() -> None:
    async def forever(exchange: Exchange) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(RpcError, match=r"No answer within 0\.01 s") as late:
        await TimeLimit(0.01)(exchange(), forever)
    assert late.value.code == -32603
    assert await TimeLimit(5)(exchange(), Behind()) == b"{}"
    assert await TimeLimit(5)(exchange(request=False), Behind(None)) is None

    async def fails(exchange: Exchange) -> Answer:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await TimeLimit(5)(exchange(), fails)
    for seconds in (0, -1):
        with pytest.raises(ValueError, match="above 0"):
            TimeLimit(seconds)


@pytest.mark.parametrize("settings", [{"chance": -0.1}, {"chance": 1.1}, {"seconds": -0.1}])
def test_faults_have_a_chance_and_a_time(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`chance`|`seconds`"):
        Fault("drop", **settings)


async def test_a_fault_without_a_chance_never_happens() -> None:
    assert await Fault("error", 0.0)(exchange(), Behind()) == b"{}"
    with pytest.raises(RpcError, match="A fault on purpose"):
        await Fault("error", 1.0)(exchange(), Behind())


async def test_faults_change_what_passes() -> None:
    behind = Behind()
    assert await Fault("duplicate")(exchange(), behind) == b"{}"
    assert len(behind.seen) == 2
    corrupt = await Fault("corrupt")(exchange(), Behind())
    assert bytes(corrupt or b"") == b'{"corrupt":true}'
    behind = Behind(None)
    await Fault("corrupt")(exchange("n", {"a": 1}, request=False), behind)
    assert bytes(behind.seen[0].message.params) == b'{"corrupt":true}'  # type: ignore[arg-type]
    assert await Fault("drop")(exchange(request=False), Behind()) is None
    assert await Fault("slow", seconds=0)(exchange(), Behind()) == b"{}"


# Rates


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def allowed(limit: RateLimit, asked: Exchange) -> bool:
    try:
        limit.before(asked)
    except RpcError:
        return False
    return True


@pytest.mark.parametrize(
    "settings",
    [{"rate": 0}, {"rate": -1}, {"rate": 1, "burst": -1}, {"rate": 1, "burst": 0.5}],
)
def test_rates_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`rate` is above 0"):
        RateLimit(**settings)
    with pytest.raises(ValueError, match="at least one"):
        RateLimit(1, per=[])


def test_tokens_come_back_with_time() -> None:
    clock = Clock()
    limit = RateLimit(2, 3, clock=clock)
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]
    clock.now += 0.5
    assert [allowed(limit, exchange()) for _ in range(2)] == [True, False]
    clock.now += 60
    assert [allowed(limit, exchange()) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("rate", "burst"), [(0.5, 1), (1, 1), (3, 3)])
def test_without_a_burst_one_second_is_saved_up(rate: float, burst: int) -> None:
    limit = RateLimit(rate, clock=Clock())
    assert [allowed(limit, exchange()) for _ in range(burst + 1)] == [True] * burst + [False]


def test_a_refusal_says_how_long_to_wait() -> None:
    clock = Clock()
    limit = RateLimit(2, 1, clock=clock)
    asked = exchange()
    limit.before(asked)
    clock.now += 0.1
    with pytest.raises(RpcError, match=r"Too many requests: try again in 0\.4 s") as limited:
        limit.before(asked)
    assert limited.value.data == {"source": "proxy", "retryAfter": 0.4}
    assert asked.did == ["limited"]
    clock.now += 0.4
    assert allowed(limit, asked)


def test_only_requests_to_the_server_of_the_methods_count() -> None:
    limit = RateLimit(1, clock=Clock())
    assert allowed(limit, exchange())
    for other in (
        exchange("tools/list"),
        exchange(way=DOWN),
        exchange(request=False),
        exchange(principal="ada"),
    ):
        assert allowed(limit, other)
    assert not allowed(limit, exchange())
    everything = RateLimit(1, methods=(), clock=Clock())
    assert [allowed(everything, exchange(method)) for method in ("a", "b")] == [True, False]


@pytest.mark.parametrize(
    ("per", "one", "same", "other"),
    [
        ("all", {}, {"principal": "ada"}, None),
        ("identity", {"principal": "ada"}, {"principal": "ada"}, {"principal": "bob"}),
        ("tool", {"params": {"name": "a"}}, {"params": {"name": "a"}}, {"params": {"name": "b"}}),
        ("client", {"address": "1.2.3.4:5"}, {"address": "1.2.3.4:6"}, {"address": "1.2.3.5:5"}),
        ("client", {"address": "[::1]:5"}, {"address": "[::1]:6"}, {"address": "[1:2:3:4::1]:5"}),
        ("client", {"address": "::1"}, {"address": "::1"}, {"address": "1:2:3:4::1"}),
        ("client", {"info": b"1"}, {"info": b"2"}, None),
        (
            "client",
            {"info": b"1", "stateless": False},
            {"info": b"1", "stateless": False},
            {"info": b"2", "stateless": False},
        ),
        ("session", {"principal": "ada"}, {"principal": "ada"}, {"principal": "bob"}),
        (
            ["identity", "client"],
            {"principal": "ada", "address": "1.2.3.4:5"},
            {"principal": "ada", "address": "1.2.3.4:6"},
            {"principal": "ada", "address": "1.2.3.5:6"},
        ),
    ],
)
def test_calls_are_counted_for_each_of_something(
    per: Any, one: dict[str, Any], same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    limit = RateLimit(1, per=per, clock=Clock())
    assert allowed(limit, exchange(**one))
    assert not allowed(limit, exchange(**same))
    if other is not None:
        assert allowed(limit, exchange(**other))


def test_the_oldest_buckets_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_module, "FEW", 1)
    monkeypatch.setattr(rate_module, "MAX_BUCKETS", 2)
    limit = RateLimit(1, 2, clock=Clock())
    for who in ("a", "b", "a", "c"):
        assert allowed(limit, exchange(principal=who))
    assert len(limit._full_at) == 2
    assert not allowed(limit, exchange(principal="a"))  # used last, so it was kept
    assert [allowed(limit, exchange(principal="b")) for _ in range(3)] == [True, True, False]


# Cache


def answered(**members: Any) -> bytes:
    return json.dumps({"tools": [], **members}).encode()


async def asks(cache: Cache, behind: Behind, **about: Any) -> bool:
    """Return True if the server was asked."""
    before = len(behind.seen)
    method = about.pop("method", "tools/list")
    assert await cache(exchange(method, about.pop("params", {}), **about), behind) is not None
    return len(behind.seen) > before


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (answered(ttlMs=1000, cacheScope="public"), True),
        (answered(ttlMs=1000, cacheScope="private"), True),
        (answered(ttlMs=1000, resultType="complete"), True),
        (answered(ttlMs=1000, resultType="input_required"), False),
        (answered(ttlMs=0), False),
        (answered(), False),
        (answered(ttlMs="x"), False),
        (b"[]", False),
    ],
)
async def test_answers_are_kept_as_long_as_they_say(answer: bytes, kept: bool) -> None:
    clock, behind = Clock(), Behind(answer)
    cache = Cache(clock=clock)
    assert await asks(cache, behind)
    assert len(cache) == int(kept)
    assert await asks(cache, behind) is not kept
    clock.now += 0.99
    assert await asks(cache, behind) is not kept
    clock.now += 0.01
    assert await asks(cache, behind)


async def test_a_different_question_is_asked() -> None:
    behind = Behind(answered(ttlMs=1000))
    cache = Cache(clock=Clock())
    assert await asks(cache, behind)
    assert not await asks(cache, behind, params={"_meta": {"progressToken": 1}})
    assert await asks(cache, behind, params={"cursor": "2"})
    assert await asks(cache, behind, principal="ada")
    assert await asks(cache, behind, server="red")
    assert await asks(cache, behind, capabilities=b'{"roots":{}}')
    assert await asks(cache, behind, stateless=False)
    for _ in range(2):
        assert await asks(cache, behind, params={"requestState": "s"})
        assert await asks(cache, behind, method="tools/call")
    assert await cache(exchange("tools/list", {}, way=DOWN), behind) is not None


@pytest.mark.parametrize("shared", [True, False])
async def test_public_answers_serve_everybody_if_they_may(shared: bool) -> None:
    behind = Behind(answered(ttlMs=1000, cacheScope="public"))
    cache = Cache(shared=shared, clock=Clock())
    assert await asks(cache, behind, principal="ada", stateless=False)
    assert not await asks(cache, behind, principal="ada", stateless=False)
    assert await asks(cache, behind, principal="bob", stateless=False) is not shared


async def test_private_answers_of_sessions_are_not_kept() -> None:
    behind = Behind(answered(ttlMs=1000, cacheScope="private"))
    cache = Cache(clock=Clock())
    for _ in range(2):
        assert await asks(cache, behind, stateless=False)
    assert len(cache) == 0


@pytest.mark.parametrize("settings", [{"max_entries": 0}, {"max_bytes": 0}])
def test_a_cache_has_room_for_something(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Cache(**settings)


async def test_the_oldest_answers_give_way() -> None:
    answer = answered(ttlMs=1000)
    cache, behind = Cache(2, clock=Clock()), Behind(answer)
    for cursor in ("1", "2", "3"):
        assert await asks(cache, behind, params={"cursor": cursor})
    assert len(cache) == 2
    assert not await asks(cache, behind, params={"cursor": "2"})
    assert await asks(cache, behind, params={"cursor": "1"})
    small = Cache(max_bytes=len(answer) - 1, clock=Clock())
    await asks(small, Behind(answer))
    assert len(small) == 0


@pytest.mark.parametrize(
    ("changed", "asked_again"),
    [("a://b", True), ("a://b/c", True), ("a://", True), ("a://x", False)],
)
async def test_a_changed_resource_is_read_again(changed: str, asked_again: bool) -> None:
    behind = Behind(json.dumps({"contents": [], "ttlMs": 1000}).encode())
    cache = Cache(clock=Clock())
    read: dict[str, Any] = {"method": "resources/read", "params": {"uri": "a://b"}}
    assert await asks(cache, behind, **dict(read))
    note = exchange("notifications/resources/updated", {"uri": changed}, way=DOWN, request=False)
    await cache(note, Behind(None))
    assert await asks(cache, behind, **dict(read)) is asked_again


# Names


def test_two_names_are_not_the_same() -> None:
    with pytest.raises(ValueError, match="same name"):
        Rename({"a": "x", "b": "x"})


async def test_calls_go_to_the_servers_own_names() -> None:
    rename = Rename({"old": "new"})
    for method in ("tools/call", "prompts/get"):
        behind = Behind()
        asked = exchange(method, {"name": "new", "arguments": {"a": 1}})
        await rename(asked, behind)
        params = json.loads(bytes(behind.seen[0].message.params))  # type: ignore[arg-type]
        assert params == {"name": "old", "arguments": {"a": 1}}
        with pytest.raises(RpcError, match=r"Unknown (tool|prompt): old"):
            await rename(exchange(method, {"name": "old"}), behind)
        for unchanged in (
            exchange(method, {"name": "other"}),
            exchange(method, {}),
            exchange(method, {"name": "new"}, server="red"),
            exchange(method, {"name": "new"}, way=DOWN),
            exchange("tools/other", {"name": "new"}),
        ):
            await rename(unchanged, behind)
            assert behind.seen[-1] is unchanged


async def test_completions_go_to_the_servers_own_names() -> None:
    rename, behind = Rename({"old": "new"}), Behind()
    ref = {"type": "ref/prompt", "name": "new"}
    await rename(exchange("completion/complete", {"ref": ref, "argument": {}}), behind)
    params = json.loads(bytes(behind.seen[0].message.params))  # type: ignore[arg-type]
    assert params == {"ref": {"type": "ref/prompt", "name": "old"}, "argument": {}}
    for params in (None, {}, {"ref": 5}, {"ref": {"name": "other"}}):
        asked = exchange("completion/complete", params)
        await rename(asked, behind)
        assert behind.seen[-1] is asked


async def test_lists_show_the_new_names() -> None:
    rename = Rename({"old": "new"})
    listed = b'{"tools":[{"name":"old","x":1},{"name":"other"},5],"nextCursor":"2"}'
    asked = exchange("tools/list", {})
    answer = await rename(asked, Behind(listed))
    assert json.loads(bytes(answer or b"")) == {
        "tools": [{"name": "new", "x": 1}, {"name": "other"}, 5],
        "nextCursor": "2",
    }
    assert asked.did == ["renamed in the list"]
    for unchanged in (b'{"tools":[{"name":"other"}]}', b"{}", b"[]", b'{"tools":5}'):
        assert await rename(exchange("tools/list", {}), Behind(unchanged)) is unchanged
