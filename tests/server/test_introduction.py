"""Tests of the self-description of a server in both eras."""

import pytest

from fairlead import MCPServer
from tests.support.in_memory_client import META, ask


@pytest.mark.covers("PRO-02", "PRO-03", "PRO-21")
async def test_initialize_and_discover_describe_the_server() -> None:
    server = MCPServer("s", title="The S", instructions="Be kind.")
    server.register_prompt("p", template="x")
    hello = {"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {}}
    initialized = (await ask(server, "initialize", hello))["result"]
    assert initialized == {
        "protocolVersion": "2025-11-25",  # the newest revision that has a handshake
        "capabilities": {
            "tools": {"listChanged": True},
            "logging": {},
            "prompts": {"listChanged": True},
        },
        "serverInfo": {"name": "s", "version": "1.0.0", "title": "The S"},
        "instructions": "Be kind.",
    }
    modern = await ask(server, "initialize", {**hello, "protocolVersion": "2026-07-28"})
    assert modern["result"]["protocolVersion"] == "2025-11-25"
    old = await ask(server, "initialize", {**hello, "protocolVersion": "2024-11-05"})
    assert old["result"]["serverInfo"] == {"name": "s", "version": "1.0.0"}
    discovered = (await ask(server, "server/discover", {"_meta": META}))["result"]
    assert discovered["supportedVersions"][0] == "2026-07-28"
    assert discovered["instructions"] == "Be kind."
    assert discovered["resultType"] == "complete"
    assert (discovered["ttlMs"], discovered["cacheScope"]) == (0, "private")
    info = discovered["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert info["name"] == "s"
