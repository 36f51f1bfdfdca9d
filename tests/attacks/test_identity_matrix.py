"""Restricted clients get no items outside their view, at any entry point with any policy.

The tables (`ENTRIES`, `KINDS`, `POLICIES`) are in `gateway_entry_points`. Each test takes one entry
point
and one policy, tries every kind of request there, and compares all outcomes at once. Combinations
that do not exist are skipped by `missing`, which returns the reason.
"""

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import aiohttp
import pytest

from fairlead.protocol.caller import ANONYMOUS
from tests.support.gateway_entry_points import (
    ENTRIES,
    HANDSHAKE,
    KINDS,
    LIMIT,
    MARK,
    META,
    NARROW,
    NOBODY,
    POLICIES,
    WIDE,
    Entry,
    Host,
    Kind,
    Place,
    Policy,
    PostInSession,
    Refused,
    Spy,
    StatelessPost,
)

_runners: list[asyncio.Runner] = []  # contains the event loop runner while `host` is active


def in_one_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a shared event loop, because a new loop costs more than the test."""

    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        _runners[-1].run(test(*args, **options))

    return run


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Host(tmp_path_factory.mktemp("m")) as running, asyncio.Runner() as runner:
        _runners.append(runner)
        yield running
        _runners.remove(runner)


def missing(entry: type[Entry], policy: Policy, server: str) -> str | None:
    """Return the reason why a combination does not exist, or None if it does."""
    if server and not entry.at_servers:
        return "this transport has one address, that of the merged endpoint"
    if server == "vault" and policy is not POLICIES["view"]:
        return "only a view hides a whole server"
    return None


def absent(entry: type[Entry], kind: Kind) -> str | None:
    """Return the reason why an entry point does not carry a kind of request, or None if it does."""
    if entry.methods and kind.method not in entry.methods:
        return "the method is not part of this format"
    if entry.era not in (*kind.eras, "none"):
        return "the method is not part of this era"
    return None


COMBINATIONS = [
    pytest.param(
        entry,
        policy,
        server,
        id=f"{policy}-{entry}-{server or 'merged'}",
        marks=[pytest.mark.skip(reason=why)] if why else [],
    )
    for policy in POLICIES
    for entry in ENTRIES
    for server in ("", "notes", "vault")
    for why in [missing(ENTRIES[entry], POLICIES[policy], server)]
]


def named(params: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Replace `{}` by the prefix of merged names."""
    text = json.dumps(params).replace('"{}', f'"{prefix}').replace("{{key}}", "{key}")
    return json.loads(text)  # type: ignore[no-any-return]


def succeeded(response: dict[str, Any]) -> bool:
    return "result" in response and not response["result"].get("isError")


def reached(kind: Kind, response: dict[str, Any]) -> bool:
    """Return True if a client got a sealed item; the error of a tool lock may show it."""
    result = response.get("result", "")
    return MARK in json.dumps(result) if kind.marked else succeeded(response)


def sealed_at(kind: Kind, server: str) -> list[dict[str, Any]]:
    """Return the params of all sealed items at an endpoint, under their names there."""
    at_notes = [named(one, "" if server else "notes_") for one in kind.sealed]
    at_vault = [named(one, "" if server else "vault_") for one in kind.at_vault]
    return {"": at_notes + at_vault, "notes": at_notes, "vault": at_vault}[server]


@pytest.mark.parametrize(("entry", "policy", "server"), COMBINATIONS)
@in_one_loop
async def test_each_policy_denies_its_restricted_items_at_every_entry_point(
    host: Host, entry: str, policy: str, server: str
) -> None:
    kind_of, rules, place = ENTRIES[entry], POLICIES[policy], host.places[policy]
    kinds = {name: one for name, one in KINDS.items() if absent(kind_of, one) is None}
    assert kinds, "the entry point carries no kind of request"
    problems: list[str] = []

    async def check(who: str, *, sealed: bool) -> None:
        client = kind_of(place, who, server)
        try:
            await client.open()
            await try_all(client, who, sealed=sealed)
        except Refused as exc:
            if server != "vault" or who == WIDE:
                problems.append(f"{who} is rejected: {exc}")
        finally:
            await client.stack.aclose()

    async def try_all(client: Entry, who: str, *, sealed: bool) -> None:
        for name, kind in kinds.items():
            if server != "vault":
                fine = named(kind.allowed, "" if server else "notes_")
                if not succeeded(answer := await client.ask(kind.method, fine)):
                    problems.append(f"{who} cannot {name}: {answer}")
            policed = sealed and name not in rules.unpoliced
            hidden = policy == "tool lock" and name == "list tools"
            for params in sealed_at(kind, server):
                answer = await client.ask(kind.method, params)
                if reached(kind, answer) and policed:
                    problems.append(f"{who} bypasses the policy: {name} {params}: {answer}")
                if not policed and not reached(kind, answer) and not hidden:
                    problems.append(f"{who} is denied: {name} {params}: {answer}")

    async with asyncio.timeout(LIMIT):
        if policy == "rate":
            await spend(place)
        if not rules.tokens:
            await check(NOBODY, sealed=True)
        else:
            await check(NARROW, sealed=policy != "identity")
            await check(WIDE, sealed=rules.wide_too)
    assert problems == []


async def spend(place: Place) -> None:
    """Make the only call that the rate limit allows the narrow client."""
    async with StatelessPost(place, NARROW) as client:
        await client.ask("tools/call", {"name": "notes_erase", "arguments": {}})


# The principal of every message


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("server", ["", "notes"])
@in_one_loop
async def test_interceptors_see_the_messages_of_a_client_with_its_principal(
    host: Host, entry: str, server: str
) -> None:
    kind_of, place = ENTRIES[entry], host.places["identity"]
    if server and not kind_of.at_servers:
        pytest.skip("this transport has one address, that of the merged endpoint")
    spy = next(one for one in place.gateway.interceptors if isinstance(one, Spy))
    before = len(spy.seen)
    async with asyncio.timeout(LIMIT), kind_of(place, NARROW, server) as client:
        prefix = "" if server else "notes_"
        asked = {"name": f"{prefix}wait", "arguments": {}}
        if not kind_of.methods:
            asked["_meta"] = {"progressToken": 5}
            await client.tell("notifications/roots/list_changed", {})
            await client.tell("notifications/cancelled", {"requestId": 99})
            await client.tell("notifications/progress", {"progressToken": 1, "progress": 1})
        assert succeeded(await client.ask("tools/call", asked))
    seen = spy.seen[before:]
    assert ("client_to_server", "tools/call", NARROW) in seen
    # Notifications from a server go to all clients of a connection unless they belong to a call.
    own = {method for way, method, _ in seen if way == "server_to_client"} - {
        "notifications/progress",
        "notifications/message",
    }
    assert [one for one in seen if one[2] is ANONYMOUS and one[1] not in own] == []
    assert {who for _, _, who in seen} <= {NARROW, ANONYMOUS}


# Notifications


@pytest.mark.parametrize("policy", ["view", "rule"])
@pytest.mark.parametrize("entry", [name for name, one in ENTRIES.items() if one.hears])
@in_one_loop
async def test_updates_of_restricted_resources_are_not_sent(
    host: Host, entry: str, policy: str
) -> None:
    kind_of, place = ENTRIES[entry], host.places[policy]
    uris = ["note://sealed", "note://open"]

    async def subscribe(client: Entry) -> list[str]:
        """Subscribe to both resources and return the granted ones."""
        if client.era == "handshake":
            answers = [await client.ask("resources/subscribe", {"uri": uri}) for uri in uris]
            return [uri for uri, one in zip(uris, answers, strict=True) if succeeded(one)]
        wanted = {"notifications": {"resourceSubscriptions": uris}}
        listening = asyncio.create_task(client.ask("subscriptions/listen", wanted))
        client.stack.callback(listening.cancel)
        granted = (await client.heard())["params"]["notifications"]
        return list(granted["resourceSubscriptions"])

    if kind_of.era == "stateless" and policy == "rule":
        pytest.skip("a rule blocks the URI of a request, but `listen` has a list of URIs")
    async with (
        asyncio.timeout(LIMIT),
        kind_of(place, NARROW) as narrow,
        kind_of(place, WIDE) as wide,
    ):
        assert await subscribe(narrow) == ["note://open"]
        assert sorted(await subscribe(wide)) == sorted(uris)
        hearing = [asyncio.create_task(first_update(one)) for one in (narrow, wide)]
        for task in hearing:
            narrow.stack.callback(task.cancel)
        host.changed("note://sealed")
        assert await hearing[1] == "note://sealed"
        host.changed("note://open")
        assert await hearing[0] == "note://open"


async def first_update(client: Entry) -> str:
    while True:
        note = await client.heard()
        if note.get("method") == "notifications/resources/updated":
            return str(note["params"]["uri"])


@in_one_loop
async def test_listen_over_http_grants_only_permitted_resources(host: Host) -> None:
    uris = ["note://sealed", "sealed://x", "vault://gold", "note://open"]
    for server in ("", "/notes"):
        for who, expected in ((NARROW, {"note://open"}), (WIDE, set(uris))):
            place = host.places["view"]
            async with asyncio.timeout(LIMIT), StatelessPost(place, who) as client:
                params = {"notifications": {"resourceSubscriptions": uris}, "_meta": META}
                message = client.request("subscriptions/listen", params)
                headers = {"Mcp-Method": message["method"], "MCP-Protocol-Version": "2026-07-28"}
                async with client.http.post(
                    client.url + server, json=message, headers=headers
                ) as stream:
                    line = b""
                    while not line.startswith(b"data:"):
                        line = await stream.content.readline()
                granted = json.loads(line[5:])["params"]["notifications"]
                found = set(granted["resourceSubscriptions"])
                if server:  # the endpoint of this server does not serve URIs of the vault
                    found.discard("vault://gold")
                    expected = expected - {"vault://gold"}
                assert found == expected


# Sessions of other clients


@in_one_loop
async def test_a_session_rejects_other_principals(host: Host) -> None:
    """Use POST, batch, GET, a resumed stream and DELETE with the id of another client's session."""
    place = host.places["view"]
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "notes_erase"}}
    async with asyncio.timeout(LIMIT), PostInSession(place, WIDE) as owner:
        for listener in ("tcp", "asgi"):
            url, thief = place.urls[listener], {"Authorization": f"Bearer {NARROW}"}
            stolen = {**owner.headers, **thief}
            events = {**stolen, "Accept": "text/event-stream"}
            async with aiohttp.ClientSession() as http:
                for method, options in (
                    ("POST", {"json": call, "headers": stolen}),
                    ("POST", {"json": [call], "headers": stolen}),
                    ("GET", {"headers": events}),
                    ("GET", {"headers": {**events, "Last-Event-ID": "g_0"}}),
                    ("DELETE", {"headers": stolen}),
                ):
                    async with http.request(method, url, **options) as response:
                        assert response.status == 404, method
                        assert MARK not in await response.text()
        assert succeeded(await owner.ask("tools/list", {}))  # the session is still open


@in_one_loop
async def test_messages_posted_to_the_stream_of_another_client_are_rejected(host: Host) -> None:
    place = host.places["view"]
    async with asyncio.timeout(LIMIT), ENTRIES["HTTP+SSE"](place, WIDE) as owner:
        headers = {"Authorization": f"Bearer {NARROW}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(owner.messages, json={}) as response:  # type: ignore[attr-defined]
                assert response.status == 404


@pytest.mark.parametrize("entry", [name for name, one in ENTRIES.items() if not one.methods])
@in_one_loop
async def test_another_client_cannot_cancel_a_call(host: Host, entry: str) -> None:
    place = host.places["view"]
    async with (
        asyncio.timeout(LIMIT),
        PostInSession(place, WIDE) as owner,
        ENTRIES[entry](place, NARROW) as other,
    ):
        asked = owner.request("tools/call", {"name": "notes_wait", "arguments": {}})
        waiting = asyncio.create_task(owner.post(asked))
        for _ in range(3):
            await other.tell("notifications/cancelled", {"requestId": asked["id"]})
        assert succeeded(await waiting)


# Tool locks and lists


@pytest.mark.parametrize("entry", [name for name, one in ENTRIES.items() if not one.methods])
@in_one_loop
async def test_a_tool_blocked_by_the_tool_lock_is_not_listed(host: Host, entry: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        ENTRIES[entry](host.places["tool lock"], WIDE) as client,
    ):
        tools = {tool["name"] for tool in (await client.ask("tools/list", {}))["result"]["tools"]}
        assert "notes_erase" not in tools
        assert "notes_read" in tools


# Pages


async def fetch(url: str, token: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    sent = {"Authorization": f"Bearer {token}", **headers}
    async with aiohttp.ClientSession(headers=sent) as http:
        async with http.request(method, url) as response:
            return response.status, await response.text()


@pytest.mark.parametrize("path", ["/", "/status"])
@in_one_loop
async def test_a_status_page_shows_only_servers_in_the_view_of_the_client(
    host: Host, path: str
) -> None:
    base = host.places["view"].urls["tcp"].removesuffix("/mcp")
    status, narrow = await fetch(base + path, NARROW)
    assert (status, "notes" in narrow, "vault" in narrow) == (200, True, False)
    status, wide = await fetch(base + path, WIDE)
    assert (status, "notes" in wide, "vault" in wide) == (200, True, True)
    assert (await fetch(base + path, "nobody"))[0] == 401


@in_one_loop
async def test_metrics_require_an_unrestricted_view_or_the_admin_token(host: Host) -> None:
    url = host.places["view"].urls["tcp"].removesuffix("/mcp") + "/metrics"
    assert (await fetch(url, NARROW))[0] == 403
    assert (await fetch(url, WIDE))[0] == 200
    assert (await fetch(url, NARROW, **{"X-Admin-Token": "admin"}))[0] == 200
    assert (await fetch(url, "nobody"))[0] == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/servers"),
        ("GET", "/admin/resources"),
        ("GET", "/admin/prompts"),
        ("GET", "/admin/sessions"),
        ("GET", "/admin/notifications"),
        ("POST", "/admin/reload"),
        ("POST", "/admin/servers/vault/refresh"),
        ("DELETE", "/admin/sessions/1"),
        ("DELETE", "/admin/servers/nothing"),
    ],
)
@in_one_loop
async def test_the_admin_api_requires_the_admin_token(host: Host, method: str, path: str) -> None:
    url = host.places["view"].urls["tcp"].removesuffix("/mcp") + path
    for who in (NARROW, WIDE):
        assert (await fetch(url, who, method))[0] == 401
        assert (await fetch(url, who, method, **{"X-Admin-Token": who}))[0] == 401
    assert (await fetch(url, "nobody", method, **{"X-Admin-Token": "admin"}))[0] == 401
    if method == "GET":
        assert (await fetch(url, NARROW, method, **{"X-Admin-Token": "admin"}))[0] == 200


# REST, which gateways do not serve


@in_one_loop
async def test_rest_calls_have_the_principal_of_the_token(host: Host) -> None:
    base = host.rest.removesuffix("/mcp")

    async def call(tool: str, token: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            async with http.post(f"{base}/tools/{tool}/call", json={}) as response:
                return response.status, await response.text()

    assert "a note for narrow" in (await call("read", NARROW))[1]
    status, text = await call("erase", NARROW)
    assert (status >= 400, MARK in text) == (True, False)
    assert f"{MARK} for wide" in (await call("erase", WIDE))[1]
    assert (await call("read", "nobody"))[0] == 401


@in_one_loop
async def test_the_table_of_entry_points_covers_every_era() -> None:
    """Detect the removal of an entry point from the table."""
    assert {entry.era for entry in ENTRIES.values()} == {"handshake", "stateless", "none"}
    assert any(getattr(entry, "version", "") == HANDSHAKE for entry in ENTRIES.values())
