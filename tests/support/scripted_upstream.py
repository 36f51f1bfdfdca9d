"""An `Upstream` whose connections follow a script instead of starting a program."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, Self

import pytest
from msgspec import Raw

from fairlead.client.server_entry import MCPServerEntry, MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.transport.channel import SharedStream
from fairlead.upstream import upstream as upstream_module
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.upstream_calls import UpstreamCalls

__all__ = ["ScriptedClient", "ScriptedUpstream", "raw_items"]

TOOLS = ({"name": "read", "annotations": {"readOnlyHint": True}}, {"name": "write"})


def raw_items(items: Iterable[Any]) -> list[Raw]:
    """Return list items as they arrive from a server."""
    return [Raw(json.dumps(item).encode()) for item in items]


class ScriptedPeer:
    """A fake peer that records the reasons with which it is closed."""

    def __init__(self) -> None:
        self.channel = SharedStream()
        self.connected = True
        self.reasons: list[tuple[str, str]] = []

    async def close(self, why: str, *, public: str) -> None:
        self.reasons.append((why, public))

    def output_within(self, seconds: float) -> tuple[str, ...]:
        return ()


class ScriptedClient:
    """A connection that records requests. `outcomes` are the results of the next calls.

    An outcome is a result, an exception, or a coroutine function that is called for the result.
    """

    def __init__(self) -> None:
        self.connected = True
        self.protocol_version = "2026-07-28"
        self.closed = 0
        self.server: dict[str, Any] = {"capabilities": {"tools": {}}}
        self.transport = SimpleNamespace(peer=ScriptedPeer(), on_close=None, on_error=None)
        self.tools: list[Any] = list(TOOLS)
        self.outcomes: list[Any] = []
        self.requests: list[tuple[str, Any]] = []
        self.lists_requested: list[str] = []
        self.learned: list[list[str]] = []
        self.ends: Callable[[], Awaitable[object]] | None = None  # awaited in `close()`

    async def call_tool(
        self, tool: str, arguments: Any, timeout: float | None, **options: Any
    ) -> dict[str, Any]:
        self.requests.append((tool, arguments))
        outcome = self.outcomes.pop(0) if self.outcomes else {"by": id(self)}
        if isinstance(outcome, BaseException):
            raise outcome
        if callable(outcome):
            return await outcome()  # type: ignore[no-any-return]
        return outcome  # type: ignore[no-any-return]

    async def list_raw(self, method: str, member: str) -> list[Raw]:
        self.lists_requested.append(method)
        assert (method, member) == ("tools/list", "tools")
        return raw_items(self.tools)

    def learn_tools(self, tools: Iterable[dict[str, Any]]) -> None:
        self.learned.append([tool["name"] for tool in tools])

    async def subscribe(self, uri: str) -> None:
        self.requests.append(("+", uri))

    async def unsubscribe(self, uri: str) -> None:
        self.requests.append(("-", uri))

    async def set_log_level(self, level: str) -> None:
        self.requests.append(("level", level))

    async def close(self) -> None:
        self.closed += 1
        self.connected = False
        if self.ends is not None:
            await self.ends()


class ScriptedUpstream:
    """An `Upstream` named "red", the client for its calls, and the connections it opens.

    As a context manager it is connected at the start of the block and stopped at its end.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        entry: MCPServerEntry | None = None,
        spec: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.clients: list[Any] = []
        self.errors: list[Exception] = []  # errors that the next connection attempts raise
        self.states: list[str] = []  # states in the order in which they were reported
        self.notifications: list[tuple[str, str, Any]] = []
        self.opened_with: list[tuple[Any, ...]] = []  # the arguments of `open_client`
        # Awaited before each connection attempt.
        self.opening: Callable[[], Awaitable[None]] | None = None
        self.prepare: Callable[[ScriptedClient], object] = lambda client: None
        self.connect: Callable[..., Awaitable[Any]] = self._connect_scripted
        monkeypatch.setattr(upstream_module, "open_client", self._open)
        self.starts = StartLimiter(1)
        self.upstream = Upstream(
            "red",
            ServerSpec(entry=entry or MCPStdioServerConfig(command="x"), **(spec or {})),
            UpstreamSettings(**{"health_interval": 0, **(settings or {})}),
            starts=self.starts,
            changed=lambda upstream: self.states.append(upstream.state),
            told=lambda *told: self.notifications.append(told),
            **options,
        )
        self.calls = UpstreamCalls(self.upstream)

    async def _open(self, *arguments: Any) -> Any:
        self.opened_with.append(arguments)
        if self.opening is not None:
            await self.opening()
        if self.errors:
            raise self.errors.pop(0)
        client = await self.connect(*arguments[:5])
        self.clients.append(client)
        return client

    async def _connect_scripted(self, *_: Any) -> ScriptedClient:
        client = ScriptedClient()
        self.prepare(client)
        return client

    async def __aenter__(self) -> Self:
        self.upstream.start()
        async with asyncio.timeout(100):
            await self.upstream.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.upstream.state != "stopped":
            await self.upstream.stop()
        elif self.upstream._ending:
            await asyncio.wait(self.upstream._ending)
