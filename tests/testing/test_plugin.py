"""Tests of the pytest plugin, which records a server once and then replays the tape."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 60.0
TEST = """
    import asyncio, sys
    from pathlib import Path

    from fairlead import MCPClient, MCPClientConfig

    SERVER = {"command": sys.executable, "args": [str(Path(__file__).with_name("server.py"))]}


    def test_it(fairlead_tape):
        server = fairlead_tape("notes/daily", SERVER)

        async def visit(version):
            config = MCPClientConfig(protocol_version=version)
            async with asyncio.timeout(20):
                async with MCPClient.connect_inprocess(server, config) as client:
                    return (await client.call("count", {"to": 3})).text

        # Played, it is served to the other era too.
        versions = ["auto"] if server.recording else ["auto", "2025-11-25"]
        for version in versions:
            assert asyncio.run(visit(version)) == "one two three"
"""
SERVER = """
    from pathlib import Path
    from fairlead import MCPServer

    server = MCPServer("counts")
    here = Path(__file__).with_name("started")

    @server.tool()
    def count(to: int) -> str:
        here.open("a").write("x")
        return " ".join(["one", "two", "three"][:to])

    server.run()
"""


def dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # An installed Fairlead registers its plugin, but the installed version may be older.
    command += ["-p", "fairlead.testing.plugin", *options, str(folder)]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(dedented(TEST))
    (tmp_path / "server.py").write_text(dedented(SERVER))
    return tmp_path


def calls(folder: Path) -> int:
    place = folder / "started"
    return len(place.read_text()) if place.exists() else 0


@pytest.mark.covers("GTW-11")
def test_the_tape_fixture_records_once_and_then_replays(folder: Path) -> None:
    assert run(folder, "--fairlead-tapes", "never").returncode == 1
    assert calls(folder) == 0
    done = run(folder)
    assert done.returncode == 0, done.stdout
    assert calls(folder) == 1
    tapes = folder / "tapes" / "notes"
    assert sorted(p.name for p in tapes.iterdir()) == ["daily.tape.json", "daily.tape.jsonl"]
    (folder / "server.py").unlink()
    done = run(folder, "--fairlead-tapes", "never")
    assert done.returncode == 0, done.stdout
    assert calls(folder) == 1
    (folder / "server.py").write_text(dedented(SERVER))
    assert run(folder, "--fairlead-tapes", "again").returncode == 0
    assert calls(folder) == 2


def test_the_tape_of_a_failing_test_is_discarded(folder: Path) -> None:
    test = folder / "test_it.py"
    test.write_text(test.read_text().replace("one two three", "nothing"))
    assert run(folder).returncode == 1
    assert calls(folder) == 1
    assert list((folder / "tapes" / "notes").iterdir()) == []


SECRETIVE = """
    import asyncio, sys
    from pathlib import Path

    from fairlead import MCPClient

    HERE = Path(__file__).parent
    SERVER = {
        "command": sys.executable,
        "args": [str(HERE / "server.py")],
        "env": {"SHOP_API_KEY": "zebra-quartz-77"},
    }


    def visit(server, *numbers):
        async def go():
            async with asyncio.timeout(20), MCPClient.connect_inprocess(server) as client:
                return [(await client.call("key", {"to": n})).text for n in numbers]

        return asyncio.run(go())


    def test_it(fairlead_tape):
        for n in (1, 2):  # the same name is the same tape
            (text,) = visit(fairlead_tape("shop", SERVER), n)
            assert text.startswith(f"{n} ")


    def test_another(fairlead_tape):
        visit(fairlead_tape("shop", SERVER), 3)
"""
SHOP = """
    import os
    from fairlead import MCPServer

    server = MCPServer("shop")

    @server.tool()
    def key(to: int) -> str:
        return f"{to} {os.environ['SHOP_API_KEY']}"

    server.run()
"""


def test_the_tape_fixture_does_not_record_secrets_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(dedented(SECRETIVE))
    (tmp_path / "server.py").write_text(dedented(SHOP))
    done = run(tmp_path, "-k", "not another")
    assert done.returncode == 0, done.stdout
    lines, about = (tmp_path / "tapes" / f"shop.tape.{end}" for end in ("jsonl", "json"))
    assert "[REDACTED]" in lines.read_text()
    assert "zebra-quartz-77" not in lines.read_text() + about.read_text()
    told = json.loads(about.read_text())
    assert told["name"] == "shop"
    assert told["about"]["command"] == [sys.executable, str(tmp_path / "server.py")]
    # The second test replays the tape of the first, and its report names the missing request.
    done = run(tmp_path)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "tools/call 'key' is not on the tape" in done.stdout
    assert "--fairlead-tapes=again" in done.stdout
