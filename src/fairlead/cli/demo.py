"""`fairlead demo`: a client and a server talk, in both eras of the protocol, before your eyes."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from ..client import MCPClient, MCPClientConfig
from ..client.connecting import Connecting
from ..errors import FairleadError
from ..transport.loop import new_loop
from ..transport.process import spawn
from .connection import explain, run_async
from .output import blocks, size
from .recorder import RecordingChannel
from .stage import Stage
from .target import Target
from .usage import Parser

__all__ = ["run"]

_SERVER = [sys.executable, "-m", "fairlead.demo"]
_CALLS = 200


def run(argv: Sequence[str]) -> int:
    Parser(
        "demo",
        "Start the built-in demo server, talk to it in both eras of the protocol, and show what\n"
        "goes over the wire.",
        usage="",
    ).parse_args(argv)
    return run_async(_demo(Stage()), loop_factory=new_loop)


async def _demo(stage: Stage) -> int:
    try:
        stage.era("2025-11-25", "a session that opens with a handshake")
        async with _connect(stage, "2025-11-25") as client:
            _greeted(stage, client)
            await _list_tools(stage, client)
            await _count(stage, client)
            await _read_resources(stage, client)
            await _get_prompt(stage, client)
            await _measure(stage, client)
        stage.era("2026-07-28", "the same server without sessions: each request says who asks")
        async with _connect(stage, "auto") as client:
            _greeted(stage, client)
            await client.set_log_level("info")
            await _count(stage, client)
            await _fail_usefully(stage, client)
            await _measure(stage, client)
    except FairleadError as exc:
        raise explain(exc, Target(command=tuple(_SERVER))) from exc
    _what_next(stage)
    return 0


def _connect(stage: Stage, version: str) -> Connecting[MCPClient]:
    stage.step("Connect" if version != "auto" else "Connect, finding out what the server speaks")

    async def open_channel() -> RecordingChannel:
        return RecordingChannel(await spawn(_SERVER), stage.wire)

    config = MCPClientConfig(protocol_version=version, name="fairlead-demo-client")
    return MCPClient.connect_channel(
        open_channel,
        config,
        on_log=lambda level, data, _: stage.heard(level, str(data)),
    )


def _greeted(stage: Stage, client: MCPClient) -> None:
    info = client.server["serverInfo"]
    stage.outcome(f"{info['name']} {info['version']} speaks {client.protocol_version}")


async def _list_tools(stage: Stage, client: MCPClient) -> None:
    stage.step("List its tools")
    stage.tools(await client.list_tools())


async def _count(stage: Stage, client: MCPClient) -> None:
    stage.step("Call a tool that takes a while, with progress and log messages")
    result = await client.call_tool(
        "count_slowly",
        {"to": 3, "pause": 0.1},
        on_progress=lambda done, total, message: stage.heard(
            "progress", f"{done:g} of {total or 0:g}, {message}"
        ),
    )
    stage.outcome(*blocks(result))


async def _read_resources(stage: Stage, client: MCPClient) -> None:
    stage.step("Read a text and a picture")
    about = (await client.read_resource("demo://about"))["contents"][0]
    stage.outcome(about["text"].splitlines()[0])
    picture = (await client.read_resource("demo://sunrise.png"))["contents"][0]
    stage.outcome(f"{picture['mimeType']}, {size(len(picture['blob']) * 3 // 4)}")


async def _get_prompt(stage: Stage, client: MCPClient) -> None:
    stage.step("Fill in a prompt")
    prompt = await client.get_prompt("write_note", {"topic": "knots"})
    stage.outcome(*(message["content"]["text"] for message in prompt["messages"]))


async def _fail_usefully(stage: Stage, client: MCPClient) -> None:
    stage.step("Call a tool with wrong arguments: the answer tells a model what to do better")
    result = await client.call_tool("roll_dice", {"sides": 1, "times": "many"})
    error = client.tool_error(result)
    if error is not None:
        problems = [f"{e['field']}: {e['constraint']}" for e in error.field_errors or ()]
        stage.outcome(error.code.value, *problems, good=False)


async def _measure(stage: Stage, client: MCPClient) -> None:
    stage.step(f"Call a quick tool {_CALLS} times, one call after the other")
    arguments = {"value": 1, "from_unit": "nmi", "to_unit": "km"}
    spent: list[float] = []
    with stage.quiet():
        for _ in range(_CALLS):
            started = time.perf_counter()
            await client.call_tool("convert_units", arguments)
            spent.append(time.perf_counter() - started)
    stage.outcome(
        f"{sum(spent) * 1e3:.0f} ms in all; a round trip takes {median(spent) * 1e6:.0f} µs "
        "(median), through two processes"
    )


def _what_next(stage: Stage) -> None:
    fairlead = _how_to_call_us()
    server = f"{fairlead} serve fairlead.demo"
    stage.commands(
        "Try it yourself",
        server,
        f"{fairlead} tools -- {server}",
        f"{fairlead} call roll_dice times=3 -- {server}",
    )


def _how_to_call_us() -> str:
    """`fairlead`, if that is what a shell would find; else the way to it."""
    script = Path(sys.executable).with_name("fairlead")
    found = shutil.which("fairlead")
    if found is not None and script.exists() and os.path.samefile(found, script):
        return "fairlead"
    if script.exists():
        return shlex.quote(_near(script))
    return f"{shlex.quote(_near(Path(sys.executable)))} -m fairlead"


def _near(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
