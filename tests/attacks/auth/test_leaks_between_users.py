"""Every list and read of several users, compared with the results of each user alone.

Caches are cold for the first user and warm for the others.
"""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import Context, MCPServer
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from fairlead.policy.actions import Cache
from tests.gateway.clients.test_role_access import Place, scene
from tests.support.gateway_servers import serving as serving_at
from tests.support.http_server import Session, Web, introduction, serving
from tests.support.token_issuer import TokenMint

LIMIT = 50.0
MARK = "SEALED"  # occurs in every text of secret entries except their names
Outcomes = dict[str, Any]  # the result or error of each request
LISTS = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
READS: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"name": "{}open", "arguments": {}}),
    ("tools/call", {"name": "{}secret", "arguments": {}}),
    ("resources/read", {"uri": "open://fixed"}),
    ("resources/read", {"uri": "secret://fixed"}),
    ("resources/read", {"uri": "open://page/1"}),
    ("resources/read", {"uri": "secret://page/1"}),
    ("prompts/get", {"name": "{}open_words"}),
    ("prompts/get", {"name": "{}secret_words"}),
    *(
        ("completion/complete", {"ref": ref, "argument": {"name": "topic", "value": ""}})
        for name in ("open", "secret")
        for ref in (
            {"type": "ref/prompt", "name": "{}" + f"{name}_words"},
            {"type": "ref/resource", "uri": f"{name}://page/{{topic}}"},
        )
    ),
]


def own_text(ctx: Context, kept: str) -> str:
    return f"{kept} for {ctx.subject} of {ctx.issuer} with {' '.join(sorted(ctx.scopes))}"


def make_server(auth: ServerAuth | None = None) -> MCPServer:
    """Return a server with open and secret entries, whose results may be cached."""
    server = MCPServer("red", auth=auth, rate_limit_rate=0, cache_ttl=3600)
    for name in ("open", "secret"):
        scopes = ["high"] if auth is not None and name == "secret" else []
        kept = MARK if name == "secret" else name

        @server.tool(name, kept, scopes=scopes)
        async def work(ctx: Context, kept: str = kept) -> str:
            return own_text(ctx, kept)

        @server.resource(f"{name}://fixed", description=kept, scopes=scopes)
        async def fixed(ctx: Context, kept: str = kept) -> str:
            return own_text(ctx, kept)

        @server.resource(f"{name}://page/{{topic}}", description=kept, scopes=scopes)
        async def page(topic: str, ctx: Context, kept: str = kept) -> str:
            return own_text(ctx, kept)

        @server.prompt(f"{name}_words", description=kept, scopes=scopes)
        async def words(ctx: Context, topic: str = "", kept: str = kept) -> str:
            return own_text(ctx, kept)

        for completed in (f"{name}_words", f"{name}://page/{{topic}}"):
            server.completion(completed, "topic")(lambda typed, kept=kept: [kept])
    return server


class User:
    """A user of one endpoint, who sends every request in both eras."""

    def __init__(self, web: Web, token: str, prefix: str = "") -> None:
        self._web = web
        self._headers = {"Authorization": f"Bearer {token}"}
        self._prefix = prefix

    async def everything(self) -> Outcomes:
        found: Outcomes = {}
        answer = await self._web.post(introduction(), self._headers)
        session = Session(self._web, answer.headers["mcp-session-id"], "2025-11-25")
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await session.post(done, self._headers)).status == 202
        for method, params in [*((method, {}) for method in LISTS), *READS]:
            text = json.dumps(params)
            given = json.loads(text.replace('"{}', f'"{self._prefix}'))
            new = await self._web.stateless(method, given, self._headers)
            found[f"{method} {text}, stateless"] = outcome(new.json)
            message = {"jsonrpc": "2.0", "id": 5, "method": method, "params": given}
            old = await session.post(message, self._headers)
            found[f"{method} {text}, in a session"] = outcome(old.json)
        async with self._web.http.delete(
            self._web.url, headers={**session.headers, **self._headers}
        ) as ended:
            assert ended.status == 200
        return found


def outcome(answer: dict[str, Any]) -> Any:
    """Return the result, or the error without the challenge of its response."""
    return answer["result"] if "result" in answer else answer["error"]


async def assert_separate(users: dict[str, User], alone: dict[str, Outcomes]) -> None:
    """Compare the outcomes of users who send their requests in turn, and then all at the same
    time.
    """
    for _ in range(2):
        for name, user in users.items():
            assert await user.everything() == alone[name], name
    together = await asyncio.gather(*(user.everything() for user in users.values()))
    assert dict(zip(users, together, strict=True)) == alone


# At a gateway

PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/red"])
ROLES = ["operator", "partner", "staff"]


@contextlib.asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Place]:
    async with serving_at(make_server()) as url:
        async with scene(
            folder, {"red": {"url": url}}, deny="*secret*", interceptors=[Cache()]
        ) as place:
            yield place


def user_of(place: Place, role: str, path: str) -> User:
    """Return a user with a role; all have the same subject."""
    if role == "partner":
        token = place.b.token(place.url + path, sub="ann")
    else:
        token = place.ann(*(["ops"] if role == "operator" else []), to=path)
    return User(Web(place.url + path, place.web), token, "red_" if path == "/mcp" else "")


@pytest.mark.attack(
    "lists and reads of a user after those of another user whose role has another view",
    "views, cached lists and cached results belong to a principal with its role",
    "each user gets exactly what it gets alone",
)
@pytest.mark.covers("AUT-06")
@PATHS
@pytest.mark.parametrize("order", [ROLES, ROLES[::-1]], ids=["widest first", "narrowest first"])
async def test_caches_of_a_gateway_reveal_nothing_of_other_users(
    path: str, order: list[str], tmp_path: Path
) -> None:
    alone: dict[str, Outcomes] = {}
    for role in order:
        async with gateway(tmp_path) as place:
            alone[role] = await user_of(place, role, path).everything()
    assert {role: MARK in json.dumps(found) for role, found in alone.items()} == {
        "operator": True,
        "partner": True,
        "staff": False,
    }
    async with gateway(tmp_path) as place:
        users = {role: user_of(place, role, path) for role in order}
        await assert_separate(users, alone)


# At a server

MINT, OTHER = TokenMint(), TokenMint("https://other.example")


@contextlib.asynccontextmanager
async def protected(fast_path: bool) -> AsyncIterator[dict[str, User]]:
    """Yield users of a server, who send their requests over the same connection."""
    issuers = [TokenIssuer(mint.issuer, jwks=mint.jwks) for mint in (MINT, OTHER)]
    auth = ServerAuth(issuer=issuers)
    async with serving(make_server(auth), fast_path=fast_path) as web:
        one = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=one) as http:
            same = Web(web.url, http)
            yield {
                name: User(same, mint.token(web.url, sub=subject, scope=scope))
                for name, mint, subject, scope in (
                    ("alice", MINT, "alice", "high low"),
                    ("weak alice", MINT, "alice", "low"),
                    ("bob", MINT, "bob", "high"),
                    ("other alice", OTHER, "alice", "high low"),
                )
            }


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_caches_of_a_server_reveal_nothing_of_other_users(fast_path: bool) -> None:
    alone: dict[str, Outcomes] = {}
    async with asyncio.timeout(LIMIT):
        for name in ("alice", "weak alice", "bob", "other alice"):
            async with protected(fast_path) as users:
                alone[name] = await users[name].everything()
        for one, other in itertools.combinations(alone, 2):
            assert alone[one] != alone[other]
        async with protected(fast_path) as users:
            await assert_separate(users, alone)
