"""Third-party clients with a common interface, so that each can run the same tests."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Protocol

import fastmcp
import mcp
from fastmcp.client.elicitation import ElicitResult as Filled
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client.subscriptions import listen
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

from tests.support.interop.server_processes import FOLDER, LIMIT, Host

__all__ = ["GUESTS", "Guest", "Refusal"]

GUEST = Path(__file__).parents[2] / "interop" / "typescript" / "guest.cjs"
ADA = {"name": "Ada", "age": 36}


class Refusal(Exception):
    """An error response to a request, or a failure of the client."""

    def __init__(self, code: Any, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


class Guest(Protocol):
    """A third-party client. Requests and notifications from the server go to its `Host`."""

    version: str  # the protocol version of the connection
    server: str  # the server's name

    async def tools(self) -> list[str]: ...
    async def call(self, name: str, args: dict[str, Any]) -> tuple[bool, str]: ...
    async def progress(self, name: str, args: dict[str, Any]) -> tuple[str, list[float]]: ...
    async def read(self, uri: str) -> str: ...
    async def give_up(self, name: str, args: dict[str, Any], seconds: float | None) -> None: ...
    async def follow(self, uri: str | None) -> None: ...


class OfficialGuest:
    """The client of the official SDK, or of FastMCP, which builds on it."""

    def __init__(self, client: Any, host: Host, news: contextlib.AsyncExitStack) -> None:
        self._client = client
        self._session = client.session
        self._host = host
        self._news = news
        self._fast = isinstance(client, fastmcp.Client)
        self.version = str(self._session.protocol_version)
        self.server = str(self._session.server_info.name)

    async def tools(self) -> list[str]:
        if self._fast:
            return [tool.name for tool in await self._client.list_tools()]
        names: list[str] = []
        cursor = None
        while not names or cursor is not None:
            page = await self._client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
        return names

    async def call(self, name: str, args: dict[str, Any], **settings: Any) -> tuple[bool, str]:
        if self._fast:
            settings["raise_on_error"] = False
            if "progress_callback" in settings:
                settings["progress_handler"] = settings.pop("progress_callback")
        try:
            result = await self._client.call_tool(name, args, **settings)
        except MCPError as exc:
            raise Refusal(exc.code, exc.message) from exc
        texts = [getattr(block, "text", "") for block in result.content]
        return bool(result.is_error), "".join(texts)

    async def progress(self, name: str, args: dict[str, Any]) -> tuple[str, list[float]]:
        steps: list[float] = []

        async def on_progress(progress: float, *_: object) -> None:
            steps.append(progress)

        _, text = await self.call(name, args, progress_callback=on_progress)
        return text, steps

    async def read(self, uri: str) -> str:
        try:
            read = await self._client.read_resource(uri)
        except MCPError as exc:
            raise Refusal(exc.code, exc.message) from exc
        return str((read if self._fast else read.contents)[0].text)

    async def give_up(self, name: str, args: dict[str, Any], seconds: float | None) -> None:
        begun = asyncio.Event()

        async def on_progress(*_: object) -> None:
            begun.set()

        waiting = asyncio.create_task(self.call(name, args, progress_callback=on_progress))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    async def follow(self, uri: str | None) -> None:
        if not self.version.startswith("2026"):
            if uri is not None:
                await self._session.subscribe_resource(uri)
            return
        lists = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")
        wanted = {**dict.fromkeys(lists, True), "resource_subscriptions": [uri] if uri else []}
        news = await self._news.enter_async_context(listen(self._session, **wanted))

        async def hear() -> None:
            async for change in news:
                kind = type(change).__name__
                if kind == "ResourceUpdated":
                    self._host.hear(("resources/updated", change.uri))
                else:
                    name = kind.removesuffix("ListChanged").lower()
                    self._host.hear((f"{name}/list_changed", None))

        task = asyncio.create_task(hear())
        self._news.callback(task.cancel)


@contextlib.asynccontextmanager
async def official_guest(
    target: str | list[str], stateless: bool, host: Host
) -> AsyncIterator[Guest]:
    async def on_elicit(_: object, params: Any) -> ElicitResult:
        host.asked.append("elicitation/create")
        return ElicitResult(action="accept", content=ADA)

    async def on_sample(_: object, params: Any) -> CreateMessageResult:
        host.asked.append("sampling/createMessage")
        return CreateMessageResult(
            content=TextContent(text="four"), role="assistant", model="a model"
        )

    async def on_roots(_: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FOLDER)])

    async def on_log(message: Any) -> None:
        host.hear(("log", message.level))

    async def on_message(message: Any) -> None:
        _hear_change(host, message)

    way: Any = target
    if not isinstance(target, str):
        command, *args = target
        given = StdioServerParameters(command=command, args=args, env=dict(os.environ))
        way = stdio_client(given, errlog=sys.__stderr__)
    connecting = mcp.Client(
        way,
        mode="auto" if stateless else "legacy",
        elicitation_callback=on_elicit,
        sampling_callback=on_sample,
        list_roots_callback=on_roots,
        logging_callback=on_log,
        message_handler=on_message,
        read_timeout_seconds=LIMIT,
        log_level="debug" if stateless else None,
    )
    async with connecting as client, contextlib.AsyncExitStack() as news:
        if not stateless:
            await _want_logs(client.session.set_logging_level("debug"))
        yield OfficialGuest(client, host, news)


@contextlib.asynccontextmanager
async def fastmcp_guest(
    target: str | list[str], stateless: bool, host: Host
) -> AsyncIterator[Guest]:
    async def on_elicit(*_: object) -> Filled[Any]:
        host.asked.append("elicitation/create")
        return Filled(action="accept", content=ADA)

    async def on_sample(*_: object) -> str:
        host.asked.append("sampling/createMessage")
        return "four"

    async def on_log(message: Any) -> None:
        host.hear(("log", message.level))

    async def on_message(message: Any) -> None:
        _hear_change(host, message)

    if isinstance(target, str):
        way: Any = StreamableHttpTransport(target)
    else:
        command, *args = target
        env = dict(os.environ)
        way = StdioTransport(command, args, env=env, keep_alive=False, log_file=sys.__stderr__)
    connecting = fastmcp.Client(
        way,
        mode="auto" if stateless else "legacy",
        elicitation_handler=on_elicit,
        sampling_handler=on_sample,
        roots=lambda _: [FOLDER],
        log_handler=on_log,
        message_handler=on_message,
        timeout=LIMIT,
    )
    async with connecting as client, contextlib.AsyncExitStack() as news:
        if not stateless:
            await _want_logs(client.set_logging_level("debug"))
        yield OfficialGuest(client, host, news)


async def _want_logs(asking: Awaitable[Any]) -> None:
    """Set the log level, although the official server does not declare the logging capability."""
    with contextlib.suppress(MCPError):
        await asking


def _hear_change(host: Host, message: Any) -> None:
    method = getattr(message, "method", "")
    if method.endswith(("/list_changed", "/updated")):
        name = method.removeprefix("notifications/")
        host.hear((name, getattr(message.params, "uri", None)))


class TypeScriptGuest:
    """The client of the TypeScript SDK, in a process that executes commands."""

    def __init__(self, process: asyncio.subprocess.Process, host: Host) -> None:
        self.version = self.server = ""
        self._process = process
        self._host = host
        self._ids = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {0: asyncio.Future()}

    async def arrive(self) -> None:
        self.version, self.server = await self._waiting[0]

    async def read_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "heard" in said:
                self._host.hear(tuple(said["heard"]))
            elif "asked" in said:
                self._host.asked.append(said["asked"])
            elif "failed" in said:
                self._waiting.pop(said["id"]).set_exception(Refusal(*said["failed"]))
            else:
                self._waiting.pop(said["id"]).set_result(said.get("done"))
        for waiting in self._waiting.values():
            waiting.set_exception(ConnectionError("the client process has ended"))

    async def _do(self, what: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        self._ids += 1
        self._waiting[self._ids] = asyncio.Future()
        line = json.dumps({"id": self._ids, "what": what, **given})
        self._process.stdin.write(line.encode() + b"\n")
        return await self._waiting[self._ids]

    async def tools(self) -> list[str]:
        return list(await self._do("tools"))

    async def call(self, name: str, args: dict[str, Any]) -> tuple[bool, str]:
        failed, text = await self._do("call", name=name, args=args)
        return failed, text

    async def progress(self, name: str, args: dict[str, Any]) -> tuple[str, list[float]]:
        text, steps = await self._do("progress", name=name, args=args)
        return text, steps

    async def read(self, uri: str) -> str:
        return str(await self._do("read", uri=uri))

    async def give_up(self, name: str, args: dict[str, Any], seconds: float | None) -> None:
        outcome = await self._do("giveUp", name=name, args=args, seconds=seconds)
        assert outcome == "given up"

    async def follow(self, uri: str | None) -> None:
        await self._do("follow", uri=uri)


@contextlib.asynccontextmanager
async def typescript_guest(
    target: str | list[str], stateless: bool, host: Host
) -> AsyncIterator[Guest]:
    era = "stateless" if stateless else "handshake"
    where = [target] if isinstance(target, str) else target
    process = await asyncio.create_subprocess_exec(
        *("node", str(GUEST), era, *where),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    guest = TypeScriptGuest(process, host)
    reading = asyncio.create_task(guest.read_lines())
    try:
        await guest.arrive()
        yield guest
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        await reading


GUESTS = {"official": official_guest, "fastmcp": fastmcp_guest, "typescript": typescript_guest}
