"""A client that starts `fairlead` as its server and calls a tool through it."""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from fairlead import MCPClient, MCPClientConfig, RpcError
from tests.support.cli_process import LIMIT

__all__ = ["visit"]


def visit(
    *args: str,
    texts: Sequence[str],
    version: str = "2025-11-25",
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
    on_stderr: Callable[[str], None] | None = None,
) -> list[str]:
    """List the tools, call `shout` with each text, and return each result or error message."""
    command = program or [sys.executable, "-m", "fairlead", *args]
    return asyncio.run(_visit(command, texts, version, dict(env or {}), on_stderr))


async def _visit(
    command: Sequence[str],
    texts: Sequence[str],
    version: str,
    env: dict[str, str],
    on_stderr: Callable[[str], None] | None,
) -> list[str]:
    config = MCPClientConfig(protocol_version=version)
    said = []
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_stdio(command, config, env=env, on_stderr=on_stderr) as client,
    ):
        await client.tools()
        for text in texts:
            try:
                said.append((await client.call("shout", {"text": text})).text)
            except RpcError as exc:
                said.append(exc.message)
    return said
