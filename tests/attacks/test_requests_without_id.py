"""Attacks with requests that have no id, so that rules and views for requests do not apply."""

import asyncio
import json
import sys
from typing import Any

import pytest

from fairlead.gateway import Gateway, View
from fairlead.policy.actions import RateLimit
from fairlead.relay.relay_settings import RelaySettings
from tests.support.gateway_servers import LIMIT, until
from tests.support.http_server import Web, serving, stateless

# A server that reports which messages it has received, as the result of each call.
REPORTING = """
import json, sys
received = []
for line in sys.stdin:
    asked = json.loads(line)
    method = asked["method"]
    received.append([method, asked.get("params", {}).get("name")])
    if "id" not in asked:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "reporting", "version": "1"}}
    elif method == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"],
                          "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}}
                            for n in ("read", "erase")]}
    else:
        result = {"content": [{"type": "text", "text": json.dumps(received)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
REQUESTS = ["tools/call", "prompts/get", "resources/read", "resources/subscribe", "tools/list"]
CUSTOM = "notifications/custom"
ALLOWED = "notifications/roots/list_changed"
OPTIONS: dict[str, dict[str, Any]] = {
    "view": {"view": View(deny=("erase",))},
    "rate": {"interceptors": [RateLimit(1000, methods=["tools/call"])]},
}


@pytest.mark.attack(
    "a `tools/call` without an id, which a server may execute although it sends no response",
    "requests without an id are not forwarded; clients with a restricted view can send only the "
    "notifications of the protocol",
    "the server does not receive the message",
)
@pytest.mark.parametrize("share", ["alike", "session"])
@pytest.mark.parametrize("policy", OPTIONS)
async def test_requests_without_an_id_are_not_forwarded(policy: str, share: Any) -> None:
    relay = RelaySettings(share=share)
    async with (
        asyncio.timeout(LIMIT),
        Gateway(relay=relay, **OPTIONS[policy]) as gateway,
        serving(gateway) as web,  # type: ignore[arg-type]
    ):
        await gateway.connect({"notes": {"command": sys.executable, "args": ["-c", REPORTING]}})
        await until(gateway.members["notes"].introduced.is_set)
        for path, name in (("", "notes_read"), ("/notes", "read")):
            there = Web(web.url + path, web.http)
            session = await there.initialize(sampling={}, roots={"listChanged": True})
            # The first call opens the connection over which notifications are forwarded.
            assert (await session.call(name)).status == 200
            for method in (*REQUESTS, CUSTOM, ALLOWED):
                params = {"name": "erase", "uri": "erase"}
                note = {"jsonrpc": "2.0", "method": method, "params": params}
                assert (await session.post(note)).status == 202
                body, headers = stateless(method, params)
                del body["id"]
                assert (await there.post(body, headers)).status == 202
            received = json.loads((await session.call(name)).text)
            expected = {ALLOWED} if policy == "view" else {ALLOWED, CUSTOM}
            assert {method for method, item in received if item == "erase"} == expected
