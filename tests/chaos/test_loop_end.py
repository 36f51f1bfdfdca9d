"""An event loop that ends, and cancels all tasks at once, while a server has a connection."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, contextlib, http.client, LOOP
from urllib.parse import urlsplit
from fairlead import MCPServer

@contextlib.asynccontextmanager
async def lifespan(server):
    try:
        yield
    finally:
        print("cleaned up")

def ask(place):
    idle = http.client.HTTPConnection(place.hostname, place.port)
    idle.request("GET", "/nowhere")
    idle.getresponse().read()
    return idle

async def main():
    server = MCPServer("served", lifespan=lifespan)
    url = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(server.run_http(port=0, started=url.set_result))
    idle = await asyncio.to_thread(ask, urlsplit(await url))
    try:
        raise KeyError
    finally:
        kept.append(idle)

kept = []
try:
    with asyncio.Runner(loop_factory=LOOP.new_event_loop) as runner:
        runner.run(main())
except KeyError:
    print("failed as expected")
kept[0].close()
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_server_stops_without_warnings_when_its_event_loop_ends(loop: str) -> None:
    """Warnings are errors here; after a raised warning, uvloop would never close."""
    command = [sys.executable, "-W", "error", "-c", PROGRAM.replace("LOOP", loop)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
    assert (done.stdout, done.stderr) == ("cleaned up\nfailed as expected\n", "")
