"""Tapes and client sessions in the admin API of a gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPClientError
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.protocol.envelope import Direction
from fairlead.recording.replay import TapeServer
from fairlead.recording.tape import TapeReader, TapeWriter, decode_entry
from fairlead.recording.tape.tape_reader import read_page
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    config,
    make,
    program,
    serving,
    until,
)

SECRET = "sk-live-4f9a8b7c6d5e"
ADMIN = {"X-Admin-Token": "open-sesame"}


class Admin:
    """A client of the admin API."""

    def __init__(self, web: aiohttp.ClientSession, url: str) -> None:
        self._web = web
        self._base = url.removesuffix("/mcp") + "/admin"

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.ask(method, path, body)
        assert status == 200, answer
        return answer

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] = ADMIN
    ) -> tuple[int, Any]:
        data = body if isinstance(body, str | None) else json.dumps(body)
        sent = headers if data is None else {**headers, "Content-Type": "application/json"}
        async with self._web.request(
            method, f"{self._base}{path}", data=data, headers=sent
        ) as answer:
            if answer.content_type == "application/json":
                return answer.status, await answer.json()
            return answer.status, await answer.text()


def methods(entries: list[dict[str, Any]]) -> list[str]:
    return [e["message"]["method"] for e in entries if "method" in e["message"]]


@pytest.mark.covers("GTW-14")
@pytest.mark.parametrize("version", BOTH)
async def test_a_recording_can_be_started_read_and_stopped_during_calls(
    tmp_path: Path, version: str
) -> None:
    tapes = TapeControl(tmp_path / "tapes")
    red = program("red")
    red["env"] = {**red.get("env", {}), "API_TOKEN": SECRET}
    async with (
        asyncio.timeout(LIMIT),
        Gateway(observing=Observability(tapes=tapes), admin_token="open-sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": red, "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url:
            admin = Admin(web, url)
            assert await admin("GET", "/tapes") == []
            async with MCPClient.connect_http(url, config(version)) as before:
                await before.call("red_who")
                assert await admin("POST", "/tapes", {"name": "monday", "tags": ["week"]}) == {
                    "recording": "monday"
                }
                async with MCPClient.connect_http(url, config(version)) as client:
                    await client.call("blue_speak", {"text": f"it is {SECRET} there"})
                    await before.call("red_who")
                [known] = await admin("GET", "/tapes")
                assert (known["name"], known["status"], known["entries"]) == (
                    "monday",
                    "recording",
                    None,
                )
                assert (await admin.ask("DELETE", "/tapes/monday"))[0] == 400
                first = await admin("GET", "/tapes/monday/entries?limit=2")
                assert [e["seq"] for e in first["entries"]] == [1, 2]
                assert first["more"]
                rest = await admin("GET", f"/tapes/monday/entries?from={first['next']}")
                assert rest["entries"][0]["seq"] == 3
                assert not rest["more"]
                stopped = await admin("POST", "/tapes/monday/stop")
                count = len(first["entries"]) + len(rest["entries"])
                assert stopped == {"stopped": "monday", "entries": count}
                await before.call("red_who")  # this call is not recorded
            about = await admin("GET", "/tapes/monday")
            assert (about["status"], about["entries"], about["tags"]) == (
                "complete",
                count,
                ["week"],
            )
            entries = [*first["entries"], *rest["entries"]]
            assert SECRET not in json.dumps(entries)
            assert methods(entries).count("tools/call") == 2
            asked = {e["message"]["params"]["name"]: e for e in entries if _calls(e)}
            assert {name: e["server"] for name, e in asked.items()} == {
                "blue_speak": "blue",
                "red_who": "red",
            }
            assert asked["blue_speak"]["session"] != asked["red_who"]["session"]
            again = await admin("GET", f"/tapes/monday/entries?from={rest['next']}")
            assert again == {"entries": [], "next": rest["next"], "more": False}
            assert await admin("DELETE", "/tapes/monday") == {"deleted": "monday"}
            assert await admin("GET", "/tapes") == []
            assert list((tmp_path / "tapes").iterdir()) == []


def _calls(entry: dict[str, Any]) -> bool:
    return bool(entry["message"].get("method") == "tools/call")


@pytest.mark.covers("GTW-14")
async def test_invalid_requests_about_tapes_are_refused(tmp_path: Path) -> None:
    outside = TapeWriter(tmp_path / "outside")
    outside.close()
    tapes = TapeControl(tmp_path / "tapes")
    async with (
        asyncio.timeout(LIMIT),
        Gateway(observing=Observability(tapes=tapes), admin_token="open-sesame") as gateway,
        aiohttp.ClientSession() as web,
        serving(gateway) as url,
    ):
        admin = Admin(web, url)
        for method, path in (("GET", "/tapes"), ("POST", "/tapes"), ("DELETE", "/tapes/x")):
            assert (await admin.ask(method, path, headers={}))[0] == 401
            assert (await admin.ask(method, path, headers={"X-Admin-Token": "guess"}))[0] == 401
        bodies: list[Any] = [
            *({"name": name} for name in ("../outside", "a/b", ".hidden", "x" * 101, "a b")),
            *({"name": "a.tape.json"}, {"nam": "x"}, {"name": 1}, "{"),
        ]
        for body in bodies:
            status, said = await admin.ask("POST", "/tapes", body)
            assert status == 400, (body, said)
        assert tapes.recording is None
        named = await admin("POST", "/tapes", {})
        assert named["recording"].startswith("gateway-")
        status, said = await admin.ask("POST", "/tapes", {"name": "second"})
        assert (status, "is being recorded" in said) == (400, True)
        assert (await admin.ask("POST", "/tapes/second/stop"))[0] == 400
        await admin("POST", f"/tapes/{named['recording']}/stop")
        status, said = await admin.ask("POST", "/tapes", {"name": named["recording"]})
        assert (status, "already" in said) == (400, True)
        for path in ("/tapes/none", "/tapes/none/entries", "/tapes/..%2Foutside", "/tapes/x/y"):
            assert (await admin.ask("GET", path))[0] == 404
        assert (await admin.ask("DELETE", "/tapes/..%2Foutside"))[0] == 404
        assert (tmp_path / "outside.tape.jsonl").exists()
        name = named["recording"]
        for query in ("from=x", "from=1", "from=1-x", "limit=x", "limit=-1"):
            assert (await admin.ask("GET", f"/tapes/{name}/entries?{query}"))[0] == 400
    async with asyncio.timeout(LIMIT), Gateway(admin_token="open-sesame") as plain_one:
        async with aiohttp.ClientSession() as web, serving(plain_one) as url:
            assert (await Admin(web, url).ask("GET", "/tapes"))[0] == 404


def test_pages_of_a_tape_continue_across_its_parts_and_during_the_recording(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "v1.2", max_bytes=400, max_parts=3)
    seen: list[int] = []
    place = ""

    def look(limit: int = 3) -> None:
        nonlocal place
        while True:
            page = read_page(TapeReader(tmp_path / "v1.2"), place, limit)
            seen.extend(entry.seq for entry in page.entries)
            place = page.next
            if not page.more:
                return

    for number in range(1, 31):
        note = json.dumps({"jsonrpc": "2.0", "method": "a" * 40, "params": {"n": number}})
        tape.write(note.encode(), Direction.CLIENT_TO_SERVER)
        if number % 4 == 0:
            look()
    look()
    tape.close()
    assert (
        len(TapeReader(tmp_path / "v1.2").parts) == 3
    )  # earlier tape files were deleted during the recording
    assert seen == list(range(1, 31))
    place, seen = "", []
    look(1000)
    assert seen[0] == 1
    assert seen[-1] == 30
    assert len(seen) < 30


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize("version", BOTH)
async def test_the_tape_of_a_gateway_can_be_replayed(tmp_path: Path, version: str) -> None:
    tapes = TapeControl(tmp_path)
    tapes.start("all")
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(observing=Observability(tapes=tapes), search=True) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(version)) as client,
        ):
            said = (await client.call("red_who")).text
            inside = await client.call("call_tool", {"name": "blue_secret", "arguments": {}})
    entries = list(TapeReader(tmp_path / "all"))
    called = [e for e in entries if decode_entry(e).get("method") == "tools/call"]
    # A call made through `call_tool` is recorded as one request.
    assert [decode_entry(e)["params"]["name"] for e in called] == ["red_who", "call_tool"]
    relay = TapeServer(tmp_path / "all").for_both_eras()
    async with (
        asyncio.timeout(LIMIT),
        relay.running(),
        MCPClient.connect_inprocess(relay, config(version)) as client,
    ):
        assert (await client.call("red_who")).text == said
        again = await client.call("call_tool", {"name": "blue_secret", "arguments": {}})
        assert again.text == inside.text == "the secret of blue"


@pytest.mark.covers("GTW-14")
async def test_client_sessions_can_be_listed_and_ended(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="open-sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url:
            admin = Admin(web, url)
            assert await admin("GET", "/sessions") == []
            raw = await _initialize(web, url)
            async with (
                MCPClient.connect_http(url, config(HANDSHAKE)) as stays,
                MCPClient.connect_http(f"{url}/red", config(HANDSHAKE)) as alone,
            ):
                await stays.call("red_who")
                await alone.call("who")
                known = {one["id"]: one for one in await admin("GET", "/sessions")}
                assert len(known) == 3
                assert {one["protocol_version"] for one in known.values()} == {HANDSHAKE}
                [number] = [n for n, one in known.items() if one["client"] == "raw"]
                assert (await _call(web, url, raw))[0] == 200
                assert await admin("DELETE", f"/sessions/{number}") == {"ended": number}
                assert (await _call(web, url, raw))[0] == 404
                left = {one["id"] for one in await admin("GET", "/sessions")}
                assert left == known.keys() - {number}
                await stays.call("red_who")
                await alone.call("who")
                assert (await admin.ask("DELETE", f"/sessions/{number}"))[0] == 404
                assert (await admin.ask("DELETE", "/sessions/x"))[0] == 400
                assert (await admin.ask("DELETE", "/sessions/1", headers={}))[0] == 401


@pytest.mark.covers("GTW-14")
async def test_ending_a_session_does_not_wait_for_its_call() -> None:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(admin_token="open-sesame") as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url:
            admin = Admin(web, url)
            asked = asyncio.Event()

            async def never(_: Any) -> Any:
                asked.set()
                await asyncio.get_running_loop().create_future()

            async with MCPClient.connect_http(url, config(HANDSHAKE), on_elicit=never) as client:
                call = asyncio.create_task(client.call("red_ask"))
                await asked.wait()
                [one] = await admin("GET", "/sessions")
                await admin("DELETE", f"/sessions/{one['id']}")
                with pytest.raises((MCPClientError, ConnectionError)):
                    await call
            await until(lambda: gateway.clients == 0)


@pytest.mark.covers("GTW-14")
async def test_health_readiness_and_metrics_endpoints_are_served() -> None:
    from fairlead.observe.metrics import Metrics

    observing = Observability(metrics=Metrics())
    async with (
        asyncio.timeout(LIMIT),
        Gateway(observing=observing) as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": program("red"), "dead": {"command": "/nowhere/at-all"}})
        await until(lambda: gateway.is_ready)
        async with serving(gateway) as url:
            base = url.removesuffix("/mcp")
            async with web.get(f"{base}/health") as answer:
                assert await answer.json() == {"status": "ok", "servers": 2, "connected": 1}
            async with web.get(f"{base}/ready") as answer:
                ready = {"ready": True, "degraded": ["dead"], "shortage": None}
                assert (answer.status, await answer.json()) == (200, ready)
            async with web.get(f"{base}/metrics") as answer:
                assert "fairlead_servers_connected 1" in await answer.text()


async def _initialize(web: aiohttp.ClientSession, url: str) -> str:
    params = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    accept = {"accept": "application/json, text/event-stream"}
    async with web.post(url, json=body, headers=accept) as answer:
        await answer.read()
        return answer.headers["mcp-session-id"]


async def _call(web: aiohttp.ClientSession, url: str, session: str) -> tuple[int, str]:
    body = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-session-id": session,
        "mcp-protocol-version": HANDSHAKE,
    }
    async with web.post(url, json=body, headers=headers) as answer:
        return answer.status, await answer.text()
