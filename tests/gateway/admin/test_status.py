"""The state of a gateway that is short of something itself."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import ConnectFailed, LocalResourceError
from fairlead.gateway import Gateway
from fairlead.gateway.admin.status import SHORTAGE_GRACE
from tests.support.gateway_servers import LIMIT, joining, program, serving, until
from tests.support.virtual_time import VirtualTime


def status_of(gateway: Gateway) -> Any:
    return gateway._status


async def test_a_shortage_degrades_at_once_and_after_a_while_ends_readiness(
    virtual_time: VirtualTime,
) -> None:
    async with Gateway() as gateway:
        status = status_of(gateway)
        assert status.readiness() == {"ready": True}
        assert status.full()["shortage"] is None
        gateway.manager.start_limiter.shortage.report(LocalResourceError("no pipe", "memory"))
        assert status.readiness() == {"ready": True, "degraded": ["out of memory"]}
        assert status.full()["shortage"] == "memory"
        await asyncio.sleep(SHORTAGE_GRACE - 0.001)
        assert status.readiness()["ready"] is True
        await asyncio.sleep(0.001)
        assert status.readiness() == {"ready": False, "degraded": ["out of memory"]}
        gateway.manager.start_limiter.shortage.clear()
        assert status.readiness() == {"ready": True}


async def test_a_server_that_dies_while_no_descriptors_are_left_comes_back(tmp_path: Path) -> None:
    """Seen from outside: /ready tells of it, no server is suspended, and calls work again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[Any] = []
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        supervisor = gateway.manager.describe()["red"]
        async with (
            serving(gateway) as url,
            aiohttp.ClientSession() as web,
            joining(gateway) as client,
        ):
            ready = url.removesuffix("/mcp") + "/ready"
            async with web.get(ready) as answer:  # the connection stays open for what follows
                assert await answer.json() == {"ready": True}
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 512), limits[1]))
                with pytest.raises(OSError, match="Too many open files"):
                    while True:
                        held.append(open(tmp_path / "held", "w"))  # noqa: SIM115
                with pytest.raises(ConnectFailed):
                    await gateway.manager.reconnect_server("red")
                assert isinstance(supervisor.error, LocalResourceError)
                assert supervisor.state == "reconnecting"
                async with web.get(ready) as answer:
                    assert (await answer.json())["degraded"] == ["out of file descriptors"]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for file in held:
                    file.close()
            assert (await client.call("red_who")).text.startswith("red")
            async with web.get(ready) as answer:
                assert await answer.json() == {"ready": True}
