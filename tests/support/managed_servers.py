"""Server programs for the manager's tests, with optional misbehaviour."""

import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import os, sys, time
from fairlead import Context, MCPServer

name, temper = sys.argv[1], sys.argv[2:]
if "crash" in temper:
    sys.exit("exits during start-up")
if "silent" in temper:
    time.sleep(3600)
server = MCPServer(name, rate_limit_rate=0, instructions=f"use {name} well")
if "slow" in temper:
    time.sleep(float(temper[temper.index("slow") + 1]))

@server.tool(annotations={"readOnlyHint": True})
async def whoami() -> str:
    "Return name and process id."
    return f"{name} {os.getpid()}"

@server.tool()
async def die() -> str:
    "Exit immediately."
    os._exit(3)

@server.tool()
async def grow() -> str:
    "Register another tool."
    server.tool(name=f"extra_{len(server.registry)}")(lambda: "x")
    return "grown"

@server.tool()
async def fail() -> str:
    "Fail."
    raise ValueError("out of paint")

@server.resource(f"note://{name}")
async def note() -> str:
    return f"a note of {name}"

@server.resource(f"page://{name}/{{n}}")
async def page(n: str) -> str:
    return f"page {n} of {name}"

@server.prompt()
async def greet(who: str) -> str:
    return f"{name} greets {who}"

server.run()
"""


def entry(tmp_path: Path, name: str, *temper: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a server with this name; `temper` selects its misbehaviour."""
    program = tmp_path / "server_program.py"
    if not program.exists():
        program.write_text(PROGRAM)
    return {"command": sys.executable, "args": [str(program), name, *temper], **more}
