"""Fairlead's manager. The configuration is found where users have it, below HOME.

fairlead_manager.py remember CONFIG HEALTHY: fill the cache with so many servers' tools, or all
fairlead_manager.py warm CONFIG HEALTHY: until discovery returns, with tools of the healthy ones
fairlead_manager.py background CONFIG HEALTHY: the same without waiting for what is not known
fairlead_manager.py start CONFIG HEALTHY: until the tools of the healthy ones are there, live
fairlead_manager.py idle CONFIG SECONDS: the CPU it takes with everything connected
fairlead_manager.py names CONFIG 0: ten thousand tools get their names and places
fairlead_manager.py cached CONFIG 0: the same from a cache, with two hundred servers at rest
fairlead_manager.py lists CONFIG 0: a gateway's list of fifty servers with forty tools each
"""

import asyncio
import sys
from typing import Any

from telling import Clock, tell

from fairlead.client.server_entry import read_entry
from fairlead.config.upstream_settings import Rules
from fairlead.manager import load_all_mcp_configs
from fairlead.manager.discover_tools import discover_and_load_mcp_tools
from fairlead.manager.manager import MCPManager
from fairlead.manager.tools.catalog import ToolCatalog
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore

SERVERS, TOOLS = 200, 50


async def remember(healthy: int) -> None:
    cache = MCPToolCache()
    for name, entry in load_all_mcp_configs().configs.items():
        if healthy == 0 or name.startswith("healthy"):
            cache.set(name, entry, definitions(3))
    tell()


async def warm(healthy: int, **options: Any) -> None:
    clock = Clock()
    found = await discover_and_load_mcp_tools(**options)
    spent = clock.read()
    async with found.manager:
        known = servers_of(found.tools)
        if len(known) < healthy:
            raise SystemExit(f"only the tools of {sorted(known)}; {found.errors}")
        tell(**spent, deferred=sum(tool.deferred for tool in found.tools), tools=len(found.tools))


async def start(healthy: int) -> None:
    clock = Clock()
    found = await discover_and_load_mcp_tools(startup="background")
    async with found.manager as manager:
        complete = asyncio.Event()

        def look(tools: list[Any]) -> None:
            if len(servers_of(tools)) >= healthy:
                complete.set()

        manager.add_tools_listener(look)
        look(manager.get_tools())
        await complete.wait()
        spent = clock.read()
        if any(tool.deferred for tool in manager.get_tools()):
            raise SystemExit("the cache was not cold")
        tell(**spent)


async def idle(seconds: float) -> None:
    # Half of the window, so that each server is pinged in it; the default is a minute.
    rules = Rules(health_interval=seconds / 2)
    found = await discover_and_load_mcp_tools(rules=rules)
    async with found.manager as manager:
        await manager.settled()
        before = manager.get_connected_servers()
        if found.errors or len(before) != len(manager.get_all_server_names()):
            raise SystemExit(f"only {before} are connected; {found.errors}")
        clock = Clock()
        await asyncio.sleep(seconds)
        spent = clock.read()
        if manager.get_connected_servers() != before:
            raise SystemExit("not all stayed connected")
        tell(**spent)


async def names() -> None:
    listed = [(f"server-{n:03d}", definitions(TOOLS), False) for n in range(SERVERS)]
    clock = Clock()
    catalog = new_catalog()
    tools = catalog.build(listed)
    spent = clock.read()
    if len(tools) != SERVERS * TOOLS or len(catalog.by_name) != len(tools):
        raise SystemExit(f"{len(tools)} tools with {len(catalog.by_name)} names")
    clock, catalog = Clock(), new_catalog()
    for known in range(SERVERS):
        catalog.build(listed[: known + 1])
    tell(**spent, one_by_one_ms=clock.read()["ms"])


async def cached() -> None:
    cache = MCPToolCache(MemoryStore())
    entries = {f"server-{n:03d}": {"command": "true"} for n in range(SERVERS)}
    async with MCPManager(cache=cache) as manager:
        await manager.connect_servers({})  # whatever is needed once
    for name, entry in entries.items():
        cache.set(name, read_entry(entry), definitions(TOOLS))
    async with MCPManager(cache=cache, lazy=True) as manager:
        clock = Clock()
        loaded = await manager.connect_servers(entries)
        spent = clock.read()
        if len(loaded.tools) != SERVERS * TOOLS:
            raise SystemExit(f"{len(loaded.tools)} tools; {loaded.errors[:3]}")
        tell(**spent)


async def lists() -> None:
    import msgspec

    from fairlead import MCPClient
    from fairlead.gateway import Gateway
    from fairlead.protocol.targets.list_kind import ListKind

    items = [msgspec.Raw(msgspec.json.encode(tool)) for tool in definitions(40)]
    async with Gateway() as gateway:
        for n in range(50):
            gateway.catalog.put(f"server-{n:02d}", ListKind.TOOLS, items)
        async with MCPClient.connect_inprocess(gateway) as client:
            peer = client.transport.peer
            page = await peer.request("tools/list")  # which is made once
            if len(msgspec.json.decode(page)["tools"]) != 2000:
                raise SystemExit("not all tools are listed")
            times = []
            for _ in range(50):
                clock = Clock()
                await peer.request("tools/list")
                times.append(clock.read()["ms"])
    tell(ms=sorted(times)[25], cpu_ms=0.0)


def definitions(count: int) -> list[dict[str, Any]]:
    """Return this many tools, each with its own description and schema."""
    return [
        {
            "name": f"tool_{n:02d}",
            "description": "Does something useful with what it is given.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["text"],
            },
        }
        for n in range(count)
    ]


def new_catalog() -> ToolCatalog:
    async def call(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    about = {"provider": "fairlead", "provider_name": "Fairlead", "available": lambda: True}
    return ToolCatalog(call, lambda _: about)


def servers_of(tools: list[Any]) -> set[str]:
    return {t.mcp_server_name for t in tools if t.mcp_server_name.startswith("healthy")}


if __name__ == "__main__":
    what, _, number = sys.argv[1:]
    asyncio.run(
        {
            "remember": lambda: remember(int(number)),
            "warm": lambda: warm(int(number)),
            "background": lambda: warm(int(number), startup="background"),
            "start": lambda: start(int(number)),
            "idle": lambda: idle(float(number)),
            "names": names,
            "cached": cached,
            "lists": lists,
        }[what]()
    )
