"""Routing of names and templates to servers, and errors for unknown names."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.config.upstream_settings import Rules
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.gateway import Gateway, RelaySettings, View
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.routing import Router
from fairlead.gateway.catalog.unknown_items import UnknownItems
from fairlead.gateway.catalog.views import ClientViews
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.manager import MCPManager, MCPToolCache
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.memory.tool_cache import FileStore
from tests.support.catalog_items import raw, resources, templates, tools
from tests.support.gateway_servers import (
    LIMIT,
    Gate,
    config,
    joining,
    make,
    names,
    program,
    serving,
    until,
)
from tests.support.single_exchange import exchange

TOOLS = "; tools/list returns the available tools"
PROMPTS = "; prompts/list returns the available prompts"
MISSING = "could not be started: its program does not exist"
RESOURCES = "; resources/list or resources/templates/list returns the available resources"


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
                ("a", "gone_who", f"; gone is not connected: it {MISSING}"),
                ("a", "red_nothing", None),
                ("b", "gone_who", None),  # the server is outside the view
            ):
                who = {"Authorization": f"Bearer {token}"}
                async with MCPClient.connect_http(url, config(), headers=who) as client:
                    with pytest.raises(RpcError) as caught:
                        await client.call_tool(name, {})
                    end = why or "; tools/list returns the available tools"
                    assert caught.value.message == f"Unknown tool: {name}{end}"
                    with pytest.raises(RpcError) as caught:
                        await client.get_prompt(name, {})
                    end = why or "; prompts/list returns the available prompts"
                    assert caught.value.message == f"Unknown prompt: {name}{end}"


async def test_completions_of_similar_templates_are_sent_to_the_server_that_owns_them() -> None:
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
            SimpleNamespace(name=own, status="connected", error=None) for own in (name, f"{name}#2")
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
        self.search = False
        self.views = ClientViews(views, View.everything())
        parts: Any = self
        unknown = UnknownItems(parts, {}, suggests=False)
        self.router = Router(self.catalog, parts, parts, self.views, unknown)

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
        ("git_none", ["git"], True, False, f"Unknown tool: git_none{TOOLS}"),
        ("git_none", ["git#2"], True, False, f"Unknown tool: git_none{TOOLS}"),
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
            "Unknown tool: git_none; git has not listed its items: it answered with error -32601",
        ),
        ("none", [], False, False, f"Unknown tool: none{TOOLS}"),
        (None, [], False, False, "params.name is required: the name of a tool"),
    ],
)
async def test_the_error_for_an_unknown_name_mentions_a_server_that_may_have_it(
    name: str | None, connected: list[str], listed: bool, failed: bool, words: str
) -> None:
    place = Place()
    git = place.members["git"]
    for upstream in git.upstreams:
        upstream.status = "connected" if upstream.name in connected else "failed"
    if not listed:
        git.listed.clear()
    git.error = RpcError(-32601, "our secret") if failed else None
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
        ({"uri": "b:1"}, True, None, (-32602, f"Resource not found: b:1{RESOURCES}", "b:1")),
        ({"uri": "b:1"}, False, None, (-32002, f"Resource not found: b:1{RESOURCES}", "b:1")),
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
async def test_completion_requests_to_a_server_contain_its_own_name_of_the_prompt(
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
        ({"name": "git_none"}, f"Unknown prompt: git_none{PROMPTS}"),
        ({"name": "git_log"}, f"Unknown prompt: git_log{PROMPTS}"),
        ({}, "params.ref.name is required: the name of a prompt"),
        (
            {"uri": "b:{x}"},
            "Unknown resource template: b:{x}; resources/templates/list returns the available "
            "resource templates",
        ),
        (
            {"type": "ref/prompt", "name": "log", "uri": "t:{x}"},
            "params.ref must have either a name or a URI",
        ),
    ],
)
async def test_completion_requests_for_unknown_items_are_refused(
    reference: Any, words: str
) -> None:
    with pytest.raises(RpcError) as refused:
        await Place().router.completing(exchange("completion/complete", {"ref": reference}))
    assert (refused.value.code, refused.value.message) == (-32602, words)


async def test_a_prompt_of_a_removed_server_is_unknown() -> None:
    place = Place()
    del place.members["git"]
    with pytest.raises(RpcError, match="Unknown prompt: git_hi"):
        await place.router.completing(exchange("completion/complete", {"ref": {"name": "git_hi"}}))


ERAS = ["2025-11-25", "2026-07-28"]
STAMP: dict[str, Any] = {
    "protocolVersion": ERAS[1],
    "clientCapabilities": {},
    "clientInfo": {"name": "x", "version": "0"},
}


@contextlib.asynccontextmanager
async def begun(gateway: Gateway, work: Any) -> AsyncIterator["asyncio.Task[Any]"]:
    """Start a request, and return once it waits for servers."""
    waiting = len(_waiting(gateway))
    task = asyncio.ensure_future(work)
    await until(lambda: task.done() or len(_waiting(gateway)) > waiting)
    try:
        yield task
    finally:
        task.cancel()


def _waiting(gateway: Gateway) -> list[object]:
    """Return the requests that wait for lists or for a connection."""
    events = [m.introduced for m in gateway.members.values()]
    found: list[object] = [one for event in events for one in event._waiters]
    for upstream in gateway.upstreams.values():
        found += upstream._waiting
    # requests that wait for their session's own connection to be opened
    for endpoint in gateway.endpoints.values():
        sessions = [one for client in endpoint.clients.values() for one in client.sessions.values()]
        found += [session for session in sessions if session.opening.locked()]
    return found


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", ERAS)
async def test_requests_wait_for_a_server_that_is_still_starting(version: str) -> None:
    asks: list[tuple[str, dict[str, Any], Any]] = [
        ("tools/call", {"name": "slow_secret"}, "the secret of slow"),
        ("prompts/get", {"name": "slow_hello", "arguments": {"city": "Bonn"}}, "greets Bonn"),
        ("resources/read", {"uri": "slow://fixed"}, "fixed of slow"),
        ("resources/read", {"uri": "slow://item/7"}, "7 of slow"),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "slow_hello"},
                "argument": {"name": "city", "value": "b"},
            },
            "slow-Bonn",
        ),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "slow://item/{key}"},
                "argument": {"name": "key", "value": ""},
            },
            "slow-key",
        ),
    ]
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        await gate.knocked.wait()
        async with MCPClient.connect_http(url, config(version)) as client:
            assert await names(client) == []  # the deadline is 0, so lists are returned at once
            calls = [client.request(method, params) for method, params, _ in asks]
            async with begun(gateway, asyncio.gather(*calls)) as answers:
                assert not answers.done()
                gate.open()
                for answer, (_, _, expected) in zip(await answers, asks, strict=True):
                    assert expected in bytes(answer).decode()


async def post(url: str, tool: str, headers: Mapping[str, str] = {}) -> dict[str, Any]:
    """Send a stateless call as a client that has sent nothing before."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in STAMP.items()}
    call["params"] = {"name": tool, "arguments": {}, "_meta": meta}
    about = {
        "mcp-protocol-version": ERAS[1],
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "accept": "application/json, text/event-stream",
    }
    async with (
        aiohttp.ClientSession() as web,
        web.post(url, json=call, headers={**about, **headers}) as answer,
    ):
        text = await answer.text()
        found: dict[str, Any] = json.loads(text.partition("data: ")[2] or text)
        return found


async def call_at(url: str, version: str, tool: str, **options: Any) -> str:
    """Call a tool as a new client, and raise the error of the response."""
    if version == ERAS[1]:
        answer = await post(url, tool, **options)
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        return str(answer["result"]["content"][0]["text"])
    async with MCPClient.connect_http(url, config(version), **options) as client:
        return (await client.call(tool)).text


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_at_the_endpoint_of_a_server_waits_for_its_start(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        async with begun(gateway, call_at(f"{url}/slow", version, "secret")) as answer:
            assert not answer.done()
            gate.open()
            assert await answer == "the secret of slow"


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("path", ["", "/slow"])
async def test_a_call_that_waits_too_long_fails_with_an_error_about_the_start(
    version: str, path: str
) -> None:
    """The call timeout is shorter than the start-up timeout."""
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, relay=RelaySettings(call_timeout=0.1)) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        with pytest.raises(FairleadError) as caught:
            await call_at(f"{url}{path}", version, "secret" if path else "slow_secret")
        refused = caught.value
        if isinstance(refused, ConnectFailed):  # the handshake of the client has failed, too
            refused = refused.__cause__
        assert isinstance(refused, RpcError)
        assert refused.code == -32603
        assert refused.message == (
            "slow is still starting, after 0.1 s. Try again in a moment; if it always takes so "
            "long, raise `call_timeout` (seconds)"
        )
        assert refused.data == {"source": "proxy", "server": "slow", "starting": True}


async def test_a_call_waits_for_a_start_as_long_as_the_server_entry_allows() -> None:
    """The wait for a start slot counts, so a call may fail before the server is started."""
    manager = MCPManager(on_roots=None, rules=Rules(connect_timeout=30), max_starts=1)
    async with asyncio.timeout(LIMIT), manager, Gateway(manager) as gateway, Gate() as gate:
        await gateway.connect({"first": gate.program("first")})
        await gate.knocked.wait()  # this server occupies the only start slot
        await gateway.connect({"second": {**program("second"), "timeout": 100}})
        async with joining(gateway) as client:
            # The start has the same limit as the call, so it may already have failed.
            words = r"still starting, after 0\.1 s.* `timeout`|; second is not connected"
            with pytest.raises(RpcError, match=words):
                await client.call_tool("second_secret", {})


async def test_a_waiting_call_fails_when_the_start_of_its_server_fails() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": {**gate.program("slow"), "timeout": 300}})
        async with joining(gateway) as client:
            with pytest.raises(RpcError) as caught:
                await client.call_tool("slow_secret", {})
        # Both timeouts are equal, so either error may be returned.
        assert "slow is still starting" in caught.value.message or (
            caught.value.message
            == "Unknown tool: slow_secret; slow is not connected: it did not answer within 0.3 s"
        )


async def test_calls_do_not_wait_for_servers_that_cannot_have_the_item() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, views={"bob": View(servers=("red",))}) as gateway,
        Gate() as gate,
        serving(make("red")) as red,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
    ):
        await gateway.connect({"slow": gate.program("slow"), "red": {"url": red}})
        await gateway.members["red"].introduced.wait()
        async with joining(gateway) as client:
            for name in ("red_nothing", "slo_secret"):
                with pytest.raises(RpcError, match=f"Unknown tool: {name};"):
                    await client.call_tool(name, {})
            assert (await client.call("red_secret")).text == "the secret of red"
        who = {"Authorization": "Bearer b"}
        async with MCPClient.connect_http(url, config(), headers=who) as client:
            with pytest.raises(RpcError, match="Unknown tool: slow_secret; tools/list"):
                await client.call_tool("slow_secret", {})
            with pytest.raises(RpcError, match="Resource not found"):
                await client.read_resource("slow://fixed")


async def test_a_call_of_a_renamed_tool_waits_for_its_server() -> None:
    view = View(rename={"slow_secret": "mystery"})
    async with asyncio.timeout(LIMIT), Gateway(deadline=0, view=view) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with joining(gateway) as client, begun(gateway, client.call("mystery")) as call:
            assert not call.done()
            gate.open()
            assert (await call).text == "the secret of slow"


async def test_a_call_uses_the_view_that_is_valid_when_its_wait_ends() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with (
            joining(gateway) as client,
            begun(gateway, client.call_tool("slow_secret", {})) as call,
            begun(gateway, client.read_resource("slow://fixed")) as read,
        ):
            assert not call.done()
            assert not read.done()
            gateway.show({}, View(deny=("slow_secret", "slow://*")))
            gate.open()
            with pytest.raises(RpcError, match="Unknown tool: slow_secret; tools/list"):
                await call
            with pytest.raises(RpcError, match="Resource not found: slow://fixed; resources/list"):
                await read


async def test_removing_a_starting_server_ends_waiting_calls() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with (
            joining(gateway) as client,
            begun(gateway, client.call_tool("slow_secret", {})) as call,
        ):
            await gateway.disconnect("slow")
            with pytest.raises(RpcError, match="Unknown tool: slow_secret; tools/list"):
                await call


async def test_calls_during_the_start_of_a_server_do_not_open_the_circuit() -> None:
    settings = RelaySettings(call_timeout=0.05)
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, failure_threshold=1, relay=settings) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        for _ in range(3):
            with pytest.raises(RpcError, match="still starting"):
                await call_at(f"{url}/slow", ERAS[1], "secret")
        assert gateway.members["slow"].upstreams[0].health.breaker.state == "closed"


@pytest.mark.parametrize("version", ERAS)
async def test_a_call_goes_to_the_replica_that_starts_first(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0) as gateway,
        Gate() as never,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": [never.program("one"), gate.program("two")]})
        async with (
            MCPClient.connect_http(url, config(version)) as client,
            begun(gateway, client.call("slow_secret")) as call,
        ):
            assert not call.done()
            gate.open()
            assert (await call).text == "the secret of two"


async def test_calls_wait_for_a_failed_server_that_is_reconnected(tmp_path: Path) -> None:
    late = tmp_path / "late.py"
    async with asyncio.timeout(LIMIT), Gateway(deadline=0) as gateway, Gate() as gate:
        entry = gate.program("slow")
        script, *rest = entry["args"]
        await gateway.connect({"slow": {**entry, "args": [str(late), *rest]}})
        await until(lambda: gateway.upstreams["slow"].state == "failed")
        late.write_text(f"import runpy\nrunpy.run_path({script!r}, run_name='__main__')\n")
        async with joining(gateway) as client:
            with pytest.raises(RpcError, match="slow is not connected"):
                await client.call_tool("slow_secret", {})
            again = asyncio.create_task(gateway.upstreams["slow"].reconnect())
            await gate.knocked.wait()
            async with begun(gateway, client.call("slow_secret")) as call:
                assert not call.done()
                gate.open()
                assert (await call).text == "the secret of slow"
            await again


async def test_a_call_of_a_new_tool_waits_although_remembered_tools_are_listed(
    tmp_path: Path,
) -> None:

    def managed() -> MCPManager:
        return MCPManager(on_roots=None, cache=MCPToolCache(FileStore(tmp_path)))

    async with asyncio.timeout(LIMIT), Gate() as gate:
        entry = gate.program("slow")
        async with managed() as manager, Gateway(manager, deadline=0) as gateway:
            await gateway.connect({"slow": entry})
            gate.open()
            await until(lambda: gateway.is_ready)
        gate.shut()
        async with managed() as manager, Gateway(manager, deadline=0) as gateway:
            await gateway.connect({"slow": entry})
            async with joining(gateway) as client:
                assert "slow_secret" in await names(client)
                asking = client.get_prompt("slow_hello", {"city": "Bonn"})
                async with begun(gateway, asking) as prompt:
                    assert not prompt.done()
                    await gate.knocked.wait()
                    gate.open()
                    assert "greets Bonn" in str(await prompt)


async def test_call_tool_waits_for_a_starting_server() -> None:
    async with asyncio.timeout(LIMIT), Gateway(deadline=0, search=True) as gateway, Gate() as gate:
        await gateway.connect({"slow": gate.program("slow")})
        async with joining(gateway) as client:
            wanted = {"name": "slow_secret", "arguments": {}}
            async with begun(gateway, client.call("call_tool", wanted)) as call:
                assert not call.done()
                gate.open()
                assert (await call).text == "the secret of slow"


class Deny:
    """An interceptor that refuses tools by their merged names."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target is not None and fnmatchcase(exchange.target, self._pattern):
            raise RpcError(-32602, "denied")
        return await proceed(exchange)


@pytest.mark.parametrize("version", ERAS)
async def test_calls_during_the_start_of_a_server_do_not_bypass_interceptors(version: str) -> None:
    """Interceptors compare merged names, which are unknown until the server has listed tools."""
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, interceptors=[Deny("slow_secret")]) as gateway,
        Gate() as gate,
        serving(gateway) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        async with begun(gateway, call_at(f"{url}/slow", version, "secret")) as answer:
            assert not answer.done()
            gate.open()
            with pytest.raises(RpcError, match="denied"):
                await answer


@pytest.mark.parametrize("version", ERAS)
async def test_calls_during_the_start_of_a_server_do_not_bypass_views(version: str) -> None:
    views = {"bob": View(deny=("slow_secret",))}
    async with (
        asyncio.timeout(LIMIT),
        Gateway(deadline=0, views=views) as gateway,
        Gate() as gate,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
    ):
        await gateway.connect({"slow": gate.program("slow")})
        who = {"Authorization": "Bearer b"}
        door = f"{url}/slow"
        async with (
            begun(gateway, call_at(door, version, "who", headers=who)) as allowed,
            begun(gateway, call_at(door, version, "secret", headers=who)) as denied,
        ):
            assert not allowed.done()
            assert not denied.done()
            gate.open()
            assert (await allowed).startswith("slow")
            with pytest.raises(RpcError, match="Unknown tool: secret"):
                await denied
