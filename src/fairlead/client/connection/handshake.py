"""The first words with a server: which era it speaks, and the handshake where it wants one."""

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

PATIENCE = 1.0  # seconds for the answer to a request that is on its way anyway


class HandshakeOptions:
    """What we say in `initialize`, and how long we wait for the answers."""

    def __init__(
        self,
        params: dict[str, Any],
        *,
        version: str = "auto",
        probe_timeout: float = 1.0,
        timeout: float = 30.0,
    ) -> None:
        """`version`: "auto" probes; "latest" and dates of the handshake era do not."""
        revision = find_revision(version)
        if version not in ("auto", "latest") and revision is None:
            raise ConnectFailed(f"There is no protocol version {version!r} that we speak")
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
    """Open the conversation as configured, and remember the era where the server has a key.

    Raises:
        ConnectFailed: and why.
        ChannelClosed: if the server ended meanwhile.
    """
    if stateless is None:  # once more, perhaps; some servers die of a probe
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
            raise  # who we are is what is wrong, not what we say
        raise ConnectFailed(f"The server did not open the conversation: {exc}") from exc
    except asyncio.CancelledError:
        if stateless is False:  # nobody answered in time, and what was remembered may be why
            known_eras.forget(server_key)
        raise
    if server_key is not None and introduction.probes:
        known_eras.remember(server_key, agreement.revision.stateless)
    return agreement


async def open_conversation(
    peer: Peer, introduction: HandshakeOptions, *, stateless: bool | None = None
) -> Agreement:
    """Find out the era and open the conversation; `stateless` is what an earlier time found.

    Raises:
        ConnectFailed: we share no version with this server.
        RpcError, RequestTimeout, ChannelClosed, RemoteProtocolError: what it did instead of
        answering.
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
    """Ask with `server/discover`; after a second send `initialize` too: the first answer decides.

    So a slow starter is not misjudged, and a server that ignores what it does not know costs one
    second, not thirty. Some servers of both eras take our `initialize` for the choice of one: then
    that counts.
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
    """What was agreed on statelessly, if that holds after the `initialize` that is on its way.

    A stateless server need not answer that at all, so it is not waited for any longer than before.
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
    """`initialize` decides, unless a server without a handshake refuses it."""
    try:
        return judge_initialize(await initialize)
    except RpcError as exc:
        refused = judge_refused_initialize(exc)
        if refused is RefusedInitialize.FOR_THIS_CLIENT:
            raise
        # A server that knows no handshake answers the probe in any case, later perhaps.
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
            public="shares no protocol version with us",
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
            # There is one stateless version so far, so asking with another is asking once more.
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
    result = await peer.request("initialize", introduction.params, timeout=introduction.timeout)
    return Success(0, result)
