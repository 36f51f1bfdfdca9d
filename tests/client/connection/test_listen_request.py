"""Tests of subscriptions in the stateless era."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.connection.listen_request import _is_final
from fairlead.errors import FairleadError, HttpError, TransportError
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


TELLING = """
KEY = "io.modelcontextprotocol/subscriptionId"
for request in requests():
    params = request.get("params", {})
    if request["method"] == "subscriptions/listen":
        if params["notifications"].get("resourceSubscriptions") == ["memo://refused"]:
            refuse(request)
            continue
        meta = {KEY: request["id"]}
        tell("notifications/subscriptions/acknowledged",
             {"notifications": params["notifications"], "_meta": meta})
        tell("notifications/resources/updated", {"uri": "memo://a", "_meta": meta})
    elif request["method"] == "tools/call":
        if params["name"] == "die":
            os._exit(1)
        complete(request, content=[])
"""


@pytest.mark.covers("PRO-23", "PRO-35", "CLT-07")
@pytest.mark.parametrize("cache", [True, False])
async def test_one_listen_request_contains_all_subscriptions(tmp_path: Path, cache: bool) -> None:
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    command = program(tmp_path, TELLING, stateless=True)
    config = MCPClientConfig(cache=cache, auto_reconnect=True, retry_delay=0.01)
    async with MCPClient.connect_stdio(
        command, config, on_notification=lambda method, params: told.put_nowait((method, params))
    ) as client:
        async with asyncio.timeout(5):
            await client.subscribe("memo://a")
            await told.get()
            method, params = await told.get()
            assert (method, params["uri"]) == ("notifications/resources/updated", "memo://a")
            await client.subscribe("memo://b")
            await client.subscribe("memo://b")
            await client.listen("tools")
            await client.unsubscribe("memo://a")
            await client.unsubscribe("memo://never")
        await client.call("sync")
        first, *others = heard(tmp_path, "subscriptions/listen")
        assert [request["params"]["notifications"] for request in (first, *others)] == [
            {"resourceSubscriptions": ["memo://a"]},
            {"resourceSubscriptions": ["memo://a", "memo://b"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["memo://a", "memo://b"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["memo://b"]},
        ]
        # Each new listen request replaced the previous one.
        cancelled = [m["params"]["requestId"] for m in heard(tmp_path, "notifications/cancelled")]
        assert cancelled == [first["id"], *(request["id"] for request in others[:-1])]
        # The same request is sent again on a new connection.
        with pytest.raises(Exception, match="Transport closed"):
            await client.call("die")
        await client.call("sync")
        again = heard(tmp_path, "subscriptions/listen")[-1]
        assert again["params"]["notifications"] == others[-1]["params"]["notifications"]
        assert client.generation == 1


async def test_a_refused_subscription_is_not_remembered(tmp_path: Path) -> None:
    command = program(tmp_path, TELLING, stateless=True)
    async with MCPClient.connect_stdio(command) as client:
        with pytest.raises(RpcError):
            await client.subscribe("memo://refused")
        await client.subscribe("memo://a")
    wanted = heard(tmp_path, "subscriptions/listen")[-1]["params"]["notifications"]
    assert wanted == {"resourceSubscriptions": ["memo://a"]}


async def test_a_rejected_listen_request_keeps_the_earlier_subscriptions(tmp_path: Path) -> None:
    source = TELLING.replace('== ["memo://refused"]', "[-1:] == ['memo://refused']")
    command = program(tmp_path, source, stateless=True)
    async with MCPClient.connect_stdio(command) as client:
        await client.subscribe("memo://a")
        with pytest.raises(RpcError):
            await client.subscribe("memo://refused")
        await client.call("sync")
        assert heard(tmp_path, "notifications/cancelled") == []
        await client.unsubscribe("memo://a")
        await client.call("sync")
        (cancelled,) = heard(tmp_path, "notifications/cancelled")
        assert cancelled["params"]["requestId"] == heard(tmp_path, "subscriptions/listen")[0]["id"]


ENDING = """
KEY = "io.modelcontextprotocol/subscriptionId"
listens = 0
for request in requests():
    params = request.get("params", {})
    if request["method"] == "subscriptions/listen":
        listens += 1
        with open(LOG + ".times", "a") as times:
            print(time.monotonic(), file=times)
        meta = {KEY: request["id"]}
        if END == "refuse" and listens == 2:
            refuse(request)
            continue
        tell("notifications/subscriptions/acknowledged",
             {"notifications": params["notifications"], "_meta": meta})
        if listens > 4:
            pass  # this one stays
        elif END == "cancel":
            tell("notifications/cancelled", {"requestId": request["id"], "reason": "tired"})
        else:
            complete(request, _meta=meta)
    elif request["method"] == "tools/list":
        complete(request, tools=[], ttlMs=60000, cacheScope="private")
    elif "id" in request:
        complete(request, content=[])
"""


class Acknowledgements:
    """A record of how often a subscription was opened."""

    def __init__(self) -> None:
        self._heard = asyncio.Semaphore(0)

    def __call__(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._heard.release()

    async def wait(self, times: int) -> None:
        async with asyncio.timeout(10):
            for _ in range(times):
                await self._heard.acquire()


@pytest.mark.covers("PRO-23")
@pytest.mark.parametrize("end", ["result", "cancel"])
async def test_a_subscription_that_the_server_ends_is_reopened_with_growing_delays(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "fairlead.client")
    command = program(tmp_path, f"END = {end!r}\n{ENDING}", stateless=True)
    opened = Acknowledgements()
    config = MCPClientConfig(retry_delay=0.06)
    async with MCPClient.connect_stdio(command, config, on_notification=opened) as client:
        await client.tools()
        await client.listen("tools")
        await opened.wait(5)
        await client.call("sync")
        (tmp_path / "log").rename(tmp_path / "before")
        await client.tools()
        assert (
            len(heard(tmp_path, "tools/list")) == 1
        )  # a change may have been missed in the meantime
        await client.tools()
        assert len(heard(tmp_path, "tools/list")) == 1
    assert delays(caplog) == ["0.06", "0.12", "0.24", "0.48"]
    times = [float(line) for line in (tmp_path / "log.times").read_text().split()]
    for pause, delay in zip(pairwise(times), delays(caplog), strict=True):
        assert pause[1] - pause[0] >= 0.7 * float(
            delay
        )  # jitter reduces the delay by up to a quarter


def delays(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the delays before a subscription was reopened."""
    return re.findall(r"ended a subscription; reopening it in about ([\d.]+) s", caplog.text)


async def test_a_subscription_that_lasted_long_is_reopened_without_a_delay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "fairlead.client")
    source = ENDING.replace("complete(request, _meta=meta)", "held = request")
    source = source.replace(
        "        complete(request, content=[])",
        "        complete(held, _meta={KEY: held['id']})\n        complete(request, content=[])",
    )
    command = program(tmp_path, f"END = 'timer'\n{source}", stateless=True)
    opened = Acknowledgements()
    config = MCPClientConfig(retry_delay=0.05)
    async with MCPClient.connect_stdio(command, config, on_notification=opened) as client:
        await client.listen("tools")
        await opened.wait(1)
        loop = asyncio.get_running_loop()
        for _ in range(3):
            lasted = asyncio.Event()
            loop.call_later(
                0.06, lasted.set
            )  # longer than the delay, as with a server that uses a timer
            await lasted.wait()
            await client.call("end")
            await opened.wait(1)
    assert delays(caplog) == ["0.05"] * 3


async def test_a_rejected_subscription_is_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = program(tmp_path, f"END = 'refuse'\n{ENDING}", stateless=True)
    over = asyncio.Event()
    caplog.handler.addFilter(
        lambda record: "has ended" not in record.getMessage() or not over.set()
    )
    config = MCPClientConfig(retry_delay=0.01)
    async with MCPClient.connect_stdio(command, config) as client:
        await client.listen("tools")
        async with asyncio.timeout(5):
            await over.wait()
        await client.call("sync")
        assert len(heard(tmp_path, "subscriptions/listen")) == 2
        await client.listen("tools", "prompts")  # subscribing to other items starts a new request
        assert len(heard(tmp_path, "subscriptions/listen")) == 3


async def test_closing_the_client_ends_a_subscription_that_waits_to_be_reopened(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, f"END = 'result'\n{ENDING}", stateless=True)
    config = MCPClientConfig(retry_delay=60)
    async with MCPClient.connect_stdio(command, config) as client:
        await client.listen("tools")
        await client.call("sync")
        async with asyncio.timeout(5):
            await client.close()
    assert len(heard(tmp_path, "subscriptions/listen")) == 1


LONELY = """
KEY = "io.modelcontextprotocol/subscriptionId"
first = not os.path.exists(LOG + ".again")
open(LOG + ".again", "w").close()
for request in requests():
    params = request.get("params", {})
    if request["method"] == "subscriptions/listen":
        tell("notifications/subscriptions/acknowledged",
             {"notifications": params["notifications"], "_meta": {KEY: request["id"]}})
    elif request["method"] == "resources/subscribe":
        if params["uri"] == "memo://gone" and not first:
            refuse(request, -32002, "no such resource")
            continue
        answer(request, {})
    else:
        continue
    if first and "memo://last" in json.dumps(params):
        os._exit(1)
    if not first:
        tell("notifications/resources/updated", {"uri": "memo://a"})
"""


@pytest.mark.covers("CLT-24")
@pytest.mark.parametrize("stateless", [True, False])
async def test_a_client_that_only_listens_reconnects_by_itself(
    tmp_path: Path, stateless: bool
) -> None:
    command = program(tmp_path, LONELY, stateless=stateless)
    config = MCPClientConfig(auto_reconnect=True, retry_delay=0.01)
    told: asyncio.Queue[Any] = asyncio.Queue()

    def listen(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/resources/updated":
            told.put_nowait(params["uri"])

    async with MCPClient.connect_stdio(command, config, on_notification=listen) as client:
        await client.subscribe("memo://gone")
        await client.subscribe("memo://last")
        async with asyncio.timeout(10):
            assert await told.get() == "memo://a"  # only the second process sends this notification
        assert client.generation == 1
    if not stateless:
        uris = [m["params"]["uri"] for m in heard(tmp_path, "resources/subscribe")]
        # a missing resource does not affect the others
        assert uris == ["memo://gone", "memo://last"] * 2


async def test_changes_are_received_again_after_the_server_ended_the_subscription() -> None:
    server = MCPServer("s")

    @server.resource("memo://a", name="a")
    def memo() -> str:
        return "text"

    opened, updated = Acknowledgements(), asyncio.Event()

    def listen(method: str, params: dict[str, Any]) -> None:
        opened(method, params)
        if method == "notifications/resources/updated":
            updated.set()

    config = MCPClientConfig(retry_delay=0.01)
    async with MCPClient.connect_inprocess(server, config, on_notification=listen) as client:
        await client.subscribe("memo://a")
        await opened.wait(1)
        for _ in range(2):
            await server.changes.end()
            await opened.wait(1)
            updated.clear()
            server.resource_updated("memo://a")
            async with asyncio.timeout(5):
                await updated.wait()


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (HttpError(400), True),
        (HttpError(404), True),
        (HttpError(429), False),
        (HttpError(499), True),
        (HttpError(500), False),
        (TransportError("lost"), False),
        (RpcError(-32602, "no"), True),
    ],
    ids=["400", "404", "429", "499", "500", "lost", "refused"],
)
async def test_error_responses_are_final_for_a_subscription_except_429_and_server_errors(
    error: FairleadError, final: bool
) -> None:
    async with MCPClient.connect_inprocess(MCPServer("s")) as client:
        peer = client.transport.peer
        assert _is_final(error, peer) is final
    assert _is_final(error, peer)
