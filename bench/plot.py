"""Plot for the README: calls per second over stdio as bars in an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

__all__ = ["draw"]

_OURS = "fairlead"
_PANELS = {
    ("stdio-server-1", "50 B, one at a time"): "Server, one call at a time",
    ("stdio-server-64", "50 B, 64 in flight"): "Server, 64 calls in flight",
    ("stdio-client-1", "50 B, one at a time"): "Client, one call at a time",
    ("stdio-client-64", "50 B, 64 in flight"): "Client, 64 calls in flight",
}
_NAMES = {
    _OURS: "Fairlead",
    "mcp": "mcp (Python SDK)",
    "fastmcp": "FastMCP",
    "typescript": "TypeScript SDK",
    "bare": "bare uvloop loop",
}

_WIDTH, _LEFT, _RIGHT = 760, 150, 170  # the bars lie between the names and the figures
_BAR, _STEP, _HEAD, _GAP = 16, 24, 30, 22

# An SVG shown by <img> cannot inherit the page's colours, but it sees the reader's preference.
_STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
  .head { font-weight: 600; font-size: 14px; }
  .name { text-anchor: end; }
  text { fill: #1f2328; } .soft { fill: #59636e; } .ours { font-weight: 600; }
  rect { fill: #8c959f; } rect.ours { fill: #0969da; } rect.bare { fill: #d1d9e0; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .soft { fill: #9198a1; }
    rect { fill: #6e7681; } rect.ours { fill: #4493f8; } rect.bare { fill: #3d444d; }
  }
"""


def draw(facts: Mapping[str, Any]) -> str:
    """Return the rows of `latest.json` that have a panel, each on a scale of its own."""
    parts: list[str] = []
    y = 0
    for row in facts["rows"]:
        title = _PANELS.get((row["case"], row["label"]))
        if title and row["runtimes"]:
            panel, y = _panel(row, title, y)
            parts += panel
    note = "echo of 50 bytes over stdio; medians of one interleaved run, × is the median ratio"
    parts.append(f'<text class="soft" x="0" y="{y + 12}">{note}</text>')
    height = y + 20
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}" role="img" '
            'aria-label="Calls per second over stdio, by runtime">',
            f"<style>{_STYLE}</style>",
            *parts,
            "</svg>\n",
        ]
    )


def _panel(row: Mapping[str, Any], title: str, top: int) -> tuple[list[str], int]:
    values = {name: one["median"] for name, one in row["runtimes"].items() if name in _NAMES}
    scale = (_WIDTH - _LEFT - _RIGHT) / max(values.values())
    parts = [f'<text class="head" x="0" y="{top + 16}">{escape(title)}</text>']
    y = top + _HEAD
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        kind = {_OURS: "ours", "bare": "bare"}.get(name, "peer")
        width = max(1, round(value * scale, 1))
        middle = y + _BAR - 4
        ratio = row["times_better"].get(name)
        figure = f"{value:,.0f}/s" + (f"  ({_times(ratio['median'])})" if ratio else "")
        label = escape(_NAMES[name])
        parts += [
            f'<text class="name {kind}" x="{_LEFT - 8}" y="{middle}">{label}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" rx="2"/>',
            f'<text class="{kind}" x="{_LEFT + width + 8}" y="{middle}">{figure}</text>',
        ]
        y += _STEP
    return parts, y + _GAP


def _times(ratio: float) -> str:
    """Format a ratio as `12× slower`, or `2.1× faster` if the peer is faster."""
    turned, word = (ratio, "slower") if ratio >= 1 else (1 / ratio, "faster")
    return f"{turned:.2g}× {word}" if turned < 10 else f"{turned:.0f}× {word}"
