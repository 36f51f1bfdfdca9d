"""The console of commands that render: colours for a terminal, clean lines for everything else."""

import sys
from typing import Any

from rich.console import Console

__all__ = ["Page"]

_WIDTH = 100  # where there is no terminal that has one


class Page:
    """Prints to stdout, without the blanks that tables leave at the ends of lines."""

    def __init__(self, *, width: int = _WIDTH) -> None:
        """`width` is for where there is no terminal."""
        self.console = Console(highlight=False, markup=False, emoji=False)
        if not self.console.is_terminal:
            self.console.width = width

    @property
    def width(self) -> int:
        return self.console.width

    def print(self, thing: Any = "", *, fold: bool = True) -> None:
        """Print something; lines that are too long are folded, unless they are to be copied."""
        with self.console.capture() as capture:
            self.console.print(thing, soft_wrap=not fold)
        for line in capture.get().splitlines():
            sys.stdout.write(f"{line.rstrip()}\n")
        sys.stdout.flush()
