"""A cache, one exchange at a time."""

import json
from typing import Any

import pytest

from fairlead.policy.actions import Cache
from tests.support.single_exchange import DOWN, Behind, Clock, exchange


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


async def test_no_answer_is_kept_for_more_than_a_day() -> None:
    clock, behind = Clock(), Behind(answered(ttlMs=10**12))
    cache = Cache(clock=clock)
    assert await asks(cache, behind)
    clock.now += 24 * 3600 - 1
    assert not await asks(cache, behind)
    clock.now += 1
    assert await asks(cache, behind)
