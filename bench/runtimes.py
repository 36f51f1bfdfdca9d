"""Runtimes under test and the commands of their servers and clients."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from . import envs
from .requests import Era
from .rounds import AGAIN, OURS

__all__ = [
    "BARE",
    "BARE_HTTP",
    "INSTANT",
    "Command",
    "Route",
    "Runtime",
    "builds_of",
    "comparing_commits",
    "discover",
    "fairlead_build",
    "tuned",
    "with_noise",
]

Command = tuple[str, ...]
Route = Literal["stdio-stdio", "http-stdio", "stdio-http"]

_SERVERS = envs.BENCH / "servers"
_CLIENTS = envs.BENCH / "clients"
_MANAGERS = envs.BENCH / "managers"
_RELAYS = envs.BENCH / "relays"

BARE: Command = (sys.executable, str(_SERVERS / "bare.py"))
INSTANT: Command = (sys.executable, str(_SERVERS / "instant.py"))
BARE_HTTP: Command = (sys.executable, str(_SERVERS / "bare_http.py"))


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime; a feature that it does not have is omitted and has no figure."""

    name: str
    version: str
    servers: Mapping[Era, Command] = field(default_factory=dict)
    limited: Mapping[Era, Command] = field(default_factory=dict)  # with a rate limit, not reached
    tuned: Runtime | None = None  # the same with settings that make it faster, if it has any
    ten: Command | None = None  # the ten-tool server
    thousand: Mapping[Era, Command] = field(default_factory=dict)  # the one of a thousand tools
    one_page: Mapping[Era, Command] = field(default_factory=dict)  # listing them in one answer
    clients: Mapping[str, Command] = field(default_factory=dict)  # by event loop
    # an HTTP server; takes the port, the tools and the form of responses
    web: Command | None = None
    web_sessions: bool = True  # supports sessions
    manager: Command | None = None  # a manager of servers; takes the task and the servers
    # Commands of a relay contain `{server}` (a server's command), `{url}` and `{port}`.
    relays: Mapping[Route, Command] = field(default_factory=dict)
    watched: Command | None = None  # a relay with interceptors; takes their names
    gateway: Command | None = None  # takes `{config}` or `{servers}`, two files, and `{port}`
    gateway_eras: Sequence[Era] = tuple(Era)
    gateway_path: str | None = "/mcp"  # of the endpoint that has all servers, if it has one
    gateway_paths: str | None = None  # of the endpoint of the server `{name}`
    build: bool = False  # a build of Fairlead: ours, ours once more, or that of another commit
    imports: tuple[Command, Command] | None = None  # with the import, and the bare interpreter
    warm_up: float = 1  # times as long as the others: a compiling runtime gets faster for a while
    warm_calls: int = 0  # and at least as many calls, if they can be made in a few seconds


def tuned(runtimes: Iterable[Runtime]) -> list[Runtime]:
    """Return every runtime with its fastest settings, if it has any."""
    return [runtime.tuned or runtime for runtime in runtimes]


def discover(only: str | None = None) -> tuple[list[Runtime], dict[str, str]]:
    """Return the runtimes that can be installed, Fairlead first, and reasons for the others."""
    builders: dict[str, Callable[[], Runtime]] = {
        "fairlead": lambda: fairlead_build("fairlead", version("fairlead"), sys.executable),
        "mcp": _mcp,
        "fastmcp": _fastmcp,
        "typescript": _typescript,
        "mcp-proxy": _mcp_proxy,
        "supergateway": _supergateway,
        "bare": lambda: Runtime(
            name="bare",
            version=f"uvloop {version('uvloop')}, msgspec {version('msgspec')}",
            servers=dict.fromkeys(Era, BARE),
            web=BARE_HTTP,
            web_sessions=False,
            manager=(sys.executable, str(_MANAGERS / "bare_manager.py")),
            relays={
                "stdio-stdio": (sys.executable, str(_RELAYS / "bare_relay.py"), "{server}"),
            },
        ),
    }
    found, skipped = [], {}
    for name, build in builders.items():
        if only is not None and name != only:
            continue
        try:
            found.append(build())
        except envs.Missing as missing:
            skipped[name] = str(missing)
    return found, skipped


def builds_of(runtimes: Sequence[Runtime]) -> list[Runtime]:
    """Return the builds of Fairlead among the runtimes."""
    return [runtime for runtime in runtimes if runtime.build]


def comparing_commits(runtimes: Sequence[Runtime]) -> bool:
    """Return True if only builds of Fairlead take part, one of another commit."""
    return any(build.name not in (OURS, AGAIN) for build in builds_of(runtimes))


def with_noise(runtimes: Sequence[Runtime]) -> list[Runtime]:
    """Add Fairlead a second time, far from the first in a round."""
    middle = len(runtimes) // 2 + 1
    ours = [replace(runtime, name=AGAIN) for runtime in runtimes if runtime.name == OURS]
    return [*runtimes[:middle], *ours, *runtimes[middle:]]


def fairlead_build(
    name: str, release: str, interpreter: str | Path, bench: Path = envs.BENCH
) -> Runtime:
    """Return a build of Fairlead with its servers and clients in `bench`."""
    python = str(interpreter)
    base = _python(
        "fairlead",
        release,
        python,
        "from fairlead import MCPServer, MCPClient",
        bench=bench,
        one_page=("1000",),
        own_uvloop=True,
    )
    limited = {era: (*command, "limited") for era, command in base.servers.items()}
    proxy = (python, "-m", "fairlead", "proxy")
    return replace(
        base,
        name=name,
        build=True,
        limited=limited,
        relays={
            "stdio-stdio": (*proxy, "--", "{server}"),
            "http-stdio": (*proxy, "--listen", "http://127.0.0.1:{port}", "--", "{server}"),
            "stdio-http": (*proxy, "{url}"),
        },
        watched=(python, str(bench / "relays" / "watched_relay.py")),
        gateway=(python, "-m", "fairlead", "gateway", "--port", "{port}", "{config}"),
        gateway_paths="/mcp/{name}",
    )


def _python(
    name: str,
    release: str,
    interpreter: str | Path,
    statement: str,
    *,
    bench: Path = envs.BENCH,
    one_page: Command = (),  # options of its server of a thousand tools for one page
    own_uvloop: bool = False,  # uvloop is one of its dependencies
) -> Runtime:
    python, servers = str(interpreter), bench / "servers"
    client = (python, str(bench / "clients" / f"{name}_client.py"))
    thousand = (python, str(servers / f"{name}_thousand.py"))
    manager = bench / "managers" / f"{name}_manager.py"
    return Runtime(
        name=name,
        version=release,
        servers=dict.fromkeys(Era, (python, str(servers / f"{name}_server.py"))),
        ten=(python, str(servers / f"{name}_ten.py")),
        thousand=dict.fromkeys(Era, thousand),
        one_page=dict.fromkeys(Era, (*thousand, *one_page)),
        clients={
            "asyncio": (*client, "asyncio"),
            "uvloop": (*client, "uvloop") if own_uvloop else _faster(*client, "uvloop"),
        },
        web=(python, str(servers / f"{name}_http.py")),
        manager=(python, str(manager)) if manager.exists() else None,
        imports=((python, "-c", statement), (python, "-c", "pass")),
    )


def _mcp() -> Runtime:
    return _with_tuned(_python("mcp", _pinned("mcp"), envs.python("mcp"), "import mcp"))


def _with_tuned(runtime: Runtime) -> Runtime:
    """Add the same runtime with its servers and relays under `servers/tuned.py`."""
    faster = replace(
        runtime,
        servers={era: _under_tuned(command) for era, command in runtime.servers.items()},
        web=_under_tuned(runtime.web) if runtime.web else None,
        relays={route: _under_tuned(command) for route, command in runtime.relays.items()},
    )
    return replace(runtime, tuned=faster)


def _under_tuned(command: Command) -> Command:
    python, *rest = command
    return _faster(python, str(_SERVERS / "tuned.py"), *rest)


def _faster(*command: str) -> Command:
    """Return the command with uvloop and httptools on its path."""
    return ("env", f"PYTHONPATH={envs.faster()}", *command)


def _fastmcp() -> Runtime:
    python = envs.python("fastmcp")
    statement = "from fastmcp import FastMCP, Client"
    relay = (str(python), str(_RELAYS / "fastmcp_relay.py"))
    runtime = replace(
        _python("fastmcp", _pinned("fastmcp"), python, statement),
        relays={
            "stdio-stdio": (*relay, "stdio", "{server}"),
            "http-stdio": (*relay, "http", "{port}", "{server}"),
            "stdio-http": (*relay, "stdio", "{url}"),
        },
        gateway=(str(python), str(_RELAYS / "fastmcp_gateway.py"), "{servers}", "{port}"),
    )
    return _with_tuned(runtime)


def _mcp_proxy() -> Runtime:
    python = envs.python("mcp-proxy")
    program = (str(python), str(python.with_name("mcp-proxy")))
    runtime = Runtime(
        name="mcp-proxy",
        version=_pinned("mcp-proxy"),
        relays={
            "http-stdio": (*program, "--port", "{port}", "--", "{server}"),
            "stdio-http": (*program, "--transport", "streamablehttp", "{url}"),
        },
        gateway=(*program, "--named-server-config", "{servers}", "--port", "{port}"),
        gateway_path=None,
        gateway_paths="/servers/{name}/mcp",
        gateway_eras=(Era.HANDSHAKE,),
    )
    return _with_tuned(runtime)


def _supergateway() -> Runtime:
    home = envs.node("supergateway", envs.SUPERGATEWAY)
    script = home / "node_modules" / "supergateway" / "dist" / "index.js"
    program = ("node", str(script))
    # Without --stateful it restarts the server for each request.
    http = ("--outputTransport", "streamableHttp", "--stateful", "--port", "{port}")
    relays: dict[Route, Command] = {
        "http-stdio": (*program, "--stdio", "{line}", *http),
        "stdio-http": (*program, "--streamableHttp", "{url}"),
    }
    runtime = Runtime(
        name="supergateway",
        version=envs.SUPERGATEWAY[0].rpartition("@")[2],
        relays=relays,
        warm_up=4,
        warm_calls=5_000,
    )
    silent = {route: (*command, "--logLevel", "none") for route, command in relays.items()}
    return replace(runtime, tuned=replace(runtime, relays=silent))


def _typescript() -> Runtime:
    home = envs.node()
    # Node resolves packages from the location of a module, so the scripts are copied.
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
