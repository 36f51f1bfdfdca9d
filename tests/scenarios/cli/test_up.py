"""`fairlead up`: all configured servers of all host programs, on one endpoint."""

import contextlib
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.cli_process import LIMIT, signpost
from tests.support.cli_user import Person, person
from tests.support.running_gateway import connected, get, names_of, running, text_of

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

VERSIONS = [NEWEST.value, NEWEST_HANDSHAKE.value]
ANY = ("up", "--port", "0")
ADD = """
    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b
"""


@pytest.mark.parametrize("version", VERSIONS)
async def test_demo_servers_of_both_eras_are_served_if_none_are_configured(
    person: Person, version: str
) -> None:
    with running(person, *ANY) as up:
        for words in (
            "no server is configured",
            "claude mcp add --scope user --transport http fairlead ",
        ):
            up.wait_for(words)
        up.wait_for(f"harbour: connected ({NEWEST_HANDSHAKE.value}, 3 tools)")
        up.wait_for(f"notebook: connected ({NEWEST.value}, 6 tools)")
        yes = {"action": "accept", "content": {"value": True}}
        async with connected(up.url, version, on_elicit=lambda _: yes) as client:
            assert client.protocol_version == version
            assert {"harbour_tide", "harbour_moor", "notebook_roll_dice"} <= await names_of(client)
            assert "m at 06:30" in text_of(await client.call_tool("harbour_tide", {"hour": 6.5}))
            rolled = await client.call_tool("notebook_roll_dice", {"seed": 1, "times": 2})
            assert '"total":' in text_of(rolled)
            moored = await client.call_tool("harbour_moor", {"ship": "Ada", "berth": "A2"})
            # The tool elicits a confirmation, which the client accepts.
            assert text_of(moored) == "Ada is moored at A2."
            about = await client.read_resource("demo://about")
            assert "Fairlead demo" in about["contents"][0]["text"]
        assert up.ends() == 0


async def test_all_configured_servers_are_served_even_if_some_fail(
    person: Person, tmp_path: Path
) -> None:
    with signpost(tmp_path / "slow") as slow:
        person.has(
            "ours/mcp.json",
            {
                "works": person.server(ADD),
                "dead": {"command": "/nowhere/at-all"},
                "slow": person.server(
                    f"{slow.report}\nimport time; time.sleep(3600)", name="slow.py"
                ),
            },
        )
        with running(person, *ANY) as up:
            up.wait_for("works: connected")
            assert "/nowhere/at-all" in up.wait_for("dead: failed: ")
            process = os.pidfd_open(slow.read())
            async with connected(up.url) as client:
                assert await names_of(client) == {"works_add"}
                assert text_of(await client.call_tool("works_add", {"a": 1, "b": 2})) == "3"
            status, health = get(up.url, "/health")
            assert (status, '"servers":3,"connected":1' in health) == (200, True)
            assert "dead" in get(up.url, "/")[1]
            assert up.ends(signal.SIGINT) == 0
            assert select.select([process], [], [], LIMIT)[0]
            os.close(process)


def test_json_output_is_one_object_with_the_url_and_the_servers(person: Person) -> None:
    person.has("ours/mcp.json", {"works": person.server(ADD), "dead": {"command": "/nowhere"}})
    with running(person, *ANY, "--json") as up:
        report = up.report()
        assert report["demo"] is False
        assert report["pid"] == up.process.pid
        servers = {one["name"]: one for one in report["servers"]}
        assert servers["works"]["status"] == "connected"
        assert (servers["works"]["era"], servers["works"]["tools"]) == ("stateless", 1)
        assert servers["works"]["path"] == str(person.ours / "mcp.json")
        assert servers["dead"]["status"] == "failed"
        assert "/nowhere" in servers["dead"]["error"]
        ready = '{"ready":true,"degraded":["dead"],"shortage":null}'
        assert get(report["url"], "/ready") == (200, ready)
        assert up.ends() == 0


async def test_a_project_is_served_once_it_is_approved(person: Person) -> None:
    person.has("project/.mcp.json", {"shared": person.server(ADD)})
    with running(person, *ANY) as up:
        line = up.wait_for("skipped: shared: ")
        assert "`fairlead mcp approve shared`" in line
        assert str(person.project / ".mcp.json") in line
        assert person.does("mcp", "approve", "shared", "--yes").code == 0
        up.wait_for("shared: connected")
        async with connected(up.url) as client:
            assert await names_of(client) == {"shared_add"}


async def test_changed_configuration_files_are_applied_without_a_restart(person: Person) -> None:
    person.has("ours/mcp.json", {"one": person.server(ADD)})
    more = person.server(
        "@server.tool()\ndef subtract(a: int, b: int) -> int: return a - b", name="2.py"
    )
    with running(person, *ANY) as up:
        up.wait_for("one: connected")
        async with connected(up.url) as client:
            first = await client.call_tool("one_add", {"a": 1, "b": 1})
            person.has("ours/mcp.json", {"two": more})
            up.wait_for("two: connected")
            up.wait_for("one: disconnected")
            assert text_of(first) == "2"
            assert await names_of(client) == {"two_subtract"}
            (person.ours / "mcp.json").write_text("{ half of it")
            (person.home / ".cursor").mkdir()
            person.has("home/.cursor/mcp.json", {"three": person.server(ADD, name="3.py")})
            up.wait_for("three: connected")
            assert "two: disconnected" not in up.said
            assert await names_of(client) == {"three_add", "two_subtract"}


def test_the_gateway_does_not_connect_to_its_own_address(person: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://localhost:{port}/mcp"
    bridge = {"command": "fairlead", "args": ["proxy", url]}
    person.has("ours/mcp.json", {"me": {"type": "http", "url": url}, "bridge": bridge})
    with running(person, "up", "--port", str(port)) as up:
        assert "the entry is this gateway" in up.wait_for("skipped: me: ")
        assert "the entry is this gateway" in up.wait_for("skipped: bridge: ")
        up.wait_for("notebook: connected")
        assert "me" not in get(up.url, "/health")[1]


@pytest.mark.covers("CMD-06")
def test_a_port_in_use_is_reported_with_the_process_that_uses_it(person: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        hang_up = threading.Thread(target=lambda: taken.accept()[0].close())  # noqa: PLW0108 - later
        hang_up.start()
        done = person.runs("up", "--port", str(port))
        hang_up.join(LIMIT)
    assert (done.code, done.out) == (1, "")
    assert f"Port {port} is in use by process {os.getpid()} (" in done.err
    assert "--port 0 selects a free port" in done.err


@pytest.mark.covers("CMD-06")
def test_up_suggests_using_the_gateway_that_already_listens_on_the_port(person: Person) -> None:
    with running(person, *ANY) as up:
        url = up.url
        port = url.rpartition(":")[2].removesuffix("/mcp")
        up.wait_for("notebook: connected")
        done = person.runs("up", "--port", port)
        assert done.code == 1
        assert f"process {up.process.pid} (" in done.err
        assert "a Fairlead gateway with 2 servers" in done.err
        assert f"use that gateway at {url}" in done.err


@pytest.mark.covers("CMD-06")
def test_the_default_port_is_8765(person: Person) -> None:
    help = person.does("up", "--help").out
    assert "http://127.0.0.1:8765/mcp" in help
    assert "http://127.0.0.1:8765/mcp" in person.does("gateway", "--help").out
    with running(person, "up") as up:
        # If another program uses the port, the error message contains the number too.
        assert "8765" in up.wait_for("8765")


def test_listening_for_other_machines_requires_a_token(person: Person) -> None:
    done = person.runs("up", "--listen", "0.0.0.0:0")
    assert done.code == 2
    assert "0.0.0.0 can be reached from other machines, and no token is required" in done.err
    with running(person, "up", "--listen", "0.0.0.0:0", env={"FAIRLEAD_AUTH_TOKEN": "t0p"}) as up:
        up.wait_for("notebook: connected")
        assert "t0p" not in up.said
        assert "Bearer ${FAIRLEAD_TOKEN}" in up.wait_for("Claude Code")
        assert get(up.url, "/health") == (200, '{"status":"ok"}')
        assert get(up.url, "/status")[0] == 401
        assert get(up.url, "/status", authorization="Bearer t0p")[0] == 200


async def test_search_mode_replaces_the_tools_of_servers(person: Person) -> None:
    with running(person, *ANY, "--search") as up:
        up.wait_for("notebook: connected")
        up.wait_for("harbour: connected")
        async with connected(up.url) as client:
            names = await names_of(client)
            assert not any(name.startswith("harbour_") for name in names)
            assert len(names) == 3


def test_an_admin_token_enables_the_admin_api(person: Person) -> None:
    token = {"FAIRLEAD_ADMIN_TOKEN": "open-sesame"}
    with running(person, *ANY) as up:
        done = person.runs("mcp", "reload", "--url", up.url.removesuffix("/mcp"), env=token)
        assert done.code == 1
        assert "hint: set FAIRLEAD_ADMIN_TOKEN when starting `fairlead up`" in done.err
    with running(person, *ANY, "--journal", env=token) as up:
        url = up.url.removesuffix("/mcp")
        up.wait_for("harbour: connected")
        assert "open-sesame" not in up.said
        # the admin API refuses a request without the token
        assert person.runs("mcp", "reload", "--url", url).code == 1
        done = person.runs("mcp", "reconnect", "harbour", "--url", url, env=token)
        assert (done.code, done.out.split()[:2]) == (0, ["harbour", "connected"])
        assert person.runs("ping", f"{url}/mcp").code == 0
        assert "server/discover" in person.runs("watch", url, "--once", env=token).out
        assert up.ends() == 0


def test_further_signals_do_not_interrupt_the_shutdown(person: Person) -> None:
    with running(person, *ANY) as up:
        # wait until the servers have connected, because they write to stderr
        for name in ("harbour", "notebook"):
            up.wait_for(f"{name}: connected")
        while up.process.poll() is None:
            up.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                up.process.wait(0.02)
        # the last signal may arrive after the handler was removed
        assert up.ends() in (0, -signal.SIGTERM)
        assert up.process.stdout is not None
        assert up.process.stdout.read().decode() == ""


def test_a_failed_server_is_shown_with_a_hint(person: Person) -> None:
    person.has("ours/mcp.json", {"dead": {"command": "/nowhere"}})
    with running(person, *ANY) as up:
        up.wait_for("dead: failed")
        up.wait_for(" doctor` suggests fixes")


def test_a_missing_project_folder_is_an_error(person: Person) -> None:
    done = person.runs("up", "--port", "0", "--project", "/nowhere/at-all")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: Folder not found: /nowhere/at-all\n"


def test_output_at_a_terminal_has_colours(person: Person) -> None:
    person.has("ours/mcp.json", {"works": person.server(ADD), "dead": {"command": "/nowhere"}})
    shown = shown_until(person, "1 tool", "dead:")
    assert "\x1b[32mgateway:" in shown


def test_stopping_while_servers_connect_prints_no_traceback(person: Person) -> None:
    person.has(
        "ours/mcp.json",
        {"slow": person.server("import time; time.sleep(3600)"), "dead": {"command": "/nowhere"}},
    )
    shown = shown_until(person, "failed")
    assert "Traceback" not in shown


def shown_until(person: Person, *words: str) -> str:
    """Return the terminal output of `fairlead up` as soon as it contains `words`."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", *ANY],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=person.project,
        env={**os.environ, **person.env, "TERM": "xterm-256color", "COLUMNS": "100"},
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    try:
        while not all(word.encode() in shown for word in words):
            assert select.select([ours], [], [], LIMIT)[0], shown
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGTERM)
        # Linux raises EIO when the last writer has closed the terminal
        with contextlib.suppress(OSError):
            while select.select([ours], [], [], LIMIT)[0]:
                shown += os.read(ours, 65536)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.wait(LIMIT)
        os.close(ours)
    return shown.decode()


def test_the_makefile_target_run_starts_fairlead_up() -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "run", "ARGS=--port 0"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert ".venv/bin/fairlead up --port 0" in done.stdout.splitlines()
