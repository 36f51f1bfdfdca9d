"""`fairlead prompts`: the prompts of a server."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from ..client import MCPClient
from .listing import run_command, show_list

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "prompts",
        "List the prompts of a server, with the arguments that each takes (* required).",
        argv,
        _prompts,
        examples="  fairlead prompts notes\n"
        "  fairlead prompts -- python server.py\n  fairlead prompts http://127.0.0.1:8080",
    )


async def _prompts(client: MCPClient, options: Namespace) -> int:
    prompts = await client.list_prompts()
    return show_list(prompts, "prompt", json=options.json, key="name", facts=_facts)


def _facts(prompt: Mapping[str, Any]) -> list[object]:
    arguments = prompt.get("arguments")
    named = [
        f"{argument.get('name')}{'*' if argument.get('required') else ''}"
        for argument in (arguments if isinstance(arguments, list) else ())
        if isinstance(argument, Mapping)
    ]
    about = str(prompt.get("title") or prompt.get("description") or "").partition("\n")[0]
    return [f"({', '.join(named)})" if named else "", about]
