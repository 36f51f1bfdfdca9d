"""`fairlead complete`: what a server suggests for an argument."""

from argparse import Namespace
from collections.abc import Sequence

from ..client import MCPClient
from .arguments import parse
from .listing import run_command
from .output import pretty, safe, write

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "complete",
        "Ask a server what it suggests for one argument of a prompt, or for one variable of a "
        "resource template.",
        argv,
        _complete,
        usage="PROMPT_OR_TEMPLATE ARGUMENT [BEGINNING] [key=value ...]",
        examples="  fairlead complete notes review language py\n"
        "  fairlead complete review language py -- python server.py\n"
        "  fairlead complete 'users://{id}/profile' id -- python server.py\n"
        "  fairlead complete review language py http://127.0.0.1:8080",
        positional=[
            ("of", "1", "the name of a prompt, or a URI template"),
            ("argument", "1", "which of its arguments"),
            ("rest", "*", "how it begins, and key=value for arguments that are known already"),
        ],
        shown={"of": "PROMPT_OR_TEMPLATE", "argument": "ARGUMENT", "rest": "BEGINNING, key=value"},
    )


async def _complete(client: MCPClient, options: Namespace) -> int:
    words = list(options.rest)
    beginning = words.pop(0) if words and "=" not in words[0] else ""
    filled = {key: str(value) for key, value in parse(words, None).fit({}).items()}
    completion = await client.complete(
        "resource" if "://" in options.of else "prompt",
        options.of,
        options.argument,
        beginning,
        filled=filled or None,
    )
    if options.json:
        write(pretty(list(completion.values)))
        return 0
    for value in completion.values:
        write(safe(value))
    return 0
