"""Hosts with several addresses: the first that answers is taken."""

import asyncio
import socket
from typing import Any

import pytest

from fairlead.transport.http.client.http1 import happy_eyeballs
from tests.support.virtual_time import VirtualTime


class FakeNetwork:
    """Addresses that answer after some seconds, or fail."""

    def __init__(self, clock: VirtualTime, **seconds: float | None) -> None:
        self.begun: list[tuple[str, float]] = []
        self.given_up: list[str] = []
        self._start = clock.now
        self._clock = clock
        self._seconds = seconds

    async def connect(self, address: Any) -> Any:
        name = address[4]
        self.begun.append((name, round(self._clock.now - self._start, 6)))
        seconds = self._seconds[name]
        if seconds is None:
            raise OSError(f"{name} refuses")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.given_up.append(name)
            raise
        return name

    async def race(self) -> Any:
        addresses: Any = [
            (socket.AF_INET6 if name < "m" else socket.AF_INET, None, 0, "", name)
            for name in self._seconds
        ]
        return await happy_eyeballs._race(happy_eyeballs._mixed(addresses))


@pytest.fixture
def network(virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**seconds: float | None) -> FakeNetwork:
        found = FakeNetwork(virtual_time, **seconds)
        monkeypatch.setattr(happy_eyeballs, "_connect", found.connect)
        return found

    return made


async def test_a_silent_address_delays_the_next_by_a_quarter_second(network: Any) -> None:
    hosts = network(a=60.0, b=60.0, x=0.1)
    assert await hosts.race() == "x"
    assert hosts.begun == [("a", 0), ("x", 0.25)]
    await asyncio.sleep(0)
    assert hosts.given_up == ["a"]


async def test_families_take_turns_and_a_late_answer_still_counts(network: Any) -> None:
    hosts = network(a=0.6, b=60.0, x=60.0)
    assert await hosts.race() == "a"
    assert hosts.begun == [("a", 0), ("x", 0.25), ("b", 0.5)]
    await asyncio.sleep(0)
    assert sorted(hosts.given_up) == ["b", "x"]


async def test_an_address_that_refuses_is_followed_at_once(network: Any) -> None:
    hosts = network(a=None, x=0.1)
    assert await hosts.race() == "x"
    assert hosts.begun == [("a", 0), ("x", 0)]


async def test_the_first_problem_is_told_if_no_address_answers(network: Any) -> None:
    hosts = network(a=None, x=None)
    with pytest.raises(OSError, match="a refuses"):
        await hosts.race()
