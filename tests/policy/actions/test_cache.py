"""Tests of the cache action with single exchanges."""

import json
from typing import Any

import pytest

from fairlead.interceptor import Answer, Exchange
from fairlead.policy.actions import Cache
from tests.support.single_exchange import DOWN, Behind, Clock, exchange


def answered(**members: Any) -> bytes:
    return json.dumps({"tools": [], **members}).encode()


async def asks(cache: Cache, behind: Behind, **about: Any) -> bool:
    """Send a request; return True if it reached the server."""
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
async def test_results_are_cached_for_their_ttl(answer: bytes, kept: bool) -> None:
    clock, behind = Clock(), Behind(answer)
    cache = Cache(clock=clock)
    assert await asks(cache, behind)
    assert len(cache) == int(kept)
    assert await asks(cache, behind) is not kept
    clock.now += 0.99
    assert await asks(cache, behind) is not kept
    clock.now += 0.01
    assert await asks(cache, behind)


async def test_only_an_equivalent_request_is_answered_from_the_cache() -> None:
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
async def test_public_results_are_shared_between_principals_only_if_configured(
    shared: bool,
) -> None:
    behind = Behind(answered(ttlMs=1000, cacheScope="public"))
    cache = Cache(shared=shared, clock=Clock())
    assert await asks(cache, behind, principal="ada", stateless=False)
    assert not await asks(cache, behind, principal="ada", stateless=False)
    assert await asks(cache, behind, principal="bob", stateless=False) is not shared


async def test_private_results_of_sessions_are_not_cached() -> None:
    behind = Behind(answered(ttlMs=1000, cacheScope="private"))
    cache = Cache(clock=Clock())
    for _ in range(2):
        assert await asks(cache, behind, stateless=False)
    assert len(cache) == 0


@pytest.mark.parametrize("settings", [{"max_entries": 0}, {"max_bytes": 0}])
def test_cache_limits_must_be_positive(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        Cache(**settings)


async def test_the_oldest_cached_results_are_evicted_at_the_limits() -> None:
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
async def test_a_resource_update_drops_cached_results_of_the_resource_and_its_children(
    changed: str, asked_again: bool
) -> None:
    behind = Behind(json.dumps({"contents": [], "ttlMs": 1000}).encode())
    cache = Cache(clock=Clock())
    read: dict[str, Any] = {"method": "resources/read", "params": {"uri": "a://b"}}
    assert await asks(cache, behind, **dict(read))
    note = exchange("notifications/resources/updated", {"uri": changed}, way=DOWN, request=False)
    await cache(note, Behind(None))
    assert await asks(cache, behind, **dict(read)) is asked_again


async def test_no_result_is_cached_for_more_than_a_day() -> None:
    clock, behind = Clock(), Behind(answered(ttlMs=10**12))
    cache = Cache(clock=clock)
    assert await asks(cache, behind)
    clock.now += 24 * 3600 - 1
    assert not await asks(cache, behind)
    clock.now += 1
    assert await asks(cache, behind)


async def test_a_result_from_the_cache_is_noted_in_the_exchange() -> None:
    cache, behind = Cache(clock=Clock()), Behind(answered(ttlMs=1000))
    first, second = exchange("tools/list", {}), exchange("tools/list", {})
    await cache(first, behind)
    await cache(second, behind)
    assert (first.did, second.did) == (None, ["from the cache"])


@pytest.mark.parametrize(("room", "kept"), [(0, 2), (-1, 1)])
async def test_the_size_of_the_cache_includes_results_and_keys(room: int, kept: int) -> None:
    answer = answered(ttlMs=1000)
    probe = Cache(clock=Clock())
    await asks(probe, Behind(answer), params={"cursor": "1"})
    each = probe._size
    assert each > len(answer)
    cache = Cache(max_bytes=2 * each + room, clock=Clock())
    for cursor in ("1", "2"):
        await asks(cache, Behind(answer), params={"cursor": cursor})
    assert (len(cache), cache._size) == (kept, kept * each)


async def test_removed_results_no_longer_count_towards_the_size_of_the_cache() -> None:
    clock, behind = Clock(), Behind(answered(ttlMs=1000))
    cache = Cache(clock=clock)
    changed = exchange("notifications/tools/list_changed", way=DOWN, request=False)
    await asks(cache, behind)
    size = cache._size
    clock.now += 2
    await asks(cache, behind)  # replaces the old entry
    assert (len(cache), cache._size) == (1, size)
    await cache(changed, Behind(None))
    assert (len(cache), cache._size) == (0, 0)
    await asks(cache, behind)
    cache.views_changed()
    assert (len(cache), cache._size) == (0, 0)
    assert await asks(cache, behind)


async def test_a_result_requested_before_a_change_of_views_is_not_cached() -> None:
    cache = Cache(clock=Clock())

    async def behind(asked: Exchange) -> Answer:
        cache.views_changed()
        return answered(ttlMs=1000)

    await cache(exchange("tools/list", {}), behind)
    assert len(cache) == 0


async def test_the_ttl_of_a_result_starts_with_its_request() -> None:
    clock = Clock()
    cache = Cache(clock=clock)

    async def slow(asked: Exchange) -> Answer:
        clock.now += 0.6
        return answered(ttlMs=1000)

    await cache(exchange("tools/list", {}), slow)
    behind = Behind(answered())
    clock.now += 0.39
    assert not await asks(cache, behind)
    clock.now += 0.02
    assert await asks(cache, behind)
