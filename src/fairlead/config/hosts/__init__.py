"""The host programs whose files we read, strongest first (CFG-04)."""

from ..host_files.host import ConfigLocation, Host
from ..host_files.read_host import find_servers
from . import (
    claude_code,
    claude_desktop,
    cline,
    codex,
    continue_dev,
    cursor,
    fairlead,
    gemini,
    goose,
    mcporter,
    oh_my_pi,
    opencode,
    project_mcp_json,
    simple_hosts,
    vscode,
    windsurf,
    zed,
)

__all__ = ["HOSTS", "ConfigLocation", "Host", "find_servers"]

HOSTS: tuple[Host, ...] = (
    fairlead.PROJECT,
    fairlead.USER,
    claude_code.CODE,
    claude_desktop.DESKTOP,
    codex.CODEX,
    gemini.GEMINI,
    opencode.OPENCODE,
    cursor.CURSOR,
    windsurf.WINDSURF,
    vscode.VSCODE,
    vscode.INSIDERS,
    zed.ZED,
    oh_my_pi.OMP,
    cline.CLINE,
    cline.ROO,
    goose.GOOSE,
    continue_dev.CONTINUE,
    gemini.QWEN,
    opencode.KILO,
    codex.GROK,
    codex.VIBE,
    windsurf.ANTIGRAVITY,
    *simple_hosts.HOSTS,
    mcporter.MCPORTER,
    project_mcp_json.MCP_JSON,
    project_mcp_json.DOT_MCP_JSON,
)
