"""The official client with the reference server, recorded by a tap and replayed from the tape."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)

from tests.interop.test_public_servers import node_servers  # noqa: F401  (a fixture)

LIMIT = 30.0
OURS = (sys.executable, "-m", "fairlead")
CALLS: Sequence[tuple[str, dict[str, Any]]] = (
    ("echo", {"message": "Grüße, 世界 🌍"}),
    ("get-sum", {"a": 1, "b": 2}),
    ("trigger-elicitation-request", {}),
    ("trigger-sampling-request", {"prompt": "why", "maxTokens": 10}),
    ("get-roots-list", {}),
    ("get-tiny-image", {}),
    ("get-sum", {"a": "x"}),
    ("nothing", {}),
)


async def visit(home: Path, mode: str, *command: str) -> list[Any]:
    """Run a session of the official client, and return everything that it received."""
    seen: list[Any] = []
    welcomed = asyncio.Event()

    async def on_elicit(_: Any, params: Any) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content={"name": "Ada", "integer": 7})

    async def on_sample(_: Any, params: Any) -> CreateMessageResult:
        seen.append(params.max_tokens)
        said = TextContent(type="text", text="Not much.")
        return CreateMessageResult(role="assistant", content=said, model="none")

    async def on_roots(_: Any) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri="file:///home/ada")])

    async def on_log(_: LoggingMessageNotificationParams) -> None:
        welcomed.set()  # the server logs a message once it has received the roots

    async def on_progress(progress: float, total: float | None, _: str | None) -> None:
        seen.append((progress, total))

    program, *arguments = command
    env = {"FAIRLEAD_HOME": str(home)}
    pipes = stdio_client(StdioServerParameters(command=program, args=arguments, env=env))
    async with (
        asyncio.timeout(LIMIT),
        Client(
            pipes,
            mode=mode,
            elicitation_callback=on_elicit,
            sampling_callback=on_sample,
            list_roots_callback=on_roots,
            logging_callback=on_log,
        ) as client,
    ):
        if mode == "legacy":
            await welcomed.wait()
        seen.append(sorted(tool.name for tool in (await client.list_tools()).tools))
        seen.append([str(one.uri) for one in (await client.list_resources()).resources])
        for name, given in CALLS:
            try:
                done = await client.call_tool(name, given)
                seen.append(done.model_dump(mode="json", exclude={"meta"}))
            except MCPError as exc:
                seen.append(str(exc))
        slow = {"duration": 0.2, "steps": 2}
        name = "trigger-long-running-operation"
        await client.call_tool(name, slow, progress_callback=on_progress)
        with pytest.raises(MCPError) as refused:
            await client.read_resource("demo://nothing")
        seen.append(str(refused.value))
    return seen


@pytest.mark.covers("GTW-10", "GTW-11")
async def test_a_tape_replays_everything_that_the_official_client_received(
    node_servers: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    server = str(node_servers / "mcp-server-everything")
    tape = str(tmp_path / "everything")
    live = await visit(tmp_path, "legacy", *OURS, "tap", "--tape", tape, "--", server)
    assert len(live) > 12
    assert (2, 2) in live
    for options in ((), ("--match", "strict"), ("--timing", "4")):
        assert await visit(tmp_path, "legacy", *OURS, "replay", tape, *options) == live
    # Also replay in the stateless era, where results contain the server's requests.
    assert await visit(tmp_path, "auto", *OURS, "replay", tape) == live
