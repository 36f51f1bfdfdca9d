"""Detection of a server's era by our client, with differently behaving server programs."""

import asyncio
import json
import os
from pathlib import Path
from time import perf_counter

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import ConnectFailed
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.interop.server_processes import command, our_client

HANDSHAKE = ["initialize", "notifications/initialized"]


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-21", "PRO-22")
@pytest.mark.parametrize(
    ("habit", "opening", "at_least"),
    [
        ("refuses", ["server/discover", *HANDSHAKE], 0.0),
        ("silent", ["server/discover", *HANDSHAKE], 1.0),
        ("crashes", HANDSHAKE, 0.0),
        ("sleepy", ["server/discover", *HANDSHAKE], 1.5),
    ],
)
async def test_handshake_servers_are_detected_and_opened_with_initialize(
    habit: str, opening: list[str], at_least: float, tmp_path: Path
) -> None:
    started = perf_counter()
    async with our_client("legacy", "auto", habit, cwd=str(tmp_path)) as client:
        took = perf_counter() - started

        assert client.protocol_version == NEWEST_HANDSHAKE
        assert client.server["serverInfo"] == {"name": habit, "version": "1"}
        assert [tool["name"] for tool in await client.list_tools()] == ["heard"]
        assert await heard(client) == [*opening, "tools/list", "tools/call"]
        assert at_least <= took < 10


@pytest.mark.covers("PRO-22")
async def test_a_stateless_server_that_starts_slowly_is_detected(tmp_path: Path) -> None:
    """The server reads `server/discover` and the fallback `initialize` and answers both."""
    script = tmp_path / "slow.py"
    script.write_text(
        "import runpy, time\n"
        "time.sleep(1.5)\n"
        f"runpy.run_path({command('ours')[1]!r}, run_name='__main__')\n"
    )
    connecting = MCPClient.connect_stdio([command("ours")[0], str(script)])
    async with asyncio.timeout(20), connecting as client:
        assert client.protocol_version == NEWEST
        assert (await client.call_tool("add", {"a": 1, "b": 2}))["content"][0]["text"] == "3"


@pytest.mark.covers("PRO-22")
@pytest.mark.parametrize("habit", ["refuses", "silent", "crashes"])
async def test_the_detected_era_of_a_server_is_stored(habit: str, tmp_path: Path) -> None:
    openings = []
    for _ in range(2):
        async with our_client("legacy", "auto", habit, cwd=str(tmp_path)) as client:
            openings.append(await heard(client))
    assert openings[1] == [*HANDSHAKE, "tools/call"]


@pytest.mark.covers("DEC-05")
async def test_a_configured_version_is_not_stored_as_the_era_of_the_server(tmp_path: Path) -> None:
    spoken = []
    for version in ("2025-06-18", "auto"):
        async with our_client("ours", version, cwd=str(tmp_path)) as client:
            spoken.append(client.protocol_version)
    assert spoken == ["2025-06-18", NEWEST]


@pytest.mark.covers("DEC-05")
@pytest.mark.parametrize("version", ["2025-03-26", "latest"])
async def test_a_configured_handshake_version_is_proposed_without_a_probe(
    version: str, tmp_path: Path
) -> None:
    async with our_client("legacy", version, "crashes", cwd=str(tmp_path)) as client:
        proposed = NEWEST_HANDSHAKE if version == "latest" else version
        assert client.protocol_version == proposed
        assert await heard(client) == [*HANDSHAKE, "tools/call"]


@pytest.mark.covers("DEC-05", "PRO-03")
@pytest.mark.parametrize("version", ["auto", "latest", "2025-06-18"])
async def test_a_server_may_choose_another_supported_version(version: str, tmp_path: Path) -> None:
    async with our_client("legacy", version, "old", cwd=str(tmp_path)) as client:
        assert client.protocol_version == "2024-11-05"
        assert [tool["name"] for tool in await client.list_tools()] == ["heard"]


@pytest.mark.covers("DEC-05", "PRO-03")
@pytest.mark.parametrize("version", ["auto", "2025-06-18"])
async def test_an_unknown_version_in_the_initialize_result_ends_the_connection(
    version: str, tmp_path: Path
) -> None:
    said: list[str] = []
    connecting = our_client("legacy", version, "alien", cwd=str(tmp_path), on_stderr=said.append)
    with pytest.raises(ConnectFailed, match="1999-12-31"):
        async with connecting:
            pass
    assert said  # the server has logged its process id
    with pytest.raises(ProcessLookupError):
        os.kill(int(said[0].split()[1]), 0)


@pytest.mark.covers("DEC-05")
@pytest.mark.parametrize("habit", ["refuses", "crashes"])
async def test_a_configured_stateless_version_does_not_fall_back_to_the_handshake(
    habit: str, tmp_path: Path
) -> None:
    config = MCPClientConfig(protocol_version="2026-07-28")
    connecting = MCPClient.connect_stdio(command("legacy", habit), config, cwd=str(tmp_path))
    with pytest.raises(ConnectFailed):
        async with asyncio.timeout(20), connecting:
            pass


@pytest.mark.parametrize("version", ["auto", "2025-06-18", "2026-07-28"])
async def test_a_server_that_exits_before_reading_the_probe_is_not_restarted(
    version: str, tmp_path: Path
) -> None:
    said: list[str] = []
    connecting = our_client("legacy", version, "dies", cwd=str(tmp_path), on_stderr=said.append)
    with pytest.raises(ConnectFailed, match="a setting is missing"):
        async with connecting:
            pass
    assert len([line for line in said if line.startswith("pid")]) == 1


async def heard(client: MCPClient) -> list[str]:
    """Return the methods that the server has received, including the call of this tool."""
    result = await client.call_tool("heard")
    methods: list[str] = json.loads(result["content"][0]["text"])
    return methods
