"""The host programs whose files we read, strongest first (CFG-04)."""

from . import (
    claude,
    cline,
    codex,
    continue_dev,
    cursor,
    desktop,
    gemini,
    goose,
    mcporter,
    omp,
    opencode,
    own,
    plain,
    root,
    vscode,
    windsurf,
    zed,
)
from .host import Host, Place
from .reading import find_servers

__all__ = ["HOSTS", "Host", "Place", "find_servers"]

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
