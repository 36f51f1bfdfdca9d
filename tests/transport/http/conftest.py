"""What carries the requests of a client."""

import pytest

from fairlead.transport.http.door import Door
from fairlead.transport.http.proxied import Proxied


@pytest.fixture(params=["own", "aiohttp"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ask for this to run a test over connections of our own, and over aiohttp as for a proxy."""
    own = Door._begin

    def begin(door: Door) -> object:
        if door._closed or door.address.socket is not None:
            return own(door)
        door._way = Proxied(None, door._connect_timeout, None)
        return door._way

    if request.param == "aiohttp":
        monkeypatch.setattr(Door, "_begin", begin)
    return str(request.param)
