"""Tests of tool modules, which are imported at start-up and skipped if the import fails."""

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
    ToolMark,
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
def test_a_decorated_function_is_returned_unchanged() -> None:
    @mcp_tool(name="other")
    def function(a: int) -> int:
        return a + 1

    assert function(1) == 2


@pytest.mark.covers("SRV-50", "SRV-51", "SRV-52")
async def test_tool_modules_that_fail_to_import_are_skipped(
    modules: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    registry = MCPToolRegistry()
    with caplog.at_level(logging.ERROR, "fairlead.server"):
        load_modules(registry, ["broken_tools", "leaving_tools", "good_tools"])
    assert [record.args for record in caplog.records] == [("broken_tools",), ("leaving_tools",)]
    causes = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [f"{type(cause).__name__}: {cause}" for cause in causes] == [
        "ModuleNotFoundError: No module named 'no_such_module_at_all'",
        "SystemExit: 3",
    ]
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
def test_a_tool_module_is_loaded_once_and_skips_duplicate_names(
    modules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = MCPServer("s")
    server.load_modules("good_tools")
    server.load_modules("good_tools")
    assert server.tool_count == 4
    other = MCPServer("o")
    other.register_tool("plain", {"type": "object"}, lambda: "mine")
    load_modules(other.registry, ["good_tools"])
    (skipped,) = caplog.messages
    assert skipped.startswith("the tool good_tools.plain is skipped: ")
    assert "already" in skipped
    assert other.tool_count == 4


@pytest.mark.covers("SRV-51", "SRV-52")
def test_output_of_imported_modules_does_not_reach_stdout(modules: Path) -> None:
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


def test_stdout_is_restored_after_modules_are_imported(capfd: pytest.CaptureFixture[str]) -> None:
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
def test_a_tool_with_a_schema_has_a_description_from_the_first_available_source(
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
        load_modules(registry, [module.__name__])
    definition = registry.listing.get("t").definition  # type: ignore[union-attr]
    assert definition.description == expected


def module_of(**members: Any) -> types.ModuleType:
    module = types.ModuleType("tools_for_this_test")
    vars(module).update(members)
    return module


def load(monkeypatch: pytest.MonkeyPatch, **members: Any) -> MCPToolRegistry:
    registry, module = MCPToolRegistry(), module_of(**members)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    load_modules(registry, [module.__name__])
    return registry


@pytest.mark.parametrize("asynchronous", [False, True], ids=["plain", "coroutine"])
@pytest.mark.parametrize(
    ("requires", "missing"),
    [
        (["json"], []),
        (["json", "wave"], []),
        (["no_such_module", "json", "nor_this_one"], ["no_such_module", "nor_this_one"]),
        (["no_such_package.module"], ["no_such_package.module"]),
        (["json.no_such_part"], ["json.no_such_part"]),
    ],
    ids=["imported", "installed", "two missing", "package missing", "part missing"],
)
async def test_the_error_names_the_missing_modules_of_a_tool(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool, requires: list[str], missing: list[str]
) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)

    def plain(a: int) -> int:
        """Plain."""
        return a + 1

    async def later(a: int) -> int:
        """Later."""
        return a + 1

    function = mcp_tool("t", requires=requires)(later if asynchronous else plain)
    registry = load(monkeypatch, function=function)
    (tool,) = registry.list_tools()
    assert tool.description == ("Later." if asynchronous else "Plain.")
    result = await registry.execute("t", {"a": 1})
    text = result["content"][0]["text"]
    if not missing:
        assert text == "2"
        return
    error = json.loads(text)
    name = "later" if asynchronous else "plain"
    assert error["message"] == f"{name} needs {', '.join(missing)}, which is not installed"
    assert (error["code"], error["module"]) == ("DEPENDENCY_MISSING", missing[0])
    assert error["suggestion"] == f"pip install {' '.join(missing)}"


def test_only_functions_marked_as_tools_are_registered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @mcp_tool
    def good(a: int) -> int:
        return a

    @mcp_tool()
    def bad(a: complex) -> int:
        return 1

    marked = types.SimpleNamespace(__mcp_tool__=ToolMark())
    foreign = types.SimpleNamespace(__mcp_tool__="an attribute of another library")
    registry = load(monkeypatch, marked=marked, foreign=foreign, number=5, bad=bad, good=good)
    assert [tool.name for tool in registry.list_tools()] == ["good"]
    (skipped,) = caplog.messages
    assert skipped.startswith("the tool tools_for_this_test.bad is skipped: ")
    assert "parameter 'a' has no JSON form" in skipped


@pytest.mark.parametrize(
    ("mark", "description", "meta"),
    [
        ({}, "Doc.", {"fairlead/category": "general"}),
        ({"description": ""}, None, {"fairlead/category": "general"}),
        (
            {"deprecated_in": "2", "description": ""},
            "Deprecated since 2.",
            {"fairlead/category": "general", "fairlead/deprecatedIn": "2"},
        ),
        (
            {"category": "c", "tags": ("a", "b"), "version": "1"},
            "Doc.",
            {"fairlead/category": "c", "fairlead/tags": ["a", "b"], "fairlead/version": "1"},
        ),
    ],
    ids=["nothing", "no description", "deprecated", "everything"],
)
@pytest.mark.parametrize("schema", [None, {"type": "object"}], ids=["hints", "schema"])
def test_a_tool_mark_sets_the_description_and_meta_of_the_tool(
    monkeypatch: pytest.MonkeyPatch, mark: Any, description: str | None, meta: Any, schema: Any
) -> None:
    def function() -> None:
        """Doc."""

    registry = load(monkeypatch, function=mcp_tool(schema=schema, **mark)(function))
    (tool,) = registry.list_tools()
    if description is None and schema is not None:
        description = "Doc."  # a tool with a schema uses its docstring by default
    assert (tool.name, tool.description or None) == ("function", description)
    assert json.loads(bytes(tool.meta)) == meta  # type: ignore[arg-type]


def test_modules_of_entry_points_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def entry_points(*, group: str) -> list[Any]:
        asked.append(group)
        return [types.SimpleNamespace(module="tools_for_this_test")]

    @mcp_tool
    def good() -> int:
        return 1

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    registry = load(monkeypatch, good=good)
    assert asked == []
    registry = MCPToolRegistry()
    load_modules(registry, [], entry_points=True)
    assert (asked, len(registry)) == (["fairlead.tools"], 1)
    server = MCPServer("s", tool_entry_points=True)
    assert server.describe_tools() == [("good", "")]


@pytest.mark.parametrize("how", ["describe_tools", "running", "load_modules"])
async def test_a_server_loads_its_configured_tool_modules(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    @mcp_tool
    def good() -> int:
        return 1

    load(monkeypatch, good=good)
    server = MCPServer("s", tool_modules=() if how == "load_modules" else ("tools_for_this_test",))
    assert server.tool_count == 0
    if how == "running":
        async with server.running():
            assert server.tool_count == 1
    elif how == "describe_tools":
        assert server.describe_tools() == [("good", "")]
    else:
        server.load_modules("tools_for_this_test")
    assert server.tool_count == 1


def test_redirecting_stdout_leaks_no_descriptor(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    buffered = open(1, "w", closefd=False)  # noqa: SIM115 - the tested function flushes it
    monkeypatch.setattr(sys, "stdout", buffered)
    buffered.write("before ")
    handles = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError), stdout_to_stderr():
        buffered.flush()
        os.write(1, b"inside ")
        raise KeyError
    assert sorted(os.listdir("/proc/self/fd")) == handles
    os.write(1, b"after")
    out, err = capfd.readouterr()
    assert (out, err) == ("before after", "inside ")
