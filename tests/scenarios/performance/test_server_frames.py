"""The number of Python frames that one warm call over stdio enters, as a measure of its cost."""

import asyncio
import json
import sys
from typing import Any

import pytest

MOST_FRAMES = 32
MOST_FILES = 15
# A plain function runs in a thread, which the event loop starts and monitors for timeouts.
MOST_FRAMES_IN_THREAD = 41
MOST_FILES_IN_THREAD = 18

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}

# A stdio server that counts the package functions entered per message in the event loop thread.
# It writes the counts to stderr when it ends. A resumed coroutine counts again.
PROGRAM = """
import json, os, sys
import fairlead

server = fairlead.MCPServer("s")

@server.tool()
async def echo(text: str) -> str:
    return text

@server.tool()
def echo_in_thread(text: str) -> str:
    return text

package = os.path.dirname(fairlead.__file__) + os.sep
messages = []

def count(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package):
        if code.co_qualname == "LineChannel.received":
            messages.append([])
        if messages:
            messages[-1].append((code.co_filename.removeprefix(package), code.co_qualname))

sys.setprofile(count)
server.run()
sys.setprofile(None)
print(json.dumps(messages), file=sys.stderr)
"""


@pytest.mark.parametrize("era", ["handshake", "handshake with metadata", "stateless"])
async def test_a_warm_call_of_a_coroutine_tool_enters_few_functions(era: str) -> None:
    frames = await frames_of_warm_call(era, "echo")
    files = {file for file, _ in frames}
    assert 10 < len(frames) <= MOST_FRAMES, frames
    assert len(files) <= MOST_FILES, files


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_warm_call_of_a_plain_function_tool_enters_few_functions(era: str) -> None:
    frames = await frames_of_warm_call(era, "echo_in_thread")
    files = {file for file, _ in frames}
    assert 10 < len(frames) <= MOST_FRAMES_IN_THREAD, frames
    assert len(files) <= MOST_FILES_IN_THREAD, files


async def frames_of_warm_call(era: str, tool: str) -> list[tuple[str, str]]:
    """Return file and function of each frame that the server enters for the third tool call."""
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, "-c", PROGRAM)
    process = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            for message in conversation(era, tool):
                process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
                answer = json.loads(await process.stdout.readline())
                assert answer["id"] == message["id"]
                assert "result" in answer, answer
            assert answer["result"]["content"][0]["text"] == "x" * 50
            process.stdin.close()
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    messages = json.loads(said.splitlines()[-1])
    # The shutdown adds frames to the last message, so an earlier message is used.
    return [(file, function) for file, function in messages[-2]]


def conversation(era: str, tool: str) -> list[dict[str, Any]]:
    """Return the messages of a client that calls a tool four times."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    messages: list[dict[str, Any]] = []
    if era != "stateless":
        messages.append({"id": 0, "method": "initialize", "params": hello})
    for number in range(1, 5):
        params: dict[str, Any] = {"name": tool, "arguments": {"text": "x" * 50}}
        if era == "stateless":
            params["_meta"] = META
        elif era == "handshake with metadata":
            params["_meta"] = {"progressToken": number}
        messages.append({"id": number, "method": "tools/call", "params": params})
    return messages
