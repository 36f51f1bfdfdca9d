"""The TypeScript SDK on the other end: its client against our server, our client against its.

Its packages are installed once into the virtual environment. Without node the tests are skipped,
except on a continuous integration machine, where that would be a failure.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest
from processes import LIMIT, PIXEL, command

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".venv" / "node-interop"
VERSION = "2.4.0"
PACKAGES = [f"@modelcontextprotocol/{name}" for name in ("server", "client")]


@pytest.fixture(scope="session")
def node_path() -> str:
    """Where node finds the packages, for its environment."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        unavailable("node and npm are not installed")
    if not all(map(installed, PACKAGES)):
        install(npm)
    return str(CACHE / "node_modules")


def installed(package: str) -> bool:
    try:
        manifest = (CACHE / "node_modules" / package / "package.json").read_text()
    except FileNotFoundError:
        return False
    return bool(json.loads(manifest)["version"] == VERSION)


def install(npm: str) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "package.json").write_text('{"private": true}')
    wanted = [f"{package}@{VERSION}" for package in PACKAGES]
    done = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", *wanted],
        cwd=CACHE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        unavailable(f"npm install failed: {done.stderr[-500:]}")


def unavailable(why: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.mark.covers("DEC-04", "PRO-03", "PRO-21", "PRO-32")
@pytest.mark.parametrize(
    ("options", "revision"),
    [
        ({"versionNegotiation": {"mode": "auto"}}, NEWEST),
        ({"versionNegotiation": {"mode": {"pin": NEWEST.value}}}, NEWEST),
        ({}, NEWEST_HANDSHAKE),
        *(({"supportedProtocolVersions": [r.value]}, r) for r in HANDSHAKE),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else str(value),
)
async def test_its_client_uses_our_server(
    options: dict[str, Any], revision: Revision, node_path: str
) -> None:
    report = await run_client(options, node_path)

    tools = report.pop("tools")
    assert {"echo", "add", "count_and_hold"} <= set(tools)
    steps = [f"step {n}" if revision >= "2025-03-26" else None for n in (1, 2, 3)]
    assert report == {
        "version": revision,
        "server": {"name": "ours", "version": "1.2.3"},
        "instructions": "Say hello first.",
        "resources": ["memo://greeting", "memo://pixel"],
        "prompts": ["greet"],
        "echo": [False, "Grüße, 世界 🌍"],
        "add": [False, "42"],
        "count": [False, "counted to 3"],
        "progress": [[1, 3, steps[0]], [2, 3, steps[1]], [3, 3, steps[2]]],
        "fail": True,
        "wrong": True,
        "unknown": -32602,
        "pixel": PIXEL,
        "prompt": "Greet Ada, who is happy.",
        "waited": "REQUEST_TIMEOUT",
        "stopped": [False, "stopped"],
        "big": 1_000_000,
    }


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-21", "PRO-31")
@pytest.mark.parametrize(
    ("version", "spoken"),
    [("auto", NEWEST), *((revision.value, revision) for revision in HANDSHAKE)],
)
async def test_our_client_uses_its_server(version: str, spoken: Revision, node_path: str) -> None:
    progress: list[object] = []
    connecting = MCPClient.connect_stdio(
        ["node", str(HERE / "typescript" / "server.cjs")],
        MCPClientConfig(protocol_version=version),
        env={"NODE_PATH": node_path},
    )
    async with asyncio.timeout(LIMIT), connecting as client:
        assert client.protocol_version == spoken
        assert client.server["serverInfo"] == {"name": "typescript", "version": VERSION}
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["echo", "add", "count", "fail", "wait", "was_stopped"]
        assert await text_of(client, "echo", text="Grüße, 世界 🌍") == "Grüße, 世界 🌍"
        assert await text_of(client, "add", a=2, b=40) == "42"
        result = await client.call_tool(
            "count", {"to": 3}, on_progress=lambda *step: progress.append(step)
        )
        assert result["content"][0]["text"] == "counted to 3"
        assert progress == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert (await client.call_tool("fail"))["isError"]
        assert (await client.call_tool("add", {"a": "many"}))["isError"]
        with pytest.raises(RpcError) as caught:
            await client.call_tool("nothing")
        assert caught.value.code == -32602
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.2)
        assert await text_of(client, "was_stopped") == "stopped"


async def run_client(options: dict[str, Any], node_path: str) -> dict[str, Any]:
    script = str(HERE / "typescript" / "client.cjs")
    process = await asyncio.create_subprocess_exec(
        *("node", script, json.dumps(options), *command("ours")),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "NODE_PATH": node_path},
    )
    try:
        async with asyncio.timeout(LIMIT):
            output, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0
    report: dict[str, Any] = json.loads(output)
    return report


async def text_of(client: MCPClient, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    text: str = result["content"][0]["text"]
    return text
