"""Failures reported by MCP users, tested end to end with real processes."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead import FairleadError, MCPClient, MCPClientConfig, RpcError
from fairlead.errors import ChannelClosed, ConnectFailed, RequestTimeout

LIMIT = 20.0  # maximum seconds of any wait

OURS = """
import asyncio, os, subprocess, sys, threading, time
from fairlead import Context, MCPServer
server = MCPServer("ours", rate_limit_rate=0)

@server.tool()
def echo(text: str) -> str:
    return text

@server.tool()
def pid() -> int:
    return os.getpid()
"""

HAND_MADE = """
import json, os, signal, subprocess, sys, time

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def serve(answers):
    "Answer handshake-era requests with the functions in `answers`, by method."
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "hand-made", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            send({"id": request["id"], "result": result})
        elif request.get("method") in answers:
            result = answers[request["method"]](request)
            if "id" in request:
                send({"id": request["id"], "result": result})
        elif "id" in request:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})

def text(words):
    return {"content": [{"type": "text", "text": words}]}
"""


def ours(folder: Path, source: str = "", name: str = "ours.py") -> list[str]:
    """Write a Fairlead server with the additional code `source`, and return its command."""
    return _command(folder / name, OURS, source, "if __name__ == '__main__':\n    server.run()")


def hand_made(folder: Path, source: str) -> list[str]:
    """Write a server that uses no MCP library and may misbehave, and return its command."""
    return _command(folder / "hand_made.py", HAND_MADE, source)


def _command(file: Path, *parts: str) -> list[str]:
    file.write_text("\n".join(map(textwrap.dedent, parts)))
    return [sys.executable, str(file)]


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def ends(pid_fd: int, seconds: float = LIMIT) -> bool:
    """Return True if a process ends within the time limit."""
    return bool(select.select([pid_fd], [], [], seconds)[0])


async def all_gone(pids: list[int]) -> None:
    """Wait until the kernel has ended these processes."""
    async with asyncio.timeout(LIMIT):
        while not all(map(is_gone, pids)):
            await asyncio.to_thread(os.sched_yield)


def is_gone(pid: int) -> bool:
    """Return True if a process has ended, even if it was not reaped yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in ("Z", "X")


@pytest.mark.parametrize("busy", [False, True])
def test_a_server_exits_when_its_input_ends_even_during_a_call(tmp_path: Path, busy: bool) -> None:
    command = ours(
        tmp_path,
        """
        @server.tool()
        def stuck() -> None:
            sys.stderr.write("stuck\\n")
            threading.Event().wait()
        """,
    )
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for message in (
            {"id": 0, "method": "initialize", "params": hello},
            {"id": 1, "method": "tools/call", "params": {"name": "stuck" if busy else "pid"}},
        ):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()
        assert b"serverInfo" in process.stdout.readline()
        if busy:
            assert process.stderr.readline() == b"stuck\n"
        process.stdin.close()
        process.wait(LIMIT)


def test_servers_exit_when_their_host_is_killed(tmp_path: Path) -> None:
    command = ours(tmp_path)
    host = """
    import asyncio, sys
    from fairlead import MCPClient

    async def main():
        async with MCPClient.connect_stdio(sys.argv[1:]) as client:
            print((await client.call_tool("pid"))["content"][0]["text"], flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
    """
    program = [sys.executable, "-c", textwrap.dedent(host), *command]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        server = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.kill()
            assert ends(server)
        finally:
            os.close(server)


async def test_any_task_can_close_clients_in_any_order_and_repeatedly(
    tmp_path: Path,
) -> None:
    command = ours(tmp_path)
    first, second, third = [await MCPClient.connect_stdio(command) for _ in range(3)]
    pids = [int(text_of(await c.call_tool("pid"))) for c in (first, second, third)]
    await first.close()  # the client that was opened first
    await asyncio.create_task(second.close())  # closed by a task that did not open it
    await asyncio.gather(third.close(), third.close(), second.close(), first.close())
    assert [client.connected for client in (first, second, third)] == [False] * 3
    await all_gone(pids)


async def test_connecting_fails_at_once_with_a_reason_if_the_server_exits_during_the_handshake(
    tmp_path: Path,
) -> None:
    command = hand_made(
        tmp_path,
        """
        sys.stdin.readline()
        sys.stderr.write("cannot read the licence file\\n")
        sys.exit(7)
        """,
    )
    started = time.monotonic()
    with pytest.raises((ConnectFailed, ChannelClosed)) as failed:
        await MCPClient.connect_stdio(command, MCPClientConfig(timeout_seconds=60))
    assert time.monotonic() - started < LIMIT
    assert failed.value.exit_code == 7
    assert failed.value.stderr[-1] == "cannot read the licence file"
    assert "cannot read the licence file" in str(failed.value)


async def test_a_new_server_starts_only_after_all_previous_processes_have_ended(
    tmp_path: Path,
) -> None:
    note = tmp_path / "processes"
    command = ours(
        tmp_path,
        f"""
        note = {str(note)!r}
        def alive(pid):
            try:
                return open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
            except OSError:
                return False
        open(note, "a").close()
        left = [pid for pid in open(note).read().split() if alive(pid)]
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        open(note, "a").write(f"{{os.getpid()}} {{child.pid}} ")

        @server.tool()
        def left_alive() -> list[str]:
            return left
        """,
    )
    config = MCPClientConfig(auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_stdio(command, config) as client:
        old = int(text_of(await client.call_tool("pid")))
        os.kill(old, signal.SIGKILL)
        new = int(text_of(await client.call_tool("pid", retry=True)))
        assert (new != old, client.generation) == (True, 1)
        assert text_of(await client.call_tool("left_alive")) == "[]"
    processes = [int(pid) for pid in note.read_text().split()]
    assert len(processes) == 4
    await all_gone(processes)


async def test_every_pending_call_fails_when_the_server_exits(tmp_path: Path) -> None:
    command = ours(
        tmp_path,
        """
        @server.tool()
        async def never() -> None:
            await asyncio.Event().wait()
        """,
    )
    # without a timeout, only the loss of the server ends the calls
    config = MCPClientConfig(timeout_seconds=0)
    async with MCPClient.connect_stdio(command, config) as client:
        calls = [asyncio.create_task(client.call_tool("never")) for _ in range(20)]
        pid = int(text_of(await client.call_tool("pid")))
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LIMIT):
            errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [ChannelClosed] * 20
    assert {error.exit_code for error in errors if isinstance(error, ChannelClosed)} == {-9}


WORDS = "Grüße, 日本語, 🚢, \u2028, half \\ and \x00"


@pytest.mark.parametrize("encoding", ["cp1252", "cp932", "ascii", "utf-16"])
async def test_text_arrives_unchanged_with_any_locale_encoding(
    tmp_path: Path, encoding: str
) -> None:
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "LC_ALL": "C", "LANG": "C"}
    async with MCPClient.connect_stdio(ours(tmp_path), env=env) as client:
        assert text_of(await client.call_tool("echo", {"text": WORDS})) == WORDS


async def test_output_printed_by_tools_does_not_reach_the_protocol(tmp_path: Path) -> None:
    ours(
        tmp_path,
        """
        print("while importing")

        @server.tool()
        def noisy() -> str:
            print('{"jsonrpc": "2.0", "id": 1, "result": {}}')
            os.write(1, b"to the descriptor\\n")
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
            return "done"
        """,
    )
    command = [sys.executable, "-m", "fairlead", "serve", str(tmp_path / "ours.py")]
    heard: list[str] = []
    async with MCPClient.connect_stdio(command, on_stderr=heard.append) as client:
        assert text_of(await client.call_tool("noisy")) == "done"
        assert client.transport.peer.malformed == 0
    for words in ("while importing", "to the descriptor", "from a child"):
        assert words in heard


async def test_output_lines_of_a_server_that_are_not_messages_are_skipped_and_counted(
    tmp_path: Path,
) -> None:
    command = hand_made(
        tmp_path,
        """
        print("Server v1.2 ready!")
        def call(request):
            print("DEBUG about to work")
            print('{"level": "info", "msg": "a log line in JSON"}')
            return text("done")
        serve({"tools/call": call})
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        for _ in range(3):
            assert text_of(await client.call_tool("t")) == "done"
        assert client.transport.peer.malformed == 7


async def test_large_results_are_received_and_a_result_over_the_limit_fails_only_its_call(
    tmp_path: Path,
) -> None:
    command = hand_made(
        tmp_path,
        """
        def call(request):
            return text("x" * request["params"]["arguments"]["size"])
        serve({"tools/call": call})
        """,
    )
    async with MCPClient.connect_stdio(command) as client, asyncio.timeout(2 * LIMIT):
        for size in (65_535, 65_536, 8_000_000):
            assert len(text_of(await client.call_tool("t", {"size": size}))) == size
        with pytest.raises(FairleadError):
            await client.call_tool("t", {"size": 20_000_000})
        assert text_of(await client.call_tool("t", {"size": 1})) == "x"
    async with MCPClient.connect_stdio(ours(tmp_path)) as client, asyncio.timeout(2 * LIMIT):
        text = "é" * 3_000_000
        assert text_of(await client.call_tool("echo", {"text": text})) == text


async def test_a_flood_on_stderr_does_not_block_calls(tmp_path: Path) -> None:
    command = ours(
        tmp_path,
        """
        @server.tool()
        def flood(lines: int) -> str:
            for number in range(lines):
                sys.stderr.write(f"{number} " + "x" * 100 + "\\n")
            return "done"
        """,
    )
    async with MCPClient.connect_stdio(command) as client, asyncio.timeout(2 * LIMIT):
        assert text_of(await client.call_tool("flood", {"lines": 50_000})) == "done"


async def test_a_cancelled_call_is_cancelled_in_the_server(tmp_path: Path) -> None:
    command = ours(
        tmp_path,
        """
        begun, ended = asyncio.Event(), asyncio.Queue()

        @server.tool()
        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.put_nowait("cancelled")

        @server.tool()
        async def has_begun() -> None:
            await begun.wait()

        @server.tool()
        async def how_it_ended() -> str:
            return await ended.get()
        """,
    )
    async with MCPClient.connect_stdio(command) as client, asyncio.timeout(LIMIT):
        task = asyncio.create_task(client.call_tool("work"))
        await client.call_tool("has_begun")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert text_of(await client.call_tool("how_it_ended")) == "cancelled"
        with pytest.raises(RequestTimeout):
            await client.call_tool("work", timeout=0.1)
        assert text_of(await client.call_tool("how_it_ended")) == "cancelled"


async def test_progress_extends_the_timeout_of_a_call(tmp_path: Path) -> None:
    command = ours(
        tmp_path,
        """
        @server.tool()
        async def work(ctx: Context, talks: bool) -> str:
            for step in range(8):
                await asyncio.sleep(0.25)
                if talks:
                    await ctx.progress(step)
            return "done"
        """,
    )
    config = MCPClientConfig(timeout_seconds=1.5)
    async with MCPClient.connect_stdio(command, config) as client:
        # Progress extends the timeout although the caller did not request it.
        assert text_of(await client.call_tool("work", {"talks": True})) == "done"
        with pytest.raises(RequestTimeout):
            await client.call_tool("work", {"talks": False})


async def test_invalid_list_items_are_skipped_and_the_valid_ones_can_be_used(
    tmp_path: Path,
) -> None:
    command = hand_made(
        tmp_path,
        """
        def tools(request):
            return {"tools": [
                {"name": "good", "inputSchema": {"type": "object"}},
                {"name": 5, "inputSchema": {"type": "object"}},
                "not even an object",
                {"name": "untyped", "inputSchema": {"properties": {}}},
                {"name": "newer", "inputSchema": {"type": "object"}, "colour": "blue"},
            ]}
        def call(request):
            blocks = [{"type": "hologram", "data": "?"}, {"type": "text", "text": "and words"}]
            return {"content": blocks, "isError": None, "extra": 1}
        serve({"tools/list": tools, "tools/call": call})
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["good", "untyped", "newer"]
        assert len(client.skipped) == 2
        result = await client.call_tool("good")
        assert result["content"][0] == {"type": "hologram", "data": "?"}
        assert result["content"][1]["text"] == "and words"
        with pytest.raises(RpcError) as refused:
            await client.request("resources/list")
        assert refused.value.code == -32601


@pytest.mark.parametrize("how", ["exit", "signal"])
async def test_the_error_of_a_lost_connection_has_the_exit_status_and_stderr(
    tmp_path: Path, how: str
) -> None:
    command = hand_made(
        tmp_path,
        f"""
        def call(request):
            sys.stderr.write("database is on fire\\n")
            sys.stderr.flush()
            {"sys.exit(3)" if how == "exit" else "os.kill(os.getpid(), signal.SIGSEGV)"}
        serve({{"tools/call": call}})
        """,
    )
    async with MCPClient.connect_stdio(command) as client:
        with pytest.raises(ChannelClosed) as closed:
            await client.call_tool("t")
        assert closed.value.exit_code == (3 if how == "exit" else -signal.SIGSEGV)
        assert closed.value.stderr == ("database is on fire",)
        said = str(closed.value)
        assert "database is on fire" in said
        assert ("3" if how == "exit" else "SIGSEGV") in said
        # later calls fail for the same reason
        with pytest.raises(ChannelClosed, match="database is on fire"):
            await client.call_tool("t")
    with pytest.raises(ConnectFailed, match="no-such-program"):
        await MCPClient.connect_stdio(["no-such-program", "--x"])
