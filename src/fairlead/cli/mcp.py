"""`fairlead mcp ...`: the servers that are configured, and our own files that say so."""

from collections.abc import Sequence

from .groups import run_one

__all__ = ["COMMANDS", "run"]

# What it does, and the module whose `run_...` does it.
COMMANDS = {
    "list": ("list them all, and how they are", "fairlead.cli.list"),
    "add": ("add one to your file, or to the project's", "fairlead.cli.mcp_add"),
    "remove": ("remove one from it", "fairlead.cli.mcp_switch"),
    "enable": ("use one again, wherever it is configured", "fairlead.cli.mcp_switch"),
    "disable": ("hide one, wherever it is configured", "fairlead.cli.mcp_switch"),
    "test": ("connect to one, step by step", "fairlead.cli.mcp_test"),
    "why": ("say where one comes from, and what it needs", "fairlead.cli.mcp_why"),
    "import": ("copy servers of another program into your file", "fairlead.cli.mcp_import"),
    "export": ("print servers as another program wants them", "fairlead.cli.mcp_export"),
    "approve": ("let a server of a project's file run", "fairlead.cli.mcp_trust"),
    "revoke": ("take that back", "fairlead.cli.mcp_trust"),
    "resources": (
        "list what one has to read, or all of a running gateway",
        "fairlead.cli.mcp_live",
    ),
    "prompts": ("list the prompts of one, or of all", "fairlead.cli.mcp_live"),
    "reload": ("have a running gateway look at everything again", "fairlead.cli.mcp_live"),
    "reconnect": ("have it connect one anew", "fairlead.cli.mcp_live"),
    "notifications": ("show what its servers told of late", "fairlead.cli.mcp_live"),
}


_ABOUT = """\
Manage the MCP servers that are configured on this machine. Only our own files are
changed, never those of other programs."""


def run(argv: Sequence[str]) -> int:
    return run_one("mcp", COMMANDS, _ABOUT, argv)
