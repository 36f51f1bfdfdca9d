"""`fairlead prompt`: a prompt of a server, filled in."""

from argparse import Namespace
from collections.abc import Sequence

from ..client import MCPClient
from .arguments import parse
from .listing import run_command
from .output import blocks, pretty, visible, write

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    return run_command(
        "prompt",
        "Fill in a prompt of a server and show the messages.",
        argv,
        _prompt,
        usage="NAME [key=value ...]",
        examples="  fairlead prompt notes review code=@app.py\n"
        "  fairlead prompt review code=@app.py -- python server.py\n"
        "  fairlead prompt review code=@app.py http://127.0.0.1:8080",
        positional=[
            ("name", "1", "the name of the prompt"),
            ("arguments", "*", "key=value, or key=@FILE for the text of a file"),
        ],
    )


async def _prompt(client: MCPClient, options: Namespace) -> int:
    given = parse(options.arguments, None)
    values = {key: str(value) for key, value in given.fit({}).items()}
    result = await client.get_prompt(options.name, values)
    if options.json:
        write(pretty(result))
        return 0
    for message in result.get("messages") or ():
        shown = "\n".join(blocks({"content": [message.get("content")]}))
        write(f"{visible(str(message.get('role')))}: {shown}")
    return 0
