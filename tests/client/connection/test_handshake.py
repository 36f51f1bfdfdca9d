"""Tests of the version negotiation, which depends on the remembered era."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.connection.handshake import negotiate
from fairlead.errors import ConnectFailed, RpcError
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Request, Success, to_json
from tests.support.virtual_time import VirtualTime

KEY = "the server"
INITIALIZED = {
    "protocolVersion": NEWEST_HANDSHAKE.value,
    "capabilities": {},
    "serverInfo": {"name": "raw", "version": "1"},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [NEWEST.value],
    "capabilities": {},
    "serverInfo": {"name": "raw", "version": "1"},
}


class RawServer:
    """A fake server that answers some methods after a delay and others with an error or never."""

    def __init__(self, clock: VirtualTime, **answers: tuple[float, Any]) -> None:
        self.asked: list[str] = []
        self.answers = answers
        self.peer_channel, self._channel = memory_pair()
        self._clock = clock

    def _deliver(self, message: Any) -> None:
        if isinstance(message, Request):
            self.asked.append(message.method)
            answer = self.answers.get(message.method.partition("/")[2] or message.method)
            if answer is not None:
                asyncio.get_running_loop().call_later(answer[0], self._reply, message, answer[1])

    def _reply(self, request: Request, result: Any) -> None:
        if isinstance(result, RpcError):
            error = Raw(to_json({"code": result.code, "message": result.message}))
            self._channel.send(Failure(request.id, result.code, result.message, error))
        elif result is None:
            error = Raw(b'{"code":-32601,"message":"no such method"}')
            self._channel.send(Failure(request.id, -32601, "no such method", error))
        else:
            self._channel.send(Success(request.id, Raw(to_json(result))))

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Peer]:
        running = asyncio.ensure_future(self._channel.run(self._deliver))
        peer = Peer(self.peer_channel, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS))
        peer.start()
        try:
            yield peer
        finally:
            await peer.close()
            await self._channel.close()
            await running

    async def negotiate(self, stateless: bool | None, **config: Any) -> Agreement:
        async with self.opened() as peer:
            return await negotiate(peer, Identity(), MCPClientConfig(**config), stateless, KEY)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    known_eras.clear()
    yield
    known_eras.clear()


async def test_a_known_handshake_server_is_not_probed(
    virtual_time: VirtualTime,
) -> None:
    first = RawServer(virtual_time, discover=(0, None), initialize=(0, INITIALIZED))
    await first.negotiate(None)
    assert first.asked == ["server/discover", "initialize"]
    again = RawServer(virtual_time, discover=(0, None), initialize=(0, INITIALIZED))
    await again.negotiate(None)
    assert again.asked == ["initialize"]


async def test_a_configured_era_takes_precedence_over_the_remembered_one(
    virtual_time: VirtualTime,
) -> None:
    known_eras.remember(KEY, stateless=True)
    server = RawServer(virtual_time, discover=(0, DISCOVERED), initialize=(0, INITIALIZED))
    agreement = await server.negotiate(False)
    assert (server.asked, agreement.revision) == (["initialize"], NEWEST_HANDSHAKE)
    assert known_eras.stateless(KEY) is False


async def test_the_remembered_era_is_forgotten_after_a_failed_handshake(
    virtual_time: VirtualTime,
) -> None:
    known_eras.remember(KEY, stateless=False)
    server = RawServer(virtual_time, discover=(0, DISCOVERED), initialize=(0, None))
    with pytest.raises(ConnectFailed, match="no such method"):
        await server.negotiate(None)
    assert known_eras.stateless(KEY) is None


async def test_the_remembered_era_is_forgotten_after_a_timeout(
    virtual_time: VirtualTime,
) -> None:
    known_eras.remember(KEY, stateless=False)
    server = RawServer(virtual_time)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await server.negotiate(None)
    assert known_eras.stateless(KEY) is None


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [(0.9, ["server/discover"]), (1.1, ["server/discover", "initialize"])],
)
async def test_initialize_is_sent_one_second_after_a_probe_without_a_response(
    virtual_time: VirtualTime, seconds: float, asked: list[str]
) -> None:
    server = RawServer(virtual_time, discover=(seconds, DISCOVERED))
    agreement = await server.negotiate(None)
    assert (server.asked, agreement.revision) == (asked, NEWEST)


async def test_the_client_waits_a_second_for_initialize_after_the_probe_is_answered(
    virtual_time: VirtualTime,
) -> None:
    """Some servers of both eras select the handshake era when they receive `initialize`."""
    server = RawServer(virtual_time, discover=(0.2, DISCOVERED), initialize=(0.9, INITIALIZED))
    await server.negotiate(None, probe_timeout=0.1)
    assert server.asked == ["server/discover", "initialize", "server/discover"]
    late = RawServer(virtual_time, discover=(0.2, DISCOVERED), initialize=(1.2, INITIALIZED))
    begun = virtual_time.now
    known_eras.clear()
    await late.negotiate(None, probe_timeout=0.1)
    assert late.asked == ["server/discover", "initialize"]
    assert virtual_time.now - begun == pytest.approx(1.2)


@pytest.mark.parametrize("code", [-32022, -32020, -32601, -32602, -32600])
async def test_after_a_rejected_initialize_the_client_waits_for_the_response_to_the_probe(
    virtual_time: VirtualTime, code: int
) -> None:
    refusal = RpcError(code, "params._meta is required")
    server = RawServer(virtual_time, discover=(1.8, DISCOVERED), initialize=(0.1, refusal))
    agreement = await server.negotiate(None)
    assert (server.asked, agreement.revision) == (["server/discover", "initialize"], NEWEST)


@pytest.mark.parametrize("versions", [None, [NEWEST_HANDSHAKE.value, NEWEST.value]])
async def test_the_error_of_a_rejected_handshake_is_raised(
    virtual_time: VirtualTime, versions: list[str] | None
) -> None:
    answers: dict[str, Any] = {"initialize": (0.1, RpcError(-32602, "no such tenant"))}
    if versions is not None:
        answers["discover"] = (1.8, {**DISCOVERED, "supportedVersions": versions})
    server = RawServer(virtual_time, **answers)
    begun = virtual_time.now
    with pytest.raises(ConnectFailed, match="no such tenant"):
        await server.negotiate(None)
    assert virtual_time.now - begun < 3.0
