"""Entry point of the command line: finds a command, runs it and returns its exit code.

Each command is a function `run(argv) -> int` in a module that is imported only when the command is
used, so that the modules of other commands do not delay its start.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from .command_group import run_one
from .framework.command_errors import FAILED, INTERRUPTED, USAGE, CommandError

__all__ = ["main"]

_COMMANDS = {
    "serve": ("run your server over stdio or on the network", "serve.serve"),
    "list": ("list the servers configured on this machine", "mcp.list"),
    "mcp": ("add, remove, test, approve, import and export servers", "mcp.mcp"),
    "doctor": ("check the configured servers and suggest fixes", "mcp.doctor"),
    "tools": ("list the tools of a server", "client.simple_commands"),
    "call": ("call a tool of a server", "client.call"),
    "resources": ("list the resources of a server", "client.simple_commands"),
    "read": ("read a resource of a server", "client.simple_commands"),
    "prompts": ("list the prompts of a server", "client.simple_commands"),
    "prompt": ("get a prompt of a server", "client.simple_commands"),
    "complete": ("get completions for an argument from a server", "client.simple_commands"),
    "ping": ("check that a server responds", "client.simple_commands"),
    "login": ("log in to a server that requires OAuth", "auth.login"),
    "logout": ("delete the login of a server and revoke it", "auth.login"),
    "auth": ("show the stored logins", "auth.auth_status"),
    "proxy": (
        "connect clients to a server over any transport and protocol revision",
        "gateway.proxy",
    ),
    "gateway": ("serve many servers as one, configured by a file", "gateway.gateway_command"),
    "up": ("serve all configured servers as one", "gateway.gateway_command"),
    "status": ("show the servers of a running gateway and their state", "gateway.running_gateway"),
    "connect-hints": (
        "show how other programs connect to a gateway or server",
        "gateway.connect_hints",
    ),
    "record": (
        "run a proxy that records all messages on a tape",
        "gateway.proxy",
    ),
    "tape": ("list, show, compare, export and trim tapes", "recording.tape"),
    "replay": ("serve a tape, or replay it to a server and compare", "recording.replay"),
    "tap": ("run a stdio server unchanged and observe its messages", "tap.tap"),
    "watch": ("show the messages of a tap or a gateway live", "tap.watch"),
    "intercept": ("resume, change or block messages held by a gateway", "gateway.running_gateway"),
    "session": (
        "list and end the sessions of a gateway",
        "gateway.running_gateway",
    ),
    "rules": ("check a rules file, or test it with a tape", "policy.rules"),
    "lock": ("record the definitions of tools and detect changes", "policy.lock"),
    "paths": ("show the paths of Fairlead's files", "mcp.paths_command"),
    "demo": ("show a client and a server communicating in both protocol eras", "demo"),
}

_EXAMPLES = """\
  fairlead demo
  fairlead serve server.py
  fairlead tools -- python server.py
  fairlead call add a=1 b=2 -- python server.py
  fairlead serve server.py --http 8080
  fairlead call add a=1 b=2 http://127.0.0.1:8080
  fairlead mcp add notes -- python server.py
  fairlead call notes add a=1 b=2
  fairlead up
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Server text must not make printing fail in a locale with a limited encoding.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except CommandError as failed:
        failed.show()
        return failed.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as exc:  # `--help` of a command
        return exc.code if isinstance(exc.code, int) else 0
    # Imported here: most commands raise no `ConfigError`, and every import delays the start.
    except Exception as exc:
        from ..errors import ConfigError

        if not isinstance(exc, ConfigError):
            raise
        CommandError(str(exc)).show()  # a file named on the command line is invalid
        return USAGE


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] in ("-V", "--version"):
        from .. import __version__

        print(f"fairlead {__version__}")
        return 0
    about = "Fairlead: one runtime for the Model Context Protocol."
    code = run_one("", _COMMANDS, about, argv, examples=_EXAMPLES, find_elsewhere=_find_elsewhere)
    # Flushed here, where a closed pipe is still handled as `BrokenPipeError`.
    sys.stdout.flush()
    return code


def _find_elsewhere(name: str) -> str | None:
    """Return the command line for a subcommand of `fairlead mcp` or a command of FastMCP."""
    from .mcp.mcp import COMMANDS

    return f"fairlead mcp {name}" if name in COMMANDS else _COMMANDS_OF_FASTMCP.get(name)


_COMMANDS_OF_FASTMCP = {
    "dev": "fairlead tools -- python server.py",
    "inspect": "fairlead tools -- python server.py",
    "install": "fairlead mcp add NAME -- python server.py",
    "run": "fairlead serve server.py",
    "version": "fairlead --version",
}


def _nobody_reads() -> int:
    """Redirect stdout to the null device after its reader closed the pipe, as `| head` does.

    Otherwise the interpreter reports a second `BrokenPipeError` when it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return FAILED
