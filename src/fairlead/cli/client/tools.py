"""`fairlead tools`: what a server offers to do."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...client import MCPClient
from ..framework.errors import styled
from ..framework.output import as_json, columns, pluralize, pretty, safe, visible, write_styled
from .schema_values import name_type
from .simple_commands import run_command

__all__ = ["arguments_of", "run"]

ToolDescription = Mapping[str, Any]


async def _tools(client: MCPClient, options: Namespace) -> int:
    tools = await client.list_tools()
    if not as_json(options, tools):
        _show(client.server, tools)
    return 0


def arguments_of(tool: ToolDescription) -> Iterator[tuple[str, bool, str, str]]:
    """Name, whether it is required, type with default, and description of each argument."""
    schema = tool.get("inputSchema")
    root: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    properties = root.get("properties")
    required = root.get("required")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        facts: Mapping[str, Any] = part if isinstance(part, Mapping) else {}
        kind = name_type(part, root)
        if facts.get("default") is not None:
            kind += f" = {pretty(facts['default'])}"
        is_required = isinstance(required, list) and name in required
        yield visible(name), is_required, visible(kind), safe(str(facts.get("description") or ""))


def _show(server: Mapping[str, Any], tools: Sequence[ToolDescription]) -> None:
    info = server.get("serverInfo") or {}
    name = f"{info.get('name') or 'A server without a name'} {info.get('version') or ''}".strip()
    facts = f" · {pluralize(len(tools), 'tool')} · speaks {server.get('protocolVersion')}"
    write_styled(_styled(visible(name), "1") + _styled(facts, "2"))
    for tool in tools:
        annotations = tool.get("annotations")
        hints: Mapping[str, Any] = annotations if isinstance(annotations, Mapping) else {}
        title = tool.get("title") or hints.get("title")
        shown = f"  {visible(str(title))}" if title else ""
        write_styled(f"\n{_styled(visible(str(tool.get('name'))), '1;36')}{shown}")
        description = safe(str(tool.get("description") or "")).strip().splitlines()
        rows = [
            [(name + "*" * required, "32"), (kind, "33"), (" ".join(about.split()), "2")]
            for name, required, kind, about in arguments_of(tool)
        ]
        for line in (*description, *columns(rows)):
            write_styled(f"  {line}".rstrip())
    if any(required for tool in tools for _, required, _, _ in arguments_of(tool)):
        write_styled(_styled("\n* required", "2"))


def _styled(text: str, colour: str) -> str:
    return styled(text, colour, sys.stdout)


run = partial(
    run_command,
    "tools",
    "List the tools of a server, with the arguments that each takes.",
    _tools,
    more=["--json -- uvx some-server | jq '.[].name'"],
)
