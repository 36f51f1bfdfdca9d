"""Gateways that accept access tokens: roles, audience of each endpoint, and sent headers."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.actions import Audit
from tests.support.gateway_servers import LIMIT, make, serving, until
from tests.support.http_server import next_event, stateless
from tests.support.token_issuer import RunningIssuer, running_issuer

FILE = """
[views.part]
deny = ["{deny}"]
[clients.alice]
token = "static"
[auth]
issuer = ["{a}", "{b}"]
public_url = "{url}"
[[auth.rules]]
issuer = "{a}"
groups = "ops"
client = "operators"
admin = true
[[auth.rules]]
issuer = "{a}"
scopes = "mcp"
client = "staff"
view = "part"
[[auth.rules]]
issuer = "{b}"
client = "partners"
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}


class Place:
    """A gateway with two issuers."""

    def __init__(self, a: RunningIssuer, b: RunningIssuer, url: str) -> None:
        self.a, self.b, self.url = a, b, url
        self.lines: list[dict[str, Any]] = []
        self.gateway: Gateway
        self.access: ClientAccess
        self.path: Path
        self.web: aiohttp.ClientSession

    def ann(self, *groups: str, to: str = "/mcp", **claims: Any) -> str:
        return self.a.token(self.url + to, sub="ann", groups=[*groups], scope="mcp", **claims)

    async def post(
        self, method: str, params: dict[str, Any], token: str | None, to: str = "/mcp"
    ) -> tuple[int, Any, str | None]:
        headers = {**HEADERS, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        async with self.web.post(self.url + to, json=message, headers=headers) as reply:
            is_json = reply.content_type == "application/json"
            answer = await reply.json() if is_json else await reply.text()
            return reply.status, answer, reply.headers.get("WWW-Authenticate")

    def listening(self, token: str) -> Any:
        body, headers = stateless(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        sent = {**HEADERS, **headers, "Authorization": f"Bearer {token}"}
        return self.web.post(f"{self.url}/mcp", json=body, headers=sent)

    async def tools(self, token: str | None, to: str = "/mcp") -> set[str]:
        status, answer, _ = await self.post("tools/list", {}, token, to)
        assert status == 200, answer
        return {tool["name"] for tool in answer["result"]["tools"]}

    async def status(self, token: str | None, to: str = "/mcp") -> int:
        return (await self.post("tools/list", {}, token, to))[0]


@contextlib.asynccontextmanager
async def scene(
    tmp_path: Path,
    servers: dict[str, Any] | None = None,
    audience: str | None = None,
    *,
    deny: str = "*_secret",
    interceptors: Sequence[Interceptor] = (),
) -> AsyncIterator[Place]:
    """Run a gateway with two issuers; `staff` cannot use items that match `deny`."""
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.close()
    async with (
        asyncio.timeout(LIMIT),
        running_issuer() as a,
        running_issuer() as b,
        aiohttp.ClientSession() as web,
    ):
        place = Place(a, b, f"http://127.0.0.1:{port}")
        place.web = web
        place.path = tmp_path / "gateway.toml"
        text = FILE.format(a=a.issuer, b=b.issuer, url=place.url, deny=deny)
        if audience is not None:
            text = text.replace("public_url", f'audience = "{audience}"\npublic_url')
        place.path.write_text(text)
        file = read_gateway_file(place.path)
        place.access = ClientAccess(file)
        audit = Audit(write=lambda raw: place.lines.append(json.loads(raw)))
        async with (
            serving(make("red")) as red,
            Gateway(
                settings=file.settings,
                views=file.views,
                roles=file.role_views,
                is_admin=place.access.is_admin,
                interceptors=[audit, *interceptors],
            ) as gateway,
            serving(
                gateway,
                port=port,
                verify_token=place.access.verify,
                auth=place.access.access(),
            ),
        ):
            place.gateway = gateway
            place.access.refused = gateway.access_refused
            await gateway.connect(servers or {"red": {"url": red}, "blue": {"url": red}})
            await until(lambda: gateway.is_ready)
            yield place


async def test_the_rule_that_matches_a_token_determines_its_view(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        operator, staff = place.ann("ops"), place.ann()
        partner = place.b.token(f"{place.url}/mcp", sub="ann")
        assert "red_secret" in await place.tools(operator)
        assert "red_secret" not in await place.tools(staff)
        assert "red_secret" in await place.tools(partner)
        assert "red_secret" in await place.tools("static")
        # Again, with cached verification results.
        assert "red_secret" not in await place.tools(staff)
        assert "red_secret" in await place.tools(operator)
        call = {"name": "red_secret", "arguments": {}}
        assert "error" in (await place.post("tools/call", call, staff))[1]


async def test_a_token_that_matches_no_rule_is_refused_without_a_challenge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as place:
        text = place.path.read_text()
        place.path.write_text(text.replace('scopes = "mcp"', 'groups = "staff"'))
        assert await place.access.follow(read_gateway_file(place.path), place.gateway)
        stranger = place.a.token(f"{place.url}/mcp", sub="eve")
        status, _, challenge = await place.post("tools/list", {}, stranger)
        assert (status, challenge) == (403, None)
        line = next(one for one in place.lines if one["decision"] == "refused")
        assert line["reason"] == "no rule of [auth] matches the access token"
        assert (line["issuer"], line["subject"]) == (place.a.issuer, "eve")
        # The log, after the removal of secrets, still contains the reason.
        assert (
            f"no rule of [auth] matches oauth:{place.a.issuer} eve app; its token is refused"
        ) in caplog.messages
        status, _, challenge = await place.post("tools/list", {}, None)
        metadata = f"{place.url}/.well-known/oauth-protected-resource/mcp"
        assert (status, challenge) == (401, f'Bearer resource_metadata="{metadata}"')


async def test_a_token_without_the_scopes_of_a_rule_is_challenged_for_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        weak = place.a.token(f"{place.url}/mcp/red", sub="eve", scope="other")
        status, _, challenge = await place.post("tools/list", {}, weak, "/mcp/red")
        assert status == 403
        assert challenge == (
            'Bearer error="insufficient_scope", '
            'error_description="This operation needs the scopes: mcp", scope="mcp", '
            f'resource_metadata="{place.url}/.well-known/oauth-protected-resource/mcp/red"'
        )


async def test_each_endpoint_has_its_own_audience_and_metadata(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        known = place.url + "/.well-known/oauth-protected-resource"
        for path in ("/mcp", "/mcp/red", "/mcp/blue"):
            async with place.web.get(known + path) as reply:
                document = await reply.json()
            assert document["resource"] == place.url + path
            assert document["authorization_servers"] == [place.a.issuer, place.b.issuer]
            for other in ("/mcp", "/mcp/red", "/mcp/blue"):
                expected = 200 if other == path else 401
                assert await place.status(place.ann("ops", to=path), other) == expected


@pytest.mark.covers("AUT-06")
async def test_a_first_login_requests_the_scopes_of_the_last_rule_that_needs_some(
    tmp_path: Path,
) -> None:
    """Otherwise no rule matches the token, and users have to log in a second time."""
    async with scene(tmp_path) as place:
        for path in ("/mcp", "/mcp/red", "/mcp/none"):
            metadata = f"{place.url}/.well-known/oauth-protected-resource{path}"
            async with place.web.get(metadata) as reply:
                assert (await reply.json())["scopes_supported"] == ["mcp"]
            for token in (None, "x.y.z"):
                status, _, challenge = await place.post("tools/list", {}, token, path)
                assert (status, 'scope="mcp"' in (challenge or "")) == (401, True)
        users = '[[auth.rules]]\nclient = "users"\n'
        place.path.write_text(place.path.read_text() + users)
        await place.access.follow(read_gateway_file(place.path), place.gateway)
        _, _, challenge = await place.post("tools/list", {}, None)
        assert "scope=" not in (challenge or "")


@pytest.mark.covers("AUT-06")
async def test_an_unknown_server_name_is_refused_like_an_endpoint_with_the_wrong_token(
    tmp_path: Path,
) -> None:
    """Clients must not find out which servers exist before they log in."""
    async with scene(tmp_path) as place:
        # A token for another endpoint, and one that matches no rule.
        for method, foreign in itertools.product(("GET", "POST", "DELETE"), (True, False)):
            found = []
            for name in ("red", "off"):
                token = place.a.token(f"{place.url}/mcp/{name}", sub="ann")
                headers = {"Authorization": f"Bearer {place.ann('ops') if foreign else token}"}
                async with place.web.request(
                    method, f"{place.url}/mcp/{name}", headers=headers
                ) as reply:
                    text = (await reply.text()).replace(name, "NAME")
                    fields = {
                        key: value.replace(name, "NAME") for key, value in reply.headers.items()
                    }
                    found.append((reply.status, text, fields))
            assert found[0] == found[1]
            assert found[0][0] == (401 if foreign else 403)
        documents = []
        for name in ("red", "off"):
            metadata = f"{place.url}/.well-known/oauth-protected-resource/mcp/{name}"
            async with place.web.get(metadata) as reply:
                documents.append((await reply.text()).replace(name, "NAME"))
        assert documents[0] == documents[1]
        assert await place.status(place.ann("ops", to="/mcp/off"), "/mcp/off") == 404


async def test_the_status_page_shows_the_public_url(tmp_path: Path) -> None:
    """Behind a proxy that terminates TLS, a request has another host and scheme."""
    async with scene(tmp_path) as place:
        for token, header in ((place.ann("ops"), False), ("static", True)):
            sent = {"Authorization": f"Bearer {token}", "Host": "localhost"}
            async with place.web.get(f"{place.url}/", headers=sent) as reply:
                page = await reply.text()
                assert reply.status == 200, page
            assert f"<code>{place.url}/mcp</code>" in page
            assert "//localhost" not in page
            assert ("Bearer TOKEN" in page) is header


async def test_a_token_of_another_role_cannot_use_a_session(tmp_path: Path) -> None:
    start = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "c", "version": "1"},
        },
    }
    async with scene(tmp_path) as place:

        async def send(method: str, token: str, **more: Any) -> aiohttp.ClientResponse:
            headers = {"Accept": HEADERS["Accept"], "Authorization": f"Bearer {token}"}
            headers |= more.pop("headers", {})
            async with place.web.request(
                method, f"{place.url}/mcp", headers=headers, **more
            ) as reply:
                return reply

        strong = place.ann("ops")
        opened = await send("POST", strong, json=start)
        session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        renewed = place.ann("ops", jti="renewed")
        assert (await send("POST", renewed, json=ping, headers=session)).status == 200
        for other in (place.ann(), place.b.token(f"{place.url}/mcp", sub="ann"), "static"):
            assert (await send("POST", other, json=ping, headers=session)).status == 404
            assert (await send("GET", other, headers=session)).status == 404
            assert (await send("DELETE", other, headers=session)).status == 404
        [client] = place.gateway.sessions()
        assert client["role"] == "operators"


async def test_admin_rights_require_a_rule_with_admin_set_to_true(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        for token, expected in ((place.ann("ops"), 200), (place.ann(), 403), ("static", 403)):
            headers = {"Authorization": f"Bearer {token}"}
            async with place.web.get(f"{place.url}/admin/sessions", headers=headers) as reply:
                assert reply.status == expected


async def test_a_token_for_one_server_is_refused_at_all_other_paths(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        headers = {"Authorization": f"Bearer {place.ann('ops', to='/mcp/red')}"}
        paths = ("/", "/status", "/tools", "/admin/sessions", "/mcp/none", "/mcp/red/x", "/sse")
        for path in (*paths, "/mcp/blue", "/mcp"):
            async with place.web.get(place.url + path, headers=headers) as reply:
                assert reply.status == 401, path
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await place.web.ws_connect(f"{place.url}/ws", headers=headers)
        assert refused.value.status == 401


async def test_tokens_are_refused_as_soon_as_their_rule_is_removed(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        staff, operator = place.ann(), place.ann("ops")
        assert await place.status(staff) == 200
        text = place.path.read_text()
        place.path.write_text(text.replace('scopes = "mcp"', 'scopes = "other"'))
        assert await place.access.follow(read_gateway_file(place.path), place.gateway)
        assert await place.status(staff) == 403
        assert await place.status(operator) == 200
        place.path.write_text(text)
        assert await place.access.follow(read_gateway_file(place.path), place.gateway)
        assert await place.status(staff) == 200


@pytest.mark.covers("AUT-06")
async def test_changed_settings_for_access_tokens_apply_while_the_gateway_runs(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as place:
        text, usual = place.path.read_text(), place.ann("ops")

        async def having(line: str, token: str) -> tuple[int, int]:
            """Return the statuses for the usual token and for another one."""
            place.path.write_text(text.replace("public_url", f"{line}\npublic_url"))
            assert await place.access.follow(read_gateway_file(place.path), place.gateway)
            return await place.status(usual), await place.status(token)

        shared = place.a.token("shared", sub="ann", groups=["ops"])
        assert await having('audience = "shared"', shared) == (401, 200)
        write = place.a.token(f"{place.url}/mcp", sub="ann", groups=["ops"], scope="write")
        assert await having('scopes = ["write"]', write) == (403, 200)
        full = place.a.token(f"{place.url}/mcp", sub="ann", groups=["ops"], scope="full")
        implied = 'scopes = ["write"]\nimplied_scopes = {full = ["write"]}'
        assert await having(implied, full) == (403, 200)
        assert await having('dpop = "required"', write) == (401, 401)
        place.a.introspected = {"active": True, "sub": "ann", "groups": ["ops"]}
        place.a.introspected["aud"] = f"{place.url}/mcp"
        asked = f'{{url = "{place.a.issuer}/introspect", client_id = "g", client_secret = "s"}}'
        assert await having(f"introspection = {asked}", "opaque") == (200, 200)
        assert await having("", "opaque") == (200, 401)


@pytest.mark.covers("AUT-06")
async def test_an_issuer_can_be_added_while_the_gateway_runs(tmp_path: Path) -> None:
    async with scene(tmp_path) as place, running_issuer() as added:
        text, token = place.path.read_text(), added.token(f"{place.url}/mcp", sub="ann")
        assert await place.status(token) == 401
        place.path.write_text(text.replace(place.b.issuer, added.issuer))
        assert await place.access.follow(read_gateway_file(place.path), place.gateway)
        assert await place.status(token) == 200
        assert await place.status(place.b.token(f"{place.url}/mcp")) == 401
        known = f"{place.url}/.well-known/oauth-protected-resource/mcp/red"
        async with place.web.get(known) as reply:
            assert added.issuer in (await reply.json())["authorization_servers"]


async def test_the_auth_section_can_be_removed_and_added_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        text, token = place.path.read_text(), place.ann("ops")
        assert await place.status(token) == 200
        known = f"{place.url}/.well-known/oauth-protected-resource/mcp"
        for section, status, found in (
            ("", 401, 404),
            ("[auth]" + text.split("[auth]")[1], 200, 200),
        ):
            place.path.write_text(text.split("[auth]")[0] + section)
            assert await place.access.follow(read_gateway_file(place.path), place.gateway)
            assert (await place.status(token), await place.status("static")) == (status, 200)
            async with place.web.get(known) as reply:
                assert reply.status == found
            challenge = (await place.post("tools/list", {}, None))[2]
            assert challenge == (
                "Bearer" if found == 404 else f'Bearer scope="mcp", resource_metadata="{known}"'
            )


@pytest.mark.parametrize("line", ['scopes = ["write"]', 'dpop = "required"', 'audience = "x"'])
async def test_a_stream_ends_if_changed_settings_refuse_its_token(
    line: str, tmp_path: Path
) -> None:
    """The stream of a static token stays open."""
    async with scene(tmp_path) as place:
        async with place.listening(place.ann("ops")) as one, place.listening("static") as other:
            for stream in (one, other):
                assert "acknowledged" in (await next_event(stream))["data"]
            text = place.path.read_text()
            place.path.write_text(text.replace("public_url", f"{line}\npublic_url"))
            assert await place.access.follow(read_gateway_file(place.path), place.gateway)
            assert '"resultType":"complete"' in (await next_event(one))["data"]
            await place.gateway.disconnect("blue")
            assert "list_changed" in (await next_event(other))["data"]
            # Scopes, audience and proofs do not concern static tokens.
            assert await place.status("static") == 200


async def test_a_stream_stays_open_if_changed_settings_accept_its_token(tmp_path: Path) -> None:
    async with scene(tmp_path) as place, place.listening(place.ann()) as stream:
        assert "acknowledged" in (await next_event(stream))["data"]
        text = place.path.read_text()
        place.path.write_text(text.replace("public_url", 'scopes = ["mcp"]\npublic_url'))
        assert await place.access.follow(read_gateway_file(place.path), place.gateway)
        for _ in range(5):  # meanwhile, the token of the stream is judged again
            assert await place.status(place.ann()) == 200
        await place.gateway.disconnect("blue")
        assert "list_changed" in (await next_event(stream))["data"]


async def test_the_log_contains_role_subject_and_scopes_of_a_token(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        assert await place.tools(place.ann())
        line = next(one for one in place.lines if one.get("method") == "tools/list")
        assert (line["role"], line["subject"], line["scopes"]) == ("staff", "ann", ["mcp"])


async def test_the_access_token_of_a_client_is_never_sent_to_a_server(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def note(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(dict(exchange.transport.headers or {}))
        return await proceed(exchange)

    server = MCPServer("spy", interceptors=[note])

    @server.tool()
    async def look() -> str:
        return "seen"

    async with serving(server) as upstream, scene(tmp_path, {"spy": {"url": upstream}}) as place:
        token = place.ann("ops")
        for to, name in (("/mcp", "spy_look"), ("/mcp/spy", "look")):
            own = place.ann("ops", to=to)
            call = {"name": name, "arguments": {}}
            status, answer, _ = await place.post("tools/call", call, own, to)
            assert (status, "result" in answer) == (200, True), answer
        assert seen
        text = json.dumps(seen)
        assert "authorization" not in text.lower()
        assert token not in text
