"""`fairlead mcp ...`: the servers that are configured, and our own files that say so."""

from collections.abc import Sequence

from ..command_group import run_one

__all__ = ["COMMANDS", "run"]

# What it does, and the module whose `run_...` does it.
COMMANDS = {
    "list": ("list them all, and how they are", "fairlead.cli.mcp.list"),
    "add": ("add one to your file, or to the project's", "fairlead.cli.mcp.add"),
    "remove": ("remove one from it", "fairlead.cli.mcp.enable"),
    "enable": ("use one again, wherever it is configured", "fairlead.cli.mcp.enable"),
    "disable": ("hide one, wherever it is configured", "fairlead.cli.mcp.enable"),
    "test": ("connect to one, step by step", "fairlead.cli.mcp.test"),
    "why": ("say where one comes from, and what it needs", "fairlead.cli.mcp.why"),
    "import": ("copy servers of another program into your file", "fairlead.cli.mcp.import_"),
    "export": ("print servers as another program wants them", "fairlead.cli.mcp.export"),
    "approve": ("let a server of a project's file run", "fairlead.cli.mcp.approve"),
    "revoke": ("take that back", "fairlead.cli.mcp.approve"),
    "resources": (
        "list what one has to read, or all of a running gateway",
        "fairlead.cli.mcp.running_gateway",
    ),
    "prompts": ("list the prompts of one, or of all", "fairlead.cli.mcp.running_gateway"),
    "reload": (
        "have a running gateway look at everything again",
        "fairlead.cli.mcp.running_gateway",
    ),
    "reconnect": ("have it connect one anew", "fairlead.cli.mcp.running_gateway"),
    "notifications": ("show what its servers told of late", "fairlead.cli.mcp.running_gateway"),
}


_ABOUT = """\
Manage the MCP servers that are configured on this machine. Only our own files are
changed, never those of other programs."""


def run(argv: Sequence[str]) -> int:
    return run_one("mcp", COMMANDS, _ABOUT, argv)
