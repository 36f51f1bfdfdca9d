"""Tests of replaying a tape to a live server, with a report of the differences."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.errors import ChannelClosed, HttpError
from fairlead.gateway import Relay
from fairlead.recording.compare.json_diff import JsonDifference
from fairlead.recording.replay import ComparedCall, ReplayReport, replay_tape
from fairlead.recording.replay.replay_against import _cut
from fairlead.recording.tape import TapeWriter
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import BOTH, HANDSHAKE, LIMIT, config, make, serving

FLEET = str(Path(__file__).parents[2] / "support" / "gateway_servers.py")


async def record(path: Path, target: Any, version: str = HANDSHAKE) -> None:
    async def elicit(_: Any) -> Any:
        return {"action": "accept", "content": {"value": "blue"}}

    with TapeWriter(path) as tape:
        relay = Relay(target, interceptors=[Recorder(tape)])
        async with (
            asyncio.timeout(LIMIT),
            relay.running(),
            MCPClient.connect_inprocess(relay, config(version), on_elicit=elicit) as client,
        ):
            await client.tools()
            await client.call("who")
            await client.call("ask")
            await client.call("speak", {"text": "hello"})
            await client.read("red://fixed")
            with pytest.raises(RpcError):
                await client.call("nothing")


def _plainly(text: str) -> str:
    return text


def wrong(report: ReplayReport) -> dict[str, list[str]]:
    return {
        each.what: [one.path for one in each.differences]
        for each in report.compared
        if not each.same
    }


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("version", BOTH)
async def test_replay_against_the_recorded_server_differs_only_in_volatile_values(
    tmp_path: Path, version: str
) -> None:
    program = {"command": sys.executable, "args": [FLEET, "red"]}
    await record(tmp_path / "one", program, version)
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", program)
        # The tool returns its process id, which differs in each run.
        assert set(wrong(report)) <= {"tools/call who", "tools/call ask"}
        assert wrong(report)["tools/call who"][0] == "result.content.0.text"
        assert "tools/call who: different response" in str(report)
        ignore = ["result.content.*.text", "**.structuredContent"]
        report = await replay_tape(tmp_path / "one", program, ignore=ignore)
    assert wrong(report) == {}
    assert len(report.compared) >= 6


@pytest.mark.parametrize("version", BOTH)
async def test_replay_against_another_server_over_http_reports_differences(
    tmp_path: Path, version: str
) -> None:
    red = make("red")
    await record(tmp_path / "one", red, version)
    async with asyncio.timeout(LIMIT):
        async with serving(red) as url:
            report = await replay_tape(tmp_path / "one", {"url": url})
            assert wrong(report) == {}
        async with serving(make("blue")) as url:
            report = await replay_tape(tmp_path / "one", {"url": url})
    assert "result.content.0.text" in wrong(report)["tools/call who"]
    assert any(what == "resources/read red://fixed" for what in wrong(report))


async def test_a_replay_compares_notifications_if_requested(tmp_path: Path) -> None:
    await record(tmp_path / "one", make("red"))
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", make("red"), notifications=True)
        assert wrong(report) == {}
        assert any(each.what == "notifications/message" for each in report.compared)
        other = MCPServer("red")
        other.tool(name="speak")(_plainly)
        report = await replay_tape(tmp_path / "one", other, notifications=True, timeout=0.3)
    assert [e.error for e in report.compared if e.what == "notifications/message"] == [
        "the notification was not received"
    ]


async def test_a_replay_fails_if_the_server_exits_before_its_first_response(tmp_path: Path) -> None:
    await record(tmp_path / "one", make("red"))
    program = {"command": sys.executable, "args": ["-c", "input(); exit(3)"]}
    told: list[ComparedCall] = []
    async with asyncio.timeout(LIMIT):
        with pytest.raises(ChannelClosed) as caught:
            await replay_tape(tmp_path / "one", program, timeout=5, on_compared=told.append)
    assert (caught.value.exit_code, told) == (3, [])


async def test_the_exit_of_a_server_during_a_replay_is_reported_once_with_the_reason(
    tmp_path: Path,
) -> None:
    await record(tmp_path / "one", make("red"))
    # A server that answers the first request, waits for the second request, and exits.
    code = """if True:
        import json
        while "id" not in (first := json.loads(input())):
            pass
        print(json.dumps({"jsonrpc": "2.0", "id": first["id"], "result": {}}), flush=True)
        while "id" not in json.loads(input()):
            pass
        exit(3)
    """
    program = {"command": sys.executable, "args": ["-c", code]}
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", program, timeout=5)
    answered, *others = report.compared
    assert answered.error is None
    assert answered.differences
    assert "exited with code 3" in str(others[0].error)
    assert len(others) > 1
    assert {each.error for each in others[1:]} == {"the server had disconnected"}


async def test_a_replay_fails_if_the_server_denies_access(tmp_path: Path) -> None:
    await record(tmp_path / "one", make("red"))

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
        writer.write(head + b"Who?")
        await writer.drain()
        writer.close()

    async with asyncio.timeout(LIMIT), await asyncio.start_server(refuse, "127.0.0.1", 0) as door:
        port = door.sockets[0].getsockname()[1]
        with pytest.raises(HttpError) as caught:
            await replay_tape(
                tmp_path / "one", {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
            )
    assert caught.value.status == 401


async def test_a_request_cancelled_on_the_tape_is_cancelled_in_the_replay(
    tmp_path: Path,
) -> None:
    """The server handles one request at a time and reaches the next one only if it is cancelled."""
    ended = asyncio.Event()
    server = MCPServer("one at a time", rate_limit_rate=0)
    turn = asyncio.Lock()

    @server.tool()
    async def hold() -> str:
        async with turn:
            ended.clear()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return "never"

    @server.tool()
    async def next_one() -> str:
        async with turn:
            return "next"

    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(server, interceptors=[Recorder(tape)])
        async with (
            asyncio.timeout(LIMIT),
            relay.running(),
            MCPClient.connect_inprocess(relay, config(HANDSHAKE)) as client,
        ):
            call = asyncio.ensure_future(client.call("hold"))
            while not turn.locked():
                await asyncio.sleep(0)
            call.cancel()
            await ended.wait()
            assert (await client.call("next_one")).text == "next"
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", server, timeout=5)
    assert report.same, str(report)
    assert "next_one" in report.compared[-1].what


async def test_the_report_states_that_a_redacted_request_was_sent_without_its_secrets(
    tmp_path: Path,
) -> None:
    server = MCPServer("door", rate_limit_rate=0)

    @server.tool()
    async def login(password: str) -> str:
        return "welcome" if password == "lovelace" else "go away"

    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(server, interceptors=[Recorder(tape)])
        async with (
            asyncio.timeout(LIMIT),
            relay.running(),
            MCPClient.connect_inprocess(relay, config(HANDSHAKE)) as client,
        ):
            assert (await client.call("login", {"password": "lovelace"})).text == "welcome"
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", server)
    (what,) = wrong(report)
    assert what.startswith("tools/call login (sent without its secrets")


# +


def test_long_values_are_truncated_in_replay_reports() -> None:
    assert _cut("x" * 10_000) == "x" * 10_000
    assert _cut("x" * 10_001) == "x" * 10_000 + "… (10001 characters)"
    assert _cut([1, 2]) == [1, 2]
    assert _cut(["x" * 10_000]) == '["' + "x" * 9_998 + "… (10004 characters)"
    shown = str(JsonDifference("a.b", "x" * 121, {"a": "y" * 112}))
    assert shown == f"a.b: {'x' * 119}… -> " + '{"a":"' + "y" * 112 + '"}'
