"""Gateways for observed servers, and their clients.

All tests of observed servers use this module to build gateways and write their files.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.gateway import Gateway, RelaySettings
from tests.support.cli_user import Person
from tests.support.gateway_servers import Ears, serving, until
from tests.support.observed_servers import LIMIT
from tests.support.running_gateway import Running, running

__all__ = [
    "ENDPOINTS",
    "ERAS",
    "HANDSHAKE",
    "STATELESS",
    "Client",
    "RawSession",
    "Served",
    "answer_yes",
    "connect",
    "eventually",
    "gateway_for",
    "raw_session",
    "running_file",
    "write_file",
]

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = {"handshake": HANDSHAKE, "stateless": STATELESS}
ENDPOINTS = ("merged", "single")

Servers = Mapping[str, dict[str, Any]]


# Gateways in this process


class Served:
    """A gateway that serves HTTP."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway, self.url = gateway, url

    def server_status(self, name: str) -> dict[str, Any]:
        """Return the status of a server as reported by the gateway."""
        [row] = [one for one in self.gateway.status()["servers"] if one["name"] == name]
        return row  # type: ignore[no-any-return]


@asynccontextmanager
async def gateway_for(
    servers: Servers,
    *,
    manager: Any = None,
    tokens: Mapping[str, str] | None = None,
    ready: bool = True,
    options: Mapping[str, Any] | None = None,
    **relay: Any,
) -> AsyncIterator[Served]:
    """Serve a gateway over HTTP with `tokens` (principals by token) and `relay` settings."""
    settings = RelaySettings(**relay)
    async with Gateway(manager, relay=settings, **(options or {})) as gateway:
        await gateway.connect(dict(servers))
        if ready:
            await until(lambda: gateway.is_ready)
        verify = {} if tokens is None else {"verify_token": tokens.get}
        async with serving(gateway, **verify) as url:
            yield Served(gateway, url)


# Gateways as programs


def write_file(
    folder: Path, servers: Servers, *, clients: Sequence[str] = (), **settings: Any
) -> Path:
    """Write a gateway configuration file; each of `clients` uses its name as its token."""
    content: dict[str, Any] = {**settings, "servers": servers}
    if clients:
        content["clients"] = {name: {"token": name} for name in clients}
    file = folder / "gateway.json"
    temporary = folder / "gateway.json.new"
    temporary.write_text(json.dumps(content, indent=1))
    temporary.replace(file)
    return file


@contextmanager
def running_file(person: Person, file: Path, *options: str) -> Iterator[Running]:
    """Run `fairlead gateway FILE` on a free port."""
    with running(person, "gateway", "--port", "0", *options, str(file)) as gateway:
        yield gateway


# Clients


class Client:
    """A client, the messages it received, and the prefix of the tool names."""

    def __init__(self, client: MCPClient, ears: Ears, logged: list[Any], prefix: str) -> None:
        self.mcp, self.ears, self.logged, self._prefix = client, ears, logged, prefix

    async def call(self, tool: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result; the result must not be an error."""
        result = await self.mcp.call(self._prefix + tool, arguments)
        assert not result.is_error, result.text
        return result.text

    async def pid(self) -> int:
        """Return the id of the server process that serves the calls of this client."""
        return int(await self.call("pid"))

    async def tools(self) -> list[str]:
        """Return the tool names in the list of the endpoint, as the server defines them."""
        listed = [tool["name"] for tool in await self.mcp.list_tools(cache=False)]
        return [x.removeprefix(self._prefix) for x in listed if x.startswith(self._prefix)]

    async def list_everything(self) -> None:
        """Request all four lists, as hosts do when they connect."""
        await self.mcp.list_tools(cache=False)
        await self.mcp.list_prompts(cache=False)
        await self.mcp.list_resources(cache=False)
        await self.mcp.list_resource_templates(cache=False)


def answer_yes(question: Any) -> Any:
    return {"action": "accept", "content": {"value": "yes"}}


@asynccontextmanager
async def connect(
    url: str,
    server: str = "notes",
    *declares: str,
    endpoint: str = "merged",
    version: str = HANDSHAKE,
    roots: str = "file:///work",
    token: str | None = None,
    on_elicit: Callable[[Any], Any] = answer_yes,
) -> AsyncIterator[Client]:
    """Connect a client that declares some of "elicitation", "sampling" and "roots"."""
    ears, logged = Ears(), []  # type: ignore[var-annotated]
    able: dict[str, Any] = {
        "elicitation": ("on_elicit", on_elicit),
        "sampling": ("on_sample", lambda params: "sampled"),
        "roots": ("on_roots", lambda: [{"uri": roots}]),
    }
    callbacks: dict[str, Any] = dict(able[one] for one in declares)
    attempt = MCPClient.connect_http(
        url if endpoint == "merged" else f"{url}/{server}",
        MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT, max_retries=0),
        headers={"Authorization": f"Bearer {token}"} if token else {},
        on_notification=ears,
        on_log=lambda level, data, logger: logged.append(data),
        **callbacks,
    )
    async with attempt as client:
        assert client.protocol_version == version
        yield Client(client, ears, logged, f"{server}_" if endpoint == "merged" else "")


class RawSession:
    """A handshake session that sends requests without a client library and opens no stream."""

    def __init__(self, http: aiohttp.ClientSession, url: str, prefix: str) -> None:
        self.id = ""
        self._http, self._url, self._prefix = http, url, prefix
        self._ids = itertools.count(1)

    async def open(self, capabilities: Mapping[str, Any], version: str = HANDSHAKE) -> Any:
        client = {"name": "raw", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client}
        result = await self.request("initialize", params)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    async def request(self, method: str, params: Any = None) -> Any:
        """Return the result of a request.

        Raises:
            RpcError: The response is an error.
        """
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        for answer in await self._post(message):
            if answer.get("id") == number and "method" not in answer:
                if "error" in answer:
                    error = answer["error"]
                    raise RpcError(error["code"], error["message"], error.get("data"))
                return answer["result"]
        raise AssertionError("the request was not answered")

    async def call(self, tool: str, /, **arguments: Any) -> str:
        params = {"name": self._prefix + tool, "arguments": arguments}
        return str((await self.request("tools/call", params))["content"][0]["text"])

    async def pid(self) -> int:
        return int(await self.call("pid"))

    async def list_change(self) -> str:
        """Open a stream, and return the method of the first notification of a changed list."""
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self.id}
        async with self._http.get(self._url, headers=headers) as response:
            async for line in response.content:
                if line.startswith(b"data:") and b"list_changed" in line:
                    return str(json.loads(line[5:])["method"])
        raise AssertionError("the stream ended")

    async def _post(self, message: Any) -> list[dict[str, Any]]:
        headers = {"Accept": "application/json, text/event-stream"}
        if self.id:
            headers["Mcp-Session-Id"] = self.id
        async with self._http.post(self._url, json=message, headers=headers) as response:
            text = await response.text()
            assert response.status in (200, 202), f"{response.status}: {text}"
            self.id = response.headers.get("Mcp-Session-Id", self.id)
        if response.content_type == "application/json" and text:
            return [json.loads(text)]
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        return [json.loads(line) for line in lines if line.strip()]


@asynccontextmanager
async def raw_session(
    url: str,
    server: str | None = "notes",
    capabilities: Mapping[str, Any] | None = None,
    *,
    endpoint: str = "merged",
    version: str = HANDSHAKE,
    session: str | None = None,
) -> AsyncIterator[RawSession]:
    """Open a session, or continue the session with the given id. The session is not closed.

    Without `server`, `url` is the endpoint of a single server.
    """
    # No timeout, because some tests advance the clock.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as http:
        single = server is None or endpoint == "single"
        address = f"{url}/{server}" if endpoint == "single" else url
        raw = RawSession(http, address, "" if single else f"{server}_")
        if session is None:
            await raw.open(capabilities or {}, version)
        else:
            raw.id = session
        yield raw


async def eventually(
    read: Callable[[], Awaitable[Any]], accepted: Callable[[Any], bool], limit: float = LIMIT
) -> Any:
    """Call `read` repeatedly until `accepted` approves the value, and return the value."""
    value = None
    try:
        async with asyncio.timeout(limit):
            while not accepted(value := await read()):
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"last seen after {limit} s: {value!r}") from None
    return value
