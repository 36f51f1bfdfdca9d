"""Where the demo plays: the wire, what it means, and how it went, told apart by looks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.highlighter import JSONHighlighter
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .output import safe
from .rendering import Page
from .tools import arguments_of

__all__ = ["Stage"]

_ROWS = 2  # of a message on the wire; the rest of a long one is left out
_INDENT = 4


class Stage:
    """Shows a conversation as it happens."""

    def __init__(self) -> None:
        self._page = Page()
        self._json = JSONHighlighter()
        self._quiet = False

    def era(self, version: str, what: str) -> None:
        title = Text.assemble((version, "bold"), f"  {what}")
        self._page.print()
        self._page.print(Rule(title, align="left", style="blue"))

    def step(self, title: str) -> None:
        self._page.print()
        self._page.print(Text(title, "bold"))

    def wire(self, arrow: str, line: bytes) -> None:
        """A message on the wire, shortened."""
        if self._quiet:
            return
        style = "bold magenta" if arrow == "→" else "bold cyan"
        for row in _fold(safe(line.decode("utf-8", "replace")), self._page.width - _INDENT):
            shown = Text(row)
            self._json.highlight(shown)
            self._page.print(Text.assemble((f"  {arrow} ", style), shown))
            arrow = " "

    def heard(self, kind: str, text: str) -> None:
        """Something that a callback was told."""
        self._page.print(Text.assemble("      ", (f"{kind}: ", "yellow"), safe(text)))

    def outcome(self, *lines: str, good: bool = True) -> None:
        mark, style = ("✓", "green") if good else ("✗", "red")
        for line in lines:
            self._page.print(
                Text.assemble(("  " + mark + " ", "bold " + style), (safe(line), style))
            )
            mark = " "

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        table = Table(
            "tool", "arguments (* required)", "what it does", box=SIMPLE_HEAD, show_edge=False
        )
        for tool in tools:
            names = [name + "*" * required for name, required, _, _ in arguments_of(tool)]
            description = safe(str(tool.get("description")))
            table.add_row(Text(tool["name"], "cyan"), ", ".join(names), description)
        self._page.print(Padding(table, (0, 0, 0, 3), expand=False))

    def commands(self, title: str, *commands: str) -> None:
        """What to type next."""
        self._page.print()
        self._page.print(Rule(Text(title, "bold"), align="left", style="blue"))
        for command in commands:
            # Not folded, however narrow the terminal is: it is meant to be copied.
            self._page.print(Text(f"  {command}", "cyan"), fold=False)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Messages are not shown meanwhile."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


def _fold(text: str, width: int) -> list[str]:
    """A message in a few rows, broken between its members where that is possible."""
    rows: list[str] = []
    while len(text) > width and len(rows) < _ROWS - 1:
        end = text.rfind(",", width // 2, width) + 1 or width
        rows.append(text[:end])
        text = text[end:]
    return [*rows, text if len(text) <= width else text[: width - 1] + "…"]
