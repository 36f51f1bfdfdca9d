"""The relays under test, and the commands that start them: by where clients come in, and where on.

Commands have places in them: `{server}` is a server's command, `{url}` its address, `{port}` where
the relay shall listen.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import cache

from . import envs
from .runtimes import Command, Runtime

__all__ = ["COPY", "FAIRLEAD", "Route", "filled", "relays"]

Route = str  # "stdio-stdio", "http-stdio" or "stdio-http"

_RELAYS = envs.BENCH / "relays"
FAIRLEAD: Command = (sys.executable, "-m", "fairlead", "proxy")
COPY: Command = (sys.executable, str(_RELAYS / "copy_relay.py"), "{server}")


@cache
def relays() -> tuple[dict[str, tuple[Runtime, Mapping[Route, Command]]], dict[str, str]]:
    """Every relay that can be set up here, with its commands; and for the others the reason."""
    builders = {
        "fairlead": _fairlead,
        "fastmcp": _fastmcp,
        "mcp-proxy": _mcp_proxy,
        "supergateway": _supergateway,
        "bare": _bare,
    }
    found, missing = {}, {}
    for name, build in builders.items():
        try:
            found[name] = build()
        except envs.Missing as reason:
            missing[name] = str(reason)
    return found, missing


def filled(command: Command, *, server: Command = (), url: str = "") -> Command:
    """The command with its places filled in; a port is left to whoever starts it."""
    words: list[str] = []
    for word in command:
        if word == "{server}":
            words += server
        else:
            words.append(word.replace("{line}", shlex.join(server)).replace("{url}", url))
    return tuple(words)


def _fairlead() -> tuple[Runtime, Mapping[Route, Command]]:
    return Runtime(name="fairlead", version=""), {
        "stdio-stdio": (*FAIRLEAD, "--", "{server}"),
        "http-stdio": (*FAIRLEAD, "--listen", "http://127.0.0.1:{port}", "--", "{server}"),
        "stdio-http": (*FAIRLEAD, "{url}"),
    }


def _fastmcp() -> tuple[Runtime, Mapping[Route, Command]]:
    program = (str(envs.python("fastmcp")), str(_RELAYS / "fastmcp_relay.py"))
    return Runtime(name="fastmcp", version=""), {
        "stdio-stdio": (*program, "stdio", "{server}"),
        "http-stdio": (*program, "http", "{port}", "{server}"),
        "stdio-http": (*program, "stdio", "{url}"),
    }


def _mcp_proxy() -> tuple[Runtime, Mapping[Route, Command]]:
    program = str(envs.python("mcp-proxy").with_name("mcp-proxy"))
    return Runtime(name="mcp-proxy", version=""), {
        "http-stdio": (program, "--port", "{port}", "--", "{server}"),
        "stdio-http": (program, "--transport", "streamablehttp", "{url}"),
    }


def _supergateway() -> tuple[Runtime, Mapping[Route, Command]]:
    home = envs.node("supergateway", envs.SUPERGATEWAY)
    program = ("node", str(home / "node_modules" / "supergateway" / "dist" / "index.js"))
    # Without --stateful it starts the server anew for each request.
    http = ("--outputTransport", "streamableHttp", "--stateful", "--port", "{port}")
    commands = {
        "http-stdio": (*program, "--logLevel", "none", "--stdio", "{line}", *http),
        "stdio-http": (*program, "--logLevel", "none", "--streamableHttp", "{url}"),
    }
    return Runtime(name="supergateway", version="", warm_up=4, warm_calls=5_000), commands


def _bare() -> tuple[Runtime, Mapping[Route, Command]]:
    bare = (sys.executable, str(_RELAYS / "bare_relay.py"), "{server}")
    return Runtime(name="bare", version=""), {"stdio-stdio": bare}
