"""Tests of the audit log: lines, redaction and write errors."""

import asyncio
import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import FairleadError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.policy.actions import Allow, Audit, Block, Redact, SchemaCheck
from fairlead.policy.interceptor_failures import with_failure_policy
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import BOTH, LIMIT, config, make, serving
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene

SECRET = "hunter2-hunter2"


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def opened(place: Scene) -> tuple[Client, Server]:
    client = await place.session(ASKED)
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


async def test_each_decision_is_audited_as_one_line(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = Audit(str(file), notifications=True)
    rules = RuleSet.of_data(
        {
            "rules": [
                {"name": "drop", "when": {"method": "notifications/vendor"}, "do": "block"},
                {"name": "slow", "when": {"tool": "slow"}, "do": {"delay": 60}},
                {"name": "no-rm", "when": {"tool": "rm"}, "do": {"block": "never"}},
            ]
        }
    )
    begun = asyncio.Event()

    async def notice(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target == "slow":
            begun.set()
        return await proceed(exchange)

    async with scene(interceptors=[audit, notice, rules], principal=lambda: "ann") as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "read"})
        server.reply(await server.method("tools/call"), {"content": []})
        await client.answer_to(call)
        await client.answer_to(client.ask("tools/call", {"name": "rm"}))
        call = client.ask("tools/call", {"name": "read"})
        server.refuse(await server.method("tools/call"), -32001, "broken")
        await client.answer_to(call)
        client.tell("notifications/vendor")
        call = client.ask("tools/call", {"name": "slow"})
        await asyncio.wait_for(begun.wait(), LIMIT)
        client.tell("notifications/cancelled", {"requestId": call})
        await client.sync()
        server.ask("roots/list", None, "r")
        client.reply(await client.method("roots/list"), {"roots": []})
        await server.answer_to("r")
    lines = lines_of(file)
    assert os.stat(file).st_mode & 0o777 == 0o600
    decided = [
        (line["direction"], line["method"], line.get("target"), line["decision"])
        for line in lines
        if not line["method"].startswith(("initialize", "notifications/initialized", "ping"))
    ]
    up, down = "client_to_server", "server_to_client"
    assert sorted(decided, key=str) == sorted(
        [
            (up, "tools/call", "read", "passed"),
            (up, "tools/call", "rm", "refused"),
            (up, "tools/call", "read", "refused"),
            (up, "notifications/vendor", None, "dropped"),
            (up, "notifications/cancelled", None, "passed"),
            (up, "tools/call", "slow", "cancelled"),
            (down, "roots/list", None, "passed"),
        ],
        key=str,
    )
    refused = [line for line in lines if line["decision"] == "refused"]
    assert [(line["code"], line["reason"], line["by"]) for line in refused] == [
        (-32600, "never", "proxy"),
        (-32001, "broken", "peer"),
    ]
    assert refused[0]["did"] == ["rule: no-rm", "blocked: never"]
    assert refused[0]["identity"] == "ann"
    assert refused[0]["client"] == "raw"
    assert refused[0]["transport"] == "unix"


@pytest.mark.covers("OBS-08")
async def test_audited_params_of_invalid_requests_are_redacted_and_truncated(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit.jsonl"
    audit = Audit(str(file), payloads="offending", max_payload=300)
    async with scene(interceptors=[audit, SchemaCheck()]) as place:
        client, server = await opened(place)
        listing = client.ask("tools/list")
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        tools = [{"name": "x", "inputSchema": schema}]
        server.reply(await server.method("tools/list"), {"tools": tools})
        await client.answer_to(listing)
        for arguments in ({"n": "three", "password": SECRET}, {"n": "x" * 1000 + SECRET}):
            call = client.ask("tools/call", {"name": "x", "arguments": arguments})
            assert (await client.answer_to(call))["error"]["code"] == -32602
        call = client.ask("tools/call", {"name": "x", "arguments": {"n": 1}})
        server.reply(await server.method("tools/call"), {"content": []})
        await client.answer_to(call)
    short, long, good = [line for line in lines_of(file) if line["method"] == "tools/call"]
    assert short["params"] == {
        "name": "x",
        "arguments": {"n": "three", "password": "[REDACTED]"},
    }
    assert long["params"].endswith("bytes)")
    assert len(long["params"]) < 340
    assert "params" not in good
    assert SECRET not in file.read_text()


@pytest.mark.covers("OBS-08")
async def test_log_lines_about_malformed_frames_are_redacted_and_truncated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "fairlead")
    async with scene(interceptors=[Audit()]) as place:
        client, server = await opened(place)
        for end in (client, server):
            end.send(f"not a message, password={SECRET} " + "x" * 5000)
            end.send(f'{{"jsonrpc":"2.0","id":9,"token":"{SECRET}","method":7}}')
        server.tell("notifications/vendor")
        await client.method("notifications/vendor")
        await client.sync()
    logged = [record.getMessage() for record in caplog.records]
    skipped = [text for text in logged if "is not a JSON-RPC message" in text]
    assert any("password=[REDACTED]" in text for text in skipped)
    assert all(len(text) < 400 for text in skipped)
    assert SECRET not in caplog.text


async def test_messages_are_forwarded_even_if_the_audit_log_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    audit = Audit(str(full))
    async with scene(interceptors=[audit]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "read"})
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(call)
    assert audit.lost == 2
    assert caplog.text.count("lines of the audit log are lost") == 1
    assert os.strerror(errno.ENOSPC) in caplog.text


# Secrets in all members of a message


def planted() -> Any:
    """Return a server whose results and errors contain secrets."""
    server = make("leaky")

    @server.tool()
    async def login(user: str, password: str, url: str = "") -> dict[str, Any]:
        return {"access_token": password, "url": url, "note": f"Authorization: Bearer {password}"}

    @server.tool()
    async def fail(api_key: str) -> str:
        raise ValueError(f"cannot use api_key={api_key}")

    return server


@pytest.mark.covers("OBS-05", "OBS-08")
@pytest.mark.parametrize("kind", ["relay", "gateway"])
@pytest.mark.parametrize("version", BOTH)
async def test_audit_lines_and_log_lines_contain_no_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, version: str
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "audit.jsonl"

    async def careless(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target is not None and exchange.target.endswith("who"):
            raise ValueError(f"unexpected value {SECRET}: {exchange.message}")
        return await proceed(exchange)

    interceptors = [
        Audit(str(file), notifications=True, payloads="always"),
        with_failure_policy(careless, "fail_closed"),
        Allow(deny=[f"*{SECRET}*"]),
        Redact(to="client"),
    ]
    prefix = "leaky_" if kind == "gateway" else ""
    headers = {"X-Api-Key": SECRET, "Cookie": f"sid={SECRET}"}
    address = f"https://me:{SECRET}@example.com/x?access_token={SECRET}"

    async def talk(url: str) -> None:
        made = MCPClient.connect_http(url, config(version), headers=headers)
        async with made as client:
            arguments = {"user": "me", "password": SECRET, "url": address}
            result = await client.call_tool(f"{prefix}login", arguments)
            assert SECRET not in json.dumps(result)
            told: list[str] = []
            for work in (
                client.call_tool(f"{prefix}fail", {"api_key": SECRET}),
                client.call_tool(f"{prefix}who", {"token": SECRET}),
                client.call_tool(f"{prefix}login", {"password": [SECRET]}),
                client.read_resource(address),
                client.read_resource(f"leaky://token={SECRET}"),
            ):
                try:
                    await work
                except FairleadError as exc:
                    told.append(str(exc))
            assert SECRET not in str(told)

    async with asyncio.timeout(LIMIT), serving(planted()) as behind:
        if kind == "relay":
            async with serving(Relay({"url": behind}, interceptors=interceptors)) as url:
                await talk(url)
        else:
            gateway = Gateway(interceptors=interceptors)
            async with gateway, serving(gateway) as url:
                await gateway.connect({"leaky": {"url": behind}})
                await talk(url)
    text = file.read_text()
    targets = {line.get("target") for line in lines_of(file)}
    assert {f"{prefix}login", f"{prefix}fail", f"{prefix}who"} <= targets
    assert "[REDACTED]" in text
    assert SECRET not in text
    # A real server would write its log in another process.
    ours = [r for r in caplog.records if r.name.startswith("fairlead") and "server" not in r.name]
    leaks = [(r.name, r.levelname, r.getMessage()) for r in ours if SECRET in _whole(r)]
    assert not leaks, "\n".join(map(str, leaks))


def _whole(record: logging.LogRecord) -> str:
    """Format a record with its traceback."""
    text = record.getMessage()
    if record.exc_info:
        text += logging.Formatter().formatException(record.exc_info)
    return text


async def test_an_audit_without_a_path_writes_its_lines_to_the_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fairlead.audit")
    async with scene(interceptors=[Audit(), _Only(Block())]) as place:
        client, _ = await opened(place)
        await client.answer_to(client.ask("tools/call", {"name": "x"}))
    lines = [json.loads(r.getMessage()) for r in caplog.records if r.name == "fairlead.audit"]
    assert [line["decision"] for line in lines] == ["passed", "refused"]


class _Only:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            answer: Answer = await self._inner(exchange, proceed)
            return answer
        return await proceed(exchange)
