"""`fairlead tape ...`: conversations that were recorded."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from .failed import USAGE, Failed, styled

__all__ = ["run"]

# What it does, and the module whose `run_...` does it.
_COMMANDS = {
    "list": ("list them", "tape_listing"),
    "show": ("show what is on one, a line for each message", "tape_listing"),
    "export": ("make an HTTP archive (HAR) or a test for pytest of one", "tape_export"),
    "diff": ("show where two of them differ, but for time and ids", "tape_diff"),
    "trim": ("keep a part of one", "tape_changing"),
    "delete": ("delete them", "tape_changing"),
}


def run(argv: Sequence[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        return run([argv[1], "--help"]) if len(argv) > 1 else _help()
    if name not in _COMMANDS:
        near = get_close_matches(name, _COMMANDS, 1, 0.5)
        known = f"there are {', '.join(_COMMANDS)}"
        hint = f"did you mean `fairlead tape {near[0]}`?" if near else known
        raise Failed(f"There is no command 'tape {name}'", hint=hint, code=USAGE)
    module = import_module(f".{_COMMANDS[name][1]}", __package__)
    code: int = getattr(module, f"run_{name}")(argv[1:])
    return code


def _help() -> int:
    width = max(map(len, _COMMANDS))
    print("usage: fairlead tape COMMAND ...\n")
    print("Look at conversations that were recorded, with `fairlead record` or a gateway. A tape")
    print("is named, or given by its path.\n")
    print(styled("commands:", "1", sys.stdout))
    for name, (about, _) in _COMMANDS.items():
        print(f"  {styled(name.ljust(width), '36', sys.stdout)}  {about}")
    print("\n`fairlead tape COMMAND --help` says more.")
    return 0
