"""Every pair of third-party client and server, in both eras, with our relay in between.

Each client runs one scenario with each server. The relay is either a program on pipes that
connects to the server over HTTP, or it is served over HTTP and starts the server as a program.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPDeprecationWarning

from fairlead.gateway import Relay
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.interop.test_public_servers import NODE
from tests.interop.test_typescript import PACKAGES, SCRIPTS
from tests.support.interop.http_servers import served, started
from tests.support.interop.node_packages import packages
from tests.support.interop.other_clients import GUESTS, Guest, Refusal
from tests.support.interop.server_processes import FOLDER, LIMIT, Host, command

# Logging, roots and sampling are deprecated but still supported.
pytestmark = pytest.mark.filterwarnings(
    f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}"
)

ERAS = ("handshake", "stateless")
SERVERS_OF_OTHERS = ("official", "fastmcp", "typescript", "everything")
LISTS = [(f"{kind}/list_changed", None) for kind in ("tools", "prompts", "resources")]
Call = tuple[str, dict[str, Any]]
START = 3 * LIMIT  # seconds: up to three programs start in sequence
END = 10.0  # seconds to close a client, a relay and its server


@dataclass
class Words:
    """Names and expected results of the common features of one server."""

    name: str
    echo: Call
    said: str  # the result of `echo`
    count: Call
    counted: list[float]  # the expected progress of `count`
    broken: Call
    ask: Call
    asked: str  # text contained in the result of `ask`
    think: Call
    look: Call
    wait: Call
    # Seconds until the call is cancelled; None if the tool reports when it has started.
    wait_seconds: float | None
    uri: str
    text: str
    stopped: Call | None = ("was_stopped", {})
    chatter: Call | None = ("count", {"to": 3})  # a call that logs a message
    watched: str | None = None  # the URI of a resource to which clients can subscribe
    touch: Call | None = None  # a call that updates the resource
    grow: Call | None = None  # a call that changes all lists


OFFICIAL = Words(
    name="official",
    echo=("echo", {"text": "Grüße, 世界 🌍"}),
    said="Grüße, 世界 🌍",
    count=("count", {"to": 3}),
    counted=[1, 2, 3],
    broken=("fail", {}),
    ask=("ask", {}),
    asked="accept Ada 36",
    think=("think", {}),
    look=("look_around", {}),
    wait=("wait", {}),
    wait_seconds=None,
    uri="memo://greeting",
    text="Grüße, 世界 🌍",
    watched="memo://greeting",
    touch=("touch", {"uri": "memo://greeting"}),
    grow=("grow", {}),
)
# FastMCP has no subscriptions
FASTMCP = replace(OFFICIAL, name="fastmcp", watched=None, touch=None)
TYPESCRIPT = replace(
    OFFICIAL,
    name="typescript",
    ask=("ask_form", {"message": "accept"}),
    asked='{"name":"Ada","age":36}',
    think=("ask_model", {}),
    look=("ask_roots", {}),
    wait_seconds=0.5,
    uri="memo://notes/2",
    text="bread",
    chatter=("chatter", {}),
    watched="memo://notes/1",
    touch=("write", {"number": 1, "text": "cheese"}),
)
EVERYTHING = Words(
    name="mcp-servers/everything",
    echo=("echo", {"message": "Grüße, 世界 🌍"}),
    said="Echo: Grüße, 世界 🌍",
    count=("trigger-long-running-operation", {"duration": 0.03, "steps": 3}),
    counted=[1, 2, 3],
    broken=("get-sum", {"a": "many", "b": 1}),
    ask=("trigger-elicitation-request", {}),
    asked="- Name: Ada",
    think=("trigger-sampling-request", {"prompt": "Add 2 and 2."}),
    look=("get-roots-list", {}),
    wait=("trigger-long-running-operation", {"duration": 60, "steps": 6000}),
    wait_seconds=None,
    uri="demo://resource/dynamic/text/7",
    text="Resource 7: This is a plaintext resource",
    stopped=None,  # the tool ignores cancellations
    chatter=None,
)


def words_of(server: str, era: str, over: str) -> Words:
    if server != "typescript":
        return {"official": OFFICIAL, "fastmcp": FASTMCP, "everything": EVERYTHING}[server]
    if (era, over) != ("stateless", "http"):
        return TYPESCRIPT
    # Each request has its own server object, so the handler itself sends change notifications.
    touch, grow = ("touch", {"uri": "memo://notes/1"}), ("swell", {})
    return replace(TYPESCRIPT, touch=touch, grow=grow)


# Programs


@pytest.fixture(scope="module", autouse=True)
def node_path() -> Iterator[str]:
    """Set the path of the npm packages for every program."""
    path = str(packages("node-interop", PACKAGES))
    # Installed before the tests, because it may take a minute.
    packages("public-servers/node", NODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_PATH", path)
        yield path


@pytest.fixture(scope="module")
def addresses(node_path: str) -> Iterator[dict[str, str]]:
    """Run the HTTP servers and yield their addresses."""
    typescript = ["node", str(SCRIPTS / "server_http.cjs")]
    with (
        served("official_http") as official,
        served("fastmcp_http") as fastmcp,
        started(typescript) as theirs,
    ):
        found = {"official": official, "fastmcp": fastmcp, "typescript": theirs}
        yield {name: f"{url}/events" for name, url in found.items()}


def program_of(server: str) -> list[str]:
    if server == "typescript":
        return ["node", str(SCRIPTS / "server.cjs")]
    if server == "everything":
        return [str(packages("public-servers/node", NODE) / ".bin" / "mcp-server-everything")]
    return command(f"{server}_full")


def cells() -> Iterator[Any]:
    """Yield each client with each server: in different eras (both ways), and in the same era."""
    for one, client in enumerate(GUESTS):
        for other, server in enumerate(SERVERS_OF_OTHERS):
            same = ERAS[(one + other) % 2]
            pairs = [("handshake", "stateless"), ("stateless", "handshake"), (same, same)]
            if server == "everything":  # this server supports only one era
                pairs = [(era, "handshake") for era in ERAS]
            for turn, (client_era, era) in enumerate(pairs):
                front = ("stdio", "http")[(one + other + turn) % 2]
                name = f"{client}-{client_era}-{front}-{server}-{era}"
                yield pytest.param((client, client_era, front, server, era), id=name)


@contextlib.asynccontextmanager
async def visiting(
    cell: tuple[str, ...], addresses: dict[str, str], host: Host
) -> AsyncIterator[Guest]:
    client, client_era, front, server, era = cell
    if front == "stdio" and server in addresses:
        entry: dict[str, Any] = {"type": "http", "url": addresses[server]}
    else:
        program, *args = program_of(server)
        entry = {"command": program, "args": args, "env": {"NODE_PATH": os.environ["NODE_PATH"]}}
    async with contextlib.AsyncExitStack() as stack:
        target: str | list[str] = command("relaying", era, json.dumps(entry))
        if front == "http":
            target = await stack.enter_async_context(listening(Relay(entry, era=era)))
        arriving = GUESTS[client](target, client_era == "stateless", host)
        yield await stack.enter_async_context(arriving)


@contextlib.asynccontextmanager
async def listening(relay: Relay) -> AsyncIterator[str]:
    """Serve the relay over HTTP in this process."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(relay.run_http(port=0, started=url.set_result))
    try:
        await asyncio.wait((url, running), return_when=asyncio.FIRST_COMPLETED)
        yield url.result()
    finally:
        running.cancel()
        await asyncio.wait((running,))
        await relay.close()


# The scenario


@pytest.mark.covers("GTW-02", "GTW-03")
@pytest.mark.parametrize("cell", list(cells()))
async def test_every_client_works_with_every_server_through_a_relay(
    cell: tuple[str, ...], addresses: dict[str, str]
) -> None:
    _, client_era, front, server, era = cell
    over = "http" if front == "stdio" and server in addresses else "stdio"
    words, host = words_of(server, era, over), Host()
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.timeout(START):
            guest = await stack.enter_async_context(visiting(cell, addresses, host))
        async with asyncio.timeout(LIMIT):
            newest = NEWEST if client_era == "stateless" else NEWEST_HANDSHAKE
            assert (guest.version, guest.server) == (newest, words.name)
            await list_call_and_read(guest, words)
            await hear_progress_and_logs(guest, words, host)
            await answer_questions(guest, words, host)
            await give_up(guest, words)
            await hear_of_changes(guest, words, host, cell)
        async with asyncio.timeout(END):
            await stack.aclose()


async def list_call_and_read(guest: Guest, words: Words) -> None:
    tools = await guest.tools()
    assert {words.echo[0], words.count[0], words.ask[0], words.think[0]} <= set(tools)
    assert await guest.call(*words.echo) == (False, words.said)
    failed, _ = await guest.call(*words.broken)
    assert failed
    assert (await guest.read(words.uri)).startswith(words.text)
    with pytest.raises(Refusal) as caught:
        await guest.read("memo://nothing")
    assert caught.value.code in (-32602, -32002)


async def hear_progress_and_logs(guest: Guest, words: Words, host: Host) -> None:
    _, steps = await guest.progress(*words.count)
    # The TypeScript client drops progress that arrives together with the result.
    assert steps == words.counted[: len(steps)]
    assert steps == words.counted or guest.__class__.__name__ == "TypeScriptGuest"
    if words.chatter is not None:
        await guest.call(*words.chatter)
        await host.hears(("log", "debug"), ("log", "warning"))


async def answer_questions(guest: Guest, words: Words, host: Host) -> None:
    for question, wanted in ((words.ask, words.asked), (words.think, "four")):
        failed, text = await guest.call(*question)
        assert not failed, text
        assert wanted in text
    assert host.asked == ["elicitation/create", "sampling/createMessage"]
    failed, text = await guest.call(*words.look)
    assert not failed, text
    assert FOLDER in text


async def give_up(guest: Guest, words: Words) -> None:
    await guest.give_up(*words.wait, words.wait_seconds)
    if words.stopped is not None:
        assert await guest.call(*words.stopped) == (False, "stopped")
    assert await guest.call(*words.echo) == (False, words.said)


async def hear_of_changes(guest: Guest, words: Words, host: Host, cell: tuple[str, ...]) -> None:
    _, client_era, _, server, era = cell
    if words.grow is None:
        return
    if server == "fastmcp" and (client_era, era) == ("stateless", "stateless"):
        return  # FastMCP's server does not support `subscriptions/listen`
    await guest.follow(words.watched)
    if words.touch is not None:
        await guest.call(*words.touch)
        await host.hears(("resources/updated", words.watched))
    if server == "official" and (client_era, era) == ("stateless", "handshake"):
        return  # the server does not declare list changes in that era, so clients cannot listen
    await guest.call(*words.grow)
    await host.hears(*LISTS)
