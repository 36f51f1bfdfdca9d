"""`fairlead mcp ...`: the servers that are configured, and our own files that say so."""

from collections.abc import Sequence

from .groups import run_one

__all__ = ["COMMANDS", "run"]

# What it does, and the module whose `run_...` does it.
COMMANDS = {
    "list": ("list them all, and how they are", "list"),
    "add": ("add one to your file, or to the project's", "mcp_add"),
    "remove": ("remove one from it", "mcp_switch"),
    "enable": ("use one again, wherever it is configured", "mcp_switch"),
    "disable": ("hide one, wherever it is configured", "mcp_switch"),
    "test": ("connect to one, step by step", "mcp_test"),
    "why": ("say where one comes from, and what it needs", "mcp_why"),
    "import": ("copy servers of another program into your file", "mcp_import"),
    "export": ("print servers as another program wants them", "mcp_export"),
    "approve": ("let a server of a project's file run", "mcp_trust"),
    "revoke": ("take that back", "mcp_trust"),
    "resources": ("list what one has to read, or all of a running gateway", "mcp_live"),
    "prompts": ("list the prompts of one, or of all", "mcp_live"),
    "reload": ("have a running gateway look at everything again", "mcp_live"),
    "reconnect": ("have it connect one anew", "mcp_live"),
    "notifications": ("show what its servers told of late", "mcp_live"),
}


_ABOUT = """\
Manage the MCP servers that are configured on this machine. Only our own files are
changed, never those of other programs."""


def run(argv: Sequence[str]) -> int:
    return run_one("mcp", COMMANDS, _ABOUT, argv)
