"""Sessions whose connection to the server was lost."""

from tests.support.raw_relay import scene


async def test_a_server_that_came_back_hears_again_what_was_wanted() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("logging/setLevel", {"level": "error"}))
        await client.answer_to(client.ask("resources/subscribe", {"uri": "x:1"}))
        await server.close()
        calls = [client.ask("tools/list") for _ in range(5)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        methods = [m["method"] for m in server.seen]
        assert methods.count("initialize") == 1
        assert methods.count("logging/setLevel") == 1
        assert methods.count("resources/subscribe") == 1
        assert len(place.servers) == 2  # and not one for each of the calls
        told = [m["method"] for m in client.skipped]
        assert told.count("notifications/tools/list_changed") == 1
        assert told.count("notifications/resources/updated") == 1


async def test_many_calls_at_once_after_a_loss_open_one_connection_for_a_session() -> None:
    async with scene(upstream="per-session") as place:
        client = await place.session()
        server = await place.server()
        await server.close()
        calls = [client.ask("tools/list") for _ in range(8)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 2
        assert len(place.relay.upstream.links) == 1
