"""`fairlead tape ...`: conversations that were recorded."""

from collections.abc import Sequence

from ..command_group import run_one
from .places import reading

__all__ = ["run"]

# What it does, and the module whose `run_...` does it.
_COMMANDS = {
    "list": ("list them", "recording.list_show"),
    "show": ("show what is on one, a line for each message", "recording.list_show"),
    "export": ("make an HTTP archive (HAR) or a test for pytest of one", "recording.export"),
    "diff": ("show where two of them differ, but for time and ids", "recording.diff"),
    "trim": ("keep a part of one", "recording.trim_delete"),
    "delete": ("delete them", "recording.trim_delete"),
}


_ABOUT = """\
Look at conversations that were recorded, with `fairlead record` or a gateway. A tape
is named, or given by its path."""


def run(argv: Sequence[str]) -> int:
    with reading():
        return run_one("tape", _COMMANDS, _ABOUT, argv)
