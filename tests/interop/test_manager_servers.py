"""Published third-party servers, all used by one manager."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import MCPClientConfig
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.provider_adapters import (
    run_anthropic,
    run_openai,
    to_anthropic,
    to_openai,
)
from tests.interop.test_public_servers import node_servers, python_servers  # noqa: F401  (fixtures)

LIMIT = 30.0

CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "everything": ("echo", {"message": "Grüße"}, "Echo: Grüße"),
    "filesystem": ("list_allowed_directories", {}, "Allowed directories:"),
    "git": ("git_log", {"repo_path": "REPOSITORY"}, "first of all"),
    "memory": ("read_graph", {}, "entities"),
    "time": ("get_current_time", {"timezone": "Europe/Berlin"}, "Europe/Berlin"),
}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.01)


def pid_of(manager: MCPManager, name: str) -> int:
    pid = manager.connections[name].client.transport.peer.channel.context.process_id
    assert pid is not None
    return pid


@pytest.mark.covers("HST-12", "HST-20", "HST-24", "HST-31")
async def test_public_servers_run_together_and_a_killed_server_is_restarted(
    node_servers: Path,  # noqa: F811
    python_servers: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    project = repository(tmp_path / "project")
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    servers = {
        "everything": {"command": str(node_servers / "mcp-server-everything")},
        "filesystem": {
            "command": str(node_servers / "mcp-server-filesystem"),
            "args": [str(project)],
        },
        "git": {"command": str(python_servers / "mcp-server-git")},
        "memory": {"command": str(node_servers / "mcp-server-memory"), "env": env},
        "time": {"command": str(python_servers / "mcp-server-time")},
    }
    config = MCPClientConfig(probe_timeout=LIMIT)
    async with asyncio.timeout(2 * LIMIT), MCPManager(project, config=config) as manager:
        loaded = await manager.connect_servers(servers)
        assert loaded.errors == []
        assert loaded.connected_servers == sorted(servers)
        assert {tool.mcp_server_name for tool in loaded.tools} == set(servers)
        names = [tool["function"]["name"] for tool in to_openai(loaded.tools)]
        assert names == sorted(set(names))
        assert len(to_anthropic(loaded.tools)) == len(names)
        await call_each(manager, project)

        # Resources by URI and prompts by name
        resources = dict(reversed(await manager.list_resources()))
        assert "everything" in resources
        page = await manager.read_resource("demo://resource/static/document/features.md")
        assert page["contents"][0]["text"].startswith("#")
        # This URI is not listed, but matches a template.
        text = await manager.read_resource("demo://resource/dynamic/text/7")
        assert text["contents"][0]["text"].startswith("Resource 7")
        prompt = await manager.get_prompt("everything", "args-prompt", {"city": "Rome"})
        assert "Rome" in prompt["messages"][0]["content"]["text"]
        assert manager.get_instructions()["everything"].startswith("# Everything Server")

        pids = {name: pid_of(manager, name) for name in servers}
        for victim in ("everything", "time"):
            os.kill(pids[victim], signal.SIGKILL)
            await until(lambda name=victim: manager.describe()[name].generation == 2)  # type: ignore[misc]
            assert pid_of(manager, victim) != pids[victim]
        for name in {*servers} - {"everything", "time"}:
            assert (manager.connections[name].generation, pid_of(manager, name)) == (1, pids[name])
        await call_each(manager, project)
        pids = {name: pid_of(manager, name) for name in servers}
    for pid in pids.values():
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)


async def call_each(manager: MCPManager, project: Path) -> None:
    """Call each tool as a model would, in the tool-call formats of two providers."""
    for server, (tool, arguments, expected) in CALLS.items():
        given = {k: str(project) if v == "REPOSITORY" else v for k, v in arguments.items()}
        (name,) = [
            one.name
            for one in manager.get_tools()
            if (one.mcp_server_name, one.mcp_tool_name) == (server, tool)
        ]
        call = {"id": "1", "function": {"name": name, "arguments": given}}
        assert expected in (await run_openai(manager.get_tool, call))["content"]
        use = {"id": "2", "name": name, "input": given}
        answer = await run_anthropic(manager.get_tool, use)
        assert "is_error" not in answer
        assert expected in answer["content"][0]["text"]


def repository(place: Path) -> Path:
    git = shutil.which("git")
    assert git is not None
    place.mkdir()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "first of all"]):
        subprocess.run([git, "-C", str(place), *words], check=True)
    return place
