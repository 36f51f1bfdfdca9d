"""Host programs whose configuration files are read, highest precedence first (CFG-04).

Most are listed in `simple_hosts.py`; a program with special rules has its own module.
"""

from ..host_files.host import ConfigLocation, Host
from ..host_files.read_host import find_servers
from . import (
    claude_code,
    codex,
    continue_dev,
    fairlead,
    gemini,
    oh_my_pi,
    opencode,
    simple_hosts,
    vscode,
)

__all__ = ["HOSTS", "ConfigLocation", "Host", "find_servers"]

HOSTS: tuple[Host, ...] = (
    fairlead.PROJECT,
    fairlead.USER,
    claude_code.CODE,
    simple_hosts.CLAUDE_DESKTOP,
    codex.CODEX,
    gemini.GEMINI,
    opencode.OPENCODE,
    simple_hosts.CURSOR,
    simple_hosts.WINDSURF,
    vscode.VSCODE,
    vscode.INSIDERS,
    simple_hosts.ZED,
    oh_my_pi.OMP,
    simple_hosts.CLINE,
    simple_hosts.ROO,
    simple_hosts.GOOSE,
    continue_dev.CONTINUE,
    gemini.QWEN,
    opencode.KILO,
    codex.GROK,
    codex.VIBE,
    simple_hosts.ANTIGRAVITY,
    *simple_hosts.HOSTS,
    simple_hosts.MCPORTER,
    simple_hosts.MCP_JSON,
    simple_hosts.DOT_MCP_JSON,
)
