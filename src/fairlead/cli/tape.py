"""`fairlead tape ...`: conversations that were recorded."""

from collections.abc import Sequence

from .groups import run_one
from .tape_places import reading

__all__ = ["run"]

# What it does, and the module whose `run_...` does it.
_COMMANDS = {
    "list": ("list them", "fairlead.cli.tape_listing"),
    "show": ("show what is on one, a line for each message", "fairlead.cli.tape_listing"),
    "export": (
        "make an HTTP archive (HAR) or a test for pytest of one",
        "fairlead.cli.tape_export",
    ),
    "diff": ("show where two of them differ, but for time and ids", "fairlead.cli.tape_diff"),
    "trim": ("keep a part of one", "fairlead.cli.tape_changing"),
    "delete": ("delete them", "fairlead.cli.tape_changing"),
}


_ABOUT = """\
Look at conversations that were recorded, with `fairlead record` or a gateway. A tape
is named, or given by its path."""


def run(argv: Sequence[str]) -> int:
    with reading():
        return run_one("tape", _COMMANDS, _ABOUT, argv)
