"""The receiver of redirects on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from fairlead.auth.client.loopback_listener import LoopbackListener
from fairlead.errors import AuthorizationError

LIMIT = 10.0


@asynccontextmanager
async def listening() -> AsyncIterator[LoopbackListener]:
    made = LoopbackListener()
    await made.start()
    async with asyncio.timeout(LIMIT):
        yield made
    await made.close()


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as reply:
        assert reply.headers["Cache-Control"] == "no-store"
        return reply.status, await reply.text()


@pytest.mark.covers("AUT-04")
async def test_the_listener_returns_the_redirect_with_the_state_of_its_login() -> None:
    async with listening() as listener:
        waiting = asyncio.ensure_future(listener.wait("s1"))
        await asyncio.sleep(0)
        url = f"{listener.redirect_uri}?code=c1&state=s1"
        status, page = await get(url)
        assert (status, await waiting) == (200, url)
        assert "c1" not in page
        assert "close this window" in page


async def test_the_listener_refuses_other_requests_and_keeps_waiting() -> None:
    async with listening() as listener:
        waiting = asyncio.ensure_future(listener.wait("s1"))
        await asyncio.sleep(0)
        origin = listener.redirect_uri.removesuffix("/callback")
        for path in (
            "/favicon.ico",
            "/callback",
            "/callback?state=s2",
            "/callback?state=s1&state=s1",
        ):
            status, page = await get(origin + path)
            assert (status, "<script" in page) == (404, False)
        assert (await get(f"{listener.redirect_uri}?state=s1", Host="evil.example"))[0] == 403
        assert not waiting.done()
        await get(f"{listener.redirect_uri}?state=s1&code=x")
        assert "code=x" in await waiting


async def test_incomplete_requests_do_not_block_the_listener() -> None:
    async with listening() as listener:
        waiting = asyncio.ensure_future(listener.wait("s1"))
        port = int(listener.redirect_uri.split(":")[2].split("/")[0])
        open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        open_ones[0][1].write(b"\xff\x00garbage\r\n\r\n")
        await get(f"{listener.redirect_uri}?state=s1&code=x")
        assert "code=x" in await waiting
        for _, writer in open_ones:
            writer.close()


async def test_the_listener_uses_another_port_if_its_port_is_in_use_and_not_fixed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = LoopbackListener()
        await free.start(port)
        assert str(port) not in free.redirect_uri
        await free.close()
        with pytest.raises(AuthorizationError, match="set another `callbackPort`"):
            await LoopbackListener().start(port, fixed=True)
