"""`fairlead COMMAND ...`: finds the command, runs it, and makes an exit code of what happened.

Each command is a function `run(argv) -> int` of a module that is imported only when it is asked
for: a server that starts through `fairlead serve` does not pay for the others.
"""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from .command_group import run_one
from .framework.command_errors import FAILED, INTERRUPTED, USAGE, CommandError

__all__ = ["main"]

_COMMANDS = {
    "serve": ("run a server of yours, on stdin and stdout or on the network", "serve.serve"),
    "list": ("list the servers that programs on this machine have configured", "mcp.list"),
    "mcp": ("add, remove, test, approve, import and export them", "mcp.mcp"),
    "doctor": ("find out what is wrong with them, and what to do", "mcp.doctor"),
    "tools": ("list the tools of a server", "client.simple_commands"),
    "call": ("call a tool of a server", "client.call"),
    "resources": ("list what a server has to read", "client.simple_commands"),
    "read": ("read a resource of a server", "client.simple_commands"),
    "prompts": ("list the prompts of a server", "client.simple_commands"),
    "prompt": ("fill in a prompt of a server", "client.simple_commands"),
    "complete": ("ask what a server suggests for an argument", "client.simple_commands"),
    "ping": ("see whether a server answers", "client.simple_commands"),
    "proxy": (
        "stand between clients and a server, whatever either of them speaks",
        "gateway.proxy",
    ),
    "gateway": ("serve many servers as one, as a file describes them", "gateway.gateway_command"),
    "up": ("serve everything that is configured here as one", "gateway.gateway_command"),
    "record": (
        "stand between them in the same way, and keep what they say on a tape",
        "gateway.proxy",
    ),
    "tape": ("list, show, compare, export and trim tapes", "recording.tape"),
    "replay": ("serve what is on a tape, or play it to a server and compare", "recording.replay"),
    "tap": ("run a server as it is, and listen to what is said", "tap.tap"),
    "watch": ("show what clients and servers say, while they do", "tap.watch"),
    "intercept": ("decide about messages that a gateway holds", "gateway.running_gateway"),
    "session": (
        "list the clients of a gateway, and end their sessions",
        "gateway.running_gateway",
    ),
    "rules": ("check a file of rules, or try it on a tape", "policy.rules"),
    "lock": ("write down what tools are, and see whether they have changed", "policy.lock"),
    "paths": ("show where our files are", "mcp.paths_command"),
    "demo": ("watch a client and a server talk, in both eras of the protocol", "demo"),
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
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a narrow encoding is no reason to fail
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
    except Exception as exc:
        from ..errors import ConfigError

        if not isinstance(exc, ConfigError):
            raise
        CommandError(str(exc)).show()  # a file that the command line names is wrong
        return USAGE


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] in ("-V", "--version"):
        from .. import __version__

        print(f"fairlead {__version__}")
        return 0
    about = "Fairlead: one runtime for the Model Context Protocol."
    code = run_one("", _COMMANDS, about, argv, examples=_EXAMPLES, find_elsewhere=_find_elsewhere)
    sys.stdout.flush()  # here, where a reader that has gone can still be handled
    return code


def _find_elsewhere(name: str) -> str | None:
    """Return the command line of a command that `fairlead mcp` has."""
    from .mcp.mcp import COMMANDS

    return f"fairlead mcp {name}" if name in COMMANDS else None


def _nobody_reads() -> int:
    """Whoever read our output has gone, as `| head` does; nothing more may be written to it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return FAILED
