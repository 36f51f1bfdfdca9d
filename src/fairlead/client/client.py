"""A client: connect to a server of whatever era, and use what it offers."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec
from msgspec import Raw

from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    LocalProtocolError,
    MCPToolError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from ..peer import OnProgress
from ..protocol.contracts import make_tool_error
from ..protocol.conversation import Agreement
from ..protocol.envelope import SessionContext
from ..protocol.methods import find, has_capability
from ..protocol.outgoing import Identity
from ..protocol.types.base import decode, decode_items
from ..transport.base import Channel
from ..wire import RequestId
from ..wire.codes import INVALID_REQUEST
from .config import MCPClientConfig, MCPStdioServerConfig
from .connecting import Connecting
from .eras import known_eras
from .mailbox import Listener
from .opening import Introduction, open_conversation
from .transports import ChannelTransport, OnRequest, StdioTransport

__all__ = ["MCPClient"]

log = logging.getLogger("fairlead.client")

OnLog = Callable[[str, Any, str | None], Awaitable[None] | None]  # level, data, logger

MAX_PAGES = 1000


class MCPClient:
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
    ) -> None:
        """`server_key` is what identifies the server, where its era shall be remembered."""
        self.config = config or MCPClientConfig()
        self.transport = transport
        self.on_log: OnLog | None = None
        self._on_notification: Listener | None = None
        self._identity = identity or _identity(self.config)
        self._server_key = server_key
        self._agreement: Agreement | None = None
        self._capabilities: dict[str, Any] = {}
        self.skipped: list[str] = []  # list items we could not read, each with the reason
        transport.on_notification = self._notified

    # Opening and closing

    @classmethod
    def connect_stdio(
        cls,
        command: Sequence[str],
        config: MCPClientConfig | None = None,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_log: OnLog | None = None,
        on_notification: Listener | None = None,
        on_request: OnRequest | None = None,
        on_stderr: Callable[[str], None] | None = None,
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

        def make() -> "MCPClient":
            transport = StdioTransport(
                entry,
                on_stderr=on_stderr,
                identity=identity,
                timeout=config.timeout_seconds,
                gated=True,
            )
            client = cls(transport, config, identity=identity, server_key=key)
            return client._hears(on_log, on_notification, on_request)

        return Connecting(make, key)

    @classmethod
    def connect_channel(
        cls,
        open_channel: Callable[[], Awaitable[Channel]],
        config: MCPClientConfig | None = None,
        *,
        on_log: OnLog | None = None,
        on_notification: Listener | None = None,
        on_request: OnRequest | None = None,
    ) -> "Connecting[MCPClient]":
        """Connect over a channel of your own; `open_channel` makes it."""
        config = config or MCPClientConfig()
        identity = _identity(config)

        def make() -> "MCPClient":
            transport = ChannelTransport(
                open_channel, timeout=config.timeout_seconds, identity=identity, gated=True
            )
            client = cls(transport, config, identity=identity)
            return client._hears(on_log, on_notification, on_request)

        return Connecting(make)

    @classmethod
    def connect_unix(
        cls, path: str, config: MCPClientConfig | None = None, **callbacks: Any
    ) -> "Connecting[MCPClient]":
        """Connect to a server that speaks lines on a unix domain socket."""
        from ..transport.socket import connect_unix

        return cls.connect_channel(lambda: connect_unix(path), config, **callbacks)

    @classmethod
    def connect_tcp(
        cls, host: str, port: int, config: MCPClientConfig | None = None, **callbacks: Any
    ) -> "Connecting[MCPClient]":
        """Connect to a server that speaks lines on a TCP port."""
        from ..transport.socket import connect_tcp

        return cls.connect_channel(lambda: connect_tcp(host, port), config, **callbacks)

    async def initialize(self) -> dict[str, Any]:
        """Connect and find out era, version and capabilities. Returns what is known of the server.

        Raises:
            ConnectFailed: and why.
            ChannelClosed: if the server ended meanwhile.
        """
        return await self.open(known_eras.stateless(self._server_key))

    async def open(self, stateless: bool | None = None) -> dict[str, Any]:
        """The same with a guess of the server's era: False goes straight to the handshake."""
        config = self.config
        await self.transport.connect()
        introduction = Introduction(
            {
                "capabilities": msgspec.json.decode(self._identity.capabilities),
                "clientInfo": msgspec.json.decode(self._identity.info),
            },
            version=config.protocol_version,
            probe_timeout=config.probe_timeout,
            timeout=config.timeout_seconds,
        )
        try:
            agreement = await open_conversation(
                self.transport.peer, introduction, stateless=stateless
            )
        except (RpcError, RequestTimeout, RemoteProtocolError) as exc:
            known_eras.forget(self._server_key)
            raise ConnectFailed(f"The server did not open the conversation: {exc}") from exc
        if self._server_key is not None and introduction.probes:
            known_eras.remember(self._server_key, agreement.revision.stateless)
        self._agreement = agreement
        self._capabilities = _object(agreement.capabilities)
        return self.server

    async def close(self) -> None:
        """End the connection, and the server if we started it. By any task, more than once."""
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

    # Asking

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_sent: Callable[[RequestId], None] | None = None,
    ) -> Raw:
        """Any request; the result's bytes.

        A timeout given here is not extended by progress; the configured one is.

        Raises:
            RpcError: the server said no.
            RequestTimeout: no answer in time.
            ChannelClosed: the connection ended.
            LocalProtocolError: it may not be asked now.
        """
        if timeout is None:
            limit, total = self.transport.timeout, self.config.max_total_seconds
        else:
            limit, total = timeout, 0.0
        return await self.transport.peer.request(
            method,
            params,
            timeout=limit,
            max_total=total,
            on_progress=on_progress,
            on_sent=on_sent,
        )

    async def ping(self) -> None:
        """Raises if the server does not answer."""
        await self.request("server/discover" if self._stateless else "ping")

    async def health_check(self) -> dict[str, Any]:
        """Whether the server answers, and how fast. Never raises."""
        started = time.perf_counter()
        name = _object(self._agreement.server_info if self._agreement else None).get("name")
        try:
            await self.ping()
        except FairleadError as exc:
            return {"ok": False, "latency_ms": _since(started), "server": name, "error": str(exc)}
        return {"ok": True, "latency_ms": _since(started), "server": name}

    async def list_tools(self) -> list[dict[str, Any]]:
        """All tools, across all pages. Items we cannot read are skipped and named in `skipped`."""
        return await self._list("tools/list", "tools")

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        errors: Literal["raise", "envelope"] = "raise",
    ) -> dict[str, Any]:
        """Call a tool and return its result, `isError` or not.

        With `errors="envelope"` the whole JSON-RPC answer is returned, and failures of the way
        there (timeouts, lost connections) as synthetic ones.
        """
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        if errors == "envelope":
            return await self._call_enveloped(params, timeout, on_progress)
        result = await self.request("tools/call", params, timeout=timeout, on_progress=on_progress)
        return _result(result)

    @staticmethod
    def tool_error(result: Mapping[str, Any]) -> MCPToolError | None:
        """The structured error in a tool's result, if it has one."""
        if not result.get("isError"):
            return None
        for block in result.get("content") or ():
            try:
                return MCPToolError.from_dict(msgspec.json.decode(block["text"]))
            except (KeyError, TypeError, ValueError, msgspec.DecodeError):
                continue
        return None

    async def list_resources(self) -> list[dict[str, Any]]:
        return await self._list("resources/list", "resources")

    async def list_resource_templates(self) -> list[dict[str, Any]]:
        return await self._list("resources/templates/list", "resourceTemplates")

    async def read_resource(self, uri: str) -> dict[str, Any]:
        return _result(await self.request("resources/read", {"uri": uri}))

    async def list_prompts(self) -> list[dict[str, Any]]:
        return await self._list("prompts/list", "prompts")

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        params = {"name": name, "arguments": dict(arguments or {})}
        return _result(await self.request("prompts/get", params))

    async def set_log_level(self, level: str) -> None:
        """Ask for log messages of at least this level, in the way of the era."""
        if self._stateless:
            self._identity.want_logs(level)
        elif has_capability(self._capabilities, "logging"):
            await self.request("logging/setLevel", {"level": level})

    # Private

    @property
    def _stateless(self) -> bool:
        return self._agreement is not None and self._agreement.revision.stateless

    def _hears(
        self,
        on_log: OnLog | None,
        on_notification: Listener | None,
        on_request: OnRequest | None,
    ) -> Self:
        self.on_log = on_log
        self._on_notification = on_notification
        self.transport.on_request = on_request
        return self

    async def _list(self, method: str, member: str) -> list[dict[str, Any]]:
        """PRO-06: what the server does not have is empty, without asking."""
        if self._agreement is not None:
            row = find(method, self._agreement.revision)
            if row and row.capability and not has_capability(self._capabilities, row.capability):
                return []
        items: list[dict[str, Any]] = []
        async for page in self._pages(method):
            raw = page.get(member)
            if raw is None:
                self._skip(method, f"a page without {member}")
                continue
            items += self._read_items(method, raw)
        return items

    async def _pages(self, method: str) -> AsyncIterator[dict[str, Raw]]:
        """Follow `nextCursor` to the end, with a guard against servers that go round in circles."""
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            params = None if cursor is None else {"cursor": cursor}
            page = decode(await self.request(method, params), dict[str, Raw])
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
        self, params: dict[str, Any], timeout: float | None, on_progress: OnProgress | None
    ) -> dict[str, Any]:
        ids: list[RequestId] = []
        try:
            result = await self.request(
                "tools/call",
                params,
                timeout=timeout,
                on_progress=on_progress,
                on_sent=ids.append,
            )
            return {"jsonrpc": "2.0", "id": ids[0], "result": _result(result)}
        except RpcError as exc:
            error = {"code": exc.code, "message": exc.message}
            if exc.data is not None:
                error["data"] = exc.data
            return {"jsonrpc": "2.0", "id": ids[0], "error": error}
        except RequestTimeout as exc:
            return make_tool_error(ids[0] if ids else 0, 408, str(exc), kind="timeout")
        except (ChannelClosed, LocalProtocolError) as exc:
            return make_tool_error(ids[0] if ids else 0, 499, str(exc), kind="closed")

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
