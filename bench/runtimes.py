"""The runtimes under test, and the commands that start their servers and clients."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from . import envs
from .requests import Era

__all__ = ["BARE", "BARE_HTTP", "INSTANT", "Command", "Runtime", "discover"]

Command = tuple[str, ...]

_SERVERS = envs.BENCH / "servers"
_CLIENTS = envs.BENCH / "clients"
_MANAGERS = envs.BENCH / "managers"

BARE: Command = (sys.executable, str(_SERVERS / "bare.py"))
INSTANT: Command = (sys.executable, str(_SERVERS / "instant.py"))
BARE_HTTP: Command = (sys.executable, str(_SERVERS / "bare_http.py"))


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One runtime; what it cannot do is left out, and so it has no figure there."""

    name: str
    version: str
    servers: Mapping[Era, Command] = field(default_factory=dict)
    ten: Command | None = None  # the ten-tool server
    thousand: Mapping[Era, Command] = field(default_factory=dict)  # the one of a thousand tools
    one_page: Mapping[Era, Command] = field(default_factory=dict)  # listing them in one answer
    clients: Mapping[str, Command] = field(default_factory=dict)  # by event loop
    web: Command | None = None  # an HTTP server; is told the port, the tools, how to answer
    web_sessions: bool = True  # it has sessions
    manager: Command | None = None  # of many servers; is told what to do, with which of them
    imports: tuple[Command, Command] | None = None  # with the import, and the bare interpreter
    warm_up: float = 1  # times as long as the others: a compiling runtime gets faster for a while
    warm_calls: int = 0  # and at least as many calls, if they can be made in a few seconds


def discover() -> tuple[list[Runtime], dict[str, str]]:
    """Every runtime that can be set up here, ours first; and for the others the reason."""
    builders: dict[str, Callable[[], Runtime]] = {
        "fairlead": lambda: _python(
            "fairlead",
            version("fairlead"),
            sys.executable,
            "from fairlead import MCPServer, MCPClient",
            one_page=("1000",),
        ),
        "mcp": lambda: _python("mcp", _pinned("mcp"), envs.python("mcp"), "import mcp"),
        "fastmcp": lambda: _python(
            "fastmcp",
            _pinned("fastmcp"),
            envs.python("fastmcp"),
            "from fastmcp import FastMCP, Client",
        ),
        "typescript": _typescript,
        "bare": lambda: Runtime(
            name="bare",
            version=f"uvloop {version('uvloop')}, msgspec {version('msgspec')}",
            servers=dict.fromkeys(Era, BARE),
            web=BARE_HTTP,
            web_sessions=False,
            manager=(sys.executable, str(_MANAGERS / "bare_manager.py")),
        ),
    }
    found, skipped = [], {}
    for name, build in builders.items():
        try:
            found.append(build())
        except envs.Missing as missing:
            skipped[name] = str(missing)
    return found, skipped


def _python(
    name: str,
    release: str,
    interpreter: str | Path,
    statement: str,
    *,
    one_page: Command = (),  # what its server of a thousand has to be told to make one page
) -> Runtime:
    python = str(interpreter)
    client = (python, str(_CLIENTS / f"{name}_client.py"))
    thousand = (python, str(_SERVERS / f"{name}_thousand.py"))
    manager = _MANAGERS / f"{name}_manager.py"
    return Runtime(
        name=name,
        version=release,
        servers=dict.fromkeys(Era, (python, str(_SERVERS / f"{name}_server.py"))),
        ten=(python, str(_SERVERS / f"{name}_ten.py")),
        thousand=dict.fromkeys(Era, thousand),
        one_page=dict.fromkeys(Era, (*thousand, *one_page)),
        clients={loop: (*client, loop) for loop in ("asyncio", "uvloop")},
        web=(python, str(_SERVERS / f"{name}_http.py")),
        manager=(python, str(manager)) if manager.exists() else None,
        imports=((python, "-c", statement), (python, "-c", "pass")),
    )


def _typescript() -> Runtime:
    home = envs.node()
    # A module finds its packages by where it lies, so the scripts are copied beside node_modules.
    server = str(shutil.copy(_SERVERS / "typescript_server.mjs", home))
    thousand = _both_eras(str(shutil.copy(_SERVERS / "typescript_thousand.mjs", home)))
    web = str(shutil.copy(_SERVERS / "typescript_http.mjs", home))
    client = str(shutil.copy(_CLIENTS / "typescript_client.mjs", home))
    return Runtime(
        name="typescript",
        version=envs.NPM[0].rpartition("@")[2],
        servers=_both_eras(server),
        thousand=thousand,
        one_page=thousand,
        clients={"asyncio": ("node", client), "uvloop": ("node", client)},  # has one loop
        web=("node", web),
        warm_up=4,
        warm_calls=5_000,
    )


def _both_eras(server: str) -> dict[Era, Command]:
    return {Era.HANDSHAKE: ("node", server), Era.STATELESS: ("node", server, "stateless")}


def _pinned(name: str) -> str:
    return envs.PYPI[name][0].partition("==")[2]
