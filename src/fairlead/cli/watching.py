"""What a running call says meanwhile: progress and log messages, on stderr."""

import sys
from typing import TYPE_CHECKING, Any, Self

from .failed import say
from .output import pretty, safe, visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Watch", "watch"]

_COLOURS = {"debug": "2", "info": "36", "notice": "36", "warning": "33"}  # the others are errors


class Watch:
    """Shows, in plain lines, what a call says until its block is left."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        say("progress", f"{amount} {safe(message)}" if message else amount)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        text = data if isinstance(data, str) else pretty(data)
        label = f"{level} [{logger}]" if logger else level
        say(visible(label), safe(text), _COLOURS.get(level, "31"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class _Bar(Watch):
    """For a terminal: a bar that appears with the first progress and leaves nothing behind.

    While it is shown it puts what others write to stderr, log messages too, above itself.
    """

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._bar is None or self._task is None:
            self._bar = _new_bar()
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        text = safe(message or "working")
        self._bar.update(self._task, completed=progress, total=total, description=text)

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def watch() -> Watch:
    """A bar on a terminal, plain lines elsewhere."""
    return _Bar() if sys.stderr.isatty() else Watch()


def _new_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        console=Console(stderr=True),
        transient=True,
    )
