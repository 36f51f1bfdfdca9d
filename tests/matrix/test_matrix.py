"""One scenario with a Fairlead client and server in every revision over every transport."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client import Question, accept
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import RequestTimeout
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.contracts import validate_tool_error, validate_tool_response
from fairlead.protocol.revisions import Revision
from tests.support.line_sockets import listen_unix
from tests.support.matrix_server import make

LIMIT = 30.0
PROGRAM = Path(__file__).parents[1] / "support" / "matrix_server.py"
TRANSPORTS = ["stdio", "unix", "http", "http-sse-answers", "http-unix", "sse", "ws"]


def cells() -> list[Any]:
    """Return all combinations of revision and transport; HTTP+SSE only has handshake revisions."""
    return [
        pytest.param(revision, transport, id=f"{revision}-{transport}")
        for revision in Revision
        for transport in TRANSPORTS
        if not (transport == "sse" and revision.stateless)
    ]


class Scene:
    """A client and the messages that it received."""

    def __init__(self) -> None:
        self.logs: asyncio.Queue[Any] = asyncio.Queue()
        self.notifications: asyncio.Queue[str] = asyncio.Queue()

    def callbacks(self) -> dict[str, Any]:
        def on_elicit(question: Question) -> Any:
            return accept({"value": "Ada"})

        def on_sample(params: dict[str, Any]) -> Any:
            return {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"}

        return {
            "on_elicit": on_elicit,
            "on_sample": on_sample,
            "on_log": lambda level, data, logger: self.logs.put_nowait(data),
            "on_notification": lambda method, params: self.notifications.put_nowait(method),
        }


@contextlib.asynccontextmanager
async def serving(server: MCPServer, **options: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        server.run_http(**{"port": 0, "started": ready.set_result, **options})
    )
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def connected(
    transport: str, revision: Revision, place: Path, scene: Scene
) -> AsyncIterator[MCPClient]:
    """Connect a client to a server over the given transport in the given revision."""
    version = "auto" if revision.stateless else revision.value
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    callbacks = scene.callbacks()
    async with contextlib.AsyncExitStack() as stack:
        match transport:
            case "stdio":
                command = [sys.executable, str(PROGRAM)]
                connecting = MCPClient.connect_stdio(command, config, **callbacks)
            case "unix":
                server, path = make(), str(place / "lines.sock")
                listening = listen_unix(path, lambda channel: _attach(server, channel))
                await stack.enter_async_context(listening)
                stack.push_async_callback(server.close)
                connecting = MCPClient.connect_unix(path, config, **callbacks)
            case "http" | "http-sse-answers":
                answers = "sse" if transport == "http-sse-answers" else "auto"
                url = await stack.enter_async_context(serving(make(), answers=answers))
                connecting = MCPClient.connect_http(url, config, **callbacks)
            case "http-unix":
                uds = str(place / "http.sock")
                url = await stack.enter_async_context(serving(make(), uds=uds))
                connecting = MCPClient.connect_http(url, config, **callbacks)
            case "sse":
                url = await stack.enter_async_context(serving(make()))
                url = url.replace("/mcp", "/sse")
                connecting = MCPClient.connect_http(url, config, mode="sse", **callbacks)
            case _:
                url = await stack.enter_async_context(serving(make()))
                url = url.replace("http://", "ws://").replace("/mcp", "/ws")
                connecting = MCPClient.connect_websocket(url, config, **callbacks)
        yield await stack.enter_async_context(connecting)


def _attach(server: MCPServer, channel: Any) -> None:
    server.attach(channel, ANONYMOUS)


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.mark.covers("DEC-04", "PRO-21", "WSK-05", "CLT-01", "CON-06")
@pytest.mark.parametrize(("revision", "transport"), cells())
async def test_all_features_of_the_matrix_scenario_work_in_every_revision_and_transport(
    revision: Revision, transport: str, tmp_path: Path
) -> None:
    scene = Scene()
    async with asyncio.timeout(LIMIT), connected(transport, revision, tmp_path, scene) as client:
        assert client.protocol_version == revision
        await list_and_call(client)
        await progress_and_logs(client, scene)
        await cancelling(client, scene)
        await questions(client, revision)
        await changes(client, scene)
        await failures(client)
        await big_payload(client)


async def list_and_call(client: MCPClient) -> None:
    names = [tool["name"] for tool in await client.list_tools()]
    assert names[:3] == ["add", "count", "wait"]
    assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
    assert (await client.list_resources())[0]["uri"] == "note://one"
    assert (await client.read_resource("note://one"))["contents"][0]["text"] == "a note"
    prompt = await client.get_prompt("hello", {"name": "Bob"})
    assert prompt["messages"][0]["content"]["text"] == "Say hello to Bob"


async def progress_and_logs(client: MCPClient, scene: Scene) -> None:
    seen: list[tuple[float, float | None]] = []
    await client.set_log_level("info")
    result = await client.call(
        "count", {"to": 3}, on_progress=lambda n, total, _: seen.append((n, total))
    )
    assert result.text == "counted to 3"
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert await scene.logs.get() == "counted"


async def cancelling(client: MCPClient, scene: Scene) -> None:
    waiting = asyncio.create_task(client.call("wait"))
    assert await scene.logs.get() == "waiting"
    waiting.cancel()
    while (await client.call("traces")).text != "wait":
        await asyncio.sleep(0.01)
    with pytest.raises(RequestTimeout):
        await client.call_tool("wait", timeout=0.05)
    while (await client.call("traces")).text != "wait,wait":
        await asyncio.sleep(0.01)
    while not scene.logs.empty():
        scene.logs.get_nowait()


async def questions(client: MCPClient, revision: Revision) -> None:
    assert (await client.call("think")).text == "the model says 42"
    if revision.elicitation:
        assert (await client.call("greet")).text == "accept Ada"
        both = await asyncio.gather(client.call("greet"), client.call("think"))
        assert [result.text for result in both] == ["accept Ada", "the model says 42"]


async def changes(client: MCPClient, scene: Scene) -> None:
    await client.listen("tools")
    before = len(await client.list_tools())
    await client.call("grow")
    while await scene.notifications.get() != "notifications/tools/list_changed":
        pass
    assert len(await client.list_tools()) == before + 1


async def failures(client: MCPClient) -> None:
    failed = await client.call("fail")
    assert failed.is_error
    assert failed.error is not None
    assert "out of paint" in failed.error.message
    with pytest.raises(RpcError) as caught:
        await client.call_tool("nobody")
    assert caught.value.code == -32602
    added = await client.call_tool("add", {"a": 1, "b": 2}, errors="envelope")
    assert validate_tool_response(added).ok, added
    assert validate_tool_response(await client.call_tool("fail", errors="envelope")).ok
    refused = await client.call_tool("nobody", errors="envelope")
    assert validate_tool_error(refused).ok, refused


async def big_payload(client: MCPClient) -> None:
    text = "päckchen " * 300_000
    assert (await client.call("echo", {"text": text})).text == text
