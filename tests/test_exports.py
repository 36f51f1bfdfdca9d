"""Tests of the names that packages export."""

import ast
import importlib
import re
import subprocess
import sys

import pytest

import fairlead

PUBLIC = {
    "Audio",
    "Context",
    "DeferredMCPTool",
    "FairleadError",
    "File",
    "Image",
    "MCPClient",
    "MCPClientConfig",
    "MCPClientError",
    "MCPManager",
    "MCPServer",
    "MCPServerConfig",
    "MCPTool",
    "MCPToolCache",
    "MCPToolError",
    "MCPTransport",
    "RpcError",
    "discover_and_load_mcp_tools",
    "discover_mcp_servers",
    "mcp_tool",
}

FROM_FOLDERS = {
    "fairlead.server": (
        "Audio",
        "CannotAsk",
        "Elicited",
        "File",
        "Header",
        "HttpSettings",
        "Image",
        "MCPToolRegistry",
    ),
    "fairlead.client": (
        "Change",
        "HttpTransport",
        "MCPServerEntry",
        "StdioTransport",
        "WebSocketTransport",
        "call_mcp",
        "create_http_transport",
        "create_stdio_transport",
        "create_transport",
        "create_websocket_transport",
        "parse_sse",
    ),
    "fairlead.protocol.envelope": (
        "Direction",
        "McpMessage",
        "MessageEnvelope",
        "SessionContext",
        "SessionState",
        "TransportContext",
    ),
    "fairlead.protocol.contracts": (
        "TOOL_ERROR_SCHEMA",
        "TOOL_REQUEST_SCHEMA",
        "TOOL_RESPONSE_SCHEMA",
        "make_tool_error",
        "validate_tool_error",
        "validate_tool_request",
        "validate_tool_response",
    ),
    "fairlead.wire": (
        "JsonRpcError",
        "JsonRpcMessage",
        "JsonRpcNotification",
        "JsonRpcRequest",
        "JsonRpcResponse",
    ),
    "fairlead.errors": ("ClientClosedError", "MCPErrorCode"),
}


def test_the_top_level_package_exports_exactly_the_expected_names() -> None:
    assert set(fairlead.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_exported_name_exists_and_has_a_docstring(name: str) -> None:
    value = getattr(fairlead, name)
    assert value.__doc__
    assert f"`{name}`" in (fairlead.__doc__ or "")


def test_dir_and_help_show_the_public_names() -> None:
    program = "import fairlead; print(dir(fairlead)); help(fairlead)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    listed, _, text = done.stdout.partition("\n")
    shown = {name for name in ast.literal_eval(listed) if not name.startswith("__")}
    assert shown == PUBLIC
    for name in PUBLIC:
        assert re.search(rf"\b{name}\b", text)
    assert "class MCPServer(" in text
    assert "def connect_inprocess" in text or "connect_inprocess(" in text


@pytest.mark.parametrize(
    "package", ["auth", "client", "gateway", "interceptor", "manager", "server"]
)
def test_the_dir_function_shows_the_public_names_of_a_package_before_their_use(
    package: str,
) -> None:
    program = f"import fairlead.{package} as p; print(set(p.__all__) - set(dir(p)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"


def test_entries_of_servers_are_read_without_importing_the_client() -> None:
    """`fairlead list` must start fast, even before any module is compiled."""
    program = (
        "import sys, fairlead.config.discovery; print('fairlead.client.client' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_an_unknown_package_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'MCPNothing'"):
        _ = fairlead.MCPNothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "name"), [(m, n) for m, names in FROM_FOLDERS.items() for n in names]
)
def test_each_package_exports_the_expected_names(module: str, name: str) -> None:
    assert name in importlib.import_module(module).__all__
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("FastMCP", "use `MCPServer`"),
        ("Client", "use `MCPClient.connect(target)`"),
        ("ToolError", "use `MCPToolError`"),
    ],
)
def test_importing_a_name_of_another_library_names_the_replacement(name: str, remedy: str) -> None:
    with pytest.raises(ImportError) as failed:
        exec(f"from fairlead import {name}")
    assert str(failed.value) == f"cannot import name {name!r} from 'fairlead': {remedy}"


def test_a_missing_name_of_the_package_is_an_attribute_error() -> None:
    assert not hasattr(fairlead, "NoSuchName")
    with pytest.raises(ImportError, match="cannot import name 'NoSuchName'"):
        exec("from fairlead import NoSuchName")
