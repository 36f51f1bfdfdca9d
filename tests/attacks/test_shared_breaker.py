"""Clients cannot open the circuit breaker of a server for other clients."""

import asyncio

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.errors import FairleadError, HttpError, ServerBusy
from fairlead.gateway import Gateway
from fairlead.upstream.call_health import _is_failure


@pytest.mark.attack(
    "repeated requests that a server rejects (too large, malformed)",
    "rejected requests do not count as failures of the server",
    "other clients are served",
)
async def test_rejected_requests_do_not_open_the_circuit_breaker_of_a_server() -> None:
    server = MCPServer("s", rate_limit_rate=0)

    @server.tool()
    async def echo(text: str) -> str:
        return text

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        server.run_http(port=0, max_body=100_000, started=ready.set_result)
    )
    try:
        async with asyncio.timeout(30), Gateway() as gateway:
            await gateway.connect({"s": {"type": "http", "url": await ready}})
            async with MCPClient.connect_inprocess(gateway) as client:
                for _ in range(8):
                    with pytest.raises(FairleadError):
                        await client.call_tool("s_echo", {"text": "x" * 150_000})
                result = await client.call_tool("s_echo", {"text": "hello"})
                assert result["content"][0]["text"] == "hello"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_rejected_request_does_not_count_as_a_server_failure(status: int) -> None:
    assert not _is_failure(HttpError(status))


@pytest.mark.parametrize("status", [401, 404, 500, 502, 503])
def test_http_statuses_401_404_and_5xx_count_as_server_failures(status: int) -> None:
    assert _is_failure(HttpError(status))


def test_a_busy_error_does_not_count_as_a_server_failure() -> None:
    assert not _is_failure(ServerBusy("s is busy", public="is busy"))
