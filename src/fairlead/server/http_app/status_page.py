"""HTML page that lists the tools, resources and prompts of a server."""

import json
from html import escape as escape_html
from typing import Any

from ...observe.safe_display import safe
from ..server_config import MCPServerConfig

__all__ = ["render_page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --accent: #0a6c74; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --accent: #5cc8cf; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 3rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; }
code, pre { font: .9em ui-monospace, monospace; }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto; }
dl > div { border-top: 1px solid var(--line); padding: .6rem 0; }
dt code { color: var(--accent); font-weight: 600; } dd { margin: .2rem 0 0; white-space: pre-line; }
.dim { color: var(--dim); } table { border-collapse: collapse; font-size: .9em; margin: .3rem 0; }
td { padding: .1rem 1.2rem .1rem 0; vertical-align: top; }
"""
_LINKS = ("tools", "resources", "prompts", "health", "openapi.json")


def render_page(config: MCPServerConfig, url: str, offered: dict[str, list[Any]]) -> str:
    """Return the complete page. All texts of the server are escaped."""
    entry = json.dumps({"mcpServers": {config.name: {"type": "http", "url": url}}}, indent=2)
    base = url.rpartition("/")[0]
    links = " · ".join(f'<a href="{_escape(base)}/{name}">{name}</a>' for name in _LINKS)
    about = f"<p>{_escape(config.instructions)}</p>" if config.instructions else ""
    sections = [
        _section("Tools", [_tool(tool) for tool in offered["tools"]]),
        _section("Resources", [_named(r, r["uri"]) for r in offered["resources"]]),
        _section(
            "Resource templates",
            [_named(r, r["uriTemplate"]) for r in offered["resourceTemplates"]],
        ),
        _section("Prompts", [_prompt(prompt) for prompt in offered["prompts"]]),
    ]
    title = _escape(config.title or config.name)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{title}</h1><p class="dim">{_escape(config.name)} {_escape(config.version)}, '
        f"a Model Context Protocol server</p>{about}"
        f"<h2>Connect</h2><p>The endpoint is <code>{_escape(url)}</code>. "
        f"In the configuration of most clients:</p><pre>{_escape(entry)}</pre>"
        f'{"".join(sections)}<p class="dim">As JSON: {links}</p></body></html>\n'
    )


def _escape(text: str) -> str:
    """Escape HTML and characters that hide text or change its direction."""
    return escape_html(safe(text))


def _section(title: str, items: list[str]) -> str:
    if not items:
        return ""
    return f'<h2>{title} <span class="dim">{len(items)}</span></h2><dl>{"".join(items)}</dl>'


def _named(thing: dict[str, Any], name: str, more: str = "") -> str:
    title = thing.get("title") or (thing["name"] if thing["name"] != name else "")
    about = _escape(thing.get("description") or "")
    return (
        f'<div><dt><code>{_escape(name)}</code> <span class="dim">{_escape(title)}</span></dt>'
        f"<dd>{about}{more}</dd></div>"
    )


def _tool(tool: dict[str, Any]) -> str:
    schema = tool["inputSchema"]
    required = set(schema.get("required", ()))
    rows = [
        _row(name, _kind(about) + ("" if name in required else ", optional"), _description(about))
        for name, about in schema.get("properties", {}).items()
    ]
    return _named(tool, tool["name"], _table(rows))


def _prompt(prompt: dict[str, Any]) -> str:
    rows = [
        _row(a["name"], "" if a.get("required") else "optional", a.get("description") or "")
        for a in prompt.get("arguments", ())
    ]
    return _named(prompt, prompt["name"], _table(rows))


def _table(rows: list[str]) -> str:
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _row(name: str, kind: str, about: str) -> str:
    return (
        f'<tr><td><code>{_escape(name)}</code></td><td class="dim">{_escape(kind)}</td>'
        f"<td>{_escape(about)}</td></tr>"
    )


def _kind(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    return str(kind or "any")


def _description(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""
