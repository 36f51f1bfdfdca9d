"""Replays of a tape of the reference server "everything", compared with the server itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question, accept, decline
from fairlead.gateway import Relay
from fairlead.recording.replay import TapeServer
from fairlead.recording.tape import TapeWriter
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.interop.test_public_servers import node_servers  # noqa: F401  (a fixture)

LIMIT = 30.0
HANDSHAKE, STATELESS = "2025-11-25", "auto"


async def play(server: Any, version: str) -> list[Any]:
    """Run a session with many features, and return everything that the client received."""
    seen: list[Any] = []
    answers = iter([accept({"name": "Ada", "integer": 7}), decline()])
    progress: list[object] = []
    logged: asyncio.Queue[str] = asyncio.Queue()
    folders = ["file:///home/ada"]

    async def on_elicit(question: Question) -> dict[str, Any]:
        seen.append(question.message)
        return next(answers)

    def on_sample(params: dict[str, Any]) -> str:
        seen.append(params["systemPrompt"])
        return "Not much."

    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT, probe_timeout=LIMIT)
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(
            server,
            config,
            on_elicit=on_elicit,
            on_sample=on_sample,
            on_roots=lambda: folders,
            on_log=lambda level, data, logger: logged.put_nowait(str(data)),
        ) as client,
    ):
        seen.append(client.instructions)
        seen.append(sorted(tool.name for tool in await client.tools()))
        seen.append([resource.uri for resource in await client.resources()])
        seen.append([template.uri_template for template in await client.templates()])
        seen.append([prompt.name for prompt in await client.prompts()])
        for name, given in (
            ("echo", {"message": "Grüße, 世界 🌍"}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "error", "includeImage": True}),
            ("get-resource-links", {"count": 2}),
            ("trigger-elicitation-request", {}),
            ("trigger-elicitation-request", {}),
            ("trigger-sampling-request", {"prompt": "What is up?"}),
            ("get-roots-list", {}),
            ("get-sum", {"a": "many", "b": 1}),
        ):
            called = await client.call(name, given)
            seen.append((called.is_error, called.content, called.structured))
        await client.call(
            "trigger-long-running-operation",
            {"duration": 0.03, "steps": 3},
            on_progress=lambda *step: progress.append(step),
        )
        seen.append(progress)
        seen.append((await client.prompt("args-prompt", {"city": "Rome"})).messages)
        departments = await client.complete("prompt", "completable-prompt", "department", "S")
        seen.append(departments.values)
        with pytest.raises(RpcError) as refused:
            await client.read("demo://nothing")
        seen.append((refused.value.code, refused.value.message))
        if version == HANDSHAKE:
            folders.append("file:///home/grace")
            await client.roots_changed()
            while "2 root(s)" not in (said := await logged.get()):
                pass
            seen.append(said)
    return seen


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_replayed_tape_returns_the_same_results_as_the_live_server(
    node_servers: Path,  # noqa: F811
    tmp_path: Path,
    version: str,
) -> None:
    program = {"command": str(node_servers / "mcp-server-everything")}
    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(program, interceptors=[Recorder(tape)])
        async with relay.running():
            live = await play(relay, version)
    assert len(live) > 20
    for matching in ("tolerant", "strict"):
        player = TapeServer(tmp_path / "one", matching=matching)  # type: ignore[arg-type]
        async with player.running():
            assert await play(player, version) == live
        assert player.missed == []


async def test_a_tape_of_a_handshake_session_can_be_replayed_to_stateless_clients(
    node_servers: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    program = {"command": str(node_servers / "mcp-server-everything")}
    with TapeWriter(tmp_path / "one") as tape:
        relay = Relay(program, interceptors=[Recorder(tape)])
        async with relay.running():
            live = await play(relay, HANDSHAKE)
    bridge = TapeServer(tmp_path / "one").for_both_eras()
    async with bridge.running():
        played = await play(bridge, STATELESS)
    assert played[: len(played) - 1] == live[: len(played) - 1]
