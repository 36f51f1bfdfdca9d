"""A client of notes.py that writes a note, reads it, and agrees to erase it."""

import asyncio
import sys

from fairlead import MCPClient
from fairlead.client import Question, accept


def on_elicit(question: Question) -> dict[str, object]:
    print("the server asks:", question.message)
    return accept({"value": True})


async def main() -> None:
    command = [sys.executable, "notes.py"]
    async with MCPClient.connect_stdio(command, on_elicit=on_elicit) as client:
        print("revision:", client.protocol_version)
        print((await client.call("write", {"title": "idea", "text": "Try MCP."})).text)
        print([contents.text for contents in await client.read("note://idea")])
        print((await client.call("erase", {"title": "idea"})).text)
        failed = await client.call("erase", {"title": "idea"})
        print(failed.is_error, failed.error)


asyncio.run(main())
