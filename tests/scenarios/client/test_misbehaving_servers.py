"""Misbehaving servers, failing callbacks, and clients closed during calls."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client import InputNotGiven, Question, accept
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import ChannelClosed, ClientClosedError, FairleadError, RemoteProtocolError
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


LATEST = MCPClientConfig(protocol_version="latest")
ERAS = pytest.mark.parametrize("version", ["auto", "latest"])


def curious() -> MCPServer:
    """Return a server that sends a request before it answers."""
    server = MCPServer("curious")

    @server.tool()
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Who?", {"type": "object", "properties": {}})).action

    @server.tool()
    async def model(ctx: Context) -> str:
        return str(await ctx.sample("hm"))

    @server.tool()
    async def folders(ctx: Context) -> str:
        return str(await ctx.roots())

    @server.tool()
    async def count(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step)
        return "counted"

    return server


async def test_a_second_response_to_a_request_is_dropped_and_counted(tmp_path: Path) -> None:
    source = """
    for request in requests():
        if "id" in request:
            answer(request, {"content": text("first")})
            answer(request, {"content": text("second")})
            refuse(request, -32000, "third")
    """
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        for _ in range(3):
            assert (await client.call("t")).text == "first"
        await client.ping()
        assert client.transport.peer.unmatched_count == 6


async def test_invalid_results_fail_only_their_own_call(tmp_path: Path) -> None:
    source = """
    for request in requests():
        wrong = {"list": [], "text": "no", "null": None, "number": 5}
        name = request.get("params", {}).get("name", request["method"])
        if name in wrong:
            answer(request, wrong[name])
        elif name == "tools/list":
            answer(request, [])
        elif name == "prompts/list":
            answer(request, {"prompts": [], "nextCursor": 5})
        elif "id" in request:
            answer(request, {"content": text("fine")})
    """
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        for name in ("list", "text", "null", "number"):
            with pytest.raises(RemoteProtocolError):
                await client.call_tool(name)
        for listing in (client.list_tools, client.tools, client.list_prompts, client.prompts):
            with pytest.raises(RemoteProtocolError, match="A page of .* is malformed"):
                await listing()
        assert (await client.call("t")).text == "fine"


def breaks(*_: Any) -> Any:
    raise ZeroDivisionError("callback failed")


async def breaks_later(*_: Any) -> Any:
    raise ZeroDivisionError("callback failed")


@ERAS
@pytest.mark.parametrize("callback", [breaks, breaks_later])
async def test_a_callback_that_raises_an_exception_fails_only_its_call(
    version: str, callback: Callable[..., Any]
) -> None:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(
        curious(), config, on_elicit=callback, on_sample=callback, on_roots=callback
    ) as client:
        for tool in ("ask", "model", "folders"):
            if version == "auto":
                with pytest.raises(InputNotGiven, match="callback failed") as caught:
                    await client.call(tool)
                assert isinstance(caught.value.__cause__, ZeroDivisionError)
            else:
                with pytest.raises(RpcError, match="callback failed"):
                    await client.call(tool)
        client.on_elicit = lambda question: accept({})
        assert (await client.call("ask")).text == "accept"


@ERAS
@pytest.mark.parametrize(
    ("tool", "wrong", "words"),
    [
        ("ask", None, "accept"),
        ("ask", "yes", "accept"),
        ("ask", {"action": "maybe"}, "accept"),
        ("ask", {"action": "accept", "content": "Ada"}, "a value for each field"),
        ("model", None, "a string or a CreateMessageResult"),
        ("model", 5, "a string or a CreateMessageResult"),
        ("folders", None, "a list of paths"),
        ("folders", "/tmp", "a list of paths"),
        ("folders", [5], "on_roots returned 5, expected a path, URI or root"),
    ],
)
async def test_an_invalid_return_value_of_a_callback_is_rejected_with_the_expected_form(
    version: str, tool: str, wrong: Any, words: str
) -> None:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(
        curious(),
        config,
        on_elicit=lambda question: wrong,
        on_sample=lambda params: wrong,
        on_roots=lambda: wrong,
    ) as client:
        with pytest.raises((InputNotGiven, RpcError), match=words):
            await client.call(tool)
        await client.ping()


@ERAS
async def test_closing_a_client_ends_a_call_that_waits_for_the_user(version: str) -> None:
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def absent(question: Question) -> dict[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    config = MCPClientConfig(protocol_version=version)
    client = await MCPClient.connect_inprocess(curious(), config, on_elicit=absent)
    call = asyncio.ensure_future(client.call("ask"))
    async with asyncio.timeout(5):
        await asked.wait()
        await client.close()
        with pytest.raises(ChannelClosed):
            await call
        await stopped.wait()


@ERAS
@pytest.mark.parametrize("callback", [breaks, breaks_later])
async def test_a_progress_callback_that_raises_is_logged_and_the_call_succeeds(
    version: str, callback: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(curious(), config) as client:
        assert (await client.call("count", on_progress=callback)).text == "counted"
    assert caplog.text.count("the progress callback of tools/call failed") == 3


@pytest.mark.parametrize("callback", [breaks, breaks_later])
async def test_a_listener_that_raises_does_not_affect_other_listeners(
    tmp_path: Path, callback: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    source = """
    for request in requests():
        if request["method"] == "tools/call":
            for n in range(3):
                tell("notifications/message", {"level": "info", "data": n})
        if "id" in request:
            answer(request, {"content": []})
    """
    told: asyncio.Queue[Any] = asyncio.Queue()
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(
        command,
        LATEST,
        on_log=callback,
        on_notification=lambda method, params: told.put_nowait(params["data"]),
    ) as client:
        await client.call("t")
        async with asyncio.timeout(5):
            assert [await told.get() for _ in range(3)] == [0, 1, 2]
    assert caplog.text.count("a listener failed") == 3


async def test_closing_a_client_ends_a_call_that_waits_for_a_retry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fairlead.client")
    waits = asyncio.Event()
    caplog.handler.addFilter(lambda record: "retrying" not in record.msg or not waits.set())
    command = program(tmp_path, "for request in requests(): pass", stateless=False)
    config = MCPClientConfig(protocol_version="latest", retry_delay=30)
    client = await MCPClient.connect_stdio(command, config)
    call = asyncio.ensure_future(client.request("resources/read", {"uri": "x"}, timeout=0.05))
    async with asyncio.timeout(5):
        await waits.wait()
        await client.close()
        with pytest.raises(ChannelClosed, match="the client is closed"):
            await call
    assert len(heard(tmp_path, "resources/read")) == 1


@ERAS
async def test_twenty_concurrent_reads_succeed_although_their_connection_is_lost(
    tmp_path: Path, version: str
) -> None:
    source = """
    first = not os.path.exists(LOG + ".again")
    open(LOG + ".again", "w").close()
    reads = 0
    for request in requests():
        if request["method"] == "resources/read":
            reads += 1
            if first and reads == 20:
                os._exit(1)
            elif not first:
                complete(request, contents=[{"uri": request["params"]["uri"], "text": "t"}])
    """
    command = program(tmp_path, source, stateless=version == "auto")
    config = MCPClientConfig(protocol_version=version, auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_stdio(command, config) as client:
        calls = (client.read(f"memo://{number}") for number in range(20))
        async with asyncio.timeout(20):
            found = await asyncio.gather(*calls)
        assert [contents[0].uri for contents in found] == [f"memo://{n}" for n in range(20)]
        assert client.generation == 1  # all reads share one new connection
    assert len(heard(tmp_path, "resources/read")) == 40


@pytest.mark.covers("CLT-08")
async def test_another_task_can_close_clients_in_the_order_they_were_opened(
    tmp_path: Path, loop_kind: str
) -> None:
    source = """
    for request in requests():
        if request.get("params", {}).get("name") == "quick":
            answer(request, {"content": text(str(os.getpid()))})
    """
    command = program(tmp_path, source, stateless=False)

    async def connect() -> MCPClient:
        return await MCPClient.connect_stdio(command, LATEST)

    first, second = await asyncio.create_task(connect()), await asyncio.create_task(connect())
    pids = [int((await client.call("quick")).text) for client in (first, second)]
    waiting = [asyncio.ensure_future(client.call("slow")) for client in (first, second)]
    await asyncio.gather(first.ping(), second.ping())

    async def close_all() -> None:
        for client in (first, second):
            await client.close()
            await client.close()

    async with asyncio.timeout(10):
        await asyncio.create_task(close_all())
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ChannelClosed, ChannelClosed]
    for client, pid in zip((first, second), pids, strict=True):
        assert not client.connected
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(ClientClosedError):
            await client.call("quick")
        with pytest.raises(ClientClosedError):
            await client.initialize()


@pytest.mark.covers("CLT-08")
async def test_a_callback_can_close_its_client_twice() -> None:
    server = curious()

    async def close(question: Question) -> dict[str, Any]:
        await asyncio.gather(client.close(), client.close())
        return accept({})

    client = await MCPClient.connect_inprocess(server, LATEST, on_elicit=close)
    async with asyncio.timeout(5):
        with pytest.raises(FairleadError):
            await client.call("ask")
        await client.close()
    assert not client.connected


@pytest.mark.covers("DEC-14")
@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("{}", "result.content is required"),
        ('{"content": []}', "result.content"),
        ('{"content": [{"text": "x"}]}', "result.content[0].type"),
        ('{"content": text("x"), "isError": "no"}', "result.isError"),
    ],
)
async def test_a_result_that_violates_the_specification_is_accepted_unless_the_client_is_strict(
    result: str, problem: str, tmp_path: Path
) -> None:
    source = f"""
    for request in requests():
        if "id" in request:
            answer(request, {result})
    """
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        assert isinstance(await client.call_tool("x"), dict)
    strict = MCPClientConfig(protocol_version="latest", strict=True)
    async with MCPClient.connect_stdio(command, strict) as client:
        with pytest.raises(RemoteProtocolError, match="x returned an invalid result") as caught:
            await client.call_tool("x")
        assert problem in str(caught.value)
