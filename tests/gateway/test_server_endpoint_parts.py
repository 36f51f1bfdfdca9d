"""The endpoint of one server: what a view restricts, who listens, and who waits."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.client_views import ClientViews
from fairlead.gateway.server_endpoint import SingleServerEndpoint
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.identity.principal import Principal, principal_from
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.server.results.result_envelope import ResultEnvelope
from tests.support.catalog_items import raw, tools
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

ADA, BOB = principal_from("ada"), principal_from("bob")
PART = View(deny=("red_secret", "b:*", "red_hidden"))


class FakeMember:
    """The server `red`."""

    name = "red"

    def __init__(self) -> None:
        self.filtered = False
        self.asked: list[Exchange] = []
        self.left_by: list[Any] = []
        self.hung_up: list[Any] = []
        self.introduced = asyncio.Event()
        self.introduced.set()
        self.refusal: RpcError | None = None
        self.wait = asyncio.Event()
        self.wait.set()
        self.replicas = [SimpleNamespace(hang_up=self.hung_up.append, relay="relay")]

    async def answer(self, asked: Exchange, client: Any) -> Answer:
        self.asked.append(asked)
        await self.wait.wait()
        return b'{"by":"red"}'

    async def introduction(self) -> RpcError | None:
        self.introduced.set()
        return self.refusal

    def left(self, client: Any) -> None:
        self.left_by.append(client)


class Place:
    def __init__(self, *interceptors: Any, **views: View) -> None:
        self.member: Any = FakeMember()
        self.catalog = MergedCatalog()
        self.catalog.put("red", ListKind.TOOLS, tools("log", "secret"))
        self.catalog.put("red", ListKind.PROMPTS, [raw(name="hello"), raw(name="hidden")])
        self.views = ClientViews(views, View.everything())
        self.ready_count = 0
        lists: Any = self
        self.endpoint = SingleServerEndpoint(
            self.member,
            info={"name": "x", "version": "1"},
            catalog=self.catalog,
            lists=lists,
            views=self.views,
            envelope=ResultEnvelope({"name": "x", "version": "1"}),
            quota=SubscriptionQuota(),
            interceptors=interceptors,
            until_disconnected=lambda asked, answer: answer,
            input_timeout=1.0,
        )

    async def ready(self) -> None:
        self.ready_count += 1

    async def ask(
        self, method: str, params: Any = None, principal: Principal = ADA, **about: Any
    ) -> Any:
        asked = exchange(method, params, principal=principal, **about)
        answer = await self.endpoint.handler(asked)
        return json.loads(bytes(answer or b""))


@pytest.mark.parametrize(
    ("method", "params", "refusal"),
    [
        ("tools/call", {"name": "log"}, None),
        ("tools/call", {"name": "secret"}, (-32602, "Unknown tool: secret")),
        ("tools/call", {}, (-32602, "Unknown tool: ")),
        ("prompts/get", {"name": "hello"}, None),
        ("prompts/get", {"name": "hidden"}, (-32602, "Unknown prompt: hidden")),
        ("resources/read", {"uri": "a:1"}, None),
        ("resources/read", {"uri": "b:1"}, (-32602, "Resource not found: b:1")),
        ("resources/read", {}, (-32602, "Resource not found: None")),
        ("resources/subscribe", {"uri": "b:1"}, (-32602, "Resource not found: b:1")),
        ("resources/unsubscribe", {"uri": "b:1"}, None),
        ("completion/complete", {"ref": {"name": "hello"}}, None),
        (
            "completion/complete",
            {"ref": {"name": "hidden"}},
            (-32602, "There is nothing of that name to complete"),
        ),
        ("completion/complete", {"ref": {"uri": "a:{x}"}}, None),
        (
            "completion/complete",
            {"ref": {"uri": "b:{x}"}},
            (-32602, "There is nothing of that name to complete"),
        ),
        ("vendor/x", {}, (-32601, "Method not found: vendor/x")),
        ("server/discover", {}, None),
    ],
)
async def test_a_restricted_client_reaches_only_what_its_view_has(
    method: str, params: Any, refusal: tuple[int, str] | None
) -> None:
    place = Place(ada=PART)
    if refusal is None:
        assert await place.ask(method, params) == {"by": "red"}
    else:
        with pytest.raises(RpcError) as refused:
            await place.ask(method, params)
        assert (refused.value.code, refused.value.message) == refusal
        assert place.member.asked == []
    assert await place.ask(method, params, BOB) == {"by": "red"}  # who may see everything


async def test_a_resource_that_is_missing_has_the_code_of_the_era() -> None:
    with pytest.raises(RpcError) as refused:
        await Place(ada=PART).ask("resources/read", {"uri": "b:1"}, stateless=False)
    assert refused.value.code == -32002


async def test_lists_of_a_restricted_client_come_from_the_catalog() -> None:
    place = Place(ada=PART)
    found = await place.ask("tools/list", {})
    assert [tool["name"] for tool in found["tools"]] == ["log"]
    assert (place.ready_count, place.member.asked) == (1, [])


async def test_a_filter_of_the_entry_restricts_everybody() -> None:
    place = Place()
    place.member.filtered = True
    assert "tools" in await place.ask("tools/list", {}, BOB)
    assert place.member.asked == []


async def test_a_server_outside_of_the_view_is_not_there() -> None:
    place = Place(ada=View(servers=("blue",)))
    assert (place.endpoint.hides(ADA), place.endpoint.hides(BOB)) == (True, False)
    with pytest.raises(RpcError, match="There is no server 'red' here") as refused:
        await place.ask("ping")
    assert refused.value.code == -32602
    assert place.endpoint.tool_param_headers("log", ADA) == ()


async def test_a_view_that_changes_while_a_server_starts_is_the_one_that_counts() -> None:
    place = Place(ada=PART)
    place.member.introduced.clear()
    place.member.refusal = RpcError(-32603, "still starting")
    with pytest.raises(RpcError, match="still starting"):
        await place.ask("tools/call", {"name": "log"})
    place.member.introduced.clear()

    async def changes() -> None:
        place.views.replace({"ada": View(servers=("blue",))}, View.everything())
        place.member.introduced.set()

    place.member.introduction = changes
    with pytest.raises(RpcError, match="There is no server 'red' here"):
        await place.ask("tools/call", {"name": "log"})


async def test_interceptors_know_the_merged_name() -> None:
    seen: list[tuple[Any, Any]] = []

    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        seen.append((asked.target, asked.alias))
        return await proceed(asked)

    place = Place(look)
    await place.ask("tools/call", {"name": "log"}, BOB)
    await place.ask("prompts/get", {"name": "new"}, BOB)
    await place.ask("resources/read", {"uri": "a:1"}, BOB)
    assert seen == [("red_log", "log"), ("red_new", "new"), ("a:1", None)]
    assert {asked.server for asked in place.member.asked} == {"red"}


async def test_who_listens_is_known_until_it_ends() -> None:
    place = Place(ada=PART)
    place.member.wait.clear()
    wanted = {"notifications": {"resourceSubscriptions": ["a:1", "b:1"]}}
    listening = asyncio.create_task(place.ask("subscriptions/listen", wanted))
    other = asyncio.create_task(place.ask("subscriptions/listen", wanted, BOB))
    for _ in range(3):
        await asyncio.sleep(0)
    mine, others = place.member.asked
    told = json.loads(bytes(mine.message.params))
    assert told["notifications"]["resourceSubscriptions"] == ["a:1"]
    assert (mine.permits("a:1"), mine.permits("b:1"), others.permits) == (True, False, None)
    assert {principal for _, principal in place.endpoint.listeners.values()} == {ADA, BOB}
    place.endpoint.end_listen_streams({ADA})
    assert place.member.hung_up == [mine.edge]
    place.member.wait.set()
    await asyncio.gather(listening, other)
    assert place.endpoint.listeners == {}


async def test_the_last_answers_of_a_server_are_waited_for_a_second(
    virtual_time: VirtualTime,
) -> None:
    place = Place()
    await place.endpoint.wait_until_idle()
    began = virtual_time.now
    place.member.wait.clear()
    pending = asyncio.create_task(place.ask("vendor/x", {}, BOB))
    await asyncio.sleep(0)
    await place.endpoint.wait_until_idle()
    assert virtual_time.now == began + 1.0
    idle = asyncio.create_task(place.endpoint.wait_until_idle())
    await asyncio.sleep(0.5)
    place.member.wait.set()
    await pending
    await idle
    assert virtual_time.now == began + 1.5
    assert place.endpoint._pending == 0
