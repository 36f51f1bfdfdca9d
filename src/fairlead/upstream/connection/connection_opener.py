"""Opening of connections to one server: detection of its eras, and delays after failures."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ...client.connection.handshake import HandshakeOptions, open_conversation
from ...config.upstream_settings import UpstreamSettings
from ...errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    RpcError,
)
from ...interceptor import Interceptor
from ...protocol.caller import Caller, Principal
from ...protocol.conversation.era_probe import (
    RefusedInitialize,
    judge_initialize,
    judge_refused_initialize,
    lacks_handshake,
)
from ...protocol.identity.client_capabilities import for_handshake_server
from ...protocol.outgoing_params import Identity
from ...protocol.public_reason import owner_reason, public_reason
from ...protocol.revisions import NEWEST
from ...transport import timeouts
from ...transport.backoff import Backoff
from ...wire import Success
from ..server_target import ServerTarget
from ..starts.start_limiter import StartLimiter
from .connection_key import ConnectionKey
from .upstream_connection import UpstreamConnection
from .upstream_param_headers import ServerParamHeaders

__all__ = ["ConnectionOpener", "introduction_of"]

# seconds of the first and the longest delay after a failed attempt
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
MOST_BACKOFFS = 1024  # maximum number of connection keys whose failed attempts are remembered
MOST_FAILING = 8  # connection keys of one principal for which attempts may fail at the same time
PROBE_TIMEOUT = 5.0  # seconds for `server/discover`, after the server has answered `initialize`

log = logging.getLogger("fairlead.gateway")

_FOR_THIS_CLIENT = RefusedInitialize.FOR_THIS_CLIENT


class _FailedAttempts:
    """The failed attempts to open a connection for one connection key.

    Failures are counted per key, because some servers exit when they receive certain capabilities.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None  # the error of the last attempt
        self._backoff = Backoff(FIRST_DELAY, LONGEST_DELAY, jitter=0.0)
        self._not_before = 0.0

    @property
    def waiting(self) -> bool:
        """True while the delay after a failed attempt has not passed."""
        return time.monotonic() < self._not_before

    def failed(self, error: BaseException) -> None:
        self._not_before = time.monotonic() + self._backoff.next()
        self.error = error

    def try_at_once(self) -> None:
        self._not_before = 0.0


class ConnectionOpener:
    """Opens connections to one server, and remembers the eras that it supports."""

    def __init__(
        self,
        target: ServerTarget,
        settings: Callable[[], UpstreamSettings],
        starts: StartLimiter,
        on_close: Callable[[UpstreamConnection, ChannelClosed], None],
    ) -> None:
        """`settings` returns the current settings."""
        self.target = target
        self._current_settings = settings
        self.interceptors: Sequence[Interceptor] = ()  # interceptors for messages of the server
        # True if the server supports an era, None if unknown.
        self.speaks_stateless: bool | None
        self.speaks_handshake: bool | None
        self.forget_eras()
        self.param_headers = ServerParamHeaders()
        self.error: BaseException | None = None  # the error of the last attempt, if it failed
        self.wanted = False  # True once a connection was requested
        self.closed = False
        self.starts = starts
        self._on_close = on_close
        self._backoffs: dict[ConnectionKey, _FailedAttempts] = {}

    @property
    def settings(self) -> UpstreamSettings:
        """The current settings."""
        return self._current_settings()

    def forget_eras(self) -> None:
        """Forget the eras of the server. An era that the settings exclude is not supported."""
        era = self.settings.era
        self.speaks_stateless = False if era == "handshake" else None
        self.speaks_handshake = False if era == "stateless" else None

    # Kinds of connections

    async def open_for_session(
        self, introduction: Raw, key: ConnectionKey, *, others: bool
    ) -> UpstreamConnection:
        """Open a connection with the `initialize` of a client, byte for byte.

        A process that refuses `initialize` is probed for the stateless era. `others` is True if
        other connections to the server exist, so that its era is certain.

        Raises:
            RpcError, HttpError: The server refused `initialize`.
            FairleadError: The server cannot be reached.
        """

        async def converse(connection: UpstreamConnection) -> None:
            try:
                result = await connection.peer.outbound.forward(
                    "initialize", lambda _: introduction, timeout=self.settings.connect_timeout
                )
            except RpcError as exc:
                exc.executed = connection.peer.channel.executed_initialize
                if not self._may_stay(exc, others):
                    raise
                said = msgspec.json.decode(introduction)
                await self._probe_refused(connection, said, exc)
                return
            agreement = judge_initialize(Success(0, result))
            connection.introduction = result.copy()
            connection.agreement = agreement
            connection.peer.conversation.set_agreement(agreement)
            self.speaks_handshake = True

        return await self._open(converse, key)

    async def open_after_refusal(
        self, caller: Caller, key: ConnectionKey, refusal: RpcError | HttpError
    ) -> UpstreamConnection:
        """Open a stateless connection to a server that refused `initialize`.

        Raises:
            RpcError, HttpError: The server has a handshake or cannot be reached; `refusal` is
            raised again.
        """
        said = introduction_of(for_handshake_server(caller.capabilities), caller)
        identity = Identity(said["clientInfo"], said["capabilities"])

        async def converse(connection: UpstreamConnection) -> None:
            await self._probe_refused(connection, said, refusal)

        try:
            return await self._open(converse, key, identity)
        except FairleadError as exc:
            log.debug("%s: the stateless probe failed as well: %s", self.target.name, exc)
            raise refusal from None

    async def find_out(
        self, introduction: dict[str, Any], key: ConnectionKey, *, others: bool
    ) -> UpstreamConnection:
        """Open a connection in the era that the server prefers."""
        try:
            return await self.open(introduction, key, stateless=None, others=others)
        except ChannelClosed as exc:
            if exc.exit_code is None or not exc.delivered or self.settings.era == "stateless":
                raise
        # Some servers exit on an unknown first message, so start another with `initialize`.
        self._backoffs[key].try_at_once()
        connection = await self.open(introduction, key, stateless=False, others=others)
        self.speaks_stateless = False
        return connection

    def doubts_era(self, refusal: RpcError | HttpError, *, others: bool) -> bool:
        """Forget the eras of a server that refuses `initialize`, because it may have been updated.

        Return True if the server supported the handshake era before.
        """
        refused = judge_refused_initialize(refusal)
        if self.settings.era != "auto" or others or refused is _FOR_THIS_CLIENT:
            return False
        changed = self.speaks_handshake is True
        self.forget_eras()
        return changed

    def learn_era(self, stateless: bool) -> None:
        """Record the era that a probe on another connection found.

        A stateless server may also support the handshake era. The list of versions that it declares
        is not reliable, so this remains unknown.
        """
        if self.settings.era == "auto":
            self.speaks_stateless = stateless
            if not stateless:
                self.speaks_handshake = True

    def forget_failures(self) -> None:
        """Allow attempts without delay, because the server can be reached."""
        self._backoffs.clear()

    # Opening

    def check_open(self) -> None:
        """Check that the opener is not closed.

        Raises:
            ConnectFailed: The opener is closed.
        """
        if self.closed:
            raise ConnectFailed(
                f"{self.target.name}: the gateway is shutting down",
                public="is no longer served: the gateway is shutting down",
            )

    async def _open(
        self,
        converse: Callable[[UpstreamConnection], Awaitable[None]],
        key: ConnectionKey,
        identity: Identity | None = None,
    ) -> UpstreamConnection:
        self.check_open()
        self.wanted = True
        last = self._recent_failure(key)
        if last is not None:
            code = last.exit_code if isinstance(last, ChannelClosed | ConnectFailed) else None
            raise ConnectFailed(
                # The stderr of the server was reported with the failed attempt.
                f"{self.target.name} cannot be reached: {owner_reason(last)}",
                exit_code=code,
                public=public_reason(last),
            )
        connection: UpstreamConnection | None = None
        try:
            slot = self.starts.starting(is_process=self.target.is_process)
            async with slot, timeouts.timeout(self.settings.connect_timeout or None):
                channel = await self.target.open()
                connection = self._new_connection(channel, key.principal, identity)
                await converse(connection)
                self.check_open()  # `close` may have run during the opening
        except BaseException as exc:
            if connection is not None:
                await connection.close()
            error = self._described(exc, connection)
            self._count(error, key)
            if error is exc:
                raise  # the original error has a cause, which `public_reason` may need
            raise error from None
        self.error = None
        self.starts.shortage.clear()
        self._backoffs.pop(key, None)
        return connection

    def _recent_failure(self, key: ConnectionKey) -> BaseException | None:
        """Return the error of the last attempt if no other attempt may be made yet."""
        own = self._backoffs.get(key)
        if own is not None and own.waiting:
            return own.error
        # A client chooses its capabilities, so it must not start a process with each choice.
        failing = [
            one.error
            for other, one in self._backoffs.items()
            if other.principal == key.principal and one.waiting
        ]
        return failing[-1] if len(failing) >= MOST_FAILING else None

    def _new_connection(
        self, channel: Any, principal: Principal, identity: Identity | None
    ) -> UpstreamConnection:
        connection = UpstreamConnection(
            self.target.name,
            channel,
            identity=identity,
            id_format=self.target.id_format,
            settings=self._current_settings,
            interceptors=self.interceptors,
            on_close=self._on_close,
        )
        connection.principal = principal
        connection.param_headers = self.param_headers
        connection.peer.channel.param_headers_of = self.param_headers.of
        return connection

    def _described(
        self, exc: BaseException, connection: UpstreamConnection | None
    ) -> BaseException:
        error = exc
        if isinstance(exc, TimeoutError) and not isinstance(exc, FairleadError):
            why = f"did not answer within {self.settings.connect_timeout:g} s"
            output = () if connection is None else connection.peer.unreadable_output
            error = ConnectFailed(f"{self.target.name} {why}", output=output, public=why)
        if isinstance(error, ChannelClosed) and error.exit_code is not None:
            error.public = f"{public_reason(error)} during start-up"
        return error

    def _count(self, error: BaseException, key: ConnectionKey) -> None:
        if isinstance(error, LocalResourceError):
            self.starts.shortage.report(error)
        # A refusal is a response, so it does not count as a failed attempt.
        elif not isinstance(error, asyncio.CancelledError | RpcError | HttpError):
            self.error = error
            if key not in self._backoffs and len(self._backoffs) >= MOST_BACKOFFS:
                del self._backoffs[next(iter(self._backoffs))]
            self._backoffs.setdefault(key, _FailedAttempts()).failed(error)

    async def open(
        self,
        introduction: dict[str, Any],
        key: ConnectionKey,
        *,
        stateless: bool | None,
        others: bool,
    ) -> UpstreamConnection:
        """Open a connection without a session. If `stateless` is None, probe for the era."""
        identity = Identity(introduction["clientInfo"], introduction["capabilities"])

        async def converse(connection: UpstreamConnection) -> None:
            # A server of both eras uses the era of the first message.
            version = NEWEST.value if self.settings.era == "stateless" else "auto"
            timeout = self.settings.connect_timeout
            opening = HandshakeOptions(introduction, version=version, timeout=timeout)
            try:
                connection.agreement = await open_conversation(
                    connection.peer, opening, stateless=stateless
                )
            except RpcError as exc:
                if stateless is None or not self._may_stay(exc, others):
                    raise
                await self._probe_refused(connection, introduction, exc)
                return
            if stateless is None:
                self.speaks_stateless = connection.agreement.revision.stateless
            if not connection.agreement.revision.stateless:
                self.speaks_handshake = True

        return await self._open(converse, key, identity)

    def _may_stay(self, refusal: RpcError, others: bool) -> bool:
        """Return True if a process that refused `initialize` is probed instead of terminated.

        Over HTTP, opening a new connection costs nothing, and the old one may have a session.
        """
        refused = judge_refused_initialize(refusal)
        if not self.target.is_process or self.settings.era != "auto":
            return False
        if refused is _FOR_THIS_CLIENT:
            return False
        return not self.speaks_handshake or self.doubts_era(refusal, others=others)

    async def _probe_refused(
        self, connection: UpstreamConnection, said: dict[str, Any], refusal: RpcError | HttpError
    ) -> None:
        """Probe a server that refused `initialize` for the stateless era.

        Raises:
            RpcError, HttpError: The server is not stateless or does not respond; `refusal` is
            raised again.
        """
        timeout = min(PROBE_TIMEOUT, self.settings.connect_timeout / 2 or PROBE_TIMEOUT)
        asking = HandshakeOptions(said, version=NEWEST.value, timeout=timeout)
        try:
            agreement = await open_conversation(connection.peer, asking)
        except FairleadError as exc:
            log.debug("%s: the stateless probe failed as well: %s", self.target.name, exc)
            raise refusal from None
        if not lacks_handshake(refusal, agreement):
            raise refusal
        connection.agreement = agreement
        self.speaks_stateless, self.speaks_handshake = True, False


def introduction_of(capabilities: bytes, caller: Caller) -> dict[str, Any]:
    """Return the params of an `initialize` on behalf of a stateless caller."""
    info = None if caller.info is None else msgspec.json.decode(caller.info)
    return {
        "capabilities": msgspec.json.decode(capabilities),
        "clientInfo": info if isinstance(info, dict) else {"name": "fairlead", "version": "0"},
    }
