"""Tests of `fairlead demo` and of the demo server."""

import base64
import re
import shlex
import subprocess
import sys
from pathlib import Path

from fairlead import MCPClient
from fairlead.demo.notebook import SUNRISE
from tests.support.cli_process import LIMIT, fairlead, on_terminal, process_environment

COMMAND = [sys.executable, "-m", "fairlead.demo"]


def test_the_demo_runs_a_session_in_each_era() -> None:
    done = fairlead("demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in (
        '→ {"jsonrpc":"2.0","id":1,"method":"initialize"',
        '→ {"jsonrpc":"2.0","id":1,"method":"server/discover"',
        "✓ fairlead-demo 1.0.0, protocol 2025-11-25",
        "✓ fairlead-demo 1.0.0, protocol 2026-07-28",
        '← {"jsonrpc":"2.0","method":"notifications/progress"',
        "progress: 3 of 3, at 3",
        "info: counting to 3",
        "image/png",
        "Write a short note about knots",
        "✗ VALIDATION_ERROR",
    ):
        assert words in done.stdout
    assert len(re.findall(r"median round trip \d+ µs", done.stdout)) == 2
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]


def test_commands_printed_by_the_demo_succeed() -> None:
    *_, serve, tools, call = fairlead("demo").stdout.splitlines()
    for command, words in ((serve, ""), (tools, "roll_dice"), (call, '"total":')):
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
            env=process_environment(),
        )
        assert words in done.stdout


def test_the_output_of_the_demo_has_colours_on_a_terminal() -> None:
    shown = on_terminal("demo")
    assert "\x1b[" in shown
    assert "Try it yourself" in shown


def test_the_demo_does_not_depend_on_the_current_folder(tmp_path: Path) -> None:
    assert fairlead("demo", cwd=tmp_path).returncode == 0


async def test_the_demo_server_stores_and_returns_notes() -> None:
    async with MCPClient.connect_stdio(COMMAND) as client:
        await client.call_tool("add_note", {"title": "Knots", "text": "bowline"})
        found = await client.call_tool("search_notes", {"query": "BOWLINE"})
        assert found["content"][0]["text"] == '[{"title":"Knots","text":"bowline"}]'
        again = await client.call_tool("add_note", {"title": "Knots", "text": "reef"})
        error = client.tool_error(again)
        assert error is not None
        assert error.suggestion == "Choose another title"
        everything = await client.read_resource("notes://all")
        assert "bowline" in everything["contents"][0]["text"]


async def test_the_demo_server_has_tools_resources_and_prompts() -> None:
    async with MCPClient.connect_stdio(COMMAND) as client:
        one = await client.call_tool("roll_dice", {"sides": 20, "times": 3, "seed": 1})
        assert one == await client.call_tool("roll_dice", {"sides": 20, "times": 3, "seed": 1})
        sums = await client.call_tool("summarize_text", {"text": "One two. Three!"})
        assert '"words":3,"sentences":2' in sums["content"][0]["text"]
        mixed = await client.call_tool(
            "convert_units", {"value": 1, "from_unit": "kg", "to_unit": "m"}
        )
        assert mixed["isError"]
        assert {r["uri"] for r in await client.list_resources()} == {
            "notes://all",
            "demo://about",
            "demo://sunrise.png",
        }
        assert [p["name"] for p in await client.list_prompts()] == ["review_notes", "write_note"]
        review = await client.get_prompt("review_notes")
        assert "Shopping" in review["messages"][0]["content"]["text"]


def test_the_image_of_the_demo_server_is_a_png() -> None:
    picture = base64.b64decode(SUNRISE)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.endswith(b"IEND\xaeB`\x82")
