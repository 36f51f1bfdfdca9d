"""Tools in modules: marked, imported when a server starts, and skipped when that fails."""

import json
import logging
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.features.tool_modules import (
    Skipped,
    load_modules,
    mcp_tool,
    stdout_to_stderr,
)
from fairlead.server.features.tool_registry import MCPToolRegistry

GOOD = """
import os
from fairlead.server.features.tool_modules import mcp_tool

print("hello from print")
os.write(1, b"hello from fd 1\\n")

@mcp_tool
def plain(a: int) -> int:
    "Plain."
    return a

@mcp_tool("named", "Described.", category="math", tags=["x"], version="2", deprecated_in="3.1")
async def function(a: int) -> int:
    return a

@mcp_tool(schema={"type": "object", "properties": {"a": {"type": "integer"}}})
def by_schema(a=1):
    return a

@mcp_tool(requires=["no_such_module_at_all", "json"])
async def needy(a: int) -> int:
    return a

def unmarked():
    pass
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good_tools.py").write_text(GOOD)
    (tmp_path / "broken_tools.py").write_text("import no_such_module_at_all")
    (tmp_path / "leaving_tools.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("good_tools", "broken_tools", "leaving_tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.covers("SRV-50")
def test_a_marked_function_stays_what_it_is() -> None:
    @mcp_tool(name="other")
    def function(a: int) -> int:
        return a + 1

    assert function(1) == 2


@pytest.mark.covers("SRV-50", "SRV-51", "SRV-52")
async def test_modules_are_loaded_and_what_fails_is_skipped(
    modules: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = MCPToolRegistry()
    with caplog.at_level(logging.ERROR, "fairlead.server"):
        skipped = load_modules(registry, ["broken_tools", "leaving_tools", "good_tools"])
    assert skipped == [
        Skipped("broken_tools", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        Skipped("leaving_tools", "SystemExit: 3"),
    ]
    assert [record.args for record in caplog.records] == [("broken_tools",), ("leaving_tools",)]
    tools = {tool.name: tool for tool in registry.list_tools()}
    assert list(tools) == ["plain", "named", "by_schema", "needy"]
    assert tools["named"].description == "Deprecated since 3.1. Described."
    assert json.loads(bytes(tools["named"].meta)) == {  # type: ignore[arg-type]
        "fairlead/category": "math",
        "fairlead/tags": ["x"],
        "fairlead/version": "2",
        "fairlead/deprecatedIn": "3.1",
    }
    written = capfd.readouterr()
    assert written.out == ""
    assert "hello from fd 1" in written.err
    assert (await registry.execute("by_schema", {"a": 4}))["content"][0]["text"] == "4"
    missing = json.loads((await registry.execute("needy", {"a": 1}))["content"][0]["text"])
    assert (missing["code"], missing["module"]) == ("DEPENDENCY_MISSING", "no_such_module_at_all")


@pytest.mark.covers("SRV-51")
def test_loading_twice_changes_nothing_and_a_taken_name_is_skipped(modules: Path) -> None:
    server = MCPServer("s")
    server.load_modules("good_tools")
    server.load_modules("good_tools")
    assert server.tool_count == 4
    other = MCPServer("o")
    other.register_tool("plain", {"type": "object"}, lambda: "mine")
    (skipped,) = load_modules(other.registry, ["good_tools"])
    assert (skipped.what, "already" in skipped.why) == ("good_tools.plain", True)
    assert other.tool_count == 4


@pytest.mark.covers("SRV-51", "SRV-52")
def test_a_program_imports_its_modules_at_start_and_its_stdout_stays_clean(modules: Path) -> None:
    program = """
import sys
from fairlead import MCPServer
server = MCPServer("s", tool_modules=("broken_tools", "good_tools"))
assert "good_tools" not in sys.modules
server.run()
"""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(ask).encode() + b"\n",
        capture_output=True,
        env={"PYTHONPATH": str(modules), "PATH": ""},
        timeout=30,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert len(json.loads(line)["result"]["tools"]) == 4
    assert b"hello from fd 1" in done.stderr


def test_stdout_is_given_back(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_to_stderr():
        print("printed")
        os.write(1, b"written\n")
    os.write(1, b"again\n")
    out, err = capfd.readouterr()
    assert out == "again\n"
    assert sorted(err.split()) == ["printed", "written"]


@pytest.mark.parametrize(
    ("schema", "description", "expected"),
    [
        ({"type": "object"}, "Said.", "Said."),
        ({"inputSchema": {"type": "object"}, "description": "Own."}, "Said.", "Own."),
        ({"type": "object"}, None, "From the docstring."),
        ({"type": "object"}, "", "From the docstring."),
    ],
    ids=["given", "in the schema", "docstring", "empty"],
)
def test_a_tool_with_a_schema_has_a_description(
    schema: dict[str, Any], description: str | None, expected: str
) -> None:
    module = types.ModuleType("tools_for_this_test")

    @mcp_tool("t", description, schema=schema)
    def function() -> int:
        """From the docstring."""
        return 1

    module.function = function  # type: ignore[attr-defined]
    registry = MCPToolRegistry()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        assert load_modules(registry, [module.__name__]) == []
    definition = registry.listing.get("t").definition  # type: ignore[union-attr]
    assert definition.description == expected
