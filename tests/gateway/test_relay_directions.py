"""Notifications that go the wrong way: a relay passes them on, a strict one does not."""

import pytest
from rawends import scene

from fairlead.gateway import RelaySettings

VENDOR = "notifications/vendor"
UP, DOWN = "notifications/tools/list_changed", "notifications/roots/list_changed"


@pytest.mark.covers("PRO-17", "GTW-04")
@pytest.mark.parametrize("strict", [False, True], ids=["transparent", "strict"])
async def test_a_notification_against_the_table(strict: bool) -> None:
    async with scene(settings=RelaySettings(strict=strict)) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        client.tell(UP, {"n": 1})
        client.tell(VENDOR, {"n": 2})
        first = await server.until(lambda said: said["method"] in (UP, VENDOR))
        assert first["method"] == (VENDOR if strict else UP)
        server.tell(DOWN, {"n": 3})
        server.tell(VENDOR, {"n": 4})
        first = await client.until(lambda said: said.get("method") in (DOWN, VENDOR))
        assert first["method"] == (VENDOR if strict else DOWN)
        assert first["params"] == {"n": 4 if strict else 3}
