"""Tests of `fairlead gateway FILE`: servers, clients and views in a gateway file."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import FairleadError
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.cli_process import LIMIT, signpost
from tests.support.cli_user import Person, person
from tests.support.running_gateway import connected, get, names_of, post, running, text_of

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

VERSIONS = [NEWEST.value, NEWEST_HANDSHAKE.value]
TOOLS = """
    @server.tool()
    def pid() -> int:
        return os.getpid()

    @server.tool()
    def variable(name: str) -> str:
        return os.environ.get(name, "not set")

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("sure?", bool)).data)
"""


def gateway_file(person: Person, text: str, name: str = "gateway.toml") -> str:
    """Write a gateway file; PYTHON and SERVER are replaced with a test server's command."""
    entry = person.server(TOOLS)
    text = text.replace("PYTHON", json.dumps(entry["command"]))
    (person.project / name).write_text(text.replace("SERVER", json.dumps(entry["args"][0])))
    return name


TWO = """
listen = "127.0.0.1:0"
name = "harbour"

[servers.first]
command = PYTHON
args = [SERVER]
env = { GREETING = "${WORD:-hello}" }

[servers.dead]
command = "/nowhere/at-all"
"""


@pytest.mark.parametrize("version", VERSIONS)
async def test_servers_in_a_gateway_file_are_served_at_one_endpoint(
    person: Person, version: str
) -> None:
    file = gateway_file(person, TWO)
    with running(person, "gateway", file, env={"WORD": "ahoy"}) as gateway:
        gateway.wait_for("gateway: harbour at http://127.0.0.1:")
        gateway.wait_for("first: connected")
        gateway.wait_for("dead: failed: ")
        async with connected(gateway.url, version) as client:
            assert await names_of(client) == {"first_pid", "first_variable", "first_ask"}
            told = await client.call_tool("first_variable", {"name": "GREETING"})
            assert text_of(told) == "ahoy"
        async with connected(f"{gateway.url}/first", version) as client:
            assert "pid" in await names_of(client)
        assert gateway.ends(signal.SIGINT) == 0


def test_plain_http_requests_of_both_eras_are_answered(person: Person) -> None:
    file = gateway_file(person, TWO)
    with running(person, "gateway", file, "--port", "0", "--json") as gateway:
        url = gateway.report()["url"]
        meta = {
            "io.modelcontextprotocol/protocolVersion": NEWEST.value,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        stateless: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        status, answer = post(
            url,
            {**stateless, "params": {"_meta": meta}},
            mcp_protocol_version=NEWEST.value,
            mcp_method="tools/list",
        )
        assert status == 200, answer
        names = {tool["name"] for tool in json.loads(answer)["result"]["tools"]}
        assert names == {"first_pid", "first_variable", "first_ask"}
        opening = {
            "protocolVersion": NEWEST_HANDSHAKE.value,
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}
        status, answer = post(url, hello)
        assert status == 200
        assert json.loads(answer)["result"]["serverInfo"]["name"] == "harbour"


GUARDED = """
listen = "127.0.0.1:0"
admin_token = "${ADMIN}"

[servers.first]
command = PYTHON
args = [SERVER]

[servers.second]
command = PYTHON
args = [SERVER]

[views.default]
allow = ["first_pid"]

[views.all]
deny = ["*_ask"]
rename = { second_pid = "number" }

[clients.alice]
token = "a-token"
view = "all"

[clients.bob]
token_env = "BOB"
"""


async def test_each_client_gets_the_tools_in_its_view(person: Person) -> None:
    file = gateway_file(person, GUARDED)
    with running(person, "gateway", file, env={"ADMIN": "adm1n", "BOB": "b-token"}) as gateway:
        gateway.wait_for("first: connected")
        gateway.wait_for("second: connected")
        for secret in ("a-token", "b-token", "adm1n"):
            assert secret not in gateway.said
        url = gateway.url
        async with connected(url, token="a-token") as alice:
            seen = {"first_pid", "first_variable", "second_variable", "number"}
            assert await names_of(alice) == seen
            assert text_of(await alice.call_tool("number")).isdigit()
        async with connected(url, token="b-token") as bob:
            assert await names_of(bob) == {"first_pid"}
        for token in ("", "wrong", "a-token2"):
            assert get(url, "/status", authorization=f"Bearer {token}")[0] == 401
        # A view also applies to the endpoint of a single server.
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        status, answer = post(f"{url}/second", call, authorization="Bearer b-token")
        assert "ask" not in answer, (status, answer)
        bob_is = {"authorization": "Bearer b-token"}
        assert get(url, "/admin/servers", **bob_is)[0] == 401
        status, answer = get(url, "/admin/servers", **bob_is, x_admin_token="adm1n")
        assert [one["name"] for one in json.loads(answer)] == ["first", "second"]


async def test_calls_to_a_server_are_distributed_among_its_replicas(person: Person) -> None:
    file = gateway_file(
        person,
        """
        listen = "127.0.0.1:0"
        [servers.same]
        command = PYTHON
        replicas = [{ args = [SERVER] }, { args = [SERVER] }]
        """,
    )
    with running(person, "gateway", file) as gateway:
        gateway.wait_for("same: connected")
        gateway.wait_for("same#2: connected")
        async with connected(gateway.url) as client:
            assert await names_of(client) == {"same_pid", "same_variable", "same_ask"}
            calls = [await client.call_tool("same_pid") for _ in range(6)]
            assert len({text_of(call) for call in calls}) == 2
        assert gateway.ends() == 0


async def test_a_gateway_connects_and_disconnects_servers_when_its_file_changes(
    person: Person,
) -> None:
    file = gateway_file(person, TWO)
    with running(person, "gateway", file) as gateway:
        gateway.wait_for("first: connected")
        (person.project / file).write_text("serch = true")
        assert "did you mean 'search'?" in gateway.wait_for("the change is ignored: ")
        gateway_file(person, TWO.replace("servers.first", "servers.other"))
        gateway.wait_for("other: connected")
        async with connected(gateway.url) as client:
            assert await names_of(client) == {"other_pid", "other_variable", "other_ask"}


def test_changed_settings_that_need_a_restart_are_reported(person: Person) -> None:
    file = gateway_file(person, TWO)
    with running(person, "gateway", file) as gateway:
        gateway.wait_for("first: connected")
        gateway_file(person, f"search = true\npath = '/other'\n{TWO}")
        told = gateway.wait_for("restart the gateway to apply ")
        assert "restart the gateway to apply path, search of " in told
        gateway_file(person, f"search = true\npath = '/other'\n{TWO}".replace("first", "other"))
        gateway.wait_for("other: connected")


def test_only_the_public_url_of_the_auth_section_needs_a_restart(person: Person) -> None:
    auth = (
        '[auth]\nissuer = "http://127.0.0.1:9"\npublic_url = "http://127.0.0.1:8765"\n'
        '[[auth.rules]]\nclient = "all"\n'
    )
    moved = auth.replace("8765", "8766")
    file = gateway_file(person, f"{TWO}\n{auth}")
    with running(person, "gateway", file) as gateway:
        gateway.wait_for("first: connected")
        others = auth.replace('"all"', '"some"'), auth.replace(":9", ":7"), "", auth
        for number, changed in enumerate(others):
            gateway_file(person, f"{TWO}\n{changed}".replace("servers.first", f"servers.n{number}"))
            gateway.wait_for(f"n{number}: connected")
        assert "restart" not in gateway.said
        gateway_file(person, f"{TWO}\n{moved}")
        assert "to apply public_url of " in gateway.wait_for("restart the gateway to apply ")


def test_an_invalid_drain_setting_in_the_file_is_an_error(person: Person) -> None:
    file = gateway_file(person, f"drain = 0\n{TWO}")
    done = person.runs("gateway", file)
    assert done.code == 2
    assert "invalid `drain`: expected seconds greater than 0" in done.err


async def test_changed_views_and_tokens_in_the_file_are_applied(person: Person) -> None:
    env = {"ADMIN": "adm1n", "BOB": "b-token"}
    file = gateway_file(person, GUARDED)
    with running(person, "gateway", file, env=env) as gateway:
        gateway.wait_for("first: connected")
        gateway.wait_for("second: connected")
        url = gateway.url
        async with (
            connected(url, NEWEST_HANDSHAKE.value, token="a-token") as alice,
            alice.changes("tools") as news,
        ):
            assert "number" in await names_of(alice)
            changed = GUARDED.replace('"number"', '"count"').replace("token_env", "token")
            gateway_file(person, changed)
            async with asyncio.timeout(LIMIT):
                await anext(aiter(news))
            assert "count" in await names_of(alice)
        assert get(url, "/status", authorization="Bearer b-token")[0] == 401
        assert get(url, "/status", authorization="Bearer BOB")[0] == 200
        gateway_file(person, changed.replace('view = "all"', 'view = "al"'))
        assert "did you mean 'all'?" in gateway.wait_for("the change is ignored: ")
        assert get(url, "/status", authorization="Bearer BOB")[0] == 200
        assert gateway.ends() == 0


async def test_a_gateway_file_can_include_discovered_servers(person: Person) -> None:
    person.has("ours/mcp.json", {"found": person.server(TOOLS), "first": {"command": "/nowhere"}})
    file = gateway_file(person, 'include = "discovered"\n' + TWO)
    with running(person, "gateway", file) as gateway:
        for words in ("first: connected", "found: connected", "dead: failed"):
            gateway.wait_for(words)


async def test_a_gateway_listens_on_a_unix_socket(person: Person, tmp_path: Path) -> None:
    file = gateway_file(person, TWO)
    place = tmp_path / "s.sock"
    with running(person, "gateway", file, "--listen", f"unix:{place}") as gateway:
        gateway.wait_for("first: connected")
        async with connected(f"unix://{place}#/mcp") as client:
            assert "first_pid" in await names_of(client)
        assert gateway.ends() == 0
    assert not place.exists()


async def test_a_gateway_ends_although_a_server_ignores_signals_and_a_call_is_running(
    person: Person, tmp_path: Path
) -> None:
    with signpost(tmp_path / "stubborn") as deaf, signpost(tmp_path / "busy") as called:
        stubborn = (
            "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            f"{deaf.report}\nwhile True: time.sleep(3600)"
        )
        busy = (
            f"@server.tool()\nasync def hold():\n    {called.report}\n    await asyncio.sleep(99)"
        )
        servers = {
            "stubborn": person.server(stubborn, name="stubborn.py"),
            "busy": person.server(busy, name="busy.py"),
        }
        file = person.project / "gateway.json"
        file.write_text(json.dumps({"listen": "127.0.0.1:0", "servers": servers}))
        with running(person, "gateway", "gateway.json") as gateway:
            gateway.wait_for("busy: connected")
            deaf.read()
            async with connected(gateway.url) as client:
                call = asyncio.create_task(client.call_tool("busy_hold"))
                await asyncio.to_thread(called.read)
                assert await asyncio.to_thread(gateway.ends) == 0, gateway.said
                with pytest.raises(FairleadError):
                    await call


def test_a_gateway_without_a_file_uses_the_gateway_file_of_the_user(person: Person) -> None:
    done = person.runs("gateway")
    assert done.code == 2
    assert str(person.ours / "gateway.toml") in done.err
    assert "`fairlead up`" in done.err
    person.ours.mkdir()
    entry = f'[servers.demo]\ncommand = "{sys.executable}"\nargs = ["-m", "fairlead.demo"]\n'
    (person.ours / "gateway.toml").write_text(f"port = 1\n{entry}")
    done = person.runs("gateway")
    assert done.code == 2
    assert f"{person.ours / 'gateway.toml'}:1: unknown setting 'port'" in done.err
    (person.ours / "gateway.toml").write_text(entry)
    with running(person, "gateway", "--port", "0") as gateway:
        gateway.wait_for("demo: connected")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--listen", "1", "--port", "2"), "--listen cannot be combined with --host and --port"),
        (("--listen", "nowhere:x"), "Invalid listen address 'nowhere:x': expected [HOST:]PORT"),
        (("--port", "70000"), "is not a number from 0 to 65535"),
        (
            ("--listen", "0.0.0.0:0"),
            "0.0.0.0 can be reached from other machines, and no token is required",
        ),
    ],
)
def test_invalid_options_of_the_gateway_command_are_rejected(
    person: Person, args: tuple[str, ...], words: str
) -> None:
    gateway_file(person, TWO)
    done = person.runs("gateway", "gateway.toml", *args)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_the_gateway_command_fails_if_its_file_is_missing(person: Person) -> None:
    done = person.runs("gateway", "none.toml")
    assert (done.code, done.err) == (2, "error: none.toml: file not found\n")


def test_the_era_option_applies_to_servers_whose_entry_sets_no_era(person: Person) -> None:
    servers = """
[servers.first]
command = PYTHON
args = [SERVER]

[servers.second]
command = PYTHON
args = [SERVER]
era = "stateless"
"""
    name = gateway_file(person, servers)
    eras = {"first": "handshake", "second": "stateless"}
    with running(person, "gateway", name, "--port", "0", "--era", "handshake", "--json") as it:
        assert {one["name"]: one["era"] for one in it.report()["servers"]} == eras
    # Use another file because `up` does not wait for servers with remembered tools.
    entry = person.server(TOOLS, name="other.py")
    config = {"first": entry, "second": {**entry, "era": "stateless"}}
    (person.home / ".claude.json").write_text(json.dumps({"mcpServers": config}))
    with running(person, "up", "--port", "0", "--era", "handshake", "--json") as it:
        assert {one["name"]: one["era"] for one in it.report()["servers"]} == eras
