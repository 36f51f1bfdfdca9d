"""Access, disconnection and log levels of clients while a gateway runs."""

import asyncio
from collections.abc import Container, Mapping
from typing import Any

import pytest

from fairlead.errors import ConfigError, RpcError
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.clients.client_access import ClientDisconnector
from fairlead.gateway.clients.log_levels import LogLevels
from fairlead.gateway.gateway_file import ClientEntry, GatewayFile
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.interceptor import Answer
from fairlead.protocol.caller import UNNAMED, Principal, principal_from
from fairlead.transport.background_tasks import BackgroundTasks
from tests.support.single_exchange import exchange

PART = View(servers=("red",))


def file(*clients: tuple[str, str, str | None], token: str | None = None) -> GatewayFile:
    return GatewayFile(
        path="gateway.toml",
        settings=GatewaySettings(),
        named_views={"part": PART},
        clients=tuple(ClientEntry(*one) for one in clients),
        token=token,
    )


class Host:
    """A gateway that records access changes."""

    def __init__(self) -> None:
        self.shown: list[Mapping[str, View]] = []
        self.gone: list[Container[Principal]] = []

    def show(
        self, views: Mapping[str, View], view: View, roles: Mapping[str, View] | None = None
    ) -> None:
        self.shown.append(views)

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        self.gone.append(principals)


ADA, BOB = ("ada", "token-a", None), ("bob", "token-b", "part")


@pytest.mark.parametrize(
    ("names_only", "token", "whose"),
    [
        (False, "token-a", "ada"),
        (False, "token-b", "bob"),
        (False, "shared", UNNAMED),
        (True, "shared", None),
        (True, "token-a", "ada"),
        (False, "token-c", None),
        (False, "", None),
    ],
)
def test_a_token_identifies_its_client(names_only: bool, token: str, whose: str | None) -> None:
    access = ClientAccess(file(ADA, BOB, token="shared"), names_only=names_only)
    assert access.guards
    assert access.verify(token) == whose


def test_a_gateway_file_without_tokens_requires_no_authentication() -> None:
    assert not ClientAccess(file()).guards
    assert not ClientAccess(file(token="shared"), names_only=True).guards
    assert ClientAccess(file(token="shared")).guards


@pytest.mark.parametrize(
    ("after", "changed", "gone", "shown"),
    [
        (file(ADA, BOB), False, None, False),
        (file(BOB, ADA), True, None, False),
        (file(ADA), True, {"bob"}, True),
        (file(ADA, ("bob", "other", "part")), True, {"bob"}, False),
        (file(ADA, ("bob", "token-b", None)), True, None, True),
        (file(ADA, BOB, ("cy", "token-c", None)), True, None, False),
    ],
    ids=["same", "order", "removed", "new token", "new view", "added"],
)
async def test_changed_tokens_and_views_in_a_gateway_file_are_applied(
    after: GatewayFile, changed: bool, gone: set[str] | None, shown: bool
) -> None:
    access, host = ClientAccess(file(ADA, BOB)), Host()
    assert await access.follow(after, host) is changed
    assert host.gone == ([] if gone is None else [gone])
    assert bool(host.shown) is shown
    assert access.verify("token-a") == "ada"
    assert not await access.follow(after, host)  # unchanged


async def test_a_removed_client_has_an_empty_view_until_it_is_added_again() -> None:
    access, host = ClientAccess(file(ADA, BOB)), Host()
    await access.follow(file(ADA), host)
    assert host.shown[-1] == {"bob": View.nothing()}
    assert access.verify("token-b") is None
    await access.follow(file(ADA, BOB), host)
    assert host.shown[-1] == {"bob": PART}
    assert access.verify("token-b") == "bob"


async def test_a_gateway_without_tokens_cannot_get_tokens_while_it_runs() -> None:
    access, host = ClientAccess(file()), Host()
    with pytest.raises(
        ConfigError, match="the gateway was started without tokens: restart it"
    ) as why:
        await access.follow(file(ADA), host)
    assert why.value.path == "gateway.toml"
    assert (host.shown, host.gone, access.verify("token-a")) == ([], [], None)


# Disconnection


class Ended:
    """A client connection that records the reasons with which it was closed."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.edge = self.peer = self
        self.reasons: list[str] = []

    async def close(self, why: str) -> None:
        self.reasons.append(why)


class Endpoint:
    def __init__(self) -> None:
        self.ended: list[object] = []
        self.endpoints = {"red": self}

    def end_listen_streams(self, principals: object) -> None:
        self.ended.append(principals)


class Changes:
    def __init__(self) -> None:
        self.stopped: list[object] = []

    def stop(self, edge: object) -> None:
        self.stopped.append(edge)


class Listeners:
    def __init__(self, *several: Ended) -> None:
        self.listeners = set(several)


async def test_disconnecting_ends_all_connections_and_calls_of_one_principal_only() -> None:
    ada, bob, listens = (Ended(principal_from(name)) for name in ("ada", "bob", "ada"))
    endpoint, changes = Endpoint(), Changes()
    parts: Any = ([ada, bob], endpoint, Listeners(listens), changes)
    disconnector = ClientDisconnector(*parts)
    asked = exchange(principal=principal_from("ada"))
    other = exchange(principal=principal_from("bob"))
    answered = asyncio.get_running_loop().create_future()

    async def answer() -> Answer:
        return await asyncio.shield(answered)  # type: ignore[no-any-return]

    calls = [
        asyncio.ensure_future(disconnector.until_disconnected(one, answer()))
        for one in (asked, other)
    ]
    await asyncio.sleep(0)
    assert len(disconnector._calls) == 2
    await disconnector.disconnect({principal_from("ada")})
    with pytest.raises(RpcError, match="the token is no longer valid") as refused:
        await calls[0]
    assert refused.value.code == -32600
    assert ada.reasons == ["the token is no longer valid"]
    assert (bob.reasons, changes.stopped) == ([], [listens])
    assert endpoint.ended == [{principal_from("ada")}]
    answered.set_result(b"{}")
    assert await calls[1] == b"{}"
    assert disconnector._calls == set()


async def test_listen_streams_do_not_count_as_calls_of_a_client() -> None:
    parts: Any = ([], Endpoint(), Listeners(), Changes())
    disconnector = ClientDisconnector(*parts)

    async def answer() -> Answer:
        return b"{}"

    work = answer()
    asked = exchange("subscriptions/listen", {}, principal=principal_from("ada"))
    assert disconnector.until_disconnected(asked, work) is work
    assert await work == b"{}"


async def test_a_call_cancelled_by_its_client_is_not_reported_as_a_withdrawn_token() -> None:
    parts: Any = ([], Endpoint(), Listeners(), Changes())
    disconnector = ClientDisconnector(*parts)

    async def never() -> Answer:
        await asyncio.Event().wait()
        return None

    asked = exchange(principal=principal_from("ada"))
    call = asyncio.ensure_future(disconnector.until_disconnected(asked, never()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert disconnector._calls == set()


# Log levels


class Levels:
    """Servers by name, and the log levels that were requested from them."""

    def __init__(self, *servers: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.members = {name: Member(self, name) for name in servers}


class Member:
    def __init__(self, levels: Levels, name: str) -> None:
        self.upstreams: Any = [Upstream(levels, name)]


class Upstream:
    def __init__(self, levels: Levels, name: str) -> None:
        self.levels, self.name = levels, name

    async def set_log_level(self, level: str) -> None:
        self.levels.asked.append((self.name, level))


class Session:
    """A session with a server, on a connection that may be shared."""

    stateless = borrowed = False

    def __init__(self, level: str | None, *others: str | None, **about: bool) -> None:
        self.level = level
        self.connection = self.peer = self
        self.sessions = {self: None, **{Session(one): None for one in others}}
        self.requested: list[Any] = []
        vars(self).update(about)

    async def request(self, method: str, params: Any) -> None:
        self.requested.append((method, params))


class Client:
    def __init__(self, level: str | None, *sessions: Session) -> None:
        self.level = level
        self.sessions = dict(enumerate(sessions))


async def test_servers_log_at_the_lowest_level_that_a_client_has_set() -> None:
    known, tasks = Levels("red", "blue"), BackgroundTasks()
    shared, stateless = Session(None, "debug", None), Session(None, stateless=True)
    # the upstream restores the level of its default connection
    default = Session(None, borrowed=True)
    mine, other, silent = Client(None, shared, stateless, default), Client("warning"), Client(None)
    parts: Any = (known, {1: mine, 2: other, 3: silent}, tasks)
    levels = LogLevels(*parts)
    client: Any = mine
    asked = exchange("logging/setLevel", {"level": "error"})
    assert await levels.set(asked, client) == b"{}"
    assert asked.edge.log_level == "error"
    assert {one.level for one in (mine, shared, stateless, default)} == {"error"}
    await asyncio.sleep(0)
    assert known.asked == [("red", "warning"), ("blue", "warning")]
    assert shared.requested == [("logging/setLevel", {"level": "debug"})]
    assert (stateless.requested, default.requested) == ([], [])
    known.asked.clear()
    levels.apply_to(known.members["blue"].upstreams)
    await asyncio.sleep(0)
    assert known.asked == [("blue", "warning")]
    other.level = mine.level = None
    levels.apply_to(known.members["blue"].upstreams)
    await asyncio.sleep(0)
    assert known.asked == [("blue", "warning")]
    await levels.set(exchange("logging/setLevel", {"level": "info"}), None)
    await asyncio.sleep(0)
    assert known.asked[1:] == [("red", "info"), ("blue", "info")]


async def test_an_unknown_log_level_is_refused() -> None:
    parts: Any = (Levels(), {}, BackgroundTasks())
    with pytest.raises(
        RpcError, match="Unknown log level 'loud': expected one of debug, info, "
    ) as why:
        await LogLevels(*parts).set(exchange("logging/setLevel", {"level": "loud"}), None)
    assert why.value.code == -32602
