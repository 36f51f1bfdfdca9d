"""Recording and redaction of result fragments by interceptors."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import Context, MCPClient, MCPServer
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Interceptor
from fairlead.policy.actions import Redact
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.replay import TapeServer, replay_tape
from fairlead.recording.tape import TapeReader, TapeWriter, decode_entry
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import BOTH, LIMIT, Ears, config, joining, serving, until

SECRET = "hunter22-abcdef"
PART = "notifications/fairlead/fragment"
DIALECT = {"Accept": "application/json, text/event-stream;dialect=fragments"}


def make(*interceptors: Interceptor) -> MCPServer:
    server = MCPServer("parts", interceptors=interceptors, rate_limit_rate=0)

    @server.tool()
    async def story(ctx: Context) -> str:
        await ctx.fragment(f"password={SECRET} ")
        await ctx.fragment("upon a time")
        return f"password={SECRET} upon a time"

    return server


async def events_of(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that a client with this dialect receives."""
    key = "io.modelcontextprotocol/"
    meta = {f"{key}protocolVersion": "2026-07-28", f"{key}clientCapabilities": {}}
    body = {"name": "story", "arguments": {}, "_meta": meta}
    headers = {
        **DIALECT,
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "story",
    }
    message = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": body}
    async with (
        aiohttp.ClientSession() as web,
        web.post(url, json=message, headers=headers) as answer,
    ):
        text = await answer.text()
        assert answer.status == 200, text
    assert SECRET not in text
    found = []
    for event in text.strip().split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in event.splitlines())
        found.append((lines.get("event", "message"), json.loads(lines["data"])))
    return found


@pytest.mark.covers("GTW-10")
async def test_result_fragments_from_a_server_are_redacted_and_recorded(tmp_path: Path) -> None:
    journal, recorder = Journal(), Recorder(TapeWriter(tmp_path / "one"))
    server = make(Journaling(journal), recorder, Redact(to="client"))
    async with asyncio.timeout(LIMIT), serving(server) as url:
        first, second, last = await events_of(url)
    assert [kind for kind, _ in (first, second, last)] == ["result", "result", "complete"]
    assert first[1]["content"][0]["text"].startswith("password=[REDACTED]")
    assert second[1] == {"content": [{"type": "text", "text": "upon a time"}]}
    recorder.tape.close()
    entries = list(TapeReader(tmp_path / "one"))
    assert [(e.dir.value, e.session, e.related, e.did) for e in entries] == [
        ("client_to_server", "r1", None, None),
        ("server_to_client", "r1", 5, ["redacted"]),
        ("server_to_client", "r1", 5, None),
        ("server_to_client", "r1", None, ["redacted"]),
    ]
    assert decode_entry(entries[2]) == {"jsonrpc": "2.0", "method": PART, "params": second[1]}
    assert SECRET not in (tmp_path / "one.tape.jsonl").read_text()
    assert [r.method for r in journal.records()] == ["tools/call", PART, PART]
    # A replay sends fragments if the client supports them, and compares the responses.
    async with asyncio.timeout(LIMIT):
        report = await replay_tape(tmp_path / "one", make(), notifications=True, timeout=5)
        assert report.same, str(report)
        async with serving(TapeServer(tmp_path / "one")) as url:
            assert await events_of(url) == [first, second, last]


@pytest.mark.parametrize("version", BOTH)
async def test_interceptors_of_a_client_process_the_fragments_it_receives(
    tmp_path: Path, version: str
) -> None:
    heard: list[Any] = []
    recorder = Recorder(TapeWriter(tmp_path / "one"))

    def hear(request_id: Any, content: list[Any]) -> None:
        heard.extend(block["text"] for block in content)

    async with (
        asyncio.timeout(LIMIT),
        serving(make(), sse_dialect="fragments", sessions=False) as url,
        MCPClient.connect_http(
            url,
            config(version),
            headers=DIALECT,
            http={"on_fragment": hear},
            interceptors=[recorder, Redact(to="client")],
        ) as client,
    ):
        answer = await client.call("story")
        assert SECRET not in str(answer.result)
    recorder.tape.close()
    assert [text.replace("[REDACTED]", "X").strip() for text in heard] == [
        "password=X",
        "upon a time",
    ]
    told = [e for e in TapeReader(tmp_path / "one") if decode_entry(e).get("method") == PART]
    assert len(told) == 2
    assert None not in {e.related for e in told}
    # Clients that do not support fragments receive none.
    player, ears = TapeServer(tmp_path / "one").for_both_eras(), Ears()
    async with (
        asyncio.timeout(LIMIT),
        player.running(),
        joining(player, version, on_notification=ears) as client,
    ):
        assert (await client.call("story")).text == answer.text
    assert ears.drain() == []


@pytest.mark.parametrize("kind", ["relay", "gateway"])
async def test_a_relay_or_gateway_merges_fragments_into_the_response(
    tmp_path: Path, kind: str
) -> None:
    """Rules for responses apply to the merged content of the fragments."""
    recorder = Recorder(TapeWriter(tmp_path / "one"))
    chain: list[Interceptor] = [recorder, Redact(to="client")]
    async with asyncio.timeout(LIMIT), serving(make(), sse_dialect="fragments") as behind:
        entry = {"type": "http", "url": behind, "headers": DIALECT}
        between = (
            Relay(entry, interceptors=chain) if kind == "relay" else Gateway(interceptors=chain)
        )
        async with serving(between, sse_dialect="fragments") as url:
            if isinstance(between, Gateway):
                await between.connect({"parts": entry})
                await until(lambda: between.is_ready)
                url = f"{url}/parts"
            [(event, answer)] = await events_of(url)
        if isinstance(between, Gateway):
            await between.close()
    assert event == "complete"
    assert "upon a time" in str(answer)
    recorder.tape.close()
    assert PART not in [decode_entry(e).get("method") for e in TapeReader(tmp_path / "one")]
