"""Commands with commands of their own: found, run, and listed in their help."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module

from .failed import USAGE, Failed, styled

__all__ = ["run_one"]


def run_one(
    group: str, commands: Mapping[str, tuple[str, str]], about: str, argv: Sequence[str]
) -> int:
    """Run one command of a group.

    `commands` says of each what it does, and which module does it: with its `run_NAME`, or `run`.

    Raises:
        Failed: there is no such command.
    """
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        if len(argv) > 1:
            return run_one(group, commands, about, [argv[1], "--help"])
        return _help(group, commands, about)
    if name not in commands:
        near = get_close_matches(name, commands, 1, 0.5)
        known = f"there are {', '.join(commands)}"
        hint = f"did you mean `fairlead {group} {near[0]}`?" if near else known
        raise Failed(f"There is no command '{group} {name}'", hint=hint, code=USAGE)
    module = import_module(f".{commands[name][1]}", __package__)
    function = getattr(module, f"run_{name}", None) or module.run
    code: int = function(argv[1:])
    return code


def _help(group: str, commands: Mapping[str, tuple[str, str]], about: str) -> int:
    width = max(map(len, commands))
    print(f"usage: fairlead {group} COMMAND ...\n")
    print(f"{about}\n")
    print(styled("commands:", "1", sys.stdout))
    for name, (does, _) in commands.items():
        print(f"  {styled(name.ljust(width), '36', sys.stdout)}  {does}")
    print(f"\n`fairlead {group} COMMAND --help` says more.")
    return 0
