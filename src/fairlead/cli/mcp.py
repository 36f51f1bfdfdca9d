"""`fairlead mcp ...`: the servers that are configured, and our own files that say so."""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from .failed import USAGE, Failed, styled

__all__ = ["run"]

# What it does, and the module whose `run_...` does it.
_COMMANDS = {
    "list": ("list them all, and how they are", "list"),
    "add": ("add one to your file, or to the project's", "mcp_add"),
    "remove": ("remove one from it", "mcp_remove"),
    "enable": ("use one again, wherever it is configured", "mcp_switch"),
    "disable": ("hide one, wherever it is configured", "mcp_switch"),
    "test": ("connect to one, step by step", "mcp_test"),
    "why": ("say where one comes from, and what it needs", "mcp_why"),
    "import": ("copy servers of another program into your file", "mcp_import"),
    "export": ("print servers as another program wants them", "mcp_export"),
    "approve": ("let a server of a project's file run", "mcp_trust"),
    "revoke": ("take that back", "mcp_trust"),
    "resources": ("list what one has to read", "resources"),
    "prompts": ("list the prompts of one", "prompts"),
}


def run(argv: Sequence[str]) -> int:
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "help"):
        return run([argv[1], "--help"]) if len(argv) > 1 else _help()
    if name not in _COMMANDS:
        near = get_close_matches(name, _COMMANDS, 1, 0.5)
        known = f"there are {', '.join(_COMMANDS)}"
        hint = f"did you mean `fairlead mcp {near[0]}`?" if near else known
        raise Failed(f"There is no command 'mcp {name}'", hint=hint, code=USAGE)
    module = import_module(f".{_COMMANDS[name][1]}", __package__)
    function = getattr(module, f"run_{name}", None) or module.run
    code: int = function(argv[1:])
    return code


def _help() -> int:
    width = max(map(len, _COMMANDS))
    print("usage: fairlead mcp COMMAND ...\n")
    print("Manage the MCP servers that are configured on this machine. Only our own files are")
    print("changed, never those of other programs.\n")
    print(styled("commands:", "1", sys.stdout))
    for name, (about, _) in _COMMANDS.items():
        print(f"  {styled(name.ljust(width), '36', sys.stdout)}  {about}")
    print("\n`fairlead mcp COMMAND --help` says more.")
    return 0
