"""Tests of malformed frames in journals and audits: size limits and redaction."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.interceptor import Interceptor, MalformedFrame
from fairlead.policy.actions import Audit
from fairlead.policy.interceptor_failures import with_failure_policy
from fairlead.policy.rules import RuleSet
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from tests.support.gateway_servers import LIMIT, config, make, serving, until
from tests.support.raw_relay import scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
SECRET = "sk-live-4f9a8b7c6d5e"
NO_JSON = f'Starting with password="{SECRET}"'
NO_RPC = {"hello": "there", "api_key": SECRET}
ESCAPED = f'{{"jsonrpc":"1.0","pass\\u0077ord":"{SECRET}"}}'
NOBODY = {"jsonrpc": "2.0", "id": 4711, "result": {"token": SECRET, "x": 1}}


def lines_of(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in found if line["decision"] == "offence"]


@pytest.mark.covers("OBS-08")
async def test_journal_and_audit_record_malformed_frames_from_both_sides_without_secrets(
    tmp_path: Path,
) -> None:
    file, journal = tmp_path / "audit.jsonl", Journal()
    audit = Audit(str(file), payloads="offending")
    around: list[Interceptor] = [Journaling(journal), with_failure_policy(audit)]
    async with asyncio.timeout(LIMIT), scene(interceptors=around) as place:
        client = await place.session()
        server = await place.server()
        for end in (client, server):
            for frame in (NO_JSON, json.dumps(NO_RPC), ESCAPED, json.dumps(NOBODY)):
                end.send(frame)
        client.ask("initialize", {"protocolVersion": "2025-11-25", "token": SECRET}, "again")
        assert "error" in await client.answer_to("again")
        await client.sync()
        server.ask("ping", None, "p")
        await server.answer_to("p")
    lines, strays = lines_of(file), [r for r in journal.records() if r.kind == "stray"]
    assert [line["direction"] for line in lines if line["direction"] == DOWN] == [DOWN] * 4
    assert len([line for line in lines if line["direction"] == UP]) == 5
    assert len(strays) == 9
    mine = [line for line in lines if line["direction"] == UP]
    assert mine[0]["frame"] == 'Starting with password="[REDACTED]"'
    assert json.loads(mine[1]["frame"]) == {"hello": "there", "api_key": "[REDACTED]"}
    assert json.loads(mine[2]["frame"]) == {"jsonrpc": "1.0", "password": "[REDACTED]"}
    assert json.loads(mine[3]["frame"])["result"] == {"token": "[REDACTED]", "x": 1}
    assert mine[3]["reason"] == "a response to a request that is not pending"
    assert json.loads(mine[4]["frame"])["method"] == "initialize"
    assert mine[4]["reason"] == "Already initialized"
    kinds = ["not a message", "not a message", "not a message", "unmatched", "refused"]
    assert [line["kind"] for line in mine] == kinds
    assert [record.flags for record in strays if record.dir is UP] == [(kind,) for kind in kinds]
    assert [record.error for record in strays if record.dir is UP] == [m["reason"] for m in mine]
    assert strays[0].text == mine[0]["frame"]
    assert SECRET not in file.read_text()
    assert SECRET not in repr(journal.records())


async def test_recorded_malformed_frames_are_limited_in_size_and_recording_is_optional(
    tmp_path: Path,
) -> None:
    never, some = tmp_path / "never", tmp_path / "some"
    journal = Journal(max_entries=5)
    around: list[Interceptor] = [
        Audit(str(never)),
        Audit(str(some), payloads="offending", max_payload=100),
        Journaling(journal),
    ]
    async with asyncio.timeout(LIMIT), scene(interceptors=around) as place:
        client = await place.session()
        for _ in range(20):
            client.send("x" * 50_000)
        await client.sync()
    assert len(lines_of(never)) == len(lines_of(some)) == 20
    assert all("frame" not in line and line["bytes"] == 50_000 for line in lines_of(never))
    assert {len(line["frame"]) for line in lines_of(some)} == {101}
    assert len(journal) == 5
    assert all(len(record.text or "") <= 500 for record in journal.records())


async def test_a_failing_malformed_frame_hook_does_not_affect_other_hooks() -> None:
    class Broken:
        async def __call__(self, exchange: Any, proceed: Any) -> Any:
            return await proceed(exchange)

        def on_malformed(self, offence: MalformedFrame) -> None:
            raise ZeroDivisionError

    heard: list[MalformedFrame] = []

    class Ear(Broken):
        def on_malformed(self, offence: MalformedFrame) -> None:
            heard.append(offence)

    async with asyncio.timeout(LIMIT), scene(interceptors=[Broken(), Ear()]) as place:
        client = await place.session()
        client.send("nonsense")
        await client.sync()
    assert [(one.frame, one.direction) for one in heard] == [(b"nonsense", UP)]
    assert heard[0].transport.transport_type == "unix"
    async with asyncio.timeout(LIMIT), scene() as place:
        client = await place.session()
        (session,) = place.relay._sessions_by_peer.values()
        assert session.peer.on_malformed is None


@pytest.mark.parametrize("path", ["", "/red"])
async def test_a_gateway_shows_malformed_frames_to_its_administrator(path: str) -> None:
    observing = Observability(journal=Journal())
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(observing=observing, admin_token="open-sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            stateless = {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}
            bodies = [
                NO_JSON,
                json.dumps(NO_RPC),
                json.dumps(
                    {
                        "jsonrpc": "2.0",
                        "id": 1,
                        "method": "tools/call",
                        "params": {"_meta": stateless, "password": SECRET},
                    }
                ),
            ]
            for body in bodies:
                async with web.post(url + path, data=body, headers=headers) as answer:
                    assert answer.status == 400
            admin = url.removesuffix("/mcp") + "/admin/journal"
            async with web.get(admin, headers={"X-Admin-Token": "open-sesame"}) as answer:
                text = await answer.text()
    strays = [one for one in json.loads(text)["records"] if one["kind"] == "stray"]
    assert [one["dir"] for one in strays] == [UP] * 3
    assert SECRET not in text
    assert strays[2]["params"]["params"]["password"] == "[REDACTED]"


async def test_servers_and_clients_call_the_hook_for_malformed_frames(tmp_path: Path) -> None:
    rough = (
        "import sys, json\n"
        f"print({NO_JSON!r}, flush=True)\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' not in m: continue\n"
        f"    print(json.dumps({NOBODY!r}), flush=True)\n"
        "    r = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}},"
        " 'serverInfo': {'name': 'x', 'version': '1'}, 'tools': []}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': r}), flush=True)\n"
    )
    journal = Journal()
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_stdio(
            [sys.executable, "-c", rough],
            config("2025-11-25"),
            interceptors=[Journaling(journal)],
        ) as client,
    ):
        await client.list_tools()
    strays = [r for r in journal.records() if r.kind == "stray"]
    assert strays[0].text == 'Starting with password="[REDACTED]"'
    assert strays[1].flags == ("unmatched",)
    assert SECRET not in repr(journal.records())

    file = tmp_path / "audit.jsonl"
    server = MCPServer("strict", interceptors=[Audit(str(file), payloads="offending")])

    @server.tool()
    async def add(a: int, password: str) -> int:
        return a

    async with asyncio.timeout(LIMIT), serving(server) as url, aiohttp.ClientSession() as web:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        async with web.post(url, data=NO_JSON, headers=headers) as answer:
            assert answer.status == 400
        async with MCPClient.connect_http(url, config()) as client:
            failed = await client.call("add", {"a": "three", "password": SECRET})
            assert failed.is_error
            await client.call("add", {"a": 3, "password": SECRET})
    assert [line["frame"] for line in lines_of(file)] == ['Starting with password="[REDACTED]"']
    calls = [json.loads(line) for line in file.read_text().splitlines()]
    params = [line.get("params") for line in calls if line.get("method") == "tools/call"]
    assert params[0]["arguments"] == {"a": "three", "password": "[REDACTED]"}
    assert params[1] is None
    assert SECRET not in file.read_text()


async def test_only_an_audit_rule_without_a_condition_records_malformed_frames(
    tmp_path: Path,
) -> None:
    file, other = tmp_path / "audit.jsonl", tmp_path / "other.jsonl"
    rules = RuleSet.of_data(
        {
            "rules": [
                {"do": {"audit": {"path": str(file), "payloads": "offending"}}},
                {"when": {"tool": "x"}, "do": {"audit": {"path": str(other)}}},
            ]
        }
    )
    async with asyncio.timeout(LIMIT), scene(interceptors=[rules]) as place:
        client = await place.session()
        client.send(NO_JSON)
        await client.sync()
    rules.close()
    assert [line["frame"] for line in lines_of(file)] == ['Starting with password="[REDACTED]"']
    assert lines_of(other) == []
