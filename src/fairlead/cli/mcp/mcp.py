"""`fairlead mcp`: management of configured servers."""

from collections.abc import Sequence

from ..command_group import run_one

__all__ = ["COMMANDS", "run"]

# For each command: its description, and the module that contains `run_NAME`.
COMMANDS = {
    "list": ("list all servers and their state", "mcp.list"),
    "add": ("add a server to your file, or to the project's file", "mcp.edit_commands"),
    "remove": ("remove a server from your file, or from the project's file", "mcp.edit_commands"),
    "enable": ("enable a server, whichever file configures it", "mcp.edit_commands"),
    "disable": ("disable a server, whichever file configures it", "mcp.edit_commands"),
    "test": ("connect to a server step by step", "mcp.doctor"),
    "why": ("show where a server is configured and what it needs", "mcp.why"),
    "import": ("copy servers from another program into your file", "mcp.import_export"),
    "export": ("print servers in the format of another program", "mcp.import_export"),
    "approve": ("approve a server in a project file", "mcp.approve"),
    "revoke": ("revoke the approval of a server", "mcp.approve"),
    "reauth": ("log in to a server again, replacing its stored login", "auth.login"),
    "unauth": ("delete the stored login of a server and revoke it", "auth.login"),
    "resources": (
        "list the resources of a server or of a running gateway",
        "gateway.running_gateway",
    ),
    "prompts": ("list the prompts of a server or of a running gateway", "gateway.running_gateway"),
    "reload": ("make a running gateway read its files again", "gateway.running_gateway"),
    "reconnect": ("make a running gateway reconnect a server", "gateway.running_gateway"),
    "notifications": (
        "show recent notifications from a running gateway's servers",
        "gateway.running_gateway",
    ),
}


_ABOUT = """\
Manage the MCP servers that are configured on this machine. Only Fairlead's own files
are changed, never those of other programs."""


def run(argv: Sequence[str]) -> int:
    return run_one("mcp", COMMANDS, _ABOUT, argv)
