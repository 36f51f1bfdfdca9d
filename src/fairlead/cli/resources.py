"""`fairlead resources`: what a server has to read."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ..client import MCPClient
from .listing import run_command, show_list
from .output import size

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "resources",
        "List the resources and resource templates of a server.",
        argv,
        _resources,
        examples="  fairlead resources notes\n"
        "  fairlead resources -- python server.py\n  fairlead resources http://127.0.0.1:8080",
    )


async def _resources(client: MCPClient, options: Namespace) -> int:
    resources = await client.list_resources()
    templates = [
        {"uri": template.get("uriTemplate"), **template}
        for template in await client.list_resource_templates()
    ]
    return show_list(
        [*resources, *templates], "resource", json=options.json, key="uri", facts=_facts
    )


def _facts(item: Mapping[str, Any]) -> list[object]:
    amount = item.get("size")
    shown = size(amount) if isinstance(amount, int) else None
    about = item.get("title") or item.get("description") or item.get("name")
    return [item.get("mimeType"), shown, str(about or "").partition("\n")[0]]
