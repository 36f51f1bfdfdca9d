"""Gateways with policies on real sockets, and every entry point for clients.

`Host` runs all gateways in one background thread, once per test module. Each gateway is served on
several listeners, and `ENTRIES` has one class per entry point. To add an entry point, write a class
with `open` and `ask` (derive it from a similar one), and add it to `ENTRIES`.
"""

import asyncio
import contextlib
import itertools
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import aiohttp
from websockets.asyncio.client import ClientConnection, connect

from fairlead import Context, MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.views import View
from fairlead.gateway.operations.observability import Observability
from fairlead.interceptor import Answer, Exchange
from fairlead.observe.metrics import Metrics
from fairlead.policy.rules import RuleSet
from fairlead.policy.tool_lock.lock_file import ToolLockData, lock_tools
from fairlead.protocol.caller import Principal
from fairlead.transport.channel import Channel
from tests.support.line_sockets import listen_tcp, listen_unix

LIMIT = 20.0
MARK = "TOP-SECRET"  # marks results and descriptions that the narrow client must not receive
# Tokens, which are also used as the names of the principals.
NARROW, WIDE, NOBODY = "narrow", "wide", ""
HANDSHAKE, BATCHES, STATELESS = "2025-11-25", "2025-03-26", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH = "application/json, text/event-stream"


# Upstream servers


def notes() -> MCPServer:
    """Return a server with allowed items and items that are sealed for the narrow client."""
    server = MCPServer("notes", rate_limit_rate=0)

    @server.tool(description="Read a note.")
    async def read() -> str:
        return "a note"

    @server.tool(description=f"Erase notes. {MARK}")
    async def erase() -> str:
        return MARK

    @server.tool(description="Take some time.")
    async def wait(ctx: Context) -> str:
        await ctx.progress(1, 2)
        await ctx.log("info", "waiting")
        await asyncio.sleep(0.1)
        return "waited"

    @server.resource("note://open", description="A note.")
    async def open_note() -> str:
        return "an open note"

    @server.resource("note://sealed", description=MARK)
    async def sealed_note() -> str:
        return MARK

    @server.resource("open://{key}", description="Notes.")
    async def open_item(key: str) -> str:
        return "an open item"

    @server.resource("sealed://{key}", description=MARK)
    async def sealed_item(key: str) -> str:
        return MARK

    @server.prompt(description="Greet.")
    async def greet(city: str) -> str:
        return f"greet {city}"

    @server.prompt(description=MARK)
    async def leak(city: str) -> str:
        return MARK

    for reference, argument, value in (
        ("greet", "city", "Bonn"),
        ("leak", "city", MARK),
        ("open://{key}", "key", "a"),
        ("sealed://{key}", "key", MARK),
    ):
        server.completion(reference, argument)(_completes(value))
    return server


def vault() -> MCPServer:
    """Return a server that the narrow client must not use at all."""
    server = MCPServer("vault", rate_limit_rate=0)

    @server.tool(description=MARK)
    async def gold() -> str:
        return MARK

    @server.resource("vault://gold", description=MARK)
    async def bar() -> str:
        return MARK

    @server.prompt(description=MARK)
    async def plan(city: str) -> str:
        return MARK

    server.completion("plan", "city")(_completes(MARK))
    return server


def _completes(value: str) -> Any:
    async def complete(begun: str) -> list[str]:
        return [value]

    return complete


# Policies

SEALED_NAMES = ["notes_erase", "erase", "notes_leak", "leak", "vault_*", "gold", "plan"]
SEALED_URIS = ["note://sealed", "sealed://*", "vault://*"]
_SEALED: dict[str, Any] = {
    "any": [
        {"tool": SEALED_NAMES},
        {"prompt": SEALED_NAMES},
        {"resource": SEALED_URIS},
        *({"params": {"ref.name": {"like": name}}} for name in SEALED_NAMES),
        *({"params": {"ref.uri": {"like": uri}}} for uri in SEALED_URIS),
    ]
}


class Spy:
    """An interceptor that records the principal of every exchange in both directions."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Principal]] = []

    async def __call__(self, exchange: Exchange, proceed: Any) -> Answer:
        self.seen.append((exchange.direction.value, exchange.method, exchange.caller.principal))
        return await proceed(exchange)  # type: ignore[no-any-return]


class Policy(NamedTuple):
    """A policy of a gateway that denies sealed items to the narrow client.

    `unpoliced` maps the kinds of requests that the policy does not cover to the reason.
    """

    make: Callable[[dict[str, Any]], dict[str, Any]]  # returns the options of a `Gateway`
    unpoliced: Mapping[str, str] = MappingProxyType({})
    tokens: bool = True  # True if clients need a token
    wide_too: bool = False  # True if the policy applies to both clients


_LISTS_PASS = dict.fromkeys(
    ("list tools", "list resources", "list templates", "list prompts"),
    "rules match targets, and lists have no target; a view hides items",
)
_NOT_ABOUT = {"set level": "every client may set its own level"}


def _rule(when: dict[str, Any], do: Any) -> dict[str, Any]:
    rule = {"name": "it", "when": when, "do": do}
    return {"interceptors": [RuleSet.of_data({"rules": [rule]})]}


def _narrow_view() -> View:
    return View(
        servers=("notes",), deny=("notes_erase", "notes_leak", "note://sealed", "sealed://*")
    )


def _only_calls(reason: str) -> dict[str, str]:
    return {**{name: reason for name in KINDS if name != "call"}, **_NOT_ABOUT}


class Kind(NamedTuple):
    """One kind of request: params that both clients may send, and params of sealed items.

    `{}` is replaced by the prefix of merged names. A response about a sealed item contains `MARK`,
    unless `marked` is false: then any result counts as access.
    """

    method: str
    allowed: dict[str, Any]
    sealed: tuple[dict[str, Any], ...]
    at_vault: tuple[dict[str, Any], ...] = ()  # params that name sealed items of the server `vault`
    marked: bool = True
    eras: tuple[str, ...] = ("handshake", "stateless")


def _prompt(name: str) -> dict[str, Any]:
    return {"name": name, "arguments": {"city": "x"}}


def _completion(kind: str, about: str, argument: str) -> dict[str, Any]:
    key = "name" if kind == "prompt" else "uri"
    reference = {"type": f"ref/{kind}", key: about}
    return {"ref": reference, "argument": {"name": argument, "value": ""}}


def _list(what: str, at_vault: bool = True) -> Kind:
    return Kind(f"{what}/list", {}, ({},), ({},) if at_vault else ())


KINDS = {
    "list tools": _list("tools"),
    "list resources": _list("resources"),
    "list templates": _list("resources/templates", at_vault=False),
    "list prompts": _list("prompts"),
    "call": Kind(
        "tools/call",
        {"name": "{}read", "arguments": {}},
        ({"name": "{}erase", "arguments": {}},),
        ({"name": "{}gold", "arguments": {}},),
    ),
    "read": Kind(
        "resources/read",
        {"uri": "note://open"},
        ({"uri": "note://sealed"}, {"uri": "sealed://x"}),
        ({"uri": "vault://gold"},),
    ),
    "get prompt": Kind(
        "prompts/get", _prompt("{}greet"), (_prompt("{}leak"),), (_prompt("{}plan"),)
    ),
    "complete prompt": Kind(
        "completion/complete",
        _completion("prompt", "{}greet", "city"),
        (_completion("prompt", "{}leak", "city"),),
        (_completion("prompt", "{}plan", "city"),),
    ),
    "complete template": Kind(
        "completion/complete",
        _completion("resource", "open://{{key}}", "key"),
        (_completion("resource", "sealed://{{key}}", "key"),),
    ),
    "subscribe": Kind(
        "resources/subscribe",
        {"uri": "note://open"},
        ({"uri": "note://sealed"}, {"uri": "sealed://x"}),
        ({"uri": "vault://gold"},),
        marked=False,
        eras=("handshake",),
    ),
    "set level": Kind("logging/setLevel", {"level": "info"}, (), marked=False, eras=("handshake",)),
}

POLICIES = {
    "view": Policy(lambda _: {"views": {NARROW: _narrow_view()}}, _NOT_ABOUT),
    "default view": Policy(lambda _: {"view": _narrow_view()}, _NOT_ABOUT, tokens=False),
    "rule": Policy(
        lambda _: _rule({"identity": NARROW, **_SEALED}, "block"), {**_LISTS_PASS, **_NOT_ABOUT}
    ),
    "access": Policy(
        lambda _: _rule({"identity": NARROW}, {"access": {"deny": [*SEALED_NAMES, *SEALED_URIS]}}),
        {**_LISTS_PASS, **_NOT_ABOUT},
    ),
    "rate": Policy(
        lambda _: _rule(
            {"identity": NARROW, "tool": SEALED_NAMES}, {"rate": {"rate": 1e-6, "burst": 1}}
        ),
        _only_calls("the policy limits calls"),
    ),
    "tool lock": Policy(
        lambda lock: {"observing": Observability(lock=ToolLockData(servers=lock))},
        {
            **_only_calls("the lock covers tools only"),
            "list tools": "checked in a separate test",
        },
        wide_too=True,
    ),
    "identity": Policy(
        lambda _: {
            "interceptors": [
                Spy(),
                *_rule({"identity": {"exists": False}, "direction": "to_server"}, "block")[
                    "interceptors"
                ],
            ]
        },
        dict.fromkeys(KINDS, "the rule applies to anonymous clients, and all clients have a token"),
    ),
}


# Gateways and their addresses


class Place(NamedTuple):
    """One gateway and its listeners."""

    gateway: Gateway
    urls: dict[str, str]  # URLs by listener: tcp, asgi, sessionless
    unix: str  # path of a unix socket that serves HTTP
    lines: dict[str, str]  # by principal: path of a unix socket with one message per line
    tcp: dict[str, int]  # by principal: TCP port with one message per line


class Host:
    """All gateways of a test module, served by one background thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="gateways")
        self.places: dict[str, Place] = {}
        self.rest = ""  # the URL of a plain server with the policy "rule"
        self.notes = notes()

    def __enter__(self) -> "Host":
        self._thread.start()
        assert self._ready.wait(LIMIT)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(LIMIT)
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as exc:
            self._failure = exc
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            behind = {
                "notes": await stack.enter_async_context(_served(self.notes)),
                "vault": await stack.enter_async_context(_served(vault())),
            }
            servers: Any = {name: {"type": "http", "url": url} for name, url in behind.items()}
            for name, policy in POLICIES.items():
                self.places[name] = await self._gateway(stack, name, policy, servers)
            self.rest = await stack.enter_async_context(_served(_restful(), verify_token=_verify))
            self._ready.set()
            await self._over.wait()

    async def _gateway(self, stack: Any, name: str, policy: Policy, servers: Any) -> Place:
        options = policy.make(_approved())
        if "observing" not in options and name == "view":
            options["observing"] = Observability(metrics=Metrics())
        gateway = await stack.enter_async_context(Gateway(admin_token="admin", **options))
        await gateway.connect(servers)
        async with asyncio.timeout(LIMIT):
            while not gateway.is_ready:
                await asyncio.sleep(0.005)
        guarded: dict[str, Any] = {"verify_token": _verify} if policy.tokens else {}
        unix = str(self._folder / f"{name}.http")
        urls = {
            "tcp": await stack.enter_async_context(_served(gateway, **guarded)),
            "asgi": await stack.enter_async_context(_served(gateway, **guarded, fast_path=False)),
            "sessionless": await stack.enter_async_context(
                _served(gateway, **guarded, sessions=False)
            ),
        }
        await stack.enter_async_context(_served(gateway, **guarded, uds=unix))
        lines, ports = {}, {}
        for who in (NARROW, WIDE) if policy.tokens else (NOBODY,):
            lines[who] = str(self._folder / f"{name}.{who}")
            accept = _attaching(gateway, who)
            await stack.enter_async_context(listen_unix(lines[who], accept))
            tcp = await stack.enter_async_context(listen_tcp("127.0.0.1", 0, accept))
            ports[who] = tcp.sockets[0].getsockname()[1]
        return Place(gateway, urls, unix, lines, ports)

    def changed(self, uri: str) -> None:
        """Make the upstream server announce that a resource has changed."""
        self.notes.resource_updated(uri)


def _attaching(gateway: Gateway, who: str) -> Callable[[Channel], None]:
    tasks: set[Any] = set()

    def accept(channel: Channel) -> None:
        if who == NOBODY:  # no principal is given, as in `run_stdio`
            task = asyncio.get_running_loop().create_task(gateway.serve(channel))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        else:
            gateway.attach(channel, who)

    return accept


def _verify(token: str) -> str | None:
    return token if token in (NARROW, WIDE) else None


def _approved() -> dict[str, Any]:
    """Return a lock whose definitions of the sealed tools differ from the server's."""
    other = {"description": "Something else.", "inputSchema": {"type": "object", "properties": {}}}
    return {
        "notes": lock_tools([{"name": "erase", **other}]),
        "vault": lock_tools([{"name": "gold", **other}]),
    }


def _restful() -> MCPServer:
    """Return a server with a REST endpoint, which gateways do not have."""
    server = MCPServer("rest", **_rule({"identity": NARROW, **_SEALED}, "block"))

    @server.tool()
    async def erase(ctx: Context) -> str:
        return f"{MARK} for {ctx.principal}"

    @server.tool()
    async def read(ctx: Context) -> str:
        return f"a note for {ctx.principal}"

    return server


@contextlib.asynccontextmanager
async def _served(server: Any, **options: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result, **options))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# Entry points


class Refused(Exception):
    """Raised if an entry point rejects the client."""


class Entry:
    """A client at one entry point. `ask` sends a request and returns its response."""

    era: ClassVar[str] = "handshake"
    at_servers: ClassVar[bool] = True  # also available at `/mcp/NAME`, not only at `/mcp`
    methods: ClassVar[tuple[str, ...]] = ()  # the supported methods; empty means all
    anonymous: ClassVar[bool] = True  # can be used without a token
    listener: ClassVar[str] = "tcp"
    hears: ClassVar[bool] = False  # notifications can arrive at any time

    def __init__(self, place: Place, who: str, server: str = "") -> None:
        self.place, self.who = place, who
        self.path = f"/{server}" if server else ""
        self.token = {"Authorization": f"Bearer {who}"} if who else {}
        self.stack = contextlib.AsyncExitStack()
        self._ids = itertools.count(1)

    async def __aenter__(self) -> "Entry":
        try:
            await self.open()
        except BaseException:
            await self.stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stack.aclose()

    async def open(self) -> None:
        """Connect, and complete the handshake if there is one.

        Raises:
            Refused: The entry point rejected the client.
        """
        raise NotImplementedError

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""

    async def heard(self) -> dict[str, Any]:
        """Wait for the next notification."""
        raise NotImplementedError

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}


def _introduction(version: str) -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": info}


def _response(body: str, kind: str) -> Any:
    """Return the last message of a response, which is JSON or a stream of events."""
    if "event-stream" in kind:
        return json.loads([x for x in body.splitlines() if x.startswith("data:")][-1][5:])
    if "json" not in kind:  # for this client, the path is not an MCP endpoint
        return {"error": body or "the response has no body"}
    return json.loads(body) if body else {"error": "the response has no body"}


class HttpEntry(Entry):
    """An entry point for requests sent with POST."""

    version: ClassVar[str] = HANDSHAKE
    accept: ClassVar[str] = BOTH

    async def open(self) -> None:
        url = self.place.urls.get(self.listener, "http://unix/mcp")
        unix = self.listener == "unix"
        connector = aiohttp.UnixConnector(self.place.unix) if unix else None
        self.http = await self.stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, headers=self.token)
        )
        self.url = url + self.path
        self.headers: dict[str, str] = {"MCP-Protocol-Version": self.version}

    async def post(self, body: Any, headers: dict[str, str] | None = None) -> Any:
        sent = {"Accept": self.accept, **self.headers, **(headers or {})}
        async with self.http.post(self.url, json=body, headers=sent) as response:
            self.session = response.headers.get("mcp-session-id")
            return _response(await response.text(), response.content_type)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.post(self.request(method, params))  # type: ignore[no-any-return]

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        await self.post({"jsonrpc": "2.0", "method": method, "params": params})


class PostInSession(HttpEntry):
    hears = True

    async def open(self) -> None:
        await super().open()
        self.headers = {}
        answer = await self.ask("initialize", _introduction(self.version))
        if self.session is None or "result" not in answer:
            raise Refused(answer)
        self.headers = {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}
        await self.tell("notifications/initialized", {})

    async def heard(self) -> dict[str, Any]:
        """Return the next notification on the stream of a GET."""
        if not hasattr(self, "stream"):
            headers = {**self.headers, "Accept": "text/event-stream"}
            self.stream = await self.stack.enter_async_context(
                self.http.get(self.url, headers=headers)
            )
        while line := (await self.stream.content.readline()).decode():
            if line.startswith("data:") and line[5:].strip():
                return json.loads(line[5:])  # type: ignore[no-any-return]
        raise EOFError


class PostInSessionByAsgi(PostInSession):
    listener = "asgi"


class PostAlone(HttpEntry):
    """Handshake-era requests without a session."""


class PostAloneUnversioned(HttpEntry):
    async def open(self) -> None:
        await super().open()
        self.headers = {}


class PostAloneByAsgi(PostAlone):
    listener = "asgi"


class PostWithoutSessions(HttpEntry):
    """An endpoint with `sessions=False`, whose `initialize` opens no session."""

    listener = "sessionless"

    async def open(self) -> None:
        await super().open()
        if self.path:
            return  # endpoints of single servers answer `initialize` only in a session
        answer = await self.ask("initialize", _introduction(self.version))
        if "result" not in answer:
            raise Refused(answer)


class PostFragments(HttpEntry):
    accept = "text/event-stream; dialect=fragments"
    methods = ("tools/call",)


class StatelessPost(HttpEntry):
    era = "stateless"
    version = STATELESS

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        named = params.get("name") or params.get("uri")
        headers = {"Mcp-Method": method, **({"Mcp-Name": named} if named else {})}
        meta = {**META, **params.get("_meta", {})}
        message = self.request(method, {**params, "_meta": meta})
        return await self.post(message, headers)  # type: ignore[no-any-return]

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": META}}
        await self.post(message, {"Mcp-Method": method})


class StatelessPostByAsgi(StatelessPost):
    listener = "asgi"


class StatelessFragments(StatelessPost):
    accept = "text/event-stream; dialect=fragments"
    methods = ("tools/call",)


class BatchInSession(PostInSession):
    version = BATCHES

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            return await super().ask(method, params)
        return await self.batch(self.request(method, params))

    async def batch(self, message: dict[str, Any]) -> dict[str, Any]:
        answers = await self.post([self.request("ping", {}), message])
        if isinstance(answers, list):
            answers = next(one for one in answers if one.get("id") == message["id"])
        return answers  # type: ignore[no-any-return]


class BatchAlone(HttpEntry):
    version = BATCHES

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await BatchInSession.batch(self, self.request(method, params))  # type: ignore[arg-type]


class UnixPostInSession(PostInSession):
    listener = "unix"


class UnixPostAlone(PostAlone):
    listener = "unix"


class UnixStatelessPost(StatelessPost):
    listener = "unix"


class Streamed(Entry):
    """An entry point whose responses and notifications arrive on one stream, in any order."""

    hears = True
    at_servers = False

    async def open(self) -> None:
        self._notes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        await self.connect()
        reader = asyncio.create_task(self._read())

        async def stop() -> None:
            reader.cancel()
            await asyncio.wait({reader})

        self.stack.push_async_callback(stop)
        if self.era == "handshake":
            answer = await self.ask("initialize", _introduction(HANDSHAKE))
            if "result" not in answer:
                raise Refused(answer)
            await self.tell("notifications/initialized", {})

    async def connect(self) -> None:
        raise NotImplementedError

    async def send(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    async def receive(self) -> Any:
        raise NotImplementedError

    async def _read(self) -> None:
        while True:
            message = await self.receive()
            waiting = self._waiting.pop(message.get("id", 0), None)
            if "method" in message:
                self._notes.put_nowait(message)
            elif waiting is not None:
                waiting.set_result(message)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = self.request(method, self._with_meta(params))
        answer = asyncio.get_running_loop().create_future()
        self._waiting[message["id"]] = answer
        await self.send(message)
        return await answer  # type: ignore[no-any-return]

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": self._with_meta(params)})

    def _with_meta(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.era != "stateless":
            return params
        return {**params, "_meta": {**META, **params.get("_meta", {})}}

    async def heard(self) -> dict[str, Any]:
        return await self._notes.get()


class HttpAndSse(Streamed):
    """HTTP+SSE, the HTTP transport of revision 2024-11-05."""

    async def connect(self) -> None:
        self._base = self.place.urls["tcp"].removesuffix("/mcp")
        self._http = await self.stack.enter_async_context(aiohttp.ClientSession(headers=self.token))
        self._stream = await self.stack.enter_async_context(self._http.get(f"{self._base}/sse"))
        self.messages = self._base + await self._data()

    async def _data(self) -> str:
        while line := (await self._stream.content.readline()).decode():
            if line.startswith("data:"):
                return line[5:].strip()
        raise EOFError

    async def receive(self) -> Any:
        return json.loads(await self._data())

    async def send(self, message: dict[str, Any]) -> None:
        async with self._http.post(self.messages, json=message) as response:
            assert response.status == 202


class WebSocketHandshake(Streamed):
    socket: ClientConnection

    async def connect(self) -> None:
        url = self.place.urls["tcp"].replace("http", "ws", 1).replace("/mcp", "/ws")
        self.socket = await self.stack.enter_async_context(
            connect(url, additional_headers=self.token)
        )

    async def receive(self) -> Any:
        return json.loads(await self.socket.recv())

    async def send(self, message: dict[str, Any]) -> None:
        await self.socket.send(json.dumps(message))


class WebSocketStateless(WebSocketHandshake):
    era = "stateless"


class WebSocketToolCalls(WebSocketHandshake):
    """Frames of the tool-call format, which is not JSON-RPC."""

    era = "none"
    methods = ("tools/call",)
    hears = False

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"id": next(self._ids), **params}


class UnixLines(Streamed):
    """One message per line, as over stdio; the listening program names the principal."""

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(self.place.lines[self.who])
        self.stack.callback(self._writer.close)

    async def receive(self) -> Any:
        return json.loads(await self._reader.readline())

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")


class TcpLines(UnixLines):
    async def connect(self) -> None:
        port = self.place.tcp[self.who]
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self.stack.callback(self._writer.close)


class TcpLinesStateless(TcpLines):
    era = "stateless"


ENTRIES: dict[str, type[Entry]] = {
    "POST in a session": PostInSession,
    "POST in a session, by ASGI": PostInSessionByAsgi,
    "POST without a session": PostAlone,
    "POST without a session, by ASGI": PostAloneByAsgi,
    "POST without a session or version": PostAloneUnversioned,
    "POST with sessions=False": PostWithoutSessions,
    "POST for fragments": PostFragments,
    "stateless POST": StatelessPost,
    "stateless POST, by ASGI": StatelessPostByAsgi,
    "stateless POST for fragments": StatelessFragments,
    "batch in a session": BatchInSession,
    "batch without a session": BatchAlone,
    "unix socket, in a session": UnixPostInSession,
    "unix socket, without a session": UnixPostAlone,
    "unix socket, stateless": UnixStatelessPost,
    "HTTP+SSE": HttpAndSse,
    "WebSocket with a handshake": WebSocketHandshake,
    "WebSocket, stateless": WebSocketStateless,
    "WebSocket, tool-call frames": WebSocketToolCalls,
    "lines over a unix socket": UnixLines,
    "lines over TCP": TcpLines,
    "lines over TCP, stateless": TcpLinesStateless,
}
