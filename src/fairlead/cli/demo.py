"""`fairlead demo`: a client and a server in both protocol eras, with all messages shown."""

import shutil
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from msgspec import Raw

from ..client import MCPClient, MCPClientConfig
from ..client.connection.connect import ConnectionAttempt
from ..errors import FairleadError, RemoteProtocolError
from ..transport.channel import Channel, Deliver, Incoming, RequestLost
from ..transport.event_loop import new_loop
from ..transport.stdio.child_process import spawn
from ..wire import Batch, Message, Request, RequestId, encode
from .client.simple_commands import arguments_of
from .framework.client_connection import run_async
from .framework.command_errors import styled
from .framework.connect_target import ConnectTarget
from .framework.describe_failure import describe_failure
from .framework.output import blocks, format_size, safe
from .framework.parser import Parser
from .framework.suggested_commands import our_program, quoted

__all__ = ["run"]

_SERVER = [sys.executable, "-m", "fairlead.demo"]
_CALLS = 200


def run(argv: Sequence[str]) -> int:
    Parser(
        "demo",
        "Start the built-in demo server, connect to it in both protocol eras, and show all\n"
        "messages.",
    ).parse_args(argv)
    return run_async(_demo(), loop_factory=new_loop)


async def _demo() -> int:
    try:
        _tell("\n2025-11-25  a session that opens with a handshake", "1;34")
        async with _connect("2025-11-25") as client:
            await _look_around(client)
            await _measure(client)
        _tell("\n2026-07-28  the same server without sessions: requests are independent", "1;34")
        async with _connect("auto") as client:
            _greeted(client)
            await client.set_log_level("info")
            await _count(client)
            await _fail_usefully(client)
            await _measure(client)
    except FairleadError as exc:
        raise describe_failure(exc, ConnectTarget(command=tuple(_SERVER))) from exc
    ours = our_program()
    fairlead = "fairlead" if shutil.which("fairlead") == ours else quoted(ours)
    server = f"{fairlead} serve fairlead.demo"
    _tell("\nTry it yourself", "1;34")
    for command in (
        server,
        f"{fairlead} tools -- {server}",
        f"{fairlead} call roll_dice times=3 -- {server}",
    ):
        _tell(f"  {command}", "36")
    return 0


def _connect(version: str) -> ConnectionAttempt[MCPClient]:
    _step("Connect" if version != "auto" else "Connect and detect the revision of the server")

    async def open_channel() -> Any:
        return _ShownChannel(await spawn(_SERVER))

    config = MCPClientConfig(protocol_version=version, name="fairlead-demo-client")
    return MCPClient.connect_channel(
        open_channel, config, on_log=lambda level, data, _: _heard(level, str(data))
    )


def _greeted(client: MCPClient) -> None:
    info = client.server["serverInfo"]
    _outcome(f"{info['name']} {info['version']}, protocol {client.protocol_version}")


async def _count(client: MCPClient) -> None:
    _step("Call a tool that takes a while, with progress and log messages")
    result = await client.call_tool(
        "count_slowly",
        {"to": 3, "pause": 0.1},
        on_progress=lambda done, total, message: _heard(
            "progress", f"{done:g} of {total or 0:g}, {message}"
        ),
    )
    _outcome(*blocks(result))


async def _look_around(client: MCPClient) -> None:
    _greeted(client)
    _step("List its tools (* required)")
    for tool in await client.list_tools():
        names = ", ".join(name + "*" * required for name, required, _, _ in arguments_of(tool))
        _tell(f"    {tool['name']}({names}): {safe(str(tool.get('description')))}")
    await _count(client)
    _step("Read a text and an image")
    about = (await client.read_resource("demo://about"))["contents"][0]
    _outcome(about["text"].splitlines()[0])
    picture = (await client.read_resource("demo://sunrise.png"))["contents"][0]
    _outcome(f"{picture['mimeType']}, {format_size(len(picture['blob']) * 3 // 4)}")
    _step("Get a prompt")
    prompt = await client.get_prompt("write_note", {"topic": "knots"})
    _outcome(*(message["content"]["text"] for message in prompt["messages"]))


async def _fail_usefully(client: MCPClient) -> None:
    _step("Call a tool with invalid arguments: the error explains how to correct them")
    result = await client.call_tool("roll_dice", {"sides": 1, "times": "many"})
    error = client.tool_error(result)
    if error is not None:
        problems = [f"{e['field']}: {e['constraint']}" for e in error.field_errors or ()]
        _outcome(error.code.value, *problems, mark="✗", colour="31")


async def _measure(client: MCPClient) -> None:
    _step(f"Call a quick tool {_CALLS} times in sequence")
    arguments = {"value": 1, "from_unit": "nmi", "to_unit": "km"}
    spent: list[float] = []
    _ShownChannel.quiet = True
    for _ in range(_CALLS):
        started = time.perf_counter()
        await client.call_tool("convert_units", arguments)
        spent.append(time.perf_counter() - started)
    _ShownChannel.quiet = False
    _outcome(
        f"{sum(spent) * 1e3:.0f} ms in total; median round trip {median(spent) * 1e6:.0f} µs "
        "between two processes"
    )


# Output


def _tell(text: str, colour: str = "") -> None:
    print(styled(text, colour), flush=True)


def _step(title: str) -> None:
    _tell(f"\n{title}", "1")


def _heard(kind: str, text: str) -> None:
    _tell(f"      {styled(kind, '33')}: {safe(text)}")


def _outcome(*lines: str, mark: str = "✓", colour: str = "32") -> None:
    for line in lines:
        _tell(f"  {mark} {safe(line)}", colour)
        mark = " "


class _ShownChannel:
    """A channel that prints every message, truncated to the terminal's width."""

    quiet = False  # a class attribute, so that the benchmark step silences all channels

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send_request(self, number: int, method: str, params: Raw) -> None:
        self.send(Request(number, method, params))

    async def run(self, deliver: Deliver) -> None:
        def shown(item: Incoming) -> None:
            if not isinstance(item, Batch | RemoteProtocolError | RequestLost):
                self._show("←", item)
            deliver(item)

        await self._channel.run(shown)

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self._show("→", message)
        self._channel.send(message, reply_to=reply_to)

    def _show(self, arrow: str, message: Message) -> None:
        if self.quiet:
            return
        text = safe(encode(message).decode("utf-8", "replace"))
        width = shutil.get_terminal_size((100, 0)).columns - 4
        shown = text if len(text) <= width else f"{text[: width - 1]}…"
        _tell(f"  {styled(arrow, '35' if arrow == '→' else '36')} {shown}")
