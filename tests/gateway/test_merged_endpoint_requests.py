"""Dispatch of merged-endpoint requests to the server that owns the item."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import RpcError
from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews
from fairlead.gateway.merged_endpoint import MergedEndpoint
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import ANONYMOUS, principal_from
from fairlead.protocol.own_errors import own_error
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.protocol.targets.targets import Target
from fairlead.relay.request_params import with_members
from fairlead.server.results.result_envelope import ResultEnvelope
from fairlead.wire import Request
from tests.support.catalog_items import ALL, tools
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    joining,
    make,
    names,
    serving,
)
from tests.support.single_exchange import exchange


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", BOTH)
async def test_requests_go_to_the_server_that_owns_the_item(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway() as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        async with joining(gateway, version) as client:
            assert {"red_who", "blue_who"} <= set(await names(client))
            assert (await client.call("red_secret")).text == "the secret of red"
            assert (await client.call("blue_secret")).text == "the secret of blue"

            uris = [found["uri"] for found in await client.list_resources()]
            assert {"red://fixed", "blue://fixed", "shared://note"} == set(uris)
            for name in ("red", "blue"):
                read = await client.read_resource(f"{name}://fixed")
                assert read["contents"][0]["text"] == f"fixed of {name}"
                read = await client.read_resource(f"{name}://item/7")
                assert read["contents"][0]["text"] == f"7 of {name}"
            # Both servers list this resource: requests always go to the first one.
            read = await client.read_resource("shared://note")
            assert read["contents"][0]["text"] == "note of red"

            prompt = await client.get_prompt("blue_hello", {"city": "Bonn"})
            assert prompt["messages"][0]["content"]["text"] == "blue greets Bonn"
            found = await client.complete("prompt", "blue_hello", "city", "b")
            assert found.values == ["blue-Aachen", "blue-Bonn"]
            found = await client.complete("resource", "blue://item/{key}", "key", "")
            assert found.values == ["blue-key"]


@pytest.mark.parametrize("version", BOTH)
async def test_requests_for_unknown_items_are_refused(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        async with joining(gateway, version) as client:
            code = -32602 if client.protocol_version == "2026-07-28" else -32002
            for asking, expected in (
                (client.call_tool("who", {}), -32602),  # the server's own name, not the merged one
                (client.call_tool("blue_who", {}), -32602),
                (client.get_prompt("hello", {"city": "x"}), -32602),
                (client.read_resource("blue://fixed"), code),
                (client.complete("prompt", "hello", "city", ""), -32602),
                (client.complete("resource", "blue://{x}", "x", ""), -32602),
                (client.request("no/such/method"), -32601),
            ):
                with pytest.raises(RpcError) as caught:
                    await asking
                assert caught.value.code == expected
                assert caught.value.data["source"] == "proxy"


@pytest.mark.parametrize(
    ("stateless", "methods"),
    [
        (True, ("initialize", "ping", "logging/setLevel", "resources/subscribe")),
        (False, ("server/discover", "subscriptions/listen")),
    ],
)
async def test_methods_of_the_other_era_are_not_found(
    stateless: bool, methods: tuple[str, ...]
) -> None:
    async with Gateway() as gateway:
        for method in (*methods, "tasks/get", "no/such/method"):
            with pytest.raises(RpcError) as caught:
                await gateway.handler(exchange(method, {}, stateless=stateless))
            assert (caught.value.code, caught.value.message) == (
                -32601,
                f"Method not found: {method}",
            )


async def test_every_request_passes_through_the_interceptors() -> None:
    seen: list[str] = []

    async def note(exchange: Exchange, proceed: Proceed) -> Answer:
        if isinstance(exchange.message, Request):
            seen.append(exchange.method)
        return await proceed(exchange)

    async with Gateway(interceptors=[note]) as gateway, joining(gateway, "2025-11-25") as client:
        await client.ping()
        await names(client)
    assert seen == ["initialize", "ping", "tools/list"]


# The endpoint alone


class FakeBackend:
    """A server that responds with its name and keeps the requests it received."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, str | None, Any]] = []

    @property
    def replicas(self) -> Any:
        return self

    async def answer(self, asked: Exchange, client: Any) -> Answer:
        self.asked.append((asked.method, asked.alias, client))
        return b'{"by":"%b"}' % self.name.encode()


class Parts:
    """The collaborators of an endpoint, with one server `git` that has the tool `log`."""

    def __init__(self, *interceptors: Any, search: Any = None) -> None:
        self.git = FakeBackend("git")
        self.members: dict[str, Any] = {"git": self.git}
        self.is_ready = True
        self.compared = True  # whether the lists for this client are known
        self.calls: list[Any] = []
        self.catalog = MergedCatalog()
        self.catalog.put("git", ListKind.TOOLS, tools("log"))
        self.merged: dict[object, Any] = {}  # clients by peer
        self._search = search
        parts: Any = self
        self.endpoint = MergedEndpoint(
            info={"name": "x", "version": "1"},
            clients=parts,
            registry=parts,
            catalog=self.catalog,
            lists=parts,
            router=parts,
            views=ClientViews({}, ALL),
            subscriptions=parts,
            changes=parts,
            log_levels=parts,
            handshake=parts,
            envelope=ResultEnvelope({"name": "x", "version": "1"}),
            interceptors=interceptors,
            search=None if search is None else parts,
            desk=None,
            until_disconnected=self.until_disconnected,
        )

    def is_ready_for(self, asked: Exchange, client: Any) -> bool:
        return self.compared

    async def ready_for(self, asked: Exchange, client: Any) -> None:
        self.calls.append(("ready", client))

    def page(self, kind: ListKind, asked: Exchange, client: Any) -> bytes:
        self.calls.append((kind, client))
        return b'"%b":[]' % kind.value.encode()

    def unknown(self, kind: ListKind, name: str | None, asked: Exchange) -> RpcError:
        return own_error(-32602, f"Unknown {kind.target_kind}: {name}")

    async def tool(self, asked: Exchange) -> Target:
        return Target("tool", "log", "git_log", "git")

    async def prompt(self, asked: Exchange) -> Target:
        return Target("prompt", "hi", "git_hi", "gone")

    async def resource(self, asked: Exchange) -> Any:
        return self.git

    async def completing(self, asked: Exchange) -> Any:
        return self.git, with_members(asked, name="changed")

    async def _noted(self, asked: Exchange, client: Any = None) -> bytes:
        self.calls.append((asked.method, client))
        return b"{}"

    subscribe = unsubscribe = listen = set = initialize = discover = _noted

    async def until_disconnected(self, asked: Exchange, answer: Any) -> Answer:
        self.calls.append("alone")
        result: Answer = await answer
        return result

    async def passed(self) -> None:
        self.calls.append("passed")

    async def answer(self, asked: Exchange, view: View) -> bytes | Exchange | None:
        """Answer like the search tools."""
        return self._search(asked)  # type: ignore[no-any-return]

    async def ask(self, method: str, params: Any = None, **about: Any) -> Any:
        asked = exchange(method, params, **{"principal": principal_from("ada"), **about})
        return json.loads(bytes(await self.endpoint.handler(asked) or b""))


@pytest.mark.parametrize(
    ("method", "stateless", "ready", "compared", "answer"),
    [
        ("ping", False, True, True, b"{}"),
        ("ping", True, True, True, None),
        ("tools/list", False, True, True, b'{"tools":[]}'),
        ("tools/list", False, False, True, None),
        ("tools/list", False, True, False, None),
        ("prompts/list", False, True, True, None),
        ("tools/call", False, True, True, None),
    ],
)
def test_requests_that_need_not_wait_are_answered_without_a_task(
    method: str, stateless: bool, ready: bool, compared: bool, answer: bytes | None
) -> None:
    parts = Parts()
    parts.is_ready, parts.compared = ready, compared
    request = exchange(method, {}, stateless=stateless)
    client = parts.merged[request.edge] = object()
    assert parts.endpoint.answer_inline(request) == answer
    listed = answer is not None and b"tools" in answer
    assert parts.calls == ([(ListKind.TOOLS, client)] if listed else [])


def test_requests_are_not_answered_inline_if_there_are_interceptors() -> None:
    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        return await proceed(asked)

    assert Parts().endpoint.inline_methods == {"ping", "tools/list"}
    assert Parts(look).endpoint.inline_methods == set()


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("tools/list", ListKind.TOOLS),
        ("prompts/list", ListKind.PROMPTS),
        ("resources/list", ListKind.RESOURCES),
        ("resources/templates/list", ListKind.TEMPLATES),
    ],
)
async def test_list_requests_wait_for_starting_servers(method: str, kind: ListKind) -> None:
    parts = Parts()
    assert await parts.ask(method, {}, stateless=False) == {kind.value: []}
    assert parts.calls == ["alone", ("ready", None), (kind, None)]
    assert (await parts.ask(method, {}))["resultType"] == "complete"
    request = exchange(method, {}, stateless=False)
    client = parts.merged[request.edge] = SimpleNamespace(incoming=parts)
    parts.calls.clear()
    await parts.endpoint.handler(request)
    assert parts.calls == ["passed", ("ready", client), (kind, client)]


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("tools/call", ("tools/call", "log")),
        ("resources/read", ("resources/read", None)),
        ("completion/complete", ("completion/complete", None)),
    ],
)
async def test_a_forwarded_request_carries_its_client(
    method: str, asked: tuple[str, str | None]
) -> None:
    parts = Parts()
    assert await parts.ask(method, {}) == {"by": "git"}
    request = exchange(method, {})
    client = parts.merged[request.edge] = SimpleNamespace(incoming=parts)
    parts.calls.clear()
    assert await parts.endpoint.handler(request) == b'{"by":"git"}'
    # the request waits for notifications that the client sent earlier
    assert parts.calls == ["passed"]
    assert parts.git.asked == [(*asked, None), (*asked, client)]


async def test_a_call_to_a_removed_server_is_refused() -> None:
    with pytest.raises(RpcError, match="Server 'gone' was removed") as refused:
        await Parts().ask("prompts/get", {})
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("method", "stateless"),
    [
        ("resources/subscribe", False),
        ("resources/unsubscribe", False),
        ("logging/setLevel", False),
        ("initialize", False),
        ("server/discover", True),
        ("subscriptions/listen", True),
    ],
)
async def test_the_gateway_itself_answers_lifecycle_logging_and_subscription_requests(
    method: str, stateless: bool
) -> None:
    parts = Parts()
    assert await parts.ask(method, {}, stateless=stateless) == {}
    assert parts.calls == ["alone", (method, None)]
    assert await parts.ask("ping", stateless=False) == {}


async def test_calls_of_anonymous_clients_are_not_tracked() -> None:
    parts = Parts()
    await parts.ask("server/discover", {}, principal=ANONYMOUS)
    assert parts.calls == [("server/discover", None)]


async def test_a_call_inside_call_tool_passes_through_the_interceptors_again() -> None:
    seen: list[str | None] = []

    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        seen.append(asked.target)
        return await proceed(asked)

    found: list[Any] = [None, b'{"content":[]}']
    found += [with_members(exchange("tools/call", {}), name=one) for one in ("git_log", "other")]
    parts = Parts(look, search=lambda asked: found.pop(0))
    assert await parts.ask("tools/call", {"name": "a"}) == {"by": "git"}
    answer = await parts.ask("tools/call", {"name": "b"})
    assert (answer["content"], answer["resultType"]) == ([], "complete")
    assert await parts.ask("tools/call", {"name": "c"}) == {"by": "git"}
    with pytest.raises(RpcError, match="Unknown tool: other") as refused:
        await parts.ask("tools/call", {"name": "d"})
    assert refused.value.code == -32602
    assert seen == ["a", "b", "c", "git_log", "d", "other"]
    assert [alias for _, alias, _ in parts.git.asked] == ["log", "log"]
