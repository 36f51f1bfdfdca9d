"""Servers that cannot be connected when a gateway starts, and work later."""

import asyncio
import sys
from pathlib import Path

import pytest

from fairlead import MCPServer
from fairlead.errors import FairleadError
from fairlead.upstream import connection_keeper
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT
from tests.support.upstream_gateways import connect, gateway_for

SERVER = """
from fairlead import MCPServer

server = MCPServer("late")


@server.tool()
def ready() -> bool:
    return True


server.run()
"""


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_keeper, "FIRST_START_DELAY", 0.1)


async def test_a_program_that_is_repaired_after_the_start_of_a_gateway_is_used(
    tmp_path: Path,
) -> None:
    program = tmp_path / "late.py"
    program.write_text("raise SystemExit('not yet')\n")
    entry = {"command": sys.executable, "args": [str(program)]}
    async with asyncio.timeout(LIMIT), gateway_for({"late": entry}) as served:
        await until(lambda: served.server_status("late")["status"] == "failed")
        with pytest.raises(FairleadError, match="exited with code 1"):
            await connect(served.url, "late", endpoint="single").__aenter__()
        program.write_text(SERVER)
        await until(lambda: served.server_status("late")["status"] == "connected")
        async with connect(served.url, "late") as client:
            assert await client.call("ready") == "true"


async def test_an_http_server_that_starts_after_a_gateway_is_used() -> None:
    server = MCPServer("late")

    @server.tool()
    def ready() -> bool:
        return True

    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    entry = {"url": f"http://127.0.0.1:{port}/mcp"}
    async with asyncio.timeout(LIMIT), gateway_for({"late": entry}) as served:
        await until(lambda: served.server_status("late")["status"] == "failed")
        running = asyncio.create_task(server.run_http(port=port))
        try:
            await until(lambda: served.server_status("late")["status"] == "connected")
            async with connect(served.url, "late") as client:
                assert await client.call("ready") == "true"
        finally:
            running.cancel()
            await asyncio.wait((running,))
