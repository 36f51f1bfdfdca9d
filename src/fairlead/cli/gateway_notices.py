"""What somebody who runs a gateway has to hear of, also without asking for its log."""

import logging
import sys
import time

from .failed import say
from .output import safe

__all__ = ["tell_notices"]

AGAIN = 30.0  # seconds after which the same is worth saying again

# Files that changed and have mistakes, tools that are not what they were, and what gets lost.
_ABOUT = ("rules", "lock", "audit", "tape", "interceptors")


def tell_notices() -> None:
    """Show them on stderr from now on."""
    teller = _Teller(logging.WARNING)
    for topic in _ABOUT:
        logging.getLogger(f"fairlead.gateway.{topic}").addHandler(teller)


class _Teller(logging.Handler):
    """Says it in the words of the log, and the same thing not over and over."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said: tuple[str, float] = ("", float("-inf"))

    def emit(self, record: logging.LogRecord) -> None:
        text, now = record.getMessage(), time.monotonic()
        before, when = self._said
        if text == before and now < when + AGAIN:
            return
        self._said = (text, now)
        first, *more = text.splitlines() or [""]
        say("error" if record.levelno >= logging.ERROR else "warning", safe(first), "33")
        for line in more:
            sys.stderr.write(f"  | {safe(line)}\n")
