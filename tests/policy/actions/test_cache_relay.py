"""Tests of the cache action in a relay: lifetime and scope of cached results."""

from typing import Any

import pytest

from fairlead.policy.actions import Cache
from tests.support.raw_relay import Client, Scene, Server, scene


async def kept(
    place: Scene, client: Client, server: Server, method: str, answer: Any, params: Any = None
) -> Any:
    """Send a request; return the result, and True if it reached the server."""
    before = len([m for m in server.seen if m.get("method") == method])
    call = client.stateless(method, params, progressToken=before)
    marker = client.stateless("vendor/marker")
    while True:
        request = await server.until(lambda m: "id" in m)
        if request["method"] == "vendor/marker":
            server.reply(request, {"resultType": "complete"})
            break
        server.reply(request, {"resultType": "complete", **answer})
    result = (await client.answer_to(call))["result"]
    await client.answer_to(marker)
    return result, len([m for m in server.seen if m.get("method") == method]) > before


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def ends(place: Scene) -> tuple[Client, Server]:
    client = await place.client()
    call = client.stateless("vendor/hello")
    server = await place.server()
    server.reply(await server.method("vendor/hello"), {"resultType": "complete"})
    await client.answer_to(call)
    return client, server


async def test_a_result_is_cached_for_its_ttl() -> None:
    clock = Clock()
    cache = Cache(clock=clock)
    async with scene("stateless", interceptors=[cache]) as place:
        client, server = await ends(place)
        first = {"tools": [{"name": "a"}], "ttlMs": 5000, "cacheScope": "private"}
        assert (await kept(place, client, server, "tools/list", first))[1]
        result, asked = await kept(place, client, server, "tools/list", {"tools": []})
        assert not asked
        assert result["tools"] == [{"name": "a"}]
        other = await kept(place, client, server, "tools/list", first, {"cursor": "2"})
        assert other[1], "another page is another request"
        clock.now += 5.0
        result, asked = await kept(place, client, server, "tools/list", {"tools": []})
        assert asked
        assert result["tools"] == []
        assert (await kept(place, client, server, "tools/list", {"tools": []}))[1], "no ttl"


@pytest.mark.parametrize("shared", [True, False])
async def test_a_private_result_is_returned_only_to_its_principal(shared: bool) -> None:
    who = iter(["ann", "bob"])
    cache = Cache(shared=shared)
    async with scene("stateless", interceptors=[cache], principal=lambda: next(who)) as place:
        ann, server = await ends(place)
        bob = await place.client()
        for method, scope in (("tools/list", "private"), ("prompts/list", "public")):
            key = method.partition("/")[0]
            mine = {key: [{"name": "for-ann"}], "ttlMs": 5000, "cacheScope": scope}
            assert (await kept(place, ann, server, method, mine))[1]
            assert not (await kept(place, ann, server, method, mine))[1]
            result, asked = await kept(place, bob, server, method, {key: []})
            served = scope == "public" and shared
            assert asked == (not served)
            assert bool(result[key]) == served


@pytest.mark.parametrize(
    ("method", "params", "note", "about"),
    [
        ("tools/list", None, "notifications/tools/list_changed", None),
        ("prompts/list", None, "notifications/prompts/list_changed", None),
        ("resources/list", None, "notifications/resources/list_changed", None),
        (
            *("resources/read", {"uri": "file:///a/b"}, "notifications/resources/updated"),
            {"uri": "file:///a"},
        ),
    ],
)
async def test_a_change_notification_drops_the_cached_results_it_affects(
    method: str, params: Any, note: str, about: Any
) -> None:
    cache = Cache()
    async with scene("stateless", interceptors=[cache]) as place:
        client, server = await ends(place)
        answer = {"tools": [], "contents": [], "ttlMs": 60000, "cacheScope": "public"}
        assert (await kept(place, client, server, method, answer, params))[1]
        assert not (await kept(place, client, server, method, answer, params))[1]
        server.tell("notifications/vendor")
        server.tell("notifications/resources/updated", {"uri": "file:///elsewhere"})
        assert not (await kept(place, client, server, method, answer, params))[1]
        server.tell(note, about)
        assert (await kept(place, client, server, method, answer, params))[1]


async def test_a_result_requested_before_a_change_is_not_cached() -> None:
    cache = Cache()
    async with scene("stateless", interceptors=[cache]) as place:
        client, server = await ends(place)
        call = client.stateless("tools/list")
        request = await server.method("tools/list")
        server.tell("notifications/tools/list_changed")
        server.reply(request, {"resultType": "complete", "tools": [], "ttlMs": 60000})
        await client.answer_to(call)
        assert len(cache) == 0


async def test_entries_and_bytes_of_a_cache_are_limited() -> None:
    cache = Cache(max_entries=2, max_bytes=400)
    async with scene("stateless", interceptors=[cache]) as place:
        client, server = await ends(place)
        for n in range(4):
            answer = {"contents": [], "ttlMs": 60000, "cacheScope": "public"}
            await kept(place, client, server, "resources/read", answer, {"uri": f"x:{n}"})
        assert len(cache) == 2
        huge = {"contents": ["x" * 500], "ttlMs": 60000, "cacheScope": "public"}
        await kept(place, client, server, "resources/read", huge, {"uri": "x:9"})
        assert len(cache) == 2
