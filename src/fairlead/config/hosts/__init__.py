"""The host programs whose files we read, strongest first (CFG-04)."""

from ..host_files.host import ConfigLocation, Host
from ..host_files.read_host import find_servers
from . import (
    claude_code as claude,
)
from . import (
    claude_desktop as desktop,
)
from . import (
    cline,
    codex,
    continue_dev,
    cursor,
    gemini,
    goose,
    mcporter,
    opencode,
    vscode,
    windsurf,
    zed,
)
from . import (
    fairlead as own,
)
from . import (
    oh_my_pi as omp,
)
from . import (
    project_mcp_json as root,
)
from . import (
    simple_hosts as plain,
)

__all__ = ["HOSTS", "ConfigLocation", "Host", "find_servers"]

HOSTS: tuple[Host, ...] = (
    own.PROJECT,
    own.USER,
    claude.CODE,
    desktop.DESKTOP,
    codex.CODEX,
    gemini.GEMINI,
    opencode.OPENCODE,
    cursor.CURSOR,
    windsurf.WINDSURF,
    vscode.VSCODE,
    vscode.INSIDERS,
    zed.ZED,
    omp.OMP,
    cline.CLINE,
    cline.ROO,
    goose.GOOSE,
    continue_dev.CONTINUE,
    gemini.QWEN,
    opencode.KILO,
    codex.GROK,
    codex.VIBE,
    windsurf.ANTIGRAVITY,
    *plain.HOSTS,
    mcporter.MCPORTER,
    root.MCP_JSON,
    root.DOT_MCP_JSON,
)
