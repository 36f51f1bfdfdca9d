"""Sessions and streams with access tokens: each request is authorized by its own token."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fairlead import Context, MCPServer
from fairlead.auth.challenge import parse_challenges
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from fairlead.auth.server.token_claims import LEEWAY
from tests.support.http_server import (
    BOTH,
    Answer,
    Session,
    Web,
    call,
    introduction,
    next_event,
    next_message,
    serving,
    stateless,
)
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

LIMIT = 20.0
OPTIONS = ("fast_path", "answers")  # settings of the endpoint
OTHER = TokenMint("https://other.example")  # its tokens are accepted as well
CAPABLE = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
# Principals that differ from Alice, the subject of the usual tokens, in one part.
THIEVES = pytest.mark.parametrize(
    "thief",
    [{"sub": "bob"}, {"client_id": "other"}, {"client_id": None}, {"iss": OTHER.issuer}],
    ids=str,
)


def make_server(auth: ServerAuth) -> MCPServer:
    server = MCPServer("notes", auth=auth, rate_limit_rate=0)

    @server.tool()
    async def scopes(ctx: Context) -> str:
        return f"{ctx.subject} {' '.join(sorted(ctx.scopes))}"

    @server.tool(scopes=["write"])
    async def write() -> str:
        return "written"

    @server.tool()
    async def wait(ctx: Context) -> str:
        await ctx.elicit("Go on?", str)
        return " ".join(sorted(ctx.scopes))

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str)
        return f"{answer.data} for {ctx.subject}"

    @server.resource("notes://secret", scopes=["read"])
    def secret() -> str:
        return "secret"

    @server.prompt(scopes=["read"])
    def summary() -> str:
        return "sum up"

    return server


@contextlib.asynccontextmanager
async def protected(**settings: Any) -> AsyncIterator[tuple[Web, RunningIssuer]]:
    async with running_issuer() as issuer:
        options = {name: settings.pop(name) for name in OPTIONS if name in settings}
        other = TokenIssuer(OTHER.issuer, jwks=OTHER.jwks)
        auth = ServerAuth(issuer=[issuer.issuer, other], **settings)
        async with serving(make_server(auth), **options) as web:
            yield web, issuer


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def stolen_by(thief: dict[str, Any], issuer: RunningIssuer, url: str) -> dict[str, str]:
    """Return the header with a valid token of another principal."""
    mint = OTHER if "iss" in thief else issuer
    return bearer(mint.token(url, scope="write read", **thief))


async def open_session(web: Web, token: str, version: str = "2025-11-25") -> Session:
    answer = await web.post(introduction(version, elicitation={}), bearer(token))
    assert answer.status == 200, answer.body
    session = Session(web, answer.headers["mcp-session-id"], version)
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await session.post(done, bearer(token))).status == 202
    return session


def soon(seconds: float) -> int:
    """Return the `exp` claim of a token that is accepted for about this many seconds."""
    return int(time.time() + seconds - LEEWAY)


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_each_request_in_a_session_has_the_scopes_of_its_own_token(fast_path: bool) -> None:
    """The same user sends tokens with different scopes in one session."""
    async with protected(fast_path=fast_path) as (web, issuer):
        strong = issuer.token(web.url, scope="write read")
        weak = issuer.token(web.url, scope="read")
        session = await open_session(web, strong)
        for _ in range(2):
            assert (await session.post(call("write"), bearer(strong))).text == "written"
            refused = await session.post(call("write"), bearer(weak))
            assert refused.status == 403
            (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
            assert (challenge.error, challenge.scopes) == ("insufficient_scope", ("write",))
            assert (await session.post(call("scopes"), bearer(weak))).text == "alice read"
            assert (await session.post(call("scopes"), bearer(strong))).text == "alice read write"


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_call_in_progress_keeps_the_scopes_of_its_token(fast_path: bool) -> None:
    """The user answers a question of the call after a request with a weaker token."""
    async with protected(fast_path=fast_path) as (web, issuer), asyncio.timeout(LIMIT):
        strong, weak = (issuer.token(web.url, scope=scope) for scope in ("write read", "read"))
        session = await open_session(web, strong)
        async with session.stream(call("wait"), **bearer(strong)) as stream:
            asked = await next_message(stream)
            several = [session.post(call("scopes", None, n), bearer(weak)) for n in range(20, 30)]
            assert {one.text for one in await asyncio.gather(*several)} == {"alice read"}
            refused = await session.post(call("write", None, 40), bearer(weak))
            assert refused.status == 403
            yes = {"action": "accept", "content": {"value": "yes"}}
            answered = {"jsonrpc": "2.0", "id": asked["id"], "result": yes}
            assert (await session.post(answered, bearer(weak))).status == 202
            answer = await next_message(stream)
        assert answer["result"]["content"][0]["text"] == "read write"


@pytest.mark.covers("AUT-06")
async def test_the_scopes_of_a_renewed_token_apply_in_an_open_session() -> None:
    """The session is subscribed to the resource; the client may still end the subscription."""
    async with protected() as (web, issuer):
        strong = issuer.token(web.url, scope="read")
        weak = bearer(issuer.token(web.url, scope="other", jti="renewed"))
        session = await open_session(web, strong)

        async def send(method: str, headers: dict[str, str]) -> int:
            params = {"uri": "notes://secret"}
            message = {"jsonrpc": "2.0", "id": 8, "method": method, "params": params}
            return (await session.post(message, headers)).status

        for method in ("resources/subscribe", "resources/read"):
            assert await send(method, bearer(strong)) == 200
            assert await send(method, weak) == 403
        assert await send("resources/unsubscribe", weak) == 200


@pytest.mark.covers("AUT-06")
async def test_a_session_continues_with_a_renewed_token() -> None:
    """Sessions are bound to the principal, not to the text of a token."""
    async with protected() as (web, issuer):
        session = await open_session(web, issuer.token(web.url))
        renewed = issuer.token(web.url, scope="more")
        assert (await session.post(call("scopes"), bearer(renewed))).text == "alice more"


@pytest.mark.covers("AUT-06")
@THIEVES
async def test_a_session_is_bound_to_issuer_subject_and_client(thief: dict[str, Any]) -> None:
    """Another user, or another client of the same user, sends the session id."""
    async with protected() as (web, issuer):
        session = await open_session(web, issuer.token(web.url))
        stolen = {**session.headers, **stolen_by(thief, issuer, web.url)}
        assert (await web.post(call("scopes"), stolen)).status == 404
        assert (await web.get(headers={**stolen, "Accept": "text/event-stream"})).status == 404
        async with web.http.delete(web.url, headers=stolen) as answer:
            assert answer.status == 404
        owner = {**session.headers, **bearer(issuer.token(web.url))}
        async with web.http.delete(web.url, headers=owner) as answer:
            assert answer.status == 200


@pytest.mark.covers("AUT-06")
@THIEVES
async def test_events_are_replayed_to_their_owner_only(thief: dict[str, Any]) -> None:
    """The thief sends the id of an event with the session it belongs to, and with its own."""
    async with protected(answers="sse") as (web, issuer):
        session = await open_session(web, issuer.token(web.url))
        async with session.stream(call("scopes"), **bearer(issuer.token(web.url))) as stream:
            last = (await next_event(stream))["id"]
        other = stolen_by(thief, issuer, web.url)
        own = await open_session(web, other["Authorization"].removeprefix("Bearer "))
        resuming = {"Accept": "text/event-stream", "Last-Event-ID": last}
        for headers, status in ((session.headers, 404), (own.headers, 400)):
            refused = await web.get(headers={**headers, **other, **resuming})
            assert (refused.status, b"alice" in refused.body) == (status, False)
        renewed = bearer(issuer.token(web.url, jti="renewed"))
        found = await web.get(headers={**session.headers, **renewed, **resuming})
        assert found.messages[0]["result"]["content"][0]["text"].startswith("alice")


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_events_are_replayed_to_tokens_with_the_scopes_of_their_request_only(
    fast_path: bool,
) -> None:
    """The weak token belongs to the same user and client, but lacks the scope `read`.

    Event ids can be guessed, so an id must not be enough to replay an event.
    """
    async with protected(answers="sse", fast_path=fast_path, scopes="use") as (web, issuer):
        strong = bearer(issuer.token(web.url, scope="use read write"))
        weak = bearer(issuer.token(web.url, scope="use write"))
        session = await open_session(web, strong["Authorization"].removeprefix("Bearer "))
        read = {"jsonrpc": "2.0", "id": 8, "method": "resources/read"}
        read["params"] = {"uri": "notes://secret"}
        for message, status in ((read, 403), (call("write"), 200), (call("scopes"), 200)):
            async with session.stream(message, **strong) as stream:
                last = (await next_event(stream))["id"]
            resuming = {**session.headers, "Accept": BOTH, "Last-Event-ID": last}
            found = await web.get(headers={**resuming, **weak})
            assert found.status == status
            if status == 403:
                assert b"secret" not in found.body
                (challenge,) = parse_challenges(found.headers["WWW-Authenticate"])
                assert challenge.scopes == ("use", "read")
            forged = last.rpartition("_")[0].partition(".")[0] + "x_0"
            refused = await web.get(headers={**resuming, **weak, "Last-Event-ID": forged})
            assert refused.status == 400
            again = await web.get(headers={**resuming, **strong})
            assert "result" in again.messages[0]
            # The stream has ended, and its events are kept for a while.
            assert (await web.get(headers={**resuming, **weak})).status == status


@pytest.mark.covers("AUT-06")
@THIEVES
async def test_a_request_state_is_accepted_from_its_owner_only(thief: dict[str, Any]) -> None:
    """The owner may return the state with a renewed token."""
    async with protected() as (web, issuer):
        asked = await ask(web, bearer(issuer.token(web.url)))
        [key] = asked.result["inputRequests"]
        responses = {key: {"action": "accept", "content": {"value": "Eve"}}}
        returned = {"requestState": asked.result["requestState"], "inputResponses": responses}
        other = stolen_by(thief, issuer, web.url)
        stolen = await ask(web, other, **returned)
        assert stolen.error == -32602
        assert b"Eve" not in stolen.body
        async with web.http.ws_connect(web.url.replace("/mcp", "/ws"), headers=other) as socket:
            await socket.send_json(stateless("tools/call", asking(**returned), **CAPABLE)[0])
            assert (await socket.receive_json())["error"]["code"] == -32602
        renewed = await ask(web, bearer(issuer.token(web.url, jti="renewed")), **returned)
        assert renewed.text == "Eve for alice"


async def ask(web: Web, headers: dict[str, str], **more: Any) -> Answer:
    """Call the tool `ask` without a session."""
    return await web.stateless("tools/call", asking(**more), headers, **CAPABLE)


def asking(**more: Any) -> dict[str, Any]:
    return {"name": "ask", "arguments": {}, **more}


async def test_every_method_of_a_session_needs_a_token() -> None:
    async with protected(scopes="read") as (web, issuer):
        strong = issuer.token(web.url, scope="read")
        session = await open_session(web, strong)
        for headers, status in (({}, 401), (bearer(issuer.token(web.url, scope="x")), 403)):
            sent = {**session.headers, **headers}
            assert (await web.post(call("scopes"), sent)).status == status
            assert (await web.get(headers={**sent, "Accept": BOTH})).status == status
            async with web.http.delete(web.url, headers=sent) as answer:
                assert answer.status == status
        assert (await session.post(call("scopes"), bearer(strong))).status == 200


async def test_the_challenge_for_a_batch_names_the_scopes_of_all_messages() -> None:
    async with protected() as (web, issuer):
        token = issuer.token(web.url, scope="other")
        session = await open_session(web, token, "2025-03-26")
        read = {"jsonrpc": "2.0", "id": 8, "method": "resources/read"}
        batch = [call("write"), {**read, "params": {"uri": "notes://secret"}}]
        refused = await session.post(batch, bearer(token))
        assert refused.status == 403
        (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
        assert challenge.scopes == ("write", "read")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "notes://secret"}),
        ("prompts/get", {"name": "summary"}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "summary"},
                "argument": {"name": "length", "value": ""},
            },
        ),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://secret"]}}),
    ],
)
async def test_resources_and_prompts_may_require_scopes(
    method: str, params: dict[str, Any]
) -> None:
    async with protected() as (web, issuer):
        token = issuer.token(web.url, scope="write")
        refused = await web.stateless(method, params, bearer(token))
        assert refused.status == 403
        (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
        assert challenge.scopes == ("read",)


async def test_items_that_need_more_scopes_stay_in_lists() -> None:
    async with protected() as (web, issuer):
        answer = await web.stateless("tools/list", None, bearer(issuer.token(web.url)))
        assert {tool["name"] for tool in answer.result["tools"]} == {
            "scopes",
            "write",
            "ask",
            "wait",
        }


async def test_a_get_stream_ends_when_its_token_expires() -> None:
    async with protected() as (web, issuer):
        session = await open_session(web, issuer.token(web.url))
        brief = issuer.token(web.url, exp=soon(2))
        async with asyncio.timeout(LIMIT):
            async with session.stream(**bearer(brief)) as stream:
                assert stream.status == 200
                while await next_event(stream):
                    pass
        assert (await session.post(call("scopes"), bearer(issuer.token(web.url)))).status == 200
        late = await session.post(call("scopes"), bearer(brief))
        assert late.status == 401


async def test_a_subscription_ends_with_a_result_when_its_token_expires() -> None:
    async with protected() as (web, issuer):
        wanted = {"notifications": {"toolsListChanged": True}}
        body, headers = stateless("subscriptions/listen", wanted)
        sent = {"Content-Type": "application/json", "Accept": BOTH, **headers}
        sent |= bearer(issuer.token(web.url, exp=soon(2)))
        async with asyncio.timeout(LIMIT):
            async with web.http.post(web.url, data=json.dumps(body), headers=sent) as stream:
                events = []
                while event := await next_event(stream):
                    events.append(json.loads(event["data"]))
        assert events[-1]["result"]["resultType"] == "complete"


async def test_a_websocket_checks_scopes_and_ends_when_its_token_expires() -> None:
    async with protected() as (web, issuer):
        place = web.url.replace("/mcp", "/ws")
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await web.http.ws_connect(place)
        assert refused.value.status == 401
        (challenge,) = parse_challenges(refused.value.headers["WWW-Authenticate"])
        assert str(challenge.get("resource_metadata")).endswith("/oauth-protected-resource/ws")
        token = issuer.token(web.url, exp=soon(3), scope="read")
        async with web.http.ws_connect(place, headers=bearer(token)) as socket:
            body, _ = stateless("tools/call", {"name": "write", "arguments": {}})
            await socket.send_str(json.dumps(body))
            async with asyncio.timeout(LIMIT):
                answer = json.loads((await socket.receive()).data)
                assert answer["error"]["data"] == {"error": "insufficient_scope", "scope": "write"}
                end = await socket.receive()
            assert (end.type, end.data) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_http_sse_authorizes_each_post_by_its_own_token() -> None:
    async with protected() as (web, issuer):
        base = web.url.removesuffix("/mcp")
        refused = await web.get(f"{base}/sse")
        assert refused.status == 401
        (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
        metadata = (await web.get(str(challenge.get("resource_metadata")))).json
        assert metadata["resource"] == f"{base}/sse"
        strong = issuer.token(f"{base}/sse", scope="write")
        async with web.http.get(f"{base}/sse", headers=bearer(strong)) as stream:
            place = base + (await next_event(stream))["data"]
            assert (await web.post(introduction(), bearer(strong), place)).status == 202
            await next_event(stream)
            weak = bearer(issuer.token(web.url, scope="read"))
            assert (await web.post(call("write"), weak, place)).status == 403
            assert (await web.post(call("scopes"), weak, place)).status == 202
            said = json.loads((await next_event(stream))["data"])
            assert said["result"]["content"][0]["text"] == "alice read"


@THIEVES
async def test_an_http_sse_session_is_bound_to_issuer_subject_and_client(
    thief: dict[str, Any],
) -> None:
    async with protected() as (web, issuer):
        base = web.url.removesuffix("/mcp")
        owner = bearer(issuer.token(f"{base}/sse"))
        async with web.http.get(f"{base}/sse", headers=owner) as stream:
            place = base + (await next_event(stream))["data"]
            stolen = stolen_by(thief, issuer, f"{base}/sse")
            assert (await web.post(introduction(), stolen, place)).status == 404
            assert (await web.post(introduction(), owner, place)).status == 202


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("renewed", [False, True])
async def test_an_http_sse_stream_ends_when_the_newest_token_of_its_client_expires(
    renewed: bool,
) -> None:
    """The stream is the session, so a renewed token in a POST prolongs it."""
    async with protected() as (web, issuer):
        base = web.url.removesuffix("/mcp")
        first, second = soon(2), soon(4)
        brief = bearer(issuer.token(f"{base}/sse", exp=first))
        async with web.http.get(f"{base}/sse", headers=brief) as stream, asyncio.timeout(LIMIT):
            place = base + (await next_event(stream))["data"]
            if renewed:
                longer = bearer(issuer.token(f"{base}/sse", exp=second))
                assert (await web.post(introduction(), longer, place)).status == 202
            while await next_event(stream):
                pass
        assert time.time() - LEEWAY >= (second if renewed else first)
        fresh = bearer(issuer.token(f"{base}/sse"))
        assert (await web.post(introduction(), fresh, place)).status == 404


async def test_the_rest_api_refuses_calls_without_the_required_scopes() -> None:
    async with protected(scopes="use") as (web, issuer):
        base = web.url.removesuffix("/mcp")
        place = f"{base}/tools/write/call"
        assert (await web.post({}, {}, place)).status == 401
        refused = await web.post({}, bearer(issuer.token(web.url, scope="use")), place)
        assert refused.status == 403
        (challenge,) = parse_challenges(refused.headers["WWW-Authenticate"])
        assert challenge.scopes == ("use", "write")
        strong = bearer(issuer.token(web.url, scope="use write"))
        assert (await web.post({}, strong, place)).status == 200
        assert (await web.get(f"{base}/", headers=strong)).status == 200
        assert (await web.get(f"{base}/", headers=bearer(issuer.token(web.url)))).status == 403
