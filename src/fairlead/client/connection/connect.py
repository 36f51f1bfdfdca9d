"""Opening a client's connection; if a server refuses an era, the other one is tried."""

import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from ...errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    RemoteProtocolError,
    RpcError,
    TransportError,
)
from ...transport.login_waits import LoginTimeout
from ..client_config import MCPClientConfig
from ..mcp_transport.channel_transport import ChannelTransport
from ..server_entry import MCPStdioServerConfig
from .era_cache import known_eras

__all__ = ["ConnectionAttempt", "DeferredAttempt"]

log = logging.getLogger("fairlead.client")


class Openable(Protocol):
    """An object that can be opened and closed."""

    config: MCPClientConfig
    transport: ChannelTransport

    async def open(self, stateless: bool | None = None) -> Any: ...
    async def close(self) -> None: ...


C = TypeVar("C", bound=Openable)

_HOW_TO_USE = (
    "the client is not connected yet; use `async with MCPClient.connect(...) as client:` "
    "or `client = await MCPClient.connect(...)`"
)


class ConnectionAttempt(Generic[C]):
    """A connection to open: use `async with`, or `await` it and close the client yourself."""

    def __init__(self, make: Callable[[], C], server_key: Hashable = None) -> None:
        """Create an attempt.

        `server_key` identifies a server that can be started or connected to again.
        """
        self._make = make
        self._server_key = server_key
        self._client: C | None = None
        self.server_name = ""  # name of the server in log lines, if the program has a name for it

    def __await__(self) -> Generator[Any, None, C]:
        return self._connect().__await__()

    async def __aenter__(self) -> C:
        return await self._connect()

    async def __aexit__(self, *exc: object) -> None:
        if self._client is not None:
            await self._client.close()

    @property
    def unreadable_output(self) -> tuple[str, ...]:
        """The first lines that the server wrote before its first message, redacted and escaped."""
        return () if self._client is None else self._client.transport.unreadable_output

    def __enter__(self) -> NoReturn:
        raise TypeError(_HOW_TO_USE)

    def __exit__(self, *exc: object) -> None: ...

    # Hidden from type checkers, which would otherwise accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"no attribute {name!r}: {_HOW_TO_USE}")

    def _new_client(self) -> C:
        client = self._make()
        client.transport.server_name = self.server_name
        return client

    async def _connect(self) -> C:
        client = self._client = self._new_client()
        seconds = client.config.timeout_seconds
        try:
            async with LoginTimeout(seconds or None, client.transport.logins):
                return await self._open(client)
        except TimeoutError as exc:
            await self._client.close()
            raise ConnectFailed(
                f"No connection within {seconds * 1000:.0f}ms",
                output=self.unreadable_output,
                public=f"did not answer within {seconds:g} s",
            ) from exc
        except BaseException as exc:
            await self._client.close()
            _add_hint(exc, client.transport)
            raise

    async def _open(self, client: C) -> C:
        remembered = known_eras.stateless(self._server_key)
        if remembered is not None:
            try:
                await client.open(remembered)
                return client
            except ConnectFailed as exc:
                if remembered or not _is_refusal(exc.__cause__):
                    raise
            except ChannelClosed as exc:
                known_eras.forget(self._server_key)
                if not self._died_of_it(exc):
                    raise _lost(exc, self.unreadable_output) from exc
            log.debug("the server rejected its remembered era; connecting again with a probe")
            client = await self._anew(client)
        try:
            await client.open()
            return client
        except ChannelClosed as exc:
            if remembered is False or not self._died_of_it(exc):
                known_eras.forget(self._server_key)
                raise _lost(exc, self.unreadable_output) from exc
        except ConnectFailed as exc:
            if remembered is False or not self._was_upset(client, exc):
                raise
        # Some servers exit when they receive an unknown first message, before their era is known.
        # Others answer all later messages with an error. Start the server again, and send
        # `initialize` first.
        log.debug("the server failed during the probe; connecting again with initialize")
        client = await self._anew(client)
        try:
            await client.open(stateless=False)
        except ChannelClosed as exc:
            raise _lost(exc, self.unreadable_output) from exc
        return client

    def _died_of_it(self, exc: ChannelClosed) -> bool:
        """Return True if a child process may have exited because of the first message."""
        free = self._client is not None and self._client.config.protocol_version == "auto"
        ours = self._server_key is not None and exc.exit_code is not None
        return free and ours and exc.delivered

    def _was_upset(self, client: C, exc: ConnectFailed) -> bool:
        """Return True if a child process may have refused `initialize` because of the probe."""
        ours = isinstance(client.transport.entry, MCPStdioServerConfig)
        return ours and client.config.protocol_version == "auto" and _is_refusal(exc.__cause__)

    async def _anew(self, client: C) -> C:
        await client.close()
        self._client = self._new_client()
        return self._client


class DeferredAttempt(ConnectionAttempt[C]):
    """A connection to a server that has to be looked up first."""

    def __init__(self, prepare: Callable[[], Awaitable[ConnectionAttempt[C]]]) -> None:
        self._prepare = prepare
        self._client: C | None = None

    async def _connect(self) -> C:
        self._client = await (await self._prepare())
        return self._client


def _is_refusal(error: BaseException | None) -> bool:
    """Return True if the server refused the request, perhaps because it expects another era."""
    if isinstance(error, HttpError):
        return error.status < 500
    return isinstance(error, RpcError | RemoteProtocolError)


def _add_hint(exc: BaseException, transport: ChannelTransport) -> None:
    """Set the hint of an error that the URL or missing credentials have probably caused."""
    entry = transport.entry
    if not isinstance(exc, TransportError) or not entry or isinstance(entry, MCPStdioServerConfig):
        return
    # Imported here, because only failed connections need it.
    from ...transport.address_hint import address_hint

    exc.hint = exc.hint or address_hint(exc, entry.url)
    # With an authorizer, the server has refused even a renewed token.
    if isinstance(exc, HttpError) and exc.status == 401 and transport.logins is None:
        exc.hint = exc.hint or _credentials_hint(exc, entry.url, entry.has_authorization)


def _credentials_hint(exc: HttpError, url: str, has_authorization: bool) -> str:
    """Return how to pass the credentials that a server has required with a 401."""
    if has_authorization:
        return "the server rejected the token; check `auth` or the `Authorization` header"
    if "resource_metadata" not in (exc.www_authenticate or "").lower():
        return (
            'the server requires a token; pass auth="TOKEN", or '
            'headers={"Authorization": "Bearer TOKEN"}'
        )
    from ...auth.metadata import server_resource

    return (
        'the server requires a login: pass auth="oauth", which uses the login that '
        f"`fairlead login {server_resource(url)}` has stored, or opens the browser"
    )


def _lost(exc: ChannelClosed, output: Sequence[str] = ()) -> ConnectFailed:
    """Build the error for a connection that closed before the handshake was complete."""
    reason = exc.reason or "the connection closed"
    lost = ConnectFailed(
        f"Could not connect: {reason} before the handshake was complete",
        exit_code=exc.exit_code,
        stderr=exc.stderr,
        output=output,
        public=exc.public,
    )
    if exc.exit_code == 0 and not exc.stderr:
        lost.hint = lost.hint or _NO_RUN
    return lost


_NO_RUN = "a server must run until its stdin closes: check that it calls `server.run()`"
