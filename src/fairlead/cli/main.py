"""`fairlead COMMAND ...`: finds the command, runs it, and makes an exit code of what happened.

Each command is a module with a `run(argv) -> int`, imported only when it is asked for: a server
that starts through `fairlead serve` does not pay for the others.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

from .failed import FAILED, INTERRUPTED, USAGE, Failed, styled

__all__ = ["main"]

_COMMANDS = {
    "serve": "run a server of yours, on stdin and stdout or on the network",
    "list": "list the servers that programs on this machine have configured",
    "mcp": "add, remove, test, approve, import and export them",
    "doctor": "find out what is wrong with them, and what to do",
    "tools": "list the tools of a server",
    "call": "call a tool of a server",
    "resources": "list what a server has to read",
    "read": "read a resource of a server",
    "prompts": "list the prompts of a server",
    "prompt": "fill in a prompt of a server",
    "complete": "ask what a server suggests for an argument",
    "ping": "see whether a server answers",
    "proxy": "stand between clients and a server, whatever either of them speaks",
    "gateway": "serve many servers as one, as a file describes them",
    "up": "serve everything that is configured here as one",
    "record": "stand between them in the same way, and keep what they say on a tape",
    "tape": "list, show, compare, export and trim tapes",
    "replay": "serve what is on a tape, or play it to a server and compare",
    "tap": "run a server as it is, and listen to what is said",
    "watch": "show what clients and servers say, while they do",
    "intercept": "decide about messages that a gateway holds",
    "session": "list the clients of a gateway, and end their sessions",
    "rules": "check a file of rules, or try it on a tape",
    "lock": "write down what tools are, and see whether they have changed",
    "paths": "show where our files are",
    "demo": "watch a client and a server talk, in both eras of the protocol",
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
    except Failed as failed:
        failed.show()
        return failed.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as exc:  # `--help` of a command
        return exc.code if isinstance(exc.code, int) else 0


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        return _dispatch([argv[1], "--help"]) if len(argv) > 1 else _help()
    if name in ("-V", "--version"):
        from .. import __version__

        print(f"fairlead {__version__}")
        return 0
    if name not in _COMMANDS:
        raise _unknown(name)
    code: int = import_module(f".{name}", __package__).run(argv[1:])
    sys.stdout.flush()  # here, where a reader that has gone can still be handled
    return code


def _help() -> int:
    def heading(text: str) -> str:
        return styled(text, "1", sys.stdout)

    width = max(map(len, _COMMANDS))
    lines = [f"  {styled(n.ljust(width), '36', sys.stdout)}  {s}" for n, s in _COMMANDS.items()]
    print(
        "Fairlead: one runtime for the Model Context Protocol.\n",
        f"{heading('usage:')} fairlead COMMAND ...\n",
        heading("commands:"),
        *lines,
        f"\n{heading('examples:')}",
        _EXAMPLES,
        "`fairlead COMMAND --help` says more; `fairlead --version` says which one this is.",
        sep="\n",
    )
    return 0


def _unknown(name: str) -> Failed:
    from difflib import get_close_matches

    if name.startswith("-"):
        return Failed(
            f"There is no option {name}", hint="`fairlead --help` lists what there is", code=USAGE
        )
    from .mcp import COMMANDS as managing

    near = get_close_matches(name, _COMMANDS, 1, 0.5)
    hint = f"did you mean `fairlead {near[0]}`?" if near else f"there are {', '.join(_COMMANDS)}"
    if name in managing:
        hint = f"did you mean `fairlead mcp {name}`?"
    return Failed(f"There is no command {name!r}", hint=hint, code=USAGE)


def _nobody_reads() -> int:
    """Whoever read our output has gone, as `| head` does; nothing more may be written to it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return FAILED
