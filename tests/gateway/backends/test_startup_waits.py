"""Lookups that wait for starting servers."""

import asyncio

import pytest

from fairlead.errors import RpcError
from fairlead.gateway.catalog.routing import wait_until_found
from fairlead.upstream.startup_wait import StartupWait, StillStarting, still_starting_error

ENTRY = "`timeout` (milliseconds) in its entry"


def test_the_timeout_error_names_the_setting_to_raise() -> None:
    error = StillStarting(StartupWait(2.5, 0.0))
    refused = still_starting_error("red", error)
    assert refused.message == (
        "red is still starting, after 2.5 s. Try again in a moment; if it always takes so long, "
        f"raise {ENTRY}"
    )
    assert refused.code == -32603
    assert isinstance(refused.data, dict)
    assert (refused.data["starting"], refused.data["server"]) == (True, "red")
    assert str(error).startswith("the server is still starting")


class Starting:
    """A server that lists its items when the test releases it."""

    def __init__(self, *, introduced: bool = False) -> None:
        self.introduced = asyncio.Event()
        self.refusal: RpcError | None = None
        self.waited = 0
        self.given_up = False
        if introduced:
            self.introduced.set()

    async def introduction(self) -> RpcError | None:
        self.waited += 1
        try:
            await self.introduced.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return self.refusal


async def test_a_listed_item_is_found_without_waiting() -> None:
    one = Starting()
    assert await wait_until_found(lambda: "x", [one]) == "x"  # type: ignore[list-item]
    assert one.waited == 0
    known = Starting(introduced=True)
    assert await wait_until_found(lambda: None, [known]) is None  # type: ignore[list-item]
    assert known.waited == 0


async def test_the_wait_ends_when_the_first_server_has_listed_the_item() -> None:
    one, other = Starting(), Starting()
    found: list[str] = []
    waiting = asyncio.create_task(
        wait_until_found(lambda: found[0] if found else None, [one, other])  # type: ignore[list-item]
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found.append("x")
    one.introduced.set()
    async with asyncio.timeout(5):
        assert await waiting == "x"
        await asyncio.sleep(0)
    assert other.given_up


@pytest.mark.parametrize("late", [True, False])
async def test_the_error_of_a_starting_server_is_raised_if_no_server_has_the_item(
    late: bool,
) -> None:
    one, other = Starting(), Starting()
    refusal = RpcError(-32603, "still starting")
    one.refusal = refusal if late else None
    waiting = asyncio.create_task(wait_until_found(lambda: None, [one, other]))  # type: ignore[list-item]
    await asyncio.sleep(0)
    one.introduced.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    other.introduced.set()
    async with asyncio.timeout(5):
        if late:
            with pytest.raises(RpcError, match="still starting"):
                await waiting
        else:
            assert await waiting is None
