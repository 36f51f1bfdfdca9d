"""A client: connect to a server of whatever era, and use what it offers."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Self, Unpack

import msgspec
from msgspec import Raw, UnsetType

from ..errors import (
    ChannelClosed,
    FairleadError,
    LocalProtocolError,
    MCPToolError,
    RemoteProtocolError,
    RequestTimeout,
    RetriesExhausted,
    RpcError,
)
from ..interceptor import Interceptor
from ..peer import OnProgress
from ..protocol.contracts import make_tool_error
from ..protocol.conversation import Agreement
from ..protocol.envelope import SessionContext
from ..protocol.methods import find, has_capability
from ..protocol.outgoing import Identity
from ..protocol.types.base import decode, decode_items
from ..transport.base import Channel
from ..wire import Notification, RequestId, to_json
from ..wire.codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from .answers import Answers, OnElicit, OnRoots, OnSample
from .cache import CHANGES, Cache
from .callbacks import Callbacks, OnLog
from .config import MCPClientConfig, MCPStdioServerConfig
from .connecting import Connecting
from .eras import known_eras
from .inprocess import Attaches, InProcessTransport
from .keeping import Keeper
from .known import KnownTools
from .listening import ACKNOWLEDGED, Changes, Listening
from .mailbox import Listener
from .opening import agree_with
from .retry import Retry, exhausted
from .sending import Send, intercepted
from .transports import ChannelTransport, OnRequest, StdioTransport
from .typed import TypedCalls, tool_error

__all__ = ["MCPClient"]

log = logging.getLogger("fairlead.client")

MAX_PAGES = 1000

_OVERHEARD = CHANGES | {ACKNOWLEDGED}


class MCPClient(TypedCalls):
    """A connection to one server. May be shared by many tasks and closed by any of them.

    async with MCPClient.connect_stdio(["uvx", "some-server"]) as client:
        print(await client.call_tool("add", {"a": 1, "b": 2}))
    """

    def __init__(
        self,
        transport: ChannelTransport,
        config: MCPClientConfig | None = None,
        *,
        identity: Identity | None = None,
        server_key: Hashable = None,
        renew: Callable[[], ChannelTransport] | None = None,
    ) -> None:
        """`server_key` is what identifies the server, where its era shall be remembered.

        `renew` makes another transport to the same server, where `auto_reconnect` may need one.
        """
        self.config = config = config or MCPClientConfig()
        self.transport = transport
        self.on_log: OnLog | None = None
        self.on_request: OnRequest | None = None
        self.skipped: list[str] = []  # list items we could not read, each with the reason
        self._on_notification: Listener | None = None
        self._identity = identity or _identity(config)
        self._server_key = server_key
        self._agreement: Agreement | None = None
        self._capabilities: dict[str, Any] = {}
        self._answers = Answers()
        self._log_level: str | None = None
        self._listening = Listening()
        self._known = KnownTools()
        self._cache: Cache | None = None  # only the stateless era has something to keep
        self._retry = Retry(
            config.max_retries, config.retry_delay, tool_calls=config.retry_tool_calls
        )
        self._keeper = Keeper(self, renew if config.auto_reconnect else None)
        self._send: Send | None = None  # instead of the peer, when something stands in between
        self._adopt(transport)

    # Opening and closing

    @classmethod
    def connect_stdio(
        cls,
        command: Sequence[str],
        config: MCPClientConfig | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_stderr: Callable[[str], None] | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "Connecting[MCPClient]":
        """Start a server as a child process and connect to it.

        Use it with `async with`, or `await` it and `close()` the client later.
        """
        if isinstance(command, str):
            raise TypeError("command is a list: the program and each of its arguments")
        entry = MCPStdioServerConfig(
            command=command[0] if command else "",
            args=list(command[1:]),
            env=dict(env or {}),
            cwd=cwd,
        )
        config = config or MCPClientConfig()
        identity = _identity(config)
        key = (*command, cwd, tuple(sorted(entry.env.items())))

        def transport() -> StdioTransport:
            return StdioTransport(
                entry,
                on_stderr=on_stderr,
                identity=identity,
                timeout=config.timeout_seconds,
                gated=True,
                input_timeout=config.input_timeout,
            )

        return cls._connecting(transport, config, identity, callbacks, key)

    @classmethod
    def connect_channel(
        cls,
        open_channel: Callable[[], Awaitable[Channel]],
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "Connecting[MCPClient]":
        """Connect over a channel of your own; `open_channel` makes it."""
        config = config or MCPClientConfig()
        identity = _identity(config)

        def transport() -> ChannelTransport:
            return ChannelTransport(
                open_channel,
                timeout=config.timeout_seconds,
                identity=identity,
                gated=True,
                input_timeout=config.input_timeout,
            )

        return cls._connecting(transport, config, identity, callbacks)

    @classmethod
    def connect_inprocess(
        cls,
        server: Attaches,
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "Connecting[MCPClient]":
        """Connect to a server object in this process: an `MCPServer`, or what has its `attach`."""
        config = config or MCPClientConfig()
        identity = _identity(config)

        def transport() -> ChannelTransport:
            return InProcessTransport(
                server,
                timeout=config.timeout_seconds,
                identity=identity,
                gated=True,
                input_timeout=config.input_timeout,
            )

        return cls._connecting(transport, config, identity, callbacks)

    @classmethod
    def connect_unix(
        cls, path: str, config: MCPClientConfig | None = None, **callbacks: Unpack[Callbacks]
    ) -> "Connecting[MCPClient]":
        """Connect to a server that speaks lines on a unix domain socket."""
        from ..transport.socket import connect_unix

        return cls.connect_channel(lambda: connect_unix(path), config, **callbacks)

    @classmethod
    def connect_tcp(
        cls,
        host: str,
        port: int,
        config: MCPClientConfig | None = None,
        **callbacks: Unpack[Callbacks],
    ) -> "Connecting[MCPClient]":
        """Connect to a server that speaks lines on a TCP port."""
        from ..transport.socket import connect_tcp

        return cls.connect_channel(lambda: connect_tcp(host, port), config, **callbacks)

    @classmethod
    def _connecting(
        cls,
        transport: Callable[[], ChannelTransport],
        config: MCPClientConfig,
        identity: Identity,
        callbacks: Callbacks,
        key: Hashable = None,
    ) -> "Connecting[MCPClient]":
        def make() -> "MCPClient":
            client = cls(transport(), config, identity=identity, server_key=key, renew=transport)
            return client._with(**callbacks)

        return Connecting(make, key)

    async def initialize(self) -> dict[str, Any]:
        """Connect and find out era, version and capabilities. Returns what is known of the server.

        Raises:
            ConnectFailed: and why.
            ChannelClosed: if the server ended meanwhile.
        """
        return await self.open(known_eras.stateless(self._server_key))

    async def open(self, stateless: bool | None = None) -> dict[str, Any]:
        """The same with a guess of the server's era: False goes straight to the handshake."""
        await self.open_on(self.transport, stateless)
        self._keeper.watch(self.config.health_check_interval)
        return self.server

    async def open_on(self, transport: ChannelTransport, stateless: bool | None = None) -> None:
        """Open the conversation on a transport and use that from now on."""
        await transport.connect()
        agreement = await agree_with(
            transport.peer, self._identity, self.config, stateless, self._server_key
        )
        if transport is not self.transport:
            transport.on_close, transport.on_error = (
                self.transport.on_close,
                self.transport.on_error,
            )
            self._known.forget_schemas()  # it may be a newer server than the one that listed them
        self._adopt(transport)
        self.transport = transport
        self._agreement = agreement
        self._capabilities = _object(agreement.capabilities)
        keeps = self.config.cache and agreement.revision.stateless
        self._cache = Cache() if keeps else None

    async def close(self) -> None:
        """End the connection, and the server if we started it. By any task, more than once."""
        await self._keeper.close()
        await self._listening.close()
        await self.transport.close()

    async def __aenter__(self) -> Self:
        if self._agreement is None:
            await self.initialize()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # What is known

    @property
    def connected(self) -> bool:
        return self.transport.connected

    @property
    def server(self) -> dict[str, Any]:
        """Version, capabilities, name and instructions of the server."""
        agreement = self._agreement
        if agreement is None:
            return {}
        known = {
            "protocolVersion": agreement.revision.value,
            "capabilities": self._capabilities,
            "serverInfo": _object(agreement.server_info),
        }
        if agreement.instructions is not None:
            known["instructions"] = agreement.instructions
        return known

    @property
    def protocol_version(self) -> str | None:
        return self._agreement.revision.value if self._agreement else None

    @property
    def instructions(self) -> str | None:
        return self._agreement.instructions if self._agreement else None

    @property
    def session(self) -> SessionContext:
        return self.transport.peer.session

    @property
    def on_notification(self) -> Listener | None:
        """Hears every notification of the server."""
        return self._on_notification

    @on_notification.setter
    def on_notification(self, listener: Listener | None) -> None:
        self._on_notification = listener

    @property
    def generation(self) -> int:
        """How often the connection was replaced."""
        return self._keeper.generation

    @property
    def health(self) -> dict[str, Any] | None:
        """What the last check in the background found; see `health_check`."""
        return self._keeper.health

    # What the server may ask. A handshake declares once what there is a callback for, so in that
    # era a new kind of callback takes effect with the next connection.

    @property
    def on_elicit(self) -> OnElicit | None:
        """Asks the user for the server."""
        return self._answers.on_elicit

    @on_elicit.setter
    def on_elicit(self, callback: OnElicit | None) -> None:
        self._answers.on_elicit = callback
        self._declare()

    @property
    def on_sample(self) -> OnSample | None:
        """Asks a model for the server."""
        return self._answers.on_sample

    @on_sample.setter
    def on_sample(self, callback: OnSample | None) -> None:
        self._answers.on_sample = callback
        self._declare()

    @property
    def on_roots(self) -> OnRoots | None:
        """Names the folders that the server may work in."""
        return self._answers.on_roots

    @on_roots.setter
    def on_roots(self, callback: OnRoots | None) -> None:
        self._answers.on_roots = callback
        self._declare()

    async def roots_changed(self) -> None:
        """Tell the server that `on_roots` would answer differently now.

        A stateless server asks whenever it needs to know, and is not told.
        """
        if not self._stateless:
            await self.transport.peer.notify("notifications/roots/list_changed")

    # Asking

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
    ) -> Raw:
        """Any request; the result's bytes.

        A timeout given here is not extended by progress; the configured one is. With `retry` the
        caller decides whether it may be sent again after it has failed.

        Raises:
            RpcError: the server said no.
            RequestTimeout: no answer in time.
            ChannelClosed: the connection ended.
            RetriesExhausted: either of these, several times.
            LocalProtocolError: it may not be asked now.
        """
        if timeout is None:
            limit, total = self.transport.timeout, self.config.max_total_seconds
        else:
            limit, total = timeout, 0.0
        try:
            send = self._send
            if send is not None:
                return await send(method, params, limit, total, on_progress, on_sent)
            return await self.transport.peer.request(
                method,
                params,
                timeout=limit,
                max_total=total,
                on_progress=on_progress,
                on_sent=on_sent,
            )
        except (FairleadError, OSError) as exc:
            log.info("%s failed: %s", method, exc)
            if not self._may_retry(method, params, exc, retry):
                raise
            failure: Exception = exc
        return await self._again(
            failure, method, params, retry, (limit, total, on_progress, on_sent)
        )

    async def ping(self) -> None:
        """Raises if the server does not answer."""
        await self.request("server/discover" if self._stateless else "ping", retry=False)

    async def discover(self, *, cache: bool = True) -> dict[str, Any]:
        """What the server says about itself now; after a handshake, what it said then."""
        if not self._stateless:
            return self.server
        return _result(await self._read("server/discover", None, cache))

    async def health_check(self) -> dict[str, Any]:
        """Whether the server answers, and how fast. Never raises."""
        started = time.perf_counter()
        name = _object(self._agreement.server_info if self._agreement else None).get("name")
        try:
            await self.ping()
        except FairleadError as exc:
            return {"ok": False, "latency_ms": _since(started), "server": name, "error": str(exc)}
        return {"ok": True, "latency_ms": _since(started), "server": name}

    async def list_tools(self, *, cache: bool = True) -> list[dict[str, Any]]:
        """All tools, across all pages. Items we cannot read are skipped and named in `skipped`."""
        tools = await self._list("tools/list", "tools", cache)
        self._known.forget()
        self._known.learn(tools)
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        errors: Literal["raise", "envelope"] = "raise",
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
        rounds: bool = True,
    ) -> dict[str, Any]:
        """Call a tool and return its result, `isError` or not.

        With `errors="envelope"` the whole JSON-RPC answer is returned, and failures of the way
        there (timeouts, lost connections) as synthetic ones. `retry=True` allows to call it again
        after a failure, even if the server may have got the call; `rounds=False` returns a request
        for input instead of answering it.

        Raises:
            InputNotGiven: the server asked something that this client cannot answer.
            OutputMismatch: the result does not fit the schema that the tool was listed with.
        """
        if errors == "envelope":
            return await self._call_enveloped(name, arguments, timeout, on_progress, retry, rounds)
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        raw = await self.request(
            "tools/call",
            params,
            timeout=timeout,
            on_progress=on_progress,
            on_sent=on_sent,
            retry=retry,
        )
        result = _result(raw)
        if result.get("resultType") == "input_required" and rounds:
            result = await self._rounds(
                "tools/call", params, raw, timeout, on_progress, on_sent, retry
            )
        if self._cache is not None:
            self._cache.acted()
        if self._known.schemas and self.config.validate_output:
            self._check_output(name, result)
        return result

    @staticmethod
    def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
        """The structured error in a tool's result, if it has one."""
        return tool_error(result)

    async def list_resources(self, *, cache: bool = True) -> list[dict[str, Any]]:
        return await self._list("resources/list", "resources", cache)

    async def list_resource_templates(self, *, cache: bool = True) -> list[dict[str, Any]]:
        return await self._list("resources/templates/list", "resourceTemplates", cache)

    async def read_resource(
        self, uri: str, *, cache: bool = True, rounds: bool = True
    ) -> dict[str, Any]:
        params = {"uri": uri}
        raw = await self._read("resources/read", params, cache)
        result = _result(raw)
        if result.get("resultType") == "input_required" and rounds:
            return await self._rounds("resources/read", params, raw)
        return result

    async def list_prompts(self, *, cache: bool = True) -> list[dict[str, Any]]:
        return await self._list("prompts/list", "prompts", cache)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, rounds: bool = True
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": dict(arguments or {})}
        raw = await self.request("prompts/get", params)
        result = _result(raw)
        if result.get("resultType") == "input_required" and rounds:
            return await self._rounds("prompts/get", params, raw)
        return result

    async def subscribe(self, uri: str) -> None:
        """Ask to be told, as `notifications/resources/updated`, when a resource changes."""
        if uri in self._listening.uris:
            return
        self._listening.uris[uri] = None
        try:
            if self._stateless:
                await self._listening.listen(self.transport.peer, self.transport.timeout)
            else:
                await self.request("resources/subscribe", {"uri": uri})
        except BaseException:
            self._listening.uris.pop(uri, None)
            raise

    async def unsubscribe(self, uri: str) -> None:
        """The opposite of `subscribe`."""
        if self._listening.uris.pop(uri, uri) is not None:
            return
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)
        else:
            await self.request("resources/unsubscribe", {"uri": uri})

    async def listen(self, *changes: Changes) -> None:
        """Ask to be told when lists change; servers of the handshake era tell it by themselves."""
        self._listening.lists = set(changes)
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)

    async def set_log_level(self, level: str) -> None:
        """Ask for log messages of at least this level, in the way of the era."""
        self._log_level = level
        if self._stateless:
            self._identity.want_logs(level)
        else:
            await self._set_level(level)

    # Private

    @property
    def _stateless(self) -> bool:
        return self._agreement is not None and self._agreement.revision.stateless

    def _with(
        self,
        *,
        on_log: OnLog | None = None,
        on_notification: Listener | None = None,
        on_request: OnRequest | None = None,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        on_roots: OnRoots | None = None,
        elicit_url: bool = False,
        sample_tools: bool = False,
        interceptors: Sequence[Interceptor] = (),
    ) -> Self:
        self.on_log = on_log
        self._on_notification = on_notification
        self.on_request = on_request
        self._answers = Answers(
            on_elicit, on_sample, on_roots, elicit_url=elicit_url, sample_tools=sample_tools
        )
        self._declare()
        if interceptors:
            self._send = intercepted(interceptors, lambda: self.transport.peer, self._identity)
        return self

    def _declare(self) -> None:
        """Say what we can be asked: in the handshake, and with every stateless request."""
        self._identity.capabilities = to_json(self._answers.capabilities)
        self._identity.want_logs(self._log_level if self._stateless else None)

    def _adopt(self, transport: ChannelTransport) -> None:
        transport.on_notification = self._notified
        transport.on_request = self._asked
        transport.overhear = self._overhear

    async def _asked(self, method: str, params: dict[str, Any]) -> Any:
        """A request of the server, in the handshake era."""
        if self._answers.missing(method) is None:
            try:
                async with asyncio.timeout(self.config.input_timeout or None):
                    return await self._answers.answer(method, params)
            except TimeoutError as exc:
                raise RpcError(INTERNAL_ERROR, f"Nobody answered {method} in time") from exc
        if self.on_request is not None:
            return await self.on_request(method, params)
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    async def _rounds(
        self,
        method: str,
        params: dict[str, Any],
        first: Raw,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
        retry: bool | None = None,
    ) -> dict[str, Any]:
        from .rounds import Rounds

        def ask(again: dict[str, Any]) -> Awaitable[Raw]:
            return self.request(
                method,
                again,
                timeout=timeout,
                on_progress=on_progress,
                on_sent=on_sent,
                retry=retry,
            )

        config = self.config
        rounds = Rounds(
            self._answers,
            limit=config.max_rounds,
            input_timeout=config.input_timeout,
            max_total=config.max_total_seconds,
        )
        return _result(await rounds.finish(method, params, first, ask))

    def _check_output(self, tool: str, result: dict[str, Any]) -> None:
        if result.get("resultType", "complete") == "complete":
            self._known.check(tool, result)

    def _may_retry(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        failure: Exception,
        wanted: bool | None,
    ) -> bool:
        if not self.transport.connected and not self._keeper.can_renew:
            return False  # closed stays closed
        harmless = method == "tools/call" and self._known.harmless((params or {}).get("name"))
        return self._retry.allows(method, failure, harmless=harmless, wanted=wanted)

    async def _again(
        self,
        failure: Exception,
        method: str,
        params: Mapping[str, Any] | None,
        wanted: bool | None,
        options: tuple[Any, ...],
    ) -> Raw:
        """The further attempts of a request that has failed once."""
        limit, total, on_progress, on_sent = options
        retries = 0
        for delay in self._retry.delays():
            log.info("%s is tried again in %.2f s", method, delay)
            await asyncio.sleep(delay)
            retries += 1
            try:
                if not self.transport.connected:
                    await self._keeper.renew(self._keeper.generation)
                if self._send is not None:
                    return await self._send(method, params, limit, total, on_progress, on_sent)
                return await self.transport.peer.request(
                    method,
                    params,
                    timeout=limit,
                    max_total=total,
                    on_progress=on_progress,
                    on_sent=on_sent,
                )
            except (FairleadError, OSError) as exc:
                log.info("%s failed: %s", method, exc)
                if not self._may_retry(method, params, exc, wanted):
                    raise
                failure = exc
        raise exhausted(method, retries, failure) from failure

    async def _set_level(self, level: str, retry: bool | None = None) -> None:
        if has_capability(self._capabilities, "logging"):
            await self.request("logging/setLevel", {"level": level}, retry=retry)

    async def restore(self) -> None:
        """After a reconnect: ask again for what the old connection had been asked for."""
        if self._stateless:
            await self._listening.listen(self.transport.peer, self.transport.timeout)
            return
        if self._log_level is not None:
            await self._set_level(self._log_level, retry=False)
        for uri in tuple(self._listening.uris):
            await self.request("resources/subscribe", {"uri": uri}, retry=False)

    async def _read(self, method: str, params: dict[str, Any] | None, cache: bool) -> Raw:
        """A request that only reads, from the cache if that has it."""
        if self._cache is None or not cache:
            return await self.request(method, params)
        return await self._cache.get(method, params, lambda: self.request(method, params))

    def _offers(self, method: str) -> bool:
        """PRO-06: what the server does not have is empty, without asking."""
        if self._agreement is None:
            return True
        row = find(method, self._agreement.revision)
        if row is None or not row.capability:
            return True
        return has_capability(self._capabilities, row.capability)

    async def _list(self, method: str, member: str, cache: bool) -> list[dict[str, Any]]:
        if not self._offers(method):
            return []
        items: list[dict[str, Any]] = []
        async for page in self._pages(method, cache=cache):
            raw = page.get(member)
            if raw is None:
                self._skip(method, f"a page without {member}")
                continue
            items += self._read_items(method, raw)
        return items

    async def _pages(self, method: str, *, cache: bool = True) -> AsyncIterator[dict[str, Raw]]:
        """Follow `nextCursor` to the end, with a guard against servers that go round in circles."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            params = None if cursor is None else {"cursor": cursor}
            page = decode(await self._read(method, params, cache), dict[str, Raw])
            yield page
            if "nextCursor" not in page or bytes(page["nextCursor"]) == b"null":
                return
            cursor = decode(page["nextCursor"], str)
            # An empty cursor is one like any other, but only in the stateless era.
            if cursor in seen or (cursor == "" and not self._stateless):
                log.warning("%s repeats the cursor %r; stopping there", method, cursor)
                return
            seen.add(cursor)

    def _read_items(self, method: str, raw: Raw) -> list[dict[str, Any]]:
        try:
            items = decode(raw, list[Raw])
        except msgspec.DecodeError as exc:
            self._skip(method, str(exc))
            return []
        good, bad = decode_items(items, dict[str, Any])
        for item in bad:
            self._skip(method, f"item {item.index}: {item.reason}")
        named = [item for item in good if _has_key(item)]
        if len(named) < len(good):
            self._skip(method, f"{len(good) - len(named)} items without a name")
        return named

    def _skip(self, method: str, reason: str) -> None:
        log.warning("skipped in %s: %s", method, reason)
        self.skipped.append(f"{method}: {reason}")
        del self.skipped[:-100]

    async def _call_enveloped(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
        on_progress: OnProgress | None,
        retry: bool | None,
        rounds: bool,
    ) -> dict[str, Any]:
        ids: list[RequestId] = []
        try:
            result = await self.call_tool(
                name,
                arguments,
                timeout,
                on_progress=on_progress,
                on_sent=ids.append,
                retry=retry,
                rounds=rounds,
            )
            return {"jsonrpc": "2.0", "id": ids[-1], "result": result}
        except RpcError as exc:
            error = {"code": exc.code, "message": exc.message}
            if exc.data is not None:
                error["data"] = exc.data
            return {"jsonrpc": "2.0", "id": ids[-1], "error": error}
        except RequestTimeout as exc:
            return make_tool_error(ids[-1] if ids else 0, 408, str(exc), kind="timeout")
        except (ChannelClosed, RetriesExhausted, LocalProtocolError) as exc:
            return make_tool_error(ids[-1] if ids else 0, 499, str(exc), kind="closed")

    def _overhear(self, notification: Notification) -> None:
        """What the client itself wants to know of what the server tells, before anybody else."""
        method = notification.method
        if method not in _OVERHEARD:
            return
        if method == "notifications/tools/list_changed":
            self._known.forget()
        params = notification.params
        said = {} if isinstance(params, UnsetType) else _object(bytes(params))
        if method == ACKNOWLEDGED:
            self._listening.heard(said)
        elif self._cache is not None:
            self._cache.heard(method, said)

    def _notified(self, method: str, params: dict[str, Any]) -> Awaitable[None] | None:
        calls: list[Awaitable[None]] = []
        if method == "notifications/message" and self.on_log is not None:
            said = self.on_log(
                str(params.get("level", "info")), params.get("data"), params.get("logger")
            )
            if said is not None:
                calls.append(said)
        if self._on_notification is not None:
            told = self._on_notification(method, params)
            if told is not None:
                calls.append(told)
        return _one_after_another(calls) if calls else None


def _identity(config: MCPClientConfig) -> Identity:
    return Identity({"name": config.name, "version": config.version}, {})


def _object(raw: bytes | None) -> dict[str, Any]:
    if raw is None:
        return {}
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _result(raw: Raw) -> dict[str, Any]:
    """A result, decoded. One of a type we do not know is an invalid answer."""
    try:
        value: dict[str, Any] = _decode_result(raw)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RemoteProtocolError(f"The result is malformed: {exc}", code=INVALID_REQUEST) from exc
    if value.get("resultType", "complete") not in ("complete", "input_required"):
        kind = value["resultType"]
        raise RemoteProtocolError(f"unknown resultType {kind!r}", code=INVALID_REQUEST)
    return value


_decode_result = msgspec.json.Decoder(dict[str, Any]).decode


def _has_key(item: dict[str, Any]) -> bool:
    return any(isinstance(item.get(key), str) for key in ("name", "uri", "uriTemplate"))


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)


async def _one_after_another(calls: list[Awaitable[None]]) -> None:
    for call in calls:
        await call
