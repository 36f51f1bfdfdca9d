"""The server programs of the interoperability tests, and connections to them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp_types import (
    ClientCapabilities,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
)

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question
from fairlead.protocol.revisions import Revision

SERVERS = Path(__file__).parents[2] / "interop" / "servers"
LIMIT = 20.0  # time limit in seconds for all requests to one process
PIXEL = "iVBORw0KGgoAAAANSUhEUg=="
PAGE = "https://example.com/sign-in?a=1&b=2"  # the page that `open_page` asks users to open
FOLDER = "file:///home/ada/project"  # the root that the host returns

T = TypeVar("T")


def command(name: str, *arguments: str) -> list[str]:
    """Return the command that starts one of the servers in `servers/`."""
    return [sys.executable, str(SERVERS / f"{name}.py"), *arguments]


def parameters(name: str, *arguments: str) -> StdioServerParameters:
    """Return the command of a server as parameters for the official SDK."""
    program, *rest = command(name, *arguments)
    return StdioServerParameters(command=program, args=rest)


@contextlib.asynccontextmanager
async def official_session(
    revision: Revision,
    name: str = "ours",
    limit: float | None = LIMIT,
    declared: ClientCapabilities | None = None,
    **settings: Any,
) -> AsyncIterator[ClientSession]:
    """Open a session of the official SDK with exactly this revision.

    The SDK's `initialize()` proposes only the newest revision, so the handshake is sent here.
    """
    async with (
        asyncio.timeout(limit),
        stdio_client(parameters(name), errlog=sys.__stderr__) as (read, write),
        ClientSession(read, write, read_timeout_seconds=LIMIT, **settings) as session,
    ):
        if revision.stateless:
            await session.discover()
        else:
            await shake_hands(session, revision, declared)
        assert session.protocol_version == revision
        yield session


async def shake_hands(
    session: ClientSession, revision: Revision, declared: ClientCapabilities | None = None
) -> None:
    """Initialize with this revision and all capabilities of the session."""
    params = InitializeRequestParams(
        protocol_version=revision.value,
        capabilities=declared or session._build_capabilities(revision.value),
        client_info=Implementation(name="official", version="2"),
    )
    session.adopt(await session.send_request(InitializeRequest(params=params), InitializeResult))
    await session.send_notification(InitializedNotification())


@contextlib.asynccontextmanager
async def our_client(
    name: str,
    version: str = "auto",
    *arguments: str,
    limit: float | None = LIMIT,
    **settings: Any,
) -> AsyncIterator[MCPClient]:
    """Connect our client to one of the servers."""
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    connecting = MCPClient.connect_stdio(command(name, *arguments), config, **settings)
    async with asyncio.timeout(limit), connecting as client:
        yield client


class Refused(Exception):
    """Raised if the host refuses to answer a server request."""


class Host:
    """The host of a client: the responses of its user, and the messages it received."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.action = "accept"  # or "decline", "cancel", "refuse" (raise an error), "think" (wait)
        self.folder = FOLDER
        self.asked: list[Any] = []
        self.heard: list[Any] = []
        self._news = asyncio.Event()

    async def answer(self, mode: str) -> dict[str, Any]:
        """Return the user's response to an elicitation."""
        await self.decide()
        if self.action != "accept" or mode == "url":
            return {"action": self.action}
        return {"action": self.action, "content": {"name": "Ada", "age": 36}}

    async def decide(self) -> None:
        """Apply the actions "refuse" and "think", which wait or raise instead of answering.

        Raises:
            Refused: The action is "refuse".
        """
        if self.action == "refuse":
            raise Refused("not now")
        if self.action == "think":
            self.hear("asked")
            try:
                await asyncio.Event().wait()
            finally:
                self.hear("let go")

    def hear(self, what: Any) -> None:
        self.heard.append(what)
        self._news.set()

    async def hears(self, *wanted: Any) -> None:
        """Wait until all these notifications have been received."""
        while not all(what in self.heard for what in wanted):
            self._news.clear()
            await self._news.wait()


class Stage(Generic[T]):
    """A connection shared by all tests of a module, kept open in its own event loop.

    Starting a server program takes longer than a test.
    """

    def __init__(self, revision: Revision, host: Host) -> None:
        self.revision = revision
        self.host = host
        self.way = "pipes"  # the kind of connection between client and server
        self.client: T
        self._runner = asyncio.Runner()

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        self._runner.run(_bounded(scene))

    @contextlib.contextmanager
    def connected(self, connecting: AbstractAsyncContextManager[T]) -> Iterator["Stage[T]"]:
        with self._runner:
            closing = asyncio.Event()
            opened: asyncio.Future[T] = self._runner.get_loop().create_future()
            holder = self._runner.get_loop().create_task(_hold(connecting, opened, closing))
            self.client = self._runner.run(_first(opened, holder))
            try:
                yield self
            finally:
                closing.set()
                self._runner.run(_bounded(holder))


async def _bounded(scene: Any) -> None:
    async with asyncio.timeout(LIMIT):
        await scene


async def _first(opened: "asyncio.Future[T]", holder: "asyncio.Task[None]") -> T:
    """Return the client once it is connected, or raise the error of `holder`."""
    await asyncio.wait((opened, holder), timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
    if holder.done():
        await holder
    assert opened.done(), "the connection was not opened in time"
    return opened.result()


async def _hold(
    connecting: AbstractAsyncContextManager[T],
    opened: "asyncio.Future[T]",
    closing: asyncio.Event,
) -> None:
    """Open and close the connection in the same task, because cancel scopes require it."""
    async with connecting as client:
        opened.set_result(client)
        await closing.wait()


@contextlib.contextmanager
def our_visit(name: str, revision: Revision) -> Iterator[Stage[MCPClient]]:
    """Connect our client and yield it with a host that answers every server request."""
    host = Host()
    connecting = our_client(name, revision.value, limit=None, **answering(host))
    with Stage[MCPClient](revision, host).connected(connecting) as stage:
        assert stage.client.protocol_version == revision
        yield stage


def answering(host: Host) -> dict[str, Any]:
    """Return the callbacks by which `host` answers requests and receives notifications."""

    async def on_elicit(question: Question) -> dict[str, Any]:
        host.asked.append(question)
        try:
            return await host.answer(question.mode)
        except Refused as refused:
            raise RpcError(-1, str(refused)) from refused

    def on_sample(params: dict[str, Any]) -> str | dict[str, Any]:
        host.asked.append(params)
        if "tools" not in params:
            return "four"
        use = {"type": "tool_use", "id": "1", "name": params["tools"][0]["name"], "input": {}}
        whole = {"role": "assistant", "model": "a model", "stopReason": "toolUse"}
        return {**whole, "content": [use]}

    return {
        "on_elicit": on_elicit,
        "elicit_url": True,
        "on_sample": on_sample,
        "sample_tools": True,
        "on_roots": lambda: [host.folder],
        "on_log": lambda level, data, logger: host.hear((level, logger, data)),
        "on_notification": lambda method, params: host.hear((method, params.get("uri"))),
    }
