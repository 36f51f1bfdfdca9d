"""Negotiation with a server: detection of its era, and the handshake if it requires one."""

import asyncio
import logging
from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Raw

from ...errors import (
    ConnectFailed,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from ...peer import Peer
from ...protocol.conversation.conversation import Agreement
from ...protocol.conversation.era_probe import (
    EraVerdict,
    Incompatible,
    NeedsHandshake,
    RefusedInitialize,
    judge_discover,
    judge_initialize,
    judge_lost_probe,
    judge_refused_initialize,
    lacks_handshake,
    offers_our_version,
)
from ...protocol.outgoing_params import Identity
from ...protocol.revisions import NEWEST_HANDSHAKE, find_revision
from ...wire import Failure, Success
from ..client_config import MCPClientConfig
from .era_cache import known_eras

__all__ = ["HandshakeOptions", "negotiate", "open_conversation"]

log = logging.getLogger("fairlead.client")

# seconds to wait for the second response after `server/discover` or `initialize` was answered
PATIENCE = 1.0


class HandshakeOptions:
    """The contents of `initialize` and the negotiation timeouts."""

    def __init__(
        self,
        params: dict[str, Any],
        *,
        version: str = "auto",
        probe_timeout: float = 1.0,
        timeout: float = 30.0,
    ) -> None:
        """Set the negotiation options.

        The server is probed if `version` is "auto" or a stateless version.
        """
        revision = find_revision(version)
        if version not in ("auto", "latest") and revision is None:
            raise ConnectFailed(
                f"Unknown protocol version {version!r}: expected 'auto', 'latest' or a date"
            )
        self.probes = version == "auto" or (revision is not None and revision.stateless)
        self.handshake = revision is None or not revision.stateless
        proposed = NEWEST_HANDSHAKE if revision is None or revision.stateless else revision
        self.params = {"protocolVersion": proposed.value, **params}
        self.probe_timeout = probe_timeout
        self.timeout = timeout


async def negotiate(
    peer: Peer,
    identity: Identity,
    config: MCPClientConfig,
    stateless: bool | None,
    server_key: Hashable,
) -> Agreement:
    """Negotiate with a server as configured, and remember its era if it has a key.

    Raises:
        ConnectFailed: The negotiation failed; the message contains the reason.
        ChannelClosed: The server ended the connection.
    """
    # The remembered era is looked up for each connection, as some servers exit when probed.
    if stateless is None:
        stateless = known_eras.stateless(server_key)
    introduction = HandshakeOptions(
        {
            "capabilities": msgspec.json.decode(identity.capabilities),
            "clientInfo": msgspec.json.decode(identity.info),
        },
        version=config.protocol_version,
        probe_timeout=config.probe_timeout,
        timeout=config.timeout_seconds,
    )
    try:
        agreement = await open_conversation(peer, introduction, stateless=stateless)
    except (RpcError, RequestTimeout, RemoteProtocolError, HttpError, NoAnswer) as exc:
        known_eras.forget(server_key)
        if isinstance(exc, HttpError) and exc.status in (401, 403):
            # 401 and 403 are caused by the credentials, not by the protocol.
            raise
        raise ConnectFailed(
            f"The connection could not be initialized: {exc}", stderr=_stderr_of(peer)
        ) from exc
    except asyncio.CancelledError:
        # The caller's timeout expired, possibly because the remembered era is wrong.
        if stateless is False:
            known_eras.forget(server_key)
        raise
    if server_key is not None and introduction.probes:
        known_eras.remember(server_key, agreement.revision.stateless)
    return agreement


async def open_conversation(
    peer: Peer, introduction: HandshakeOptions, *, stateless: bool | None = None
) -> Agreement:
    """Determine the era and negotiate; `stateless` is the era if it is known already.

    Raises:
        ConnectFailed: The server has no protocol version in common with this client.
        RpcError, RequestTimeout, ChannelClosed, RemoteProtocolError: A request failed.
    """
    if not introduction.probes or (stateless is False and introduction.handshake):
        agreement = judge_initialize(await _initialize(peer, introduction))
    else:
        agreement = await _probe(peer, introduction)
    peer.conversation.set_agreement(agreement)
    if not agreement.revision.stateless:
        await peer.notify("notifications/initialized")
    return agreement


async def _probe(peer: Peer, introduction: HandshakeOptions) -> Agreement:
    """Send `server/discover`, and after a second also `initialize`; the first response decides.

    This detects the era of a server that starts slowly, and takes one second instead of thirty if a
    server ignores unknown methods. Some servers that support both eras switch to the handshake era
    when they receive `initialize`; then the handshake is used.
    """
    discover = asyncio.ensure_future(_discover(peer, introduction))
    tasks: set[asyncio.Future[Any]] = {discover}
    try:
        await asyncio.wait(
            tasks, timeout=introduction.probe_timeout if introduction.handshake else None
        )
        if discover.done():
            verdict = discover.result()
            if isinstance(verdict, Agreement):
                return verdict
            _check(verdict, introduction)
            log.debug("falling back to the handshake: %s", verdict)
            return judge_initialize(await _initialize(peer, introduction))
        initialize = asyncio.ensure_future(_initialize(peer, introduction))
        tasks.add(initialize)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if discover.done() and discover.exception() is None:
            verdict = discover.result()
            if isinstance(verdict, Agreement):
                return await _still(peer, introduction, verdict, initialize)
            _check(verdict, introduction)
        return await _second(initialize, discover)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _still(
    peer: Peer,
    introduction: HandshakeOptions,
    agreement: Agreement,
    initialize: "asyncio.Future[Success]",
) -> Agreement:
    """Return the stateless agreement, unless `initialize` has switched the server to a handshake.

    A server that accepted both requests is probed again. A stateless server need not answer
    `initialize` at all, so this function waits only briefly.
    """
    await asyncio.wait((initialize,), timeout=max(introduction.probe_timeout, PATIENCE))
    if not initialize.done():
        return agreement
    try:
        accepted = initialize.result()
    except (RpcError, HttpError):
        return agreement
    verdict = await _discover(peer, introduction)
    return agreement if isinstance(verdict, Agreement) else judge_initialize(accepted)


async def _second(
    initialize: "asyncio.Future[Success]", discover: "asyncio.Future[EraVerdict]"
) -> Agreement:
    """Return the agreement of `initialize`, or of the probe if a server has no handshake."""
    try:
        return judge_initialize(await initialize)
    except RpcError as exc:
        refused = judge_refused_initialize(exc)
        if refused is RefusedInitialize.FOR_THIS_CLIENT:
            raise
        # A server without a handshake always answers the probe, though perhaps later.
        unclear = refused is RefusedInitialize.UNCLEAR
        await asyncio.wait((discover,), timeout=PATIENCE if unclear else None)
        if discover.done() and discover.exception() is None:
            verdict = discover.result()
            if isinstance(verdict, Agreement) and lacks_handshake(exc, verdict):
                return verdict
        raise


def _check(verdict: NeedsHandshake | Incompatible, introduction: HandshakeOptions) -> None:
    if isinstance(verdict, Incompatible):
        raise ConnectFailed(
            f"No common protocol version with this server: {verdict.why}",
            public="has no protocol version in common with this client",
        )
    if not introduction.handshake:
        raise ConnectFailed(
            f"This server does not speak the stateless era: {verdict.why}",
            public="does not speak the stateless era",
        )


async def _discover(peer: Peer, introduction: HandshakeOptions) -> EraVerdict:
    try:
        answer = await _ask_about(peer, introduction)
        if isinstance(answer, Failure) and offers_our_version(answer):
            # Only one stateless version exists so far, so the same request is simply repeated.
            answer = await _ask_about(peer, introduction)
        return judge_discover(answer)
    except (HttpError, NoAnswer, RemoteProtocolError) as exc:
        verdict = judge_lost_probe(exc)
        if verdict is None:
            raise
        return verdict


async def _ask_about(peer: Peer, introduction: HandshakeOptions) -> Success | Failure:
    try:
        result = await peer.request("server/discover", timeout=introduction.timeout, quiet=True)
        return Success(0, result)
    except RpcError as exc:
        return Failure(0, exc.code, exc.message, Raw(exc.raw or b"{}"))


async def _initialize(peer: Peer, introduction: HandshakeOptions) -> Success:
    try:
        result = await peer.request("initialize", introduction.params, timeout=introduction.timeout)
    except RpcError as exc:
        exc.executed = peer.channel.executed_initialize
        raise
    return Success(0, result)


def _stderr_of(peer: Peer) -> tuple[str, ...]:
    """Return the last lines on stderr of a child process, such as a proxy that explains its error.

    Other channels have none.
    """
    from ...transport.stdio.child_process import ProcessChannel

    channel = peer.channel
    return channel.stderr if isinstance(channel, ProcessChannel) else ()
