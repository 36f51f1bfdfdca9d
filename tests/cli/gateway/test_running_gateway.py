"""Tests of commands that use the admin API of a running gateway."""

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from fairlead.errors import FairleadError
from tests.support.cli_user import Done, Person, person
from tests.support.running_gateway import Running, connected, get, running, text_of

__all__ = ["person"]

OFFERS = """
    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.resource("memo://today")
    def today() -> str:
        return "Buy bread."

    @server.resource("memo://{day}")
    def on(day: str) -> str:
        return day

    @server.prompt()
    def greet() -> str:
        return "Hello"

    @server.tool()
    def grow() -> str:
        server.tool(name="more")(lambda: "x")
        return "grown"
"""
ENV = {"FAIRLEAD_ADMIN_TOKEN": "open-sesame"}


class Scene:
    def __init__(self, person: Person, gateway: Running) -> None:
        self.person = person
        self.gateway = gateway
        self.url = gateway.report()["url"]

    def runs(self, *args: str) -> Done:
        base = self.url.removesuffix("/mcp")
        return self.person.runs("mcp", *args, "--url", base, env=ENV)

    def asks(self, *args: str) -> Any:
        done = self.runs(*args, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)


def write(person: Person, **servers: Any) -> str:
    file = person.folder / "gateway.json"
    file.write_text(json.dumps({"admin_token": "open-sesame", "servers": servers}))
    return str(file)


@pytest.mark.covers("CMD-03")
def test_servers_resources_and_prompts_of_a_gateway_are_listed(person: Person) -> None:
    file = write(person, notes=person.server(OFFERS), dead={"command": "/nowhere/at-all"})
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        scene = Scene(person, gateway)
        about = {"server": "notes", "status": "connected", "source": "the gateway's file"}
        assert scene.asks("resources") == [
            {"uri": "memo://today", **about},
            {"uriTemplate": "memo://{day}", **about},
        ]
        assert scene.asks("prompts") == [{"name": "notes_greet", **about}]
        shown = scene.runs("resources").out.splitlines()
        assert shown[0].split("  ") == ["memo://today", "notes", "connected", "the gateway's file"]
        assert "notes_greet" in scene.runs("prompts").out
        assert person.runs("mcp", "reload", "--url", "http://127.0.0.1:9", env=ENV).code == 3
        assert person.runs("mcp", "reload", "--url", scene.url.removesuffix("/mcp")).code == 1


def test_the_error_names_the_missing_admin_or_client_token(person: Person) -> None:
    file = person.folder / "gateway.json"
    file.write_text(json.dumps({"admin_token": "open-sesame", "token": "for-all", "servers": {}}))
    with running(person, "gateway", str(file), "--port", "0", "--json") as gateway:
        url = ("--url", gateway.report()["url"].removesuffix("/mcp"))
        no_client = person.runs("mcp", "reload", *url, env=ENV)
        assert no_client.code == 1
        assert no_client.err.splitlines() == [
            "error: The gateway requires the token of a client",
            "hint: set FAIRLEAD_TOKEN in the environment",
        ]
        token = {"FAIRLEAD_TOKEN": "for-all"}
        assert "hint: pass --admin-token TOKEN" in person.runs("mcp", "reload", *url, env=token).err
        assert person.runs("mcp", "reload", *url, env={**ENV, **token}).code == 0


def test_the_url_of_a_server_that_is_not_a_gateway_is_an_error(person: Person) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        done = person.runs("mcp", "reload", "--url", f"127.0.0.1:{other.server_port}", env=ENV)
        other.shutdown()
    assert done.code == 3
    assert "is not a Fairlead gateway" in done.err


@pytest.mark.covers("CMD-03")
async def test_the_reconnect_command_restarts_a_server(person: Person) -> None:
    file = write(person, notes=person.server(OFFERS), dead={"command": "/nowhere/at-all"})
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        scene = Scene(person, gateway)

        async def pid() -> str:
            async with connected(scene.url) as client:
                return text_of(await client.call_tool("notes_pid"))

        before = await pid()
        [now] = await asyncio.to_thread(scene.asks, "reconnect", "notes")
        assert (now["name"], now["status"], now["path"]) == ("notes", "connected", file)
        assert await pid() != before
        refused = await asyncio.to_thread(scene.runs, "reconnect", "dead")
        assert refused.code == 1
        assert "/nowhere/at-all" in refused.err
        unknown = await asyncio.to_thread(scene.runs, "reconnect", "nobody")
        assert unknown.code == 1
        assert "unknown server 'nobody'" in unknown.err


@pytest.mark.covers("CMD-03")
def test_the_reload_command_connects_new_servers_in_the_file(person: Person) -> None:
    file = write(person, notes=person.server(OFFERS))
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        scene = Scene(person, gateway)
        write(person, notes=person.server(OFFERS), other=person.server(OFFERS))
        assert [one["name"] for one in scene.asks("reload")] == ["notes", "other"]
        (person.folder / "gateway.json").write_text('{"serch": true}')
        wrong = scene.runs("reload")
        assert wrong.code == 1
        assert wrong.err.startswith("error: 400 Bad Request: ")
        assert "did you mean 'search'?" in wrong.err
        assert [one["server"] for one in scene.asks("prompts")].count("notes") == 1


@pytest.mark.covers("CMD-03")
async def test_recent_notifications_of_a_gateway_are_listed(person: Person) -> None:
    file = write(person, notes=person.server(OFFERS))
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        scene = Scene(person, gateway)
        assert await asyncio.to_thread(scene.asks, "notifications") == []
        async with connected(scene.url) as client, client.changes("tools") as news:
            await client.call_tool("notes_grow")
            await anext(aiter(news))
        heard = await asyncio.to_thread(scene.asks, "notifications")
        method = "notifications/tools/list_changed"
        assert {(one["server"], one["method"]) for one in heard} == {("notes", method)}
        shown = await asyncio.to_thread(scene.runs, "notifications")
        assert f"notes: {method}" in shown.out


FRAGILE = """
    @server.tool()
    def die() -> None:
        os._exit(3)
"""


async def test_the_status_command_names_a_suspended_server_and_the_command_to_connect_it(
    person: Person,
) -> None:
    file = write(person, notes=person.server(OFFERS), dies=person.server(FRAGILE, name="dies.py"))
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        url = gateway.report()["url"]
        base = url.removesuffix("/mcp")

        def status(*more: str, env: dict[str, str] | None = None) -> Done:
            return person.runs("status", "--url", base, *more, env=env or {})

        well = await asyncio.to_thread(status)
        assert (well.code, well.err) == (0, "")
        assert re.search(r"^notes +connected +since 20..-..-..T..:..:..Z +2 tools$", well.out, re.M)
        async with connected(url) as client:
            while await asyncio.to_thread(state_of, status, "dies") != "suspended":
                with contextlib.suppress(FairleadError):
                    await client.call("dies_die")
        told = await asyncio.to_thread(status, env=ENV)
        assert told.code == 1
        assert re.search(r"^dies +suspended +since 20.*", told.out, re.M)
        assert "warning: dies: suspended after more than 5 losses within 30 s" in told.err
        remedy = f"fairlead mcp reconnect dies --url {base}"
        assert f"hint: to connect dies: {remedy}" in told.err
        [row] = [
            one for one in json.loads(get(url, "/status")[1])["servers"] if one["name"] == "dies"
        ]
        assert (row["status"], row["remedy"]) == ("suspended", "fairlead mcp reconnect dies")
        done = await asyncio.to_thread(person.runs, *remedy.split()[1:], env=ENV)
        assert done.code == 0, done.err
        assert (await asyncio.to_thread(status)).code == 0


def state_of(status: Callable[..., Done], name: str) -> str:
    rows = json.loads(status("--json").out)["servers"]
    return str(next(row["status"] for row in rows if row["name"] == name))
