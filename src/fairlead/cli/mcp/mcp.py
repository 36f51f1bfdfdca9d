"""`fairlead mcp ...`: the servers that are configured, and our own files that say so."""

from collections.abc import Sequence

from ..command_group import run_one

__all__ = ["COMMANDS", "run"]

# What it does, and the module whose `run_...` does it.
COMMANDS = {
    "list": ("list them all, and how they are", "mcp.list"),
    "add": ("add one to your file, or to the project's", "mcp.edit_commands"),
    "remove": ("remove one from it", "mcp.edit_commands"),
    "enable": ("use one again, wherever it is configured", "mcp.edit_commands"),
    "disable": ("hide one, wherever it is configured", "mcp.edit_commands"),
    "test": ("connect to one, step by step", "mcp.doctor"),
    "why": ("say where one comes from, and what it needs", "mcp.why"),
    "import": ("copy servers of another program into your file", "mcp.import_export"),
    "export": ("print servers as another program wants them", "mcp.import_export"),
    "approve": ("let a server of a project's file run", "mcp.approve"),
    "revoke": ("take that back", "mcp.approve"),
    "resources": (
        "list what one has to read, or all of a running gateway",
        "gateway.running_gateway",
    ),
    "prompts": ("list the prompts of one, or of all", "gateway.running_gateway"),
    "reload": ("have a running gateway look at everything again", "gateway.running_gateway"),
    "reconnect": ("have it connect one anew", "gateway.running_gateway"),
    "notifications": ("show what its servers told of late", "gateway.running_gateway"),
}


_ABOUT = """\
Manage the MCP servers that are configured on this machine. Only our own files are
changed, never those of other programs."""


def run(argv: Sequence[str]) -> int:
    return run_one("mcp", COMMANDS, _ABOUT, argv)
