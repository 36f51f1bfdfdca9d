"""How other programs are told of a gateway: one line for each, to be pasted."""

import json
import shutil
import sys
from pathlib import Path

from ..client.entries import MCPHttpServerConfig, MCPServerEntry, MCPStdioServerConfig
from ..manager.export import export
from ..observe.display import json_text
from .suggest import quoted, suggest_any

__all__ = ["PLACEHOLDER", "how_to_connect"]

_NAME = "fairlead"
_TOKEN = "${FAIRLEAD_TOKEN}"
PLACEHOLDER = "TOKEN"  # for one that the user has chosen


def how_to_connect(url: str, *, token: str | None) -> list[tuple[str, str]]:
    """Pairs of a program and what to type, or to put into its file. `token` is shown, if any."""
    tools = suggest_any("fairlead", "tools", url)
    if token is not None:
        tools += f" --token {quoted(token)}"
    if not url.startswith("http"):
        return [("Fairlead", tools)]
    header = "" if token is None else f" --header {quoted(f'Authorization: Bearer {token}')}"
    sent = _TOKEN if token == PLACEHOLDER else token
    headers = {} if token is None else {"Authorization": f"Bearer {sent}"}
    remote = MCPHttpServerConfig(url=url, headers=headers)
    env = {} if token is None else {"FAIRLEAD_TOKEN": token}
    bridge = MCPStdioServerConfig(command=_ourselves(), args=["proxy", url], env=env)
    return [
        ("Claude Code", f"claude mcp add --transport http {_NAME} {quoted(url)}{header}"),
        ("Cursor", _line(remote, "cursor")),
        ("VS Code", _line(remote, "vscode")),
        ("Claude Desktop", _line(bridge, "claude-desktop")),
        ("Fairlead", tools),
    ]


def _line(entry: MCPServerEntry, program: str) -> str:
    return json_text(json.loads(export(entry, program, name=_NAME)))


def _ourselves() -> str:
    """The whole path: programs with windows do not know the PATH of a shell."""
    script = Path(sys.executable).with_name("fairlead")
    return str(script) if script.exists() else shutil.which("fairlead") or "fairlead"
