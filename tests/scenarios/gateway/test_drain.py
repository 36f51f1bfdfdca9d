"""Stopping a gateway while calls are running: readiness, new sessions, signals and time limits."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.errors import FairleadError, HttpError
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.cli_process import LIMIT, Signpost, signpost
from tests.support.cli_user import Person, person
from tests.support.running_gateway import Running, connected, exchange, get, running, text_of

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

OPENING = {
    "protocolVersion": NEWEST_HANDSHAKE.value,
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
SLOW = """
@server.tool()
async def slow() -> str:
    {report}
    while not os.path.exists({go_on!r}):
        await asyncio.sleep(0.01)
    return 'finished'
"""


@contextlib.contextmanager
def slow_gateway(
    person: Person, *options: str, settings: str = ""
) -> Iterator[tuple[Running, Signpost, Path]]:
    """Run a gateway with a tool that reports its call and returns once a file exists."""
    go_on = person.folder / "go on"
    with signpost(person.folder / "pipe") as post:
        entry = person.server(SLOW.format(report=post.report, go_on=str(go_on)))
        text = f"[servers.s]\ncommand = {entry['command']!r}\nargs = {entry['args']!r}\n"
        file = person.project / "gateway.toml"
        file.write_text(f"{settings}\n{text}")
        with running(person, "gateway", file.name, "--port", "0", *options) as gateway:
            gateway.wait_for("s: connected")
            yield gateway, post, go_on


@pytest.mark.parametrize("version", [NEWEST.value, NEWEST_HANDSHAKE.value])
@pytest.mark.parametrize("where", ["option", "file"])
async def test_after_sigterm_calls_finish_while_the_gateway_is_not_ready(
    person: Person, where: str, version: str
) -> None:
    options = ["--drain", "3"] if where == "option" else []
    with slow_gateway(person, *options, settings="drain = 3" if where == "file" else "") as (
        gateway,
        post,
        go_on,
    ):
        url = gateway.url
        async with connected(url, version) as client:
            call = asyncio.create_task(client.call_tool("s_slow"))
            await asyncio.to_thread(post.read)
            assert get(url, "/ready") == (200, '{"ready":true,"degraded":[],"shortage":null}')
            began = time.monotonic()
            gateway.process.send_signal(signal.SIGTERM)
            told = await asyncio.to_thread(gateway.wait_for, "stopping: draining: ")
            assert "1 request is running, new sessions are refused, " in told
            assert "the process stops after 3 s" in told
            assert get(url, "/ready") == (503, '{"ready":false}')
            assert get(url, "/health")[0] == 200
            opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": OPENING}
            status, body, headers = exchange("POST", url, opening)
            assert (status, headers["retry-after"]) == (503, "5")
            assert "the server is shutting down" in body
            go_on.touch()
            assert text_of(await call) == "finished"
            # The connection is still open, and the gateway still listens.
            assert text_of(await client.call_tool("s_slow")) == "finished"
            assert get(url, "/ready")[0] == 503
        assert gateway.process.wait(LIMIT) == 0
        assert time.monotonic() - began >= 3
        assert "all requests have finished" in gateway.wait_for("drained for 3.")


async def test_a_call_that_exceeds_the_drain_time_is_cancelled_and_reported(
    person: Person,
) -> None:
    with slow_gateway(person, "--drain", "0.3") as (gateway, post, _):
        async with connected(gateway.url) as client:
            call = asyncio.create_task(client.call_tool("s_slow"))
            await asyncio.to_thread(post.read)
            gateway.process.send_signal(signal.SIGTERM)
            with pytest.raises(FairleadError):
                await call
        assert gateway.process.wait(LIMIT) == 0
        told = gateway.wait_for("drained for 0.")
        assert told.endswith(": 1 request is running and cannot finish")


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_the_drain_at_once(person: Person, first: int) -> None:
    with slow_gateway(person, "--drain", "600") as (gateway, post, _):
        async with connected(gateway.url) as client:
            call = asyncio.create_task(client.call_tool("s_slow"))
            await asyncio.to_thread(post.read)
            gateway.process.send_signal(first)
            await asyncio.to_thread(gateway.wait_for, "a second signal stops it at once")
            gateway.process.send_signal(signal.SIGTERM)
            with pytest.raises(FairleadError):
                await call
        assert gateway.process.wait(LIMIT) == 0


@pytest.mark.parametrize("version", [NEWEST.value, NEWEST_HANDSHAKE.value])
async def test_a_call_that_a_shutdown_interrupts_is_not_repeated(
    person: Person, version: str
) -> None:
    """A response of 503 would mean that the tool had not been started."""
    with signpost(person.folder / "pipe") as post:
        entry = person.server(SLOW.format(report=post.report, go_on="never"))
        with running(person, "serve", entry["args"][-1], "--http", "0") as server:
            url = server.wait_for("serving: ").split(" at ")[1].split()[0]
            async with connected(url, version) as client:
                call = asyncio.create_task(client.call_tool("slow"))
                await asyncio.to_thread(post.read)
                server.process.send_signal(signal.SIGTERM)
                with pytest.raises(HttpError) as stopped:
                    await call
                assert (stopped.value.status, stopped.value.delivered) == (500, True)


def test_ctrl_c_ends_an_idle_gateway_at_once(person: Person) -> None:
    with slow_gateway(person, "--drain", "600") as (gateway, _, _):
        assert gateway.ends(signal.SIGINT) == 0
        assert "draining" not in gateway.said
