"""Routing of names and templates to servers, and the errors for unknown ones."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.errors import ConnectFailed
from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.routing import Router
from fairlead.gateway.catalog.views import ClientViews
from fairlead.interceptor import Exchange
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import raw, resources, templates, tools
from tests.support.gateway_servers import (
    LIMIT,
    config,
    joining,
    make,
    serving,
    until,
)
from tests.support.single_exchange import exchange


async def test_the_error_for_an_unknown_name_mentions_a_disconnected_server() -> None:
    views = {"bob": View(servers=("red",))}
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(views=views) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "gone": {"command": "/nowhere/at-all"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway, verify_token={"a": "alice", "b": "bob"}.get) as url:
            for token, name, why in (
                ("a", "gone_who", "; gone is not connected"),
                ("a", "red_nothing", ""),
                ("b", "gone_who", ""),  # the server is outside the view
            ):
                who = {"Authorization": f"Bearer {token}"}
                async with MCPClient.connect_http(url, config(), headers=who) as client:
                    with pytest.raises(RpcError) as caught:
                        await client.call_tool(name, {})
                    assert caught.value.message == f"Unknown tool: {name}{why}"
                    with pytest.raises(RpcError) as caught:
                        await client.get_prompt(name, {})
                    assert caught.value.message == f"Unknown prompt: {name}{why}"


async def test_similar_templates_are_completed_by_their_own_servers() -> None:
    def with_documents(name: str) -> MCPServer:
        server = make(name)
        template = f"doc://{{of_{name}}}"
        server.register_resource_template(template, "doc", lambda **_: "x")
        server.completion(template, f"of_{name}")(lambda begun: [name])
        return server

    async with (
        asyncio.timeout(LIMIT),
        serving(with_documents("red")) as red,
        serving(with_documents("blue")) as blue,
        Gateway() as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        async with joining(gateway) as client:
            for name in ("red", "blue"):
                found = await client.complete("resource", f"doc://{{of_{name}}}", f"of_{name}")
                assert found.values == [name]


# Router with fake servers


class FakeMember:
    """A server that may be starting; `start` is called when a request waits for it."""

    def __init__(self, name: str, start: Any = None) -> None:
        self.name = name
        self.upstreams = [
            SimpleNamespace(name=own, state="connected") for own in (name, f"{name}#2")
        ]
        self.introduced, self.listed = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self._start = start
        self.waited = 0
        if start is None:
            self.introduced.set()
            self.listed.set()

    async def introduction(self) -> RpcError | None:
        self.waited += 1
        refused: RpcError | None = self._start()
        return refused


class Place:
    """A router over the servers `git` and `time`; `git` has lists."""

    def __init__(self, **views: View) -> None:
        self.catalog = MergedCatalog()
        self.catalog.put("git", ListKind.TOOLS, tools("log"))
        self.catalog.put("git", ListKind.PROMPTS, [raw(name="hi")])
        self.catalog.put("git", ListKind.RESOURCES, resources("a:1"))
        self.catalog.put("git", ListKind.TEMPLATES, templates("t:{x}"))
        self.members: dict[str, Any] = {name: FakeMember(name) for name in ("git", "time")}
        self.is_ready = True
        self.readied = 0
        self.views = ClientViews(views, View.everything())
        parts: Any = self
        self.router = Router(self.catalog, parts, parts, self.views)

    def within(self, view: View) -> list[Any]:
        return [member for member in self.members.values() if view.includes(member.name)]

    async def ready(self) -> None:
        self.readied += 1

    def starting(self, name: str, start: Any) -> FakeMember:
        member = self.members[name] = FakeMember(name, start)
        return member


def call(name: str | None, method: str = "tools/call", **about: Any) -> Exchange:
    return exchange(method, {} if name is None else {"name": name}, **about)


async def test_names_are_routed_to_the_server_that_owns_them() -> None:
    router = Place().router
    tool, prompt = await router.tool(call("git_log")), await router.prompt(call("git_hi"))
    assert [(one.kind, one.server, one.own) for one in (tool, prompt)] == [
        ("tool", "git", "log"),
        ("prompt", "git", "hi"),
    ]


@pytest.mark.parametrize(
    ("name", "connected", "listed", "failed", "words"),
    [
        ("git_none", ["git"], True, False, "Unknown tool: git_none"),
        ("git_none", ["git#2"], True, False, "Unknown tool: git_none"),
        ("git_none", ["time"], True, False, "Unknown tool: git_none; git is not connected"),
        (
            "git_none",
            ["git"],
            False,
            False,
            "Unknown tool: git_none; git has not listed its items",
        ),
        (
            "git_none",
            ["git"],
            True,
            True,
            "Unknown tool: git_none; git has not listed its items",
        ),
        ("none", [], False, False, "Unknown tool: none"),
        (None, [], False, False, "Unknown tool: "),
    ],
)
async def test_the_error_mentions_a_server_that_may_have_the_name(
    name: str | None, connected: list[str], listed: bool, failed: bool, words: str
) -> None:
    place = Place()
    git = place.members["git"]
    for upstream in git.upstreams:
        upstream.state = "connected" if upstream.name in connected else "failed"
    if not listed:
        git.listed.clear()
    git.error = ConnectFailed("x") if failed else None
    with pytest.raises(RpcError) as refused:
        await place.router.tool(call(name))
    assert (refused.value.code, refused.value.message) == (-32602, words)


async def test_a_lookup_waits_for_the_starting_server_that_a_name_may_belong_to() -> None:
    place = Place(ada=View(rename={"time_now": "clock"}), bob=View(servers=("git",)))

    def starts() -> None:
        place.catalog.put("time", ListKind.TOOLS, tools("now"))

    member = place.starting("time", starts)
    for name, who in (("git_other", "cy"), ("clock", "cy"), ("time_now", "bob")):
        with pytest.raises(RpcError, match="Unknown tool"):
            await place.router.tool(call(name, principal=who))
    assert member.waited == 0
    found = await place.router.tool(call("clock", principal="ada"))
    assert (found.server, found.own, member.waited) == ("time", "now", 1)
    member = place.starting("time", lambda: None)
    place.catalog.drop("time")
    await place.router.expect_tool("time_now", exchange(principal="cy").caller)
    assert member.waited == 1


@pytest.mark.parametrize(
    ("params", "stateless", "owner", "refusal"),
    [
        ({"uri": "a:1"}, True, "git", None),
        ({"uri": "t:5"}, True, "git", None),
        ({"uri": "b:1"}, True, None, (-32602, "Resource not found: b:1", "b:1")),
        ({"uri": "b:1"}, False, None, (-32002, "Resource not found: b:1", "b:1")),
        ({}, True, None, (-32602, "params.uri is required: the URI of a resource", None)),
    ],
)
async def test_resources_are_routed_by_their_uri(
    params: Any, stateless: bool, owner: str | None, refusal: Any
) -> None:
    place = Place()
    asked = exchange("resources/read", params, stateless=stateless)
    if owner is not None:
        assert await place.router.resource(asked) is place.members[owner]
    else:
        with pytest.raises(RpcError) as refused:
            await place.router.resource(asked)
        found = refused.value
        assert (found.code, found.message, found.data.get("uri")) == refusal
    assert place.readied == 0


async def test_lookups_of_resources_wait_for_starting_servers() -> None:
    place = Place(bob=View(servers=("git",)), cy=View(deny=("b:*",)))
    place.is_ready = False
    await place.router.resource(exchange("resources/read", {"uri": "a:1"}))
    assert place.readied == 1

    def starts() -> None:
        place.catalog.put("time", ListKind.RESOURCES, resources("b:1"))

    member = place.starting("time", starts)
    asked = exchange("resources/read", {"uri": "b:1"})
    for who in ("bob", "cy"):
        with pytest.raises(RpcError, match="Resource not found"):
            await place.router.resource(exchange("resources/read", {"uri": "b:1"}, principal=who))
    assert member.waited == 0
    assert await place.router.resource(asked) is place.members["time"]
    del place.members["time"]
    with pytest.raises(RpcError, match="Resource not found"):
        await place.router.resource(asked)


@pytest.mark.parametrize(
    ("reference", "sent"),
    [
        (
            {"type": "ref/prompt", "name": "git_hi", "x": 1},
            {"type": "ref/prompt", "name": "hi", "x": 1},
        ),
        ({"type": "ref/resource", "uri": "t:{x}"}, {"type": "ref/resource", "uri": "t:{x}"}),
        ({"type": "ref/resource", "uri": "a:1"}, {"type": "ref/resource", "uri": "a:1"}),
    ],
)
async def test_completions_are_sent_to_a_server_under_its_own_name_of_the_prompt(
    reference: Any, sent: Any
) -> None:
    place = Place()
    asked = exchange("completion/complete", {"ref": reference, "argument": {"name": "n"}})
    member, request = await place.router.completing(asked)
    assert member is place.members["git"]
    assert isinstance(request.message.params, Raw)
    assert json.loads(bytes(request.message.params)) == {"ref": sent, "argument": {"name": "n"}}


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({"name": "git_none"}, "Unknown prompt: git_none"),
        ({"name": "git_log"}, "Unknown prompt: git_log"),
        ({}, "Unknown prompt: None"),
        ({"uri": "b:{x}"}, "Unknown resource template: b:{x}"),
    ],
)
async def test_completions_of_unknown_items_are_refused(reference: Any, words: str) -> None:
    with pytest.raises(RpcError) as refused:
        await Place().router.completing(exchange("completion/complete", {"ref": reference}))
    assert (refused.value.code, refused.value.message) == (-32602, words)


async def test_a_prompt_of_a_removed_server_is_unknown() -> None:
    place = Place()
    del place.members["git"]
    with pytest.raises(RpcError, match="Unknown prompt: git_hi"):
        await place.router.completing(exchange("completion/complete", {"ref": {"name": "git_hi"}}))
