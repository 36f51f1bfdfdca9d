"""The tools for an agent's session, bound from a manager and updated when they change."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from .tool import MCPTool

if TYPE_CHECKING:
    from ..manager import MCPManager

__all__ = ["ToolRegistry", "ToolSession", "create_tool_session"]

log = logging.getLogger("fairlead.manager")


class ToolRegistry(Protocol):
    """Interface of the registry in which a host keeps its model's tools."""

    def add(self, tool: Any) -> None: ...
    def remove(self, name: str) -> None: ...


class _Tools:
    """An in-memory registry, for hosts without their own registry."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}

    def add(self, tool: Any) -> None:
        self.tools[tool.name] = tool

    def remove(self, name: str) -> None:
        self.tools.pop(name, None)


class ToolSession:
    """The tools of managed servers in a registry, which may also contain other tools."""

    def __init__(
        self,
        manager: "MCPManager | None" = None,
        *,
        registry: ToolRegistry | None = None,
        wrap: Callable[[MCPTool], Any] = lambda tool: tool,
        owned: bool = True,
    ) -> None:
        """Create a session.

        `wrap` converts a tool for the host. A manager that is not `owned` is not closed.
        """
        self.mcp_manager = manager
        self.registry = registry if registry is not None else _Tools()
        self._wrap = wrap
        self._owned = owned
        self._bound: dict[str, MCPTool] = {}
        self._changing = asyncio.Lock()
        self._binding: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] = lambda: None
        if manager is not None:
            self._stop_listening = manager.add_tools_listener(self._changed)

    @property
    def mcp_tools(self) -> list[MCPTool]:
        """The tools that are currently bound."""
        return list(self._bound.values())

    async def refresh_mcp_tools(self, tools: Iterable[MCPTool]) -> None:
        """Replace all bound tools; if this fails, the previous tools stay bound.

        Raises:
            Exception: The registry raised an exception.
        """
        async with self._changing:
            before, wanted = self._bound, {tool.name: tool for tool in tools}
            removed: list[MCPTool] = []
            added: list[MCPTool] = []
            try:
                for tool in before.values():
                    self.registry.remove(tool.name)
                    removed.append(tool)
                for tool in wanted.values():
                    self.registry.add(self._wrap(tool))
                    added.append(tool)
            except Exception:
                # Only completed steps are undone: a registry may refuse to remove unknown tools.
                for tool in added:
                    self.registry.remove(tool.name)
                for tool in removed:
                    self.registry.add(self._wrap(tool))
                raise
            self._bound = wanted

    async def close(self) -> None:
        """Unbind all tools, and close the manager if the session owns it."""
        self._stop_listening()
        if self._binding is not None:
            self._binding.cancel()
            await asyncio.wait((self._binding,))
        bound, self._bound = self._bound, {}
        try:
            for name in bound:
                self.registry.remove(name)
        except Exception:  # the registry is the host's code and may raise any exception
            log.exception("the tools could not be unbound; some remain in the registry")
        if self.mcp_manager is not None and self._owned:
            await self.mcp_manager.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _changed(self, tools: list[MCPTool]) -> None:
        """Replace the bound tools, because a server connected late or changed its list."""
        if self._binding is not None:
            self._binding.cancel()  # cancels the task in progress, because it binds outdated tools
        self._binding = asyncio.get_running_loop().create_task(self._rebind(tools))

    async def _rebind(self, tools: list[MCPTool]) -> None:
        try:
            await self.refresh_mcp_tools(tools)
        except Exception:  # the registry is the host's code and may raise any exception
            log.exception("the tools could not be replaced; the previous ones stay bound")


async def create_tool_session(
    cwd: str | Path | None = None,
    *,
    enable_mcp: bool = True,
    registry: ToolRegistry | None = None,
    wrap: Callable[[MCPTool], Any] = lambda tool: tool,
    manager: "MCPManager | None" = None,
    **options: Any,
) -> ToolSession:
    """Return a session with the tools of all configured servers, or with no tools if `enable_mcp`
    is False.

    A `manager` that you pass is not closed with the session. Other options are passed to
    `discover_and_load_mcp_tools`.
    """
    if not enable_mcp:
        return ToolSession(None, registry=registry, wrap=wrap)
    if manager is not None:
        session = ToolSession(manager, registry=registry, wrap=wrap, owned=False)
        await session.refresh_mcp_tools(manager.get_tools())
        return session
    from ..discover_tools import discover_and_load_mcp_tools

    found = await discover_and_load_mcp_tools(cwd, **options)
    for error in found.errors:
        log.warning("%s: %s", error["path"], error["error"])
    session = ToolSession(found.manager, registry=registry, wrap=wrap)
    await session.refresh_mcp_tools(found.manager.get_tools())
    return session
