"""The files on the page for users of FastMCP, and the members that the page names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead import Context, MCPClient, MCPServer
from fairlead.client import Callbacks, ToolCallResult
from fairlead.gateway.gateway_file import read_gateway_file

PAGE = Path(__file__).parents[3] / "docs" / "coming-from-fastmcp.md"
LIMIT = 60  # seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write the files of the page to a folder."""
    blocks = r'```(?:python|toml) title="([\w.]+)"\n(.*?)```'
    files = re.findall(blocks, PAGE.read_text(), re.DOTALL)
    assert len(files) == 5
    for name, text in files:
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_on_the_page_prints_what_the_page_shows(folder: Path) -> None:
    shown = re.search(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert run(folder, "client.py") == shown[1]


def test_the_fixture_on_the_page_works_with_a_pytest_plugin(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nanyio_mode = auto\n")
    assert "2 passed" in run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def test_the_middleware_on_the_page_is_called(folder: Path) -> None:
    assert run(folder, "middleware.py") == "add took True\n3\n"


def test_the_gateway_file_on_the_page_can_be_read(folder: Path) -> None:
    assert list(read_gateway_file(folder / "gateway.toml").servers) == ["old"]


async def test_the_differences_of_results_on_the_page_are_correct() -> None:
    server = MCPServer("s")

    @server.tool
    def bare() -> dict:  # type: ignore[type-arg]
        return {"a": 1}

    @server.tool
    def typed() -> dict[str, int]:
        return {"a": 1}

    @server.tool
    def wrapped() -> list[int]:
        return [1]

    async with MCPClient.connect(server) as client:
        results = [await client.call_tool(name) for name in ("bare", "typed", "wrapped")]
    assert [one.data for one in results] == [None, {"a": 1}, [1]]
    assert [one.text for one in results] == ['{"a":1}', '{"a":1}', "[1]"]
    assert results[2]["structuredContent"] == {"result": [1]}


def test_members_in_the_columns_for_fairlead_exist() -> None:
    rows = re.findall(r"^\|[^|]+\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    text = "\n".join(rows)
    homes = {
        "server": (MCPServer, {"state"}),
        "ctx": (Context, {"state"}),
        "client": (MCPClient, set()),
        "MCPClient": (MCPClient, set()),
        "result": (ToolCallResult, set()),
    }
    named = [one for one in re.findall(r"`(?:@|await )?(\w+)\.(\w+)", text) if one[0] in homes]
    assert len(named) > 30
    for owner, member in named:
        kind, attributes = homes[owner]
        assert hasattr(kind, member) or member in attributes, (owner, member)
    callbacks = set(re.findall(r"`(on_\w+)=`", text))
    assert len(callbacks) == 5
    assert callbacks <= set(Callbacks.__annotations__)
