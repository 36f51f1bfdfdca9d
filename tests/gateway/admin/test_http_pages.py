"""HTTP pages of a gateway: status, health, and the admin API."""

import asyncio
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient
from fairlead.errors import ConnectFailed
from fairlead.gateway import Gateway, View
from fairlead.gateway.admin import http_pages, status
from fairlead.gateway.operations.observability import Observability
from fairlead.observe.metrics import Metrics
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.http.server.asgi import AsgiCall
from tests.support.gateway_servers import (
    LIMIT,
    Ears,
    config,
    hanging,
    joining,
    make,
    names,
    program,
    serving,
    until,
)

EVIL = "<script>alert(1)</script>"
ADMIN = {"X-Admin-Token": "open sesame"}


async def get(web: aiohttp.ClientSession, url: str, **options: Any) -> tuple[int, Any]:
    method = options.pop("method", "GET")
    async with web.request(method, url, **options) as answer:
        if answer.content_type == "application/json":
            return answer.status, await answer.json()
        return answer.status, await answer.text()


async def test_the_status_page_shows_the_state_of_each_server() -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect(
            {"red": {"url": red}, "blue": program("blue"), "dead": {"command": "/no/where"}}
        )
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url, joining(gateway) as client:
            await client.call("red_who")
            base = url.removesuffix("/mcp")
            status, page = await get(web, base + "/")
            assert status == 200
            for text in ("red", "blue", "dead", "connected", "failed", "stateless", f"{url}/NAME"):
                assert text in page
            _, now = await get(web, base + "/status")
            rows = {row["name"]: row for row in now["servers"]}
            assert rows["red"]["tools"] == 8
            assert rows["red"]["calls"] == 1
            assert rows["red"]["latency_ms"] > 0
            assert rows["red"]["breaker"] == "closed"
            assert rows["dead"]["status"] == "failed"
            assert rows["dead"]["error"] == "could not be started: its program does not exist"
            assert rows["red"]["error"] is None
            assert now["clients"] == 1
            assert now["counts"]["tools"] == 16
            assert await get(web, base + "/health") == (
                200,
                {"status": "ok", "servers": 3, "connected": 2},
            )
            assert await get(web, base + "/ready") == (
                200,
                {"ready": True, "degraded": ["dead"], "shortage": None},
            )
            assert (await get(web, base + "/nothing"))[0] == 404
            assert (await get(web, base + "/health", method="PUT"))[0] == 405
            async with web.head(base + "/health") as answer:
                assert answer.status == 200
            assert (await get(web, base + "/admin/servers"))[0] == 404  # no admin_token is set


async def test_a_gateway_with_servers_is_ready_only_if_one_of_them_can_be_used() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
        serving(gateway) as url,
    ):
        base = url.removesuffix("/mcp")
        ready = {"ready": True, "degraded": [], "shortage": None}
        assert await get(web, base + "/ready") == (200, ready)
        await gateway.connect({"mute": hanging(), "dead": {"command": "/no/where"}})
        unready = {"ready": False, "degraded": ["mute", "dead"], "shortage": None}
        assert await get(web, base + "/ready") == (503, unready)
        assert (await get(web, base + "/health"))[0] == 200
        await gateway.disconnect("mute")
        await until(lambda: gateway.is_ready)
        assert await get(web, base + "/ready") == (503, unready | {"degraded": ["dead"]})
        await gateway.disconnect("dead")
        assert await get(web, base + "/ready") == (200, ready)


async def test_a_server_that_hangs_does_not_keep_a_gateway_unready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "STARTUP_GRACE", 0.0)
    async with (
        asyncio.timeout(LIMIT),
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
        serving(gateway) as url,
    ):
        await gateway.connect({"mute": hanging(), "red": program("red")})
        ready = url.removesuffix("/mcp") + "/ready"
        await until(lambda: gateway.upstreams["red"].status == "connected")
        well = {"ready": True, "degraded": ["mute"], "shortage": None}
        assert await get(web, ready) == (200, well)


@pytest.mark.covers("SRV-47")
async def test_probes_need_no_token_but_status_details_and_metrics_do() -> None:
    token = {"Authorization": "Bearer token-4711"}
    async with (
        asyncio.timeout(LIMIT),
        Gateway(observing=Observability(metrics=Metrics())) as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"dead": {"command": "/no/where"}})
        async with serving(gateway, auth_token="token-4711") as url:
            base = url.removesuffix("/mcp")
            assert await get(web, base + "/health") == (200, {"status": "ok"})
            await until(lambda: gateway.is_ready)
            assert await get(web, base + "/ready") == (503, {"ready": False})
            await gateway.connect({"red": program("red")})
            await until(lambda: gateway.is_ready)
            assert await get(web, base + "/ready") == (200, {"ready": True})
            for path in ("/metrics", "/status", "/"):
                assert (await get(web, base + path))[0] == 401
            assert await get(web, base + "/health", headers=token) == (
                200,
                {"status": "ok", "servers": 2, "connected": 1},
            )
            assert await get(web, base + "/ready", headers=token) == (
                200,
                {"ready": True, "degraded": ["dead"], "shortage": None},
            )
            assert (await get(web, base + "/metrics", headers=token))[0] == 200


async def test_text_from_servers_is_escaped_on_the_status_page() -> None:
    async with (
        asyncio.timeout(LIMIT),
        aiohttp.ClientSession() as web,
        Gateway(name=EVIL) as gateway,
    ):
        await gateway.connect({EVIL: {"command": f"/{EVIL}"}, "url": {"url": f"http://x/{EVIL}"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url, web.get(url.removesuffix("mcp")) as answer:
            page = await answer.text()
            assert "alert(1)" in page
            assert "<script" not in page
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_only_the_admin_token_gives_access_to_the_admin_api() -> None:
    ears = Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(admin_token="open sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}, "b/l ue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with (
            serving(gateway) as url,
            joining(gateway, on_notification=ears) as client,
            MCPClient.connect_http(f"{url}/red", config()) as alone,
        ):
            await alone.call("who")
            admin = url.removesuffix("/mcp") + "/admin"
            for wrong in ({}, {"X-Admin-Token": "open"}, {"X-Admin-Token": ""}):
                for path in ("", "/servers", "/sessions", "/servers/red/reconnect"):
                    assert (await get(web, admin + path, headers=wrong))[0] == 401
            status, servers = await get(web, admin + "/servers", headers=ADMIN)
            assert (status, [row["name"] for row in servers]) == (200, ["b/l ue", "red"])
            status, sessions = await get(web, admin + "/sessions", headers=ADMIN)
            assert sorted(one["transport"] for one in sessions) == ["http", "memory"]

            generation = gateway.upstreams["red"].generation
            path = admin + "/servers/red/reconnect"
            # a GET request must not have side effects
            assert (await get(web, path, headers=ADMIN))[0] == 404
            answer = await get(web, path, headers=ADMIN, method="POST")
            assert answer == (200, {"reconnected": "red"})
            assert gateway.upstreams["red"].generation == generation + 1
            path = admin + "/servers/b%2Fl%20ue/refresh"
            assert (await get(web, path, headers=ADMIN, method="POST"))[0] == 200
            for act, method in (("/reconnect", "POST"), ("/refresh", "POST"), ("", "DELETE")):
                path = admin + "/servers/absent" + act
                status, said = await get(web, path, headers=ADMIN, method=method)
                assert status == 404
                assert "unknown server 'absent': expected one of " in said

            ears.drain()
            path = admin + "/servers/red"
            assert (await get(web, path, headers=ADMIN, method="DELETE"))[0] == 200
            await ears.hear("notifications/tools/list_changed")
            assert not [name for name in await names(client) if name.startswith("red")]
            assert (await get(web, f"{url}/red", method="POST"))[0] == 404


async def test_the_command_of_a_server_is_visible_only_to_the_admin() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="open sesame") as gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
    ):
        entry = {"command": "/nowhere/at-all", "args": ["hush"]}
        await gateway.connect({"gone": entry})
        await until(lambda: gateway.is_ready)
        base = url.removesuffix("/mcp")
        _, now = await get(web, base + "/status")
        assert now["servers"][0]["error"] == "could not be started: its program does not exist"
        page = (await get(web, base + "/"))[1]
        assert "hush" not in page
        assert "nowhere" not in page
        _, servers = await get(web, base + "/admin/servers", headers=ADMIN)
        assert "`/nowhere/at-all hush`" in servers[0]["error"]


async def test_an_empty_admin_token_disables_the_admin_api() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="") as gateway,
        serving(gateway) as url,
        aiohttp.ClientSession() as web,
    ):
        admin = url.removesuffix("/mcp") + "/admin/servers"
        assert (await get(web, admin, headers={"X-Admin-Token": ""}))[0] == 404


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/admin/servers"])
async def test_pages_require_a_token_if_the_gateway_has_tokens(path: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(views={"bob": View(servers=("red",))}, admin_token="open sesame") as gateway,
        serving(gateway, verify_token={"b": "bob"}.get) as url,
        aiohttp.ClientSession() as web,
    ):
        assert (await get(web, url.removesuffix("/mcp") + path, headers=ADMIN))[0] == 401


async def test_the_status_page_shows_only_servers_in_the_view_of_the_client() -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway(views={"bob": View(servers=("red",))}) as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway, verify_token={"a": "alice", "b": "bob"}.get) as url:
            base = url.removesuffix("/mcp")
            for token, seen in (("a", ["blue", "red"]), ("b", ["red"])):
                head = {"Authorization": f"Bearer {token}"}
                _, now = await get(web, base + "/status", headers=head)
                assert [row["name"] for row in now["servers"]] == seen
                assert now["counts"]["tools"] == 8 * len(seen)
            page = (await get(web, base + "/", headers=head))[1]
            assert "blue" not in page
            assert "Bearer TOKEN" in page  # the client entry on the page has this header


# HTTP pages called without a network


class Answers:
    """Send one request to the HTTP pages of a gateway and keep the response."""

    def __init__(self, gateway: Gateway) -> None:
        self._pages = gateway._pages("/mcp")

    async def __call__(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(event: Any) -> None:
            sent.append(event)

        named = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()]
        scope = {"method": method, "path": path, "headers": named, "query_string": b""}
        await self._pages.serve(AsgiCall(scope, receive, send), path, ANONYMOUS)
        self.headers = dict(sent[0]["headers"])
        return sent[0]["status"], sent[1]["body"].decode()


JSON = {"content_type": "application/json", "content_length": "2"}
OTHER = {"content_type": "text/plain", "content_length": "2"}
TOKEN = {"x_admin_token": "open sesame"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "words"),
    [
        ("GET", "/health", {}, 200, '"status":"ok"'),
        ("GET", "/health/", {}, 200, '"status":"ok"'),
        ("PUT", "/health", {}, 405, "method not allowed: expected GET"),
        ("GET", "/healthy", {}, 404, "unknown path: MCP is served at /mcp, the status page at /"),
        ("GET", "/administrator", {}, 404, "unknown path: MCP is served at /mcp"),
        ("GET", "/metrics", {}, 404, "metrics are disabled"),
        ("GET", "/ready", {}, 200, '{"ready":true,'),
        ("GET", "/status", {}, 200, '"servers":[]'),
        (
            "GET",
            "/admin",
            {},
            401,
            "the header X-Admin-Token must be the admin_token of the gateway",
        ),
        (
            "GET",
            "/admin",
            TOKEN,
            404,
            "unknown path; paths of the admin API, if enabled: GET /admin/servers, POST",
        ),
        ("GET", "/admin/servers", TOKEN, 200, "[]"),
        ("GET", "/admin/journal", TOKEN, 404, "unknown path; paths of the admin API, if enabled: "),
        ("POST", "/admin/reload", {**TOKEN, **OTHER}, 415, "Content-Type must be application/json"),
        ("POST", "/admin/reload", {**TOKEN, **JSON}, 200, '{"reloaded":[]}'),
        ("POST", "/admin/reload", TOKEN, 200, '{"reloaded":[]}'),
        ("DELETE", "/admin/sessions/x", TOKEN, 400, "'x' is not a number"),
        ("DELETE", "/admin/sessions/5", TOKEN, 404, "unknown session 5"),
    ],
)
async def test_the_http_status_depends_on_path_method_and_headers(
    method: str, path: str, headers: dict[str, str], status: int, words: str
) -> None:
    answers = Answers(Gateway(admin_token="open sesame"))
    found = await answers(method, path, **headers)
    assert found[0] == status
    assert words in found[1]
    assert (b"allow" in answers.headers) is (status == 405)
    assert (answers.headers.get(b"connection") == b"close") is (status == 401)


async def test_a_connection_failure_during_a_reload_causes_http_status_502() -> None:
    gateway = Gateway(admin_token="open sesame")

    async def fails() -> None:
        raise ConnectFailed("server is down")

    gateway.reload = fails
    status, said = await Answers(gateway)("POST", "/admin/reload", **TOKEN)
    assert (status, said) == (502, "502 Bad Gateway: server is down\n")


async def test_the_metrics_page_requires_an_unrestricted_view_or_the_admin_token() -> None:
    observing = Observability(metrics=Metrics())
    answers = Answers(Gateway(observing=observing, admin_token="open sesame"))
    assert (await answers("GET", "/metrics"))[0] == 200
    assert answers.headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
    part = View(servers=())
    answers = Answers(Gateway(observing=observing, view=part, admin_token="open sesame"))
    status, said = await answers("GET", "/metrics")
    assert (status, "need X-Admin-Token" in said) == (403, True)
    assert (await answers("GET", "/metrics", x_admin_token="wrong"))[0] == 403
    assert (await answers("GET", "/metrics", **TOKEN))[0] == 200
    unlocked = Answers(Gateway(observing=observing, view=part))
    assert (await unlocked("GET", "/metrics", x_admin_token=""))[0] == 403


async def test_the_status_page_is_uncached_html_with_the_address_for_clients() -> None:
    answers = Answers(Gateway(name="harbour"))
    status, page = await answers("GET", "/", host="example.org:80")
    assert status == 200
    assert "http://example.org:80/mcp" in page
    assert "Bearer" not in page
    assert answers.headers[b"content-type"] == b"text/html; charset=utf-8"
    assert answers.headers[b"cache-control"] == b"no-store"
    assert "Bearer TOKEN" in (await answers("GET", "/", authorization="Bearer x"))[1]


SERVER: dict[str, Any] = {
    "name": "red",
    "status": "connected",
    "since": "2026-01-02T03:04:05Z",
    "remedy": None,
    "error": None,
    "era": "stateless",
    "revision": "2026-07-28",
    "latency_ms": 12.0,
    "transport": "http",
    "source": "file",
    "tools": 3,
    "calls": 0,
    "errors": None,
    "suspended": [],
}


@pytest.mark.parametrize(
    ("changes", "shown", "hidden"),
    [
        ({}, ['class="good">connected', "stateless 2026-07-28", ">12 ms<", ">http<"], ["<br>"]),
        ({}, ['<td class="n">3</td>', '<td class="n">0</td>', '<td class="n"></td>'], ["None"]),
        ({"status": "failed", "error": "why"}, ['class="bad">failed', ">why<"], ["good"]),
        ({"status": "connected", "error": "why"}, ['class="good">connected', ">why<"], ["bad"]),
        (
            {"status": "suspended", "error": "why", "remedy": "fairlead mcp reconnect red"},
            ["since 2026-01-02T03:04:05Z: why; to connect it: fairlead mcp reconnect red"],
            ["good"],
        ),
        ({"status": "starting"}, ['class="dim">starting'], ["bad", "good"]),
        ({"era": None, "revision": None}, ["<td></td>"], ["None"]),
        ({"suspended": [{"losses": 6}]}, ["suspended for some clients"], []),
        ({"latency_ms": None, "transport": None, "source": None}, [], [" ms", "None"]),
    ],
    ids=[
        "usual",
        "counts",
        "failed",
        "not listed",
        "remedy",
        "starting",
        "no era",
        "suspended",
        "unknown",
    ],
)
def test_the_row_of_a_server_shows_its_state_calls_and_errors(
    changes: Any, shown: list[str], hidden: list[str]
) -> None:
    row = http_pages._row({**SERVER, **changes})
    assert [text for text in shown if text not in row] == []
    assert [text for text in hidden if text in row] == []


@pytest.mark.parametrize(
    ("clients", "counts", "words"),
    [
        (0, {}, "0 clients · no items yet"),
        (1, {"tools": 1, "prompts": 0}, "1 client · 1 tool<"),
        (2, {"tools": 2, "resources": 1}, "2 clients · 2 tools, 1 resource<"),
    ],
)
def test_the_status_page_shows_the_number_of_clients_and_items(
    clients: int, counts: dict[str, int], words: str
) -> None:
    now = {"name": "n", "version": "1", "clients": clients, "counts": counts, "servers": []}
    page = http_pages.render(now, "http://x/mcp")
    assert words in page
    assert "Bearer" not in page


@pytest.mark.parametrize("admin_token", [None, "open sesame"])
async def test_principals_with_admin_rights_need_no_admin_token(admin_token: str | None) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token=admin_token, is_admin=lambda who: who == "ann") as gateway,
        serving(gateway, verify_token={"a": "ann", "b": "bob"}.get) as url,
        aiohttp.ClientSession() as web,
    ):
        place = url.removesuffix("/mcp") + "/admin/sessions"
        ann, bob = ({"Authorization": f"Bearer {token}"} for token in "ab")
        assert await get(web, place, headers=ann) == (200, [])
        status, text = await get(web, place, headers=bob)
        assert status == (403 if admin_token is None else 401)
        assert ("whose rule sets" in text) == (admin_token is None)
