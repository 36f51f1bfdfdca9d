"""Third-party clients, recorded by a tap and by a gateway, and then replayed.

A client must receive the same messages from the live server and from its tape.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPDeprecationWarning

from fairlead.recording.tape import TapeReader, decode_entry
from tests.interop.test_public_servers import NODE
from tests.interop.test_relay_interop import EVERYTHING, OFFICIAL, Words
from tests.interop.test_typescript import PACKAGES
from tests.support.interop.node_packages import packages
from tests.support.interop.other_clients import GUESTS, Refusal
from tests.support.interop.server_processes import LIMIT, Host, command

# Logging, roots and sampling are deprecated but still supported.
pytestmark = pytest.mark.filterwarnings(
    f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}"
)

OURS = (sys.executable, "-m", "fairlead")
UP, DOWN = "client_to_server", "server_to_client"
SAID = {
    (UP, "tools/list"),
    (UP, "tools/call"),
    (UP, "resources/read"),
    (DOWN, "notifications/progress"),
}
ASKED = {(DOWN, "elicitation/create"), (DOWN, "sampling/createMessage")}
# The call takes slightly longer than the client waits,
# because the server does not receive the cancellation.
A_WHILE = ("trigger-long-running-operation", {"duration": 0.5, "steps": 5})


@pytest.fixture(scope="module", autouse=True)
def node_path() -> Iterator[None]:
    """Set the path of the npm packages for every program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_PATH", str(packages("node-interop", PACKAGES)))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))


async def play(
    target: str | list[str], client: str, era: str, words: Words, prefix: str = ""
) -> list[Any]:
    """Run a session of a client, and return everything that it received."""
    host = Host()
    async with asyncio.timeout(LIMIT), GUESTS[client](target, era == "stateless", host) as guest:
        seen: list[Any] = [guest.version, guest.server, sorted(await guest.tools())]
        for name, given in (words.echo, words.broken, words.ask, words.think, words.look):
            seen.append(await guest.call(prefix + name, given))
        seen.append(await guest.read(words.uri))
        with pytest.raises(Refusal) as refused:
            await guest.read("memo://nothing")
        seen.append(str(refused.value))
        name, given = words.count
        text, steps = await guest.progress(prefix + name, given)
        # The TypeScript client drops progress that arrives together with the result.
        assert steps == words.counted[: len(steps)]
        seen.append((text, None if client == "typescript" else steps))
        name, given = A_WHILE if words is EVERYTHING else words.wait
        await guest.give_up(prefix + name, given, None)
        name, given = words.echo
        seen.append(await guest.call(prefix + name, given))
        seen.append(host.asked)
    return seen


def said_on(tape: Path) -> set[tuple[str, str]]:
    """Return the methods on a tape, with their direction."""
    return {(entry.dir.value, str(decode_entry(entry).get("method"))) for entry in TapeReader(tape)}


BY_TAP = [
    pytest.param("fastmcp", "handshake", EVERYTHING, id="fastmcp-handshake"),
    pytest.param("official", "stateless", OFFICIAL, id="official-stateless"),
    pytest.param("fastmcp", "stateless", OFFICIAL, id="fastmcp-stateless"),
    # The TypeScript client uses a separate process to probe the era.
    pytest.param("typescript", "stateless", OFFICIAL, id="typescript-stateless"),
]


@pytest.mark.covers("GTW-10", "GTW-11")
@pytest.mark.parametrize(("client", "era", "words"), BY_TAP)
async def test_a_tape_recorded_by_a_tap_is_replayed_to_the_same_client(
    client: str, era: str, words: Words, tmp_path: Path
) -> None:
    server = command("official_full")
    if words is EVERYTHING:
        server = [str(packages("public-servers/node", NODE) / ".bin" / "mcp-server-everything")]
    tape = str(tmp_path / "one")
    live = await play([*OURS, "tap", "--tape", tape, "--", *server], client, era, words)
    # Stateless servers send these requests in results.
    asked = ASKED if era == "handshake" else set()
    assert said_on(Path(tape)) >= SAID | asked | {(UP, "notifications/cancelled")}
    assert await play([*OURS, "replay", tape], client, era, words) == live


BY_GATEWAY = [("official", "stateless"), ("fastmcp", "handshake"), ("typescript", "stateless")]


@pytest.mark.covers("GTW-10", "GTW-11")
@pytest.mark.parametrize(("client", "era"), BY_GATEWAY)
async def test_a_tape_recorded_by_a_gateway_is_replayed_to_the_same_client(
    client: str, era: str, tmp_path: Path
) -> None:
    program, *args = command("official_full")
    file, tape = tmp_path / "gateway.json", tmp_path / "one"
    servers = {"it": {"command": program, "args": args}}
    file.write_text(json.dumps({"listen": "127.0.0.1:0", "servers": servers}))
    async with serving("gateway", str(file), "--record", str(tape)) as url:
        live = await play(url, client, era, OFFICIAL, "it_")
    assert said_on(tape) >= SAID
    async with serving("replay", str(tape), "--listen", "http://127.0.0.1:0") as url:
        assert await play(url, client, era, OFFICIAL, "it_") == live


@contextlib.asynccontextmanager
async def serving(*args: str) -> AsyncIterator[str]:
    """Run a command that serves over HTTP, and yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(*OURS, *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    said = ""
    try:
        async with asyncio.timeout(LIMIT):
            while (found := re.search(r"http://[\d.:]+/mcp", said)) is None:
                line = await process.stdout.readline()
                assert line, said
                said += line.decode()
        yield found[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(LIMIT):
            await process.communicate()
