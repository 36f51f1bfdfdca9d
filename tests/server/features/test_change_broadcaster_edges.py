"""Changes that concern some connections only, and loops that are gone."""

import asyncio
from typing import Any

from fairlead.server.features.change_broadcaster import ChangeBroadcaster
from tests.server.features.test_change_broadcaster import server_with_everything, told
from tests.support.raw_server_client import META, wire_to

LISTS = ["tools/list_changed", "resources/list_changed", "prompts/list_changed"]


async def test_a_change_may_concern_some_connections_only() -> None:
    server = server_with_everything()
    async with wire_to(server) as one, wire_to(server) as other:
        await one.greet()
        await other.greet()
        server.changes.changed_for({one.peer}, "notifications/tools/list_changed")
        assert await one.next() == told("tools/list_changed")
        server.changes.all_lists_changed({other.peer})
        heard = [(await other.next())["method"] for _ in range(3)]
        assert sorted(heard) == sorted(f"notifications/{kind}" for kind in LISTS)
        await one.ask("ping")
        await other.ask("ping")


async def test_listeners_of_some_connections_are_told_only() -> None:
    server = server_with_everything()
    wanted: Any = {"notifications": {"toolsListChanged": True}, "_meta": META}
    async with wire_to(server) as one, wire_to(server) as other:
        for wire in (one, other):
            wire.send("subscriptions/listen", wanted, id=5)
            acknowledged = await wire.next()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        server.changes.changed_for({one.peer}, "notifications/tools/list_changed")
        assert await one.next() == told("tools/list_changed", 5)
        server.changes.all_lists_changed({other.peer})
        assert await other.next() == told("tools/list_changed", 5)
        await one.ask("server/discover", {"_meta": META})
        await other.ask("server/discover", {"_meta": META})


async def test_nobody_has_to_listen() -> None:
    broadcaster, followed = ChangeBroadcaster(), list[str]()
    broadcaster.followers.append(followed.append)
    broadcaster.changed_for((), "notifications/tools/list_changed")
    broadcaster.all_lists_changed(())
    broadcaster.forget(object())
    broadcaster.updated("r://1")
    assert followed == ["r://1"]
    assert broadcaster.stop() == []
    await broadcaster.end()


def test_a_loop_that_has_closed_is_forgotten() -> None:
    broadcaster = ChangeBroadcaster()

    async def join() -> None:
        broadcaster._room()

    asyncio.run(join())
    assert len(broadcaster._rooms) == 1
    broadcaster.changed("notifications/tools/list_changed")
    assert broadcaster._rooms == {}
