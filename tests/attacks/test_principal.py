"""The anonymous principal is distinct from every name that a client can choose."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPServer
from fairlead.errors import RpcError
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.policy.actions.cache import Cache
from fairlead.protocol.caller import (
    ANONYMOUS,
    Caller,
    Principal,
    principal_from,
    principal_name,
    read_params_head,
    stateless_caller,
)
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.transport.http.server.sessions.event_store import MemoryEventStore
from fairlead.transport.http.server.sessions.http_session import HttpSession
from fairlead.transport.http.server.sessions.session_restore import SessionRestorer
from fairlead.transport.http.server.sessions.session_store import (
    MemorySessionStore,
    StoredSession,
    key_of,
)
from fairlead.transport.memory import memory_pair
from fairlead.wire import Request

NAMES = ["", "None", "null", "anonymous", "ANONYMOUS", "Anonymous.ANONYMOUS", "False", "\0"]
META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST.value,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


def exchange(principal: Principal, params: dict[str, Any], method: str = "tools/call") -> Exchange:
    message = Request(1, method, Raw(json.dumps({**params, "_meta": META}).encode()))
    head = read_params_head(message.params)
    caller = stateless_caller(head.meta, principal)  # type: ignore[arg-type]
    context = TransportContext(transport_type="memory")
    up = Direction.CLIENT_TO_SERVER
    return Exchange(message, caller, head, up, context, NullReplyPath(principal))


# Constructors require a principal


def test_a_caller_cannot_be_made_without_a_principal() -> None:
    with pytest.raises(TypeError, match="principal"):
        Caller(NEWEST, True)  # type: ignore[call-arg]


def test_a_conversation_cannot_be_made_without_a_principal() -> None:
    with pytest.raises(TypeError, match="principal"):
        Conversation(ConversationRole.SERVER)  # type: ignore[call-arg]


async def test_a_channel_cannot_be_served_without_a_principal() -> None:
    _, far = memory_pair()
    with pytest.raises(TypeError, match="principal"):
        MCPServer("s").attach(far)  # type: ignore[call-arg]


@pytest.mark.parametrize("principal", ["ann", ANONYMOUS])
def test_callers_have_the_principal_of_their_conversation(principal: Principal) -> None:
    ping = Conversation(ConversationRole.SERVER, principal=principal).receive(Request(1, "ping"))
    assert ping.caller.principal == principal  # type: ignore[union-attr]
    assumed = Conversation(ConversationRole.SERVER, assume=NEWEST, principal=principal)
    assert assumed.sender.principal == principal


# The anonymous principal differs from every name


@pytest.mark.parametrize("name", NAMES)
def test_the_anonymous_principal_differs_from_every_name(name: str) -> None:
    assert name != ANONYMOUS
    assert len({name, ANONYMOUS}) == 2
    assert principal_name(name) == name
    assert principal_from(name) == name


def test_the_anonymous_principal_is_encoded_as_null() -> None:
    assert principal_name(ANONYMOUS) is None
    assert principal_from(None) is ANONYMOUS
    assert not ANONYMOUS


@pytest.mark.parametrize("name", NAMES)
async def test_anonymous_and_named_clients_cannot_use_sealed_state_of_each_other(name: str) -> None:
    server = MCPServer("s")

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("which?", str)).data)

    async def call(principal: Principal, **more: Any) -> dict[str, Any]:
        asked = exchange(principal, {"name": "ask", "arguments": {}, **more})
        return json.loads(bytes(await server.handler(asked) or b"{}"))  # type: ignore[no-any-return]

    async with server.running():
        for owner, thief in ((ANONYMOUS, name), (name, ANONYMOUS)):
            first = await call(owner)
            key = next(iter(first["inputRequests"]))
            answer = {key: {"action": "accept", "content": {"value": "x"}}}
            rest = {"requestState": first["requestState"], "inputResponses": answer}
            with pytest.raises(RpcError, match="belongs to another request"):
                await call(thief, **rest)
            assert (await call(owner, **rest))["content"][0]["text"] == "x"


@pytest.mark.parametrize("name", NAMES)
async def test_anonymous_and_named_clients_cannot_use_parked_state_of_each_other(name: str) -> None:
    parked = ParkedCalls(64)
    members = {"name": Raw(b'"t"')}
    for owner, thief in ((ANONYMOUS, name), (name, ANONYMOUS)):
        state = parked.retry_state(exchange(owner, {"name": "t"}), members, 300.0)
        with pytest.raises(RpcError, match="requestState was issued to another client"):
            await parked.resume(exchange(thief, {"name": "t"}), members, state)
        assert await parked.resume(exchange(owner, {"name": "t"}), members, state) is None


@pytest.mark.parametrize("name", NAMES)
async def test_anonymous_and_named_clients_cannot_end_stored_sessions_of_each_other(
    name: str,
) -> None:
    store = MemorySessionStore()
    restorer = SessionRestorer(store, 0, *(lambda *_: None,) * 3)  # type: ignore[arg-type]
    for owner, thief in ((ANONYMOUS, name), (name, ANONYMOUS)):
        key = key_of("/mcp", repr(owner))
        await store.save(
            StoredSession(
                key=key,
                principal=principal_name(owner),
                opening=b"{}",
                revision="2025-11-25",
                created=0,
                used=0,
            )
        )
        assert not await restorer.drop(repr(owner), "/mcp", thief)
        assert await restorer.drop(repr(owner), "/mcp", owner)


@pytest.mark.covers("AUT-06")
async def test_a_stored_session_belongs_to_the_role_of_its_token() -> None:
    """A role is the rule of a gateway that admits a token; None: not at a gateway."""
    alice = TokenPrincipal(issuer="https://a.example", subject="alice", client="app")
    roles = [alice, alice.with_role("staff"), alice.with_role("ops"), "staff", ANONYMOUS]
    restorer = SessionRestorer(MemorySessionStore(), 0, *(lambda *_: None,) * 3)  # type: ignore[arg-type]
    opening = Request(1, "initialize")
    for owner in roles:
        context = TransportContext(transport_type="http", path="/mcp")
        session = HttpSession("id", context, owner, MemoryEventStore())
        session.revision = Revision.V2025_11_25
        await restorer.keep(session, opening)
        for other in roles:
            if other != owner:
                assert not await restorer.drop("id", "/mcp", other)
        assert await restorer.drop("id", "/mcp", owner)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scope", ["private", "public"])
@pytest.mark.parametrize("name", NAMES)
async def test_named_clients_get_a_result_cached_for_an_anonymous_client_only_if_it_is_shared(
    name: str, scope: str, shared: bool
) -> None:
    cache, answered = Cache(shared=shared), list[Principal]()
    kept = json.dumps({"contents": [], "ttlMs": 60000, "cacheScope": scope}).encode()

    async def proceed(asked: Exchange) -> bytes:
        answered.append(asked.caller.principal)
        return kept

    for principal in (ANONYMOUS, name, ANONYMOUS, name):
        await cache(exchange(principal, {"uri": "a://b"}, "resources/read"), proceed)
    for_everybody = shared and scope == "public"
    assert answered == ([ANONYMOUS] if for_everybody else [ANONYMOUS, name])
