"""Requests without the scopes that an entry requires, at every entry point and for mounted servers.

The weak token has every scope but `read`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.auth.challenge import parse_challenges
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from tests.support.http_server import (
    Answer,
    Session,
    Web,
    introduction,
    next_event,
    serving,
    stateless,
)
from tests.support.token_issuer import TokenMint

LIMIT = 20.0
MINT = TokenMint()
PROMPT, TEMPLATE = {"type": "ref/prompt"}, {"type": "ref/resource"}
TYPED = {"name": "topic", "value": ""}
# `{}` is replaced by the prefix of a mounted server.
HIDDEN: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "{}hidden", "arguments": {}}),
    "inline tool": ("tools/call", {"name": "{}quick", "arguments": {}}),
    "resource": ("resources/read", {"uri": "hidden://fixed"}),
    "template": ("resources/read", {"uri": "hidden://page/7"}),
    "prompt": ("prompts/get", {"name": "{}secret", "arguments": {"topic": "x"}}),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {**PROMPT, "name": "{}secret"}, "argument": TYPED},
    ),
    "completion of a template": (
        "completion/complete",
        {"ref": {**TEMPLATE, "uri": "hidden://page/{topic}"}, "argument": TYPED},
    ),
}
OPEN = {
    name: (method, json.loads(json.dumps(params).replace("hidden", "open").replace("secret", "hi")))
    for name, (method, params) in HIDDEN.items()
    if name != "inline tool"
}
SUBSCRIPTIONS = ["hidden://fixed", "hidden://page/7"]
PREFIXES = pytest.mark.parametrize("prefix", ["", "inner_", "outer_inner_"])


def add_entries(server: MCPServer) -> None:
    for name, scopes in (("hidden", ["read"]), ("open", [])):

        @server.tool(name, scopes=scopes)
        async def work() -> str:
            return "done"

        @server.resource(f"{name}://fixed", scopes=scopes)
        def fixed() -> str:
            return "text"

        @server.resource(f"{name}://page/{{topic}}", scopes=scopes)
        def page(topic: str) -> str:
            return topic

        @server.prompt("secret" if name == "hidden" else "hi", scopes=scopes)
        def words(topic: str) -> str:
            return topic

        for completed in ("secret" if name == "hidden" else "hi", f"{name}://page/{{topic}}"):
            server.completion(completed, "topic")(lambda typed: ["a topic"])

    @server.tool("quick", inline=True, scopes=["read"])
    def quick() -> str:
        return "done"


def make_server(prefix: str = "", **settings: Any) -> MCPServer:
    """Return a server with the entries, mounted once for each part of the prefix."""
    issuer = TokenIssuer(MINT.issuer, jwks=MINT.jwks)
    auth = ServerAuth(issuer=issuer, **settings)
    names = [name for name in reversed(prefix.split("_")) if name]
    made = MCPServer("innermost", auth=None if names else auth, rate_limit_rate=0)
    add_entries(made)
    for name in names:
        outer = MCPServer(name, auth=auth, rate_limit_rate=0)
        outer.mount(made, prefix=name)
        made = outer
    return made


class Caller:
    """A client with one token; each method returns the scopes in a refusal, or none."""

    def __init__(self, web: Web, scope: str) -> None:
        self.web = web
        self.base = web.url.removesuffix("/mcp")
        audience = [web.url, f"{self.base}/sse"]
        self.headers = {"Authorization": f"Bearer {MINT.token(audience, scope=scope)}"}

    async def stateless(self, method: str, params: dict[str, Any]) -> tuple[str, ...]:
        return refused(await self.web.stateless(method, params, self.headers))

    async def in_session(self, method: str, params: dict[str, Any]) -> tuple[str, ...]:
        session = await self.open("2025-11-25")
        return refused(await session.post(message(method, params), self.headers))

    async def in_batch(self, method: str, params: dict[str, Any]) -> tuple[str, ...]:
        session = await self.open("2025-03-26")
        batch = [message("ping", {}, 7), message(method, params)]
        return refused(await session.post(batch, self.headers))

    async def over_http_sse(self, method: str, params: dict[str, Any]) -> tuple[str, ...]:
        async with self.web.http.get(f"{self.base}/sse", headers=self.headers) as stream:
            url = self.base + (await next_event(stream))["data"]
            assert (await self.web.post(introduction(), self.headers, url)).status == 202
            await next_event(stream)
            answer = await self.web.post(message(method, params), self.headers, url)
            if answer.status != 202:
                return refused(answer)
            assert "result" in json.loads((await next_event(stream))["data"])
            return ()

    async def over_websocket(self, method: str, params: dict[str, Any]) -> tuple[str, ...]:
        async with self.web.http.ws_connect(f"{self.base}/ws", headers=self.headers) as socket:
            await socket.send_json(stateless(method, params)[0])
            answer = await socket.receive_json()
        if "error" not in answer:
            return ()
        assert answer["error"]["data"]["error"] == "insufficient_scope"
        return tuple(answer["error"]["data"]["scope"].split())

    async def open(self, version: str) -> Session:
        answer = await self.web.post(introduction(version), self.headers)
        session = Session(self.web, answer.headers["mcp-session-id"], version)
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await session.post(done, self.headers)).status == 202
        return session


Ask = Callable[[Caller, str, dict[str, Any]], Awaitable[tuple[str, ...]]]
ENTRIES: dict[str, Ask] = {
    "stateless": Caller.stateless,
    "session": Caller.in_session,
    "batch": Caller.in_batch,
    "HTTP+SSE": Caller.over_http_sse,
    "WebSocket": Caller.over_websocket,
}
AT_EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES)


def message(method: str, params: dict[str, Any], request_id: int = 8) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def refused(answer: Answer) -> tuple[str, ...]:
    if answer.status == 403:
        (challenge,) = parse_challenges(answer.headers["WWW-Authenticate"])
        assert challenge.error == "insufficient_scope"
        return challenge.scopes
    several = answer.json if isinstance(answer.json, list) else [answer.json]
    assert all("result" in one for one in several), answer.body
    return ()


def named(params: dict[str, Any], prefix: str) -> Any:
    return json.loads(json.dumps(params).replace('"{}', f'"{prefix}'))


@contextlib.asynccontextmanager
async def callers(server: MCPServer, **options: Any) -> AsyncIterator[tuple[Caller, Caller]]:
    """Yield a client with the scope `read`, and one with every other scope."""
    async with serving(server, **options) as web, asyncio.timeout(LIMIT):
        yield Caller(web, "use read"), Caller(web, "use write reading read:all")


@pytest.mark.covers("AUT-06")
@AT_EVERY_ENTRY
@PREFIXES
async def test_every_request_for_a_protected_entry_needs_its_scopes(
    entry: str, prefix: str
) -> None:
    ask = ENTRIES[entry]
    async with callers(make_server(prefix)) as (strong, weak):
        for name, (method, params) in HIDDEN.items():
            given = named(params, prefix)
            assert await ask(weak, method, given) == ("read",), name
            assert await ask(strong, method, given) == (), name
        for name, (method, params) in OPEN.items():
            assert await ask(weak, method, named(params, prefix)) == (), name


@pytest.mark.covers("AUT-06")
@PREFIXES
@pytest.mark.parametrize("uri", SUBSCRIPTIONS)
async def test_subscribing_to_a_resource_requires_its_scopes(uri: str, prefix: str) -> None:
    several = {"notifications": {"resourceSubscriptions": ["open://fixed", uri]}}
    async with callers(make_server(prefix)) as (strong, weak):
        for ask in (Caller.in_session, Caller.in_batch, Caller.over_http_sse):
            assert await ask(weak, "resources/subscribe", {"uri": uri}) == ("read",)
            assert await ask(weak, "resources/subscribe", {"uri": "open://fixed"}) == ()
            assert await ask(strong, "resources/subscribe", {"uri": uri}) == ()
        for ask in (Caller.stateless, Caller.over_websocket):
            assert await ask(weak, "subscriptions/listen", several) == ("read",)
            # The last of as many resources as a stream may have; further ones are dropped.
            most = {
                "resourceSubscriptions": [*(f"else://{n}" for n in range(999)), "else://0", uri]
            }
            assert await ask(weak, "subscriptions/listen", {"notifications": most}) == ("read",)
        assert await Caller.over_websocket(strong, "subscriptions/listen", several) == ()


@AT_EVERY_ENTRY
async def test_a_request_needs_the_scopes_of_the_server_and_those_of_the_entry(entry: str) -> None:
    """A scope that includes another one counts as both."""
    server = make_server(scopes=["use"], implied_scopes={"all": ["use", "read"]})
    async with callers(server) as (strong, weak):
        method, params = HIDDEN["tool"]
        expected = ("read",) if entry == "WebSocket" else ("use", "read")
        assert await ENTRIES[entry](weak, method, named(params, "")) == expected
        for one in (strong, Caller(weak.web, "all")):
            assert await ENTRIES[entry](one, method, named(params, "")) == ()


@pytest.mark.parametrize("fast_path", [True, False])
async def test_the_scopes_of_an_entry_apply_as_soon_as_it_is_added(fast_path: bool) -> None:
    inner = MCPServer("inner", rate_limit_rate=0)
    inner.tool("first")(lambda: "first")
    outer = MCPServer("outer", auth=ServerAuth(issuer=TokenIssuer(MINT.issuer, jwks=MINT.jwks)))
    outer.mount(inner, prefix="inner")
    async with callers(outer, fast_path=fast_path) as (strong, weak):
        assert await weak.stateless("tools/call", {"name": "inner_first", "arguments": {}}) == ()
        add_entries(inner)
        for method, params in HIDDEN.values():
            assert await weak.stateless(method, named(params, "inner_")) == ("read",)
            assert await strong.stateless(method, named(params, "inner_")) == ()


# REST


@PREFIXES
async def test_the_rest_api_serves_protected_entries_only_with_their_scopes(prefix: str) -> None:
    """Resources and prompts are listed but cannot be read."""
    async with callers(make_server(prefix)) as (strong, weak):
        for tool in ("hidden", "quick"):
            url = f"{weak.base}/tools/{prefix}{tool}/call"
            assert refused(await weak.web.post({}, weak.headers, url)) == ("read",)
            assert (await strong.web.post({}, strong.headers, url)).status == 200
        for path in ("/resources", "/prompts", "/tools"):
            listed = await weak.web.get(weak.base + path, weak.headers)
            assert listed.status == 200
            assert b"hidden" in listed.body or b"secret" in listed.body
        for path in ("/resources/hidden://fixed", f"/prompts/{prefix}secret"):
            assert (await weak.web.get(weak.base + path, weak.headers)).status == 404
