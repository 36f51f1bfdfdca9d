"""Warnings about servers that print text to stdout, which is reserved for messages."""

import asyncio
import sys
from pathlib import Path

import pytest

from fairlead.gateway import Gateway
from tests.support.cli_process import server_file
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import LIMIT, joining, until
from tests.support.running_gateway import running

__all__ = ["person"]

PRINTS = """
    print("Starting, password=hunter2, " + "x" * 500, flush=True)
"""
# Not an `MCPServer`, which redirects the output of `print` to stderr while it serves.
SHOUTS = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
              "serverInfo": {"name": "x", "version": "1"}, "content": [],
              "tools": [{"name": "shout", "inputSchema": {"type": "object"}}]}
    if message["method"] == "tools/call":
        for number in range(message["params"]["arguments"]["lines"]):
            print("line", number)
    answer = {"result": result}
    if message["method"] not in ("initialize", "tools/list", "tools/call"):
        answer = {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "JSON-RPC" in one.getMessage()]


async def test_the_warning_names_the_server_the_shortened_line_and_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = {"command": sys.executable, "args": [str(server_file(tmp_path, PRINTS))]}
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"notes": entry})
        await until(lambda: gateway.is_ready)
    first = warnings(caplog)[0]
    start, _, rest = first.partition("Starting, ")
    assert start == "the server 'notes' printed a line to stdout that is not a JSON-RPC message: '"
    assert rest.startswith("password=[REDACTED], xxx")
    assert rest.endswith("…'; it was skipped; it should print logs to stderr")
    assert len(first) < 300


async def test_many_unreadable_lines_cause_few_warnings(caplog: pytest.LogCaptureFixture) -> None:
    entry = {"command": sys.executable, "args": ["-c", SHOUTS]}
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"notes": entry})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            await client.call("notes_shout", {"lines": 50})
            shown = [one.partition(": ")[2].partition(";")[0] for one in warnings(caplog)]
            assert shown == ["'line 0'", "'line 1'", "'line 2'"]
            [connection] = [
                one for one in gateway.upstreams["notes"].pool.all_connections if one.called
            ]
            connection.peer._inbound_dispatcher._next_warning = 0.0
            await client.call("notes_shout", {"lines": 1})
    assert "it was skipped (47 similar lines since the last warning)" in warnings(caplog)[-1]


def test_a_gateway_without_a_terminal_prints_the_warning_with_the_time(
    person: Person,
) -> None:
    file = person.project / "gateway.toml"
    entry = person.server(PRINTS)
    file.write_text(f"[servers.notes]\ncommand = {entry['command']!r}\nargs = {entry['args']!r}\n")
    with running(person, "gateway", file.name, "--port", "0") as gateway:
        told = gateway.wait_for("JSON-RPC")
        time, _, text = told.partition(" ")
        assert text.startswith("warning: the server 'notes' printed a line to stdout ")
        assert time.count("-") >= 2
        assert time[10] == "T"
        state = gateway.wait_for("notes: connected")
        assert state[:4].isdigit()
        assert gateway.wait_for("gateway: ").startswith("gateway: ")
