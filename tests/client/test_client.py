"""Tests of clients with various servers in real processes."""

import asyncio
import os
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import ChannelClosed, ConnectFailed, RemoteProtocolError, RequestTimeout

PRELUDE = """
import json, os, signal, subprocess, sys, threading, time

def send(message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()

def answer(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})

def refuse(request, code=-32601, message="Method not found", **data):
    send({"jsonrpc": "2.0", "id": request["id"],
          "error": {"code": code, "message": message, **data}})

def greet(request, capabilities={"tools": {}}):
    answer(request, {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": capabilities,
        "serverInfo": {"name": "hand-made", "version": "1"},
        "instructions": "by hand",
    })

def requests():
    for line in sys.stdin:
        yield json.loads(line)
"""


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


def program(folder: Path, source: str) -> list[str]:
    file = folder / "server.py"
    file.write_text(PRELUDE + textwrap.dedent(source))
    return [sys.executable, str(file)]


def lines_of(file: Path) -> list[str]:
    return file.read_text().split()


LEGACY = """
log = open({log!r}, "a")
for request in requests():
    print(request["method"], file=log, flush=True)
    if request["method"] == "initialize":
        greet(request)
    elif request["method"] == "tools/call":
        answer(request, {{"content": [{{"type": "text", "text": "done"}}]}})
    elif request["method"] == "ping":
        answer(request, {{}})
    elif "id" in request:
        {unknown}
"""


@pytest.mark.covers("DEC-05", "PRO-01", "PRO-22", "CLT-01", "CLT-03")
@pytest.mark.parametrize(
    "unknown",
    [
        "refuse(request)",
        "refuse(request, -32602, 'Invalid request parameters')",
        "refuse(request, -32000, 'Server not initialized')",
        "answer(request, {})",
        "pass",
        "os._exit(7)",
    ],
    ids=["-32601", "-32602", "-32000", "empty-result", "silent", "dies"],
)
async def test_a_handshake_server_is_detected_by_one_probe_and_remembered(
    unknown: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = program(tmp_path, LEGACY.format(log=str(log), unknown=unknown))
    config = MCPClientConfig(probe_timeout=0.2)
    async with MCPClient.connect_stdio(command, config) as client:
        assert client.protocol_version == "2025-11-25"
        assert client.server["serverInfo"] == {"name": "hand-made", "version": "1"}
        assert client.instructions == "by hand"
        result = await client.call_tool("t")
        assert result["content"][0]["text"] == "done"
        assert (await client.health_check())["ok"] is True
    expected = ["initialize", "notifications/initialized", "tools/call", "ping"]
    assert lines_of(log) == ["server/discover", *expected]
    # The era is remembered, so the next connection sends no probe.
    log.unlink()
    async with MCPClient.connect_stdio(command, config) as client:
        await client.call_tool("t")
    assert lines_of(log) == ["initialize", "notifications/initialized", "tools/call"]


@pytest.mark.covers("PRO-22")
async def test_a_stateless_server_that_starts_slowly_is_recognised_as_stateless(
    tmp_path: Path,
) -> None:
    command = program(
        tmp_path,
        """
        stdin = iter(sys.stdin)
        discover = json.loads(next(stdin))
        initialize = json.loads(next(stdin))  # sent in parallel to the probe
        assert (discover["method"], initialize["method"]) == ("server/discover", "initialize")
        answer(discover, {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                          "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
        for line in stdin:
            request = json.loads(line)
            if request["method"] == "tools/list":
                assert "io.modelcontextprotocol/protocolVersion" in request["params"]["_meta"]
                answer(request, {"resultType": "complete", "tools": [], "ttlMs": 0,
                                 "cacheScope": "private"})
        """,
    )
    config = MCPClientConfig(probe_timeout=0.1)
    async with MCPClient.connect_stdio(command, config) as client:
        assert client.protocol_version == "2026-07-28"
        assert await client.list_tools() == []


@pytest.mark.covers("DEC-05")
async def test_a_configured_handshake_version_is_used_without_a_probe(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = program(tmp_path, LEGACY.format(log=str(log), unknown="pass"))
    for version in ("2024-11-05", "latest"):
        config = MCPClientConfig(protocol_version=version)
        async with MCPClient.connect_stdio(command, config) as client:
            expected = "2025-11-25" if version == "latest" else version
            assert client.protocol_version == expected
    assert "server/discover" not in lines_of(log)
    with pytest.raises(ConnectFailed, match="Unknown protocol version '2099-01-01'"):
        await MCPClient.connect_stdio(command, MCPClientConfig(protocol_version="2099-01-01"))


@pytest.mark.covers("DEC-05", "PRO-03")
async def test_an_unsupported_version_ends_the_connection(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "initialize":
                answer(request, {"protocolVersion": "1.0", "capabilities": {}, "serverInfo": {}})
            elif "id" in request:
                refuse(request)
        """,
    )
    with pytest.raises(ConnectFailed, match="requires protocol version '1.0'"):
        await MCPClient.connect_stdio(command)


@pytest.mark.covers("STD-07")
async def test_the_error_for_a_server_that_exits_at_once_has_the_reason(tmp_path: Path) -> None:
    command = program(
        tmp_path, 'print("Error: no API key configured", file=sys.stderr); sys.exit(2)'
    )
    started = time.monotonic()
    with pytest.raises(ConnectFailed) as failed:
        await MCPClient.connect_stdio(command)
    assert time.monotonic() - started < 5
    assert failed.value.exit_code == 2
    assert failed.value.stderr == ("Error: no API key configured",)
    assert "exited with code 2" in str(failed.value)
    assert "no API key configured" in str(failed.value)


async def test_a_server_that_fails_on_the_probe_is_restarted_with_initialize(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    command = program(
        tmp_path,
        f"""
        log, upset = open({str(log)!r}, "a"), False
        for request in requests():
            print(request["method"], file=log, flush=True)
            upset = upset or request["method"] == "server/discover"
            if "id" not in request:
                continue
            if upset:
                refuse(request, -32000, "Bad Request: no valid session")
            elif request["method"] == "initialize":
                greet(request)
            else:
                answer(request, {{}})
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        await client.ping()
    first = ["server/discover", "initialize"]
    later = ["initialize", "notifications/initialized", "ping"]
    assert lines_of(log) == [*first, *later]
    async with MCPClient.connect_stdio(command) as client:  # the era is remembered
        await client.ping()
    assert lines_of(log) == [*first, *later, *later]


@pytest.mark.parametrize("rest", ["sys.stdin.read()", "sys.exit(3)"])
async def test_the_error_for_a_program_that_writes_text_shows_the_text(
    rest: str, tmp_path: Path
) -> None:
    command = program(
        tmp_path,
        f"""
        print("Starting \\x1b[1mserver")
        print("token ghp_" + "a" * 36)
        for _ in range(9): print("x" * 300)
        sys.stdout.flush()
        {rest}
        """,
    )
    with pytest.raises(ConnectFailed) as failed:
        await MCPClient.connect_stdio(command, MCPClientConfig(timeout_seconds=3))
    first, second, *others = failed.value.output
    assert first == r"Starting \x1b[1mserver"
    assert "aaaa" not in second
    assert others == ["x" * 200] * 3
    assert "the server wrote output that is not JSON-RPC:\n  | Starting " in str(failed.value)
    assert "hint: a server must write only messages to stdout" in str(failed.value)


async def test_text_before_the_first_message_does_not_prevent_a_connection(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        print("Starting", flush=True)
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif "id" in request:
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        assert client.transport.unreadable_output == ("Starting",)


async def test_connecting_to_a_program_that_is_not_an_mcp_server_fails_at_once(
    tmp_path: Path,
) -> None:
    command = program(
        tmp_path,
        """
        for i in range(1000):
            print("Welcome to Frobnicator! Press any key.", flush=True)
        for line in sys.stdin: pass
        """,
    )
    started = time.monotonic()
    with pytest.raises(ConnectFailed, match="Welcome to Frobnicator"):
        await MCPClient.connect_stdio(command)
    assert time.monotonic() - started < 10


async def test_connecting_to_an_unresponsive_server_ends_after_the_connect_timeout(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, "for line in sys.stdin: pass")
    config = MCPClientConfig(timeout_seconds=0.4, probe_timeout=0.1)
    started = time.monotonic()
    with pytest.raises(ConnectFailed):
        await MCPClient.connect_stdio(command, config)
    assert time.monotonic() - started < 5


@pytest.mark.covers("STD-07", "TRN-07")
async def test_the_exit_of_a_server_fails_all_pending_calls_at_once(
    tmp_path: Path, loop_kind: str
) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/call":
                if request["params"]["name"] == "die":
                    print("Segmentation fault", file=sys.stderr, flush=True)
                    os._exit(139)
            elif "id" in request:
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        calls = [asyncio.create_task(client.call_tool("wait")) for _ in range(20)]
        await asyncio.sleep(0)
        with pytest.raises(ChannelClosed) as died:
            await client.call_tool("die")
        assert died.value.exit_code == 139
        assert died.value.stderr == ("Segmentation fault",)
        async with asyncio.timeout(1):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(o) for o in outcomes} == {ChannelClosed}
        assert not client.connected
        assert (await client.health_check())["ok"] is False
        with pytest.raises(ChannelClosed, match="Transport not connected"):
            await client.list_tools()


@pytest.mark.covers("CLT-06", "TRN-10", "PRO-31")
async def test_a_timeout_of_one_call_does_not_affect_the_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = program(
        tmp_path,
        f"""
        log = open({str(log)!r}, "a")
        for request in requests():
            print(json.dumps(request), file=log, flush=True)
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/call" and request["params"]["name"] == "quick":
                answer(request, {{"content": []}})
            elif request["method"] in ("server/discover", "ping"):
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        with pytest.raises(RequestTimeout, match="Request timeout after 50ms"):
            await client.call_tool("slow", timeout=0.05)
        assert await client.call_tool("quick") == {"content": []}
    assert '"method": "notifications/cancelled"' in log.read_text()


@pytest.mark.covers("CON-08", "CON-09")
async def test_errors_can_be_returned_as_envelopes(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/call":
                name = request["params"]["name"]
                if name == "ok":
                    answer(request, {"content": [{"type": "text", "text": "ok"}]})
                elif name == "no":
                    refuse(request, -32602, "Unknown tool", data={"hint": 1})
                elif name == "die":
                    os._exit(1)
            elif "id" in request:
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:

        async def call(name: str, **options: Any) -> dict[str, Any]:
            return await client.call_tool(name, errors="envelope", **options)

        ok = await call("ok")
        assert ok["result"]["content"][0]["text"] == "ok"
        no = await call("no")
        assert no["error"] == {"code": -32602, "message": "Unknown tool", "data": {"hint": 1}}
        assert no["id"] == ok["id"] + 1
        late = await call("slow", timeout=0.05)
        assert late["error"]["code"] == 408
        assert late["error"]["data"] == {"synthetic": True, "kind": "timeout"}
        gone = await call("die")
        assert gone["error"]["code"] == 499
        assert gone["error"]["data"]["kind"] == "closed"


@pytest.mark.covers("CLT-05", "PRO-34")
async def test_an_invalid_item_or_page_does_not_affect_other_items(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        pages = {
            None: {"tools": [{"name": "a", "inputSchema": None}, 5, {"no": "name"}],
                   "nextCursor": "2"},
            "2": {"tools": [{"name": "b", "unknown": {"deep": 1}}], "nextCursor": "3"},
            "3": {"tools": "nonsense", "nextCursor": "2"},
        }
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/list":
                answer(request, pages[request.get("params", {}).get("cursor")])
            elif "id" in request:
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        tools = await client.list_tools()
        assert tools == [
            {"name": "a", "inputSchema": None},
            {"name": "b", "unknown": {"deep": 1}},
        ]
        assert len(client.skipped) == 3


@pytest.mark.covers("PRO-06")
async def test_lists_without_a_capability_are_not_requested(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = program(tmp_path, LEGACY.format(log=str(log), unknown="refuse(request)"))
    async with MCPClient.connect_stdio(command) as client:
        assert await client.list_resources() == []
        assert await client.list_prompts() == []
        assert await client.list_resource_templates() == []
        await client.set_log_level("debug")
    assert set(lines_of(log)) == {"server/discover", "initialize", "notifications/initialized"}


@pytest.mark.covers("PRO-30", "TRN-17")
async def test_requests_from_the_server_are_answered_by_the_client(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request.get("method") == "initialize":
                greet(request)
            elif request.get("method") == "notifications/initialized":
                send({"jsonrpc": "2.0", "id": "p", "method": "ping"})
                send({"jsonrpc": "2.0", "id": "r", "method": "roots/list"})
                send({"jsonrpc": "2.0", "id": "x", "method": "sampling/createMessage"})
            elif request.get("method") == "tools/call":
                while len(got) < 3: got.append(json.loads(sys.stdin.readline()))
                answer(request, {"got": got})
            elif "method" not in request:
                got.append(request)
            elif "id" in request:
                refuse(request)
        """.replace("for request", "got = []\n        for request", 1),
    )

    async def on_request(method: str, params: dict[str, Any]) -> Any:
        if method == "roots/list":
            return {"roots": [{"uri": "file:///x"}]}
        raise LookupError("no model here")

    async with MCPClient.connect_stdio(command, on_request=on_request) as client:
        got = (await client.call_tool("t"))["got"]
    by_id = {message["id"]: message for message in got}
    assert by_id["p"]["result"] == {}
    assert by_id["r"]["result"] == {"roots": [{"uri": "file:///x"}]}
    assert by_id["x"]["error"] == {"code": -32603, "message": "no model here"}


@pytest.mark.covers("PRO-30")
async def test_server_requests_without_a_handler_are_answered_with_method_not_found(
    tmp_path: Path,
) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request.get("method") == "initialize":
                greet(request)
            elif request.get("method") == "tools/call":
                send({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
                answer(request, json.loads(sys.stdin.readline()))
            elif request.get("method") == "server/discover":
                refuse(request)
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        answer = await client.call_tool("t")
        assert (answer["id"], answer["error"]["code"]) == (1, -32601)


@pytest.mark.covers("PRO-36", "CLT-09", "TRN-14")
async def test_early_notifications_are_delivered_to_the_first_listener_in_order(
    tmp_path: Path,
) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/call":
                for n in range(150):
                    send({"jsonrpc": "2.0", "method": "notifications/n", "params": {"n": n}})
                answer(request, {"content": []})
            elif "id" in request:
                refuse(request)
        """,
    )
    from fairlead.client import create_stdio_transport

    transport = await create_stdio_transport({"command": command[0], "args": command[1:]})
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    await transport.request("initialize", hello)
    await transport.notify("notifications/initialized")
    await transport.request("tools/call", {"name": "t"})
    heard: list[int] = []
    done = asyncio.Event()

    async def listen(method: str, params: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(params["n"])
        if len(heard) == 200:
            done.set()

    transport.on_notification = listen
    call = asyncio.create_task(transport.request("tools/call", {"name": "t"}))
    async with asyncio.timeout(5):
        await done.wait()
        await call
    assert heard[:100] == list(range(50, 150))  # only the last hundred notifications are kept
    assert heard[100:200] == list(range(100))
    await transport.close()


async def test_two_clients_may_be_closed_in_any_order_by_any_task(tmp_path: Path) -> None:
    command = program(tmp_path, LEGACY.format(log=str(tmp_path / "log"), unknown="refuse(request)"))
    first = await MCPClient.connect_stdio(command)
    second = await asyncio.create_task(_connect(command))
    await first.close()  # the client that was opened first is closed first
    assert (await second.call_tool("t"))["content"]
    await asyncio.create_task(second.close())
    await second.close()


async def _connect(command: list[str]) -> MCPClient:
    return await MCPClient.connect_stdio(command)


async def test_cancelling_a_connection_attempt_leaves_no_process(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    command = program(
        tmp_path,
        f"""
        open({str(pid)!r}, "w").write(str(os.getpid()))
        for line in sys.stdin: pass
        """,
    )
    connecting = asyncio.create_task(_connect(command))
    async with asyncio.timeout(5):
        while not pid.exists() or not pid.read_text():
            await asyncio.sleep(0.01)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_an_exception_in_the_async_with_block_closes_the_client(tmp_path: Path) -> None:
    command = program(tmp_path, LEGACY.format(log=str(tmp_path / "log"), unknown="refuse(request)"))
    with pytest.raises(KeyError):
        async with MCPClient.connect_stdio(command) as client:
            raise KeyError("mine")
    assert not client.connected


async def test_a_stdio_command_must_be_a_list() -> None:
    with pytest.raises(TypeError, match="command must be a list"):
        MCPClient.connect_stdio("python server.py")


async def test_messages_of_ten_megabytes_are_delivered_in_both_directions(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "initialize":
                greet(request)
            elif request["method"] == "tools/call":
                answer(request, {"content": [{"type": "text",
                                              "text": request["params"]["arguments"]["x"]}]})
            elif "id" in request:
                refuse(request)
        """,
    )
    text = "x" * (10 << 20)
    async with MCPClient.connect_stdio(command) as client:
        result = await client.call_tool("t", {"x": text}, timeout=30)
        assert result["content"][0]["text"] == text
        # The server encodes each character as six bytes, which exceeds the limit.
        with pytest.raises(RemoteProtocolError, match="over the limit of 16777216"):
            await client.call_tool("t", {"x": "é" * (4 << 20)}, timeout=30)
        assert (await client.call_tool("t", {"x": "still there"}))["content"]


async def test_an_unknown_result_type_is_an_error(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        """
        for request in requests():
            if request["method"] == "server/discover":
                answer(request, {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                                 "capabilities": {"tools": {}}})
            elif request["method"] == "tools/call":
                answer(request, {"resultType": "poem", "content": []})
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        assert client.protocol_version == "2026-07-28"
        with pytest.raises(RemoteProtocolError, match="unknown resultType 'poem'"):
            await client.call_tool("t")
