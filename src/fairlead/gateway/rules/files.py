"""Whether a file that an action would write can be written, without writing it."""

import os
from collections.abc import Mapping
from typing import Any, Final

from ..tape.format import LINES, base_of

__all__ = ["hindrance"]

_OPTIONS: Final = {"audit": "path", "record": "tape"}  # those that name the file


def hindrance(action: str, options: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """The option that is wrong, and why; None if all is well as far as one can see."""
    option = _OPTIONS.get(action)
    named = None if option is None else options.get(option)
    if option is None or not isinstance(named, str):
        return None
    path = os.path.join(folder or os.curdir, named)
    try:
        if action == "record":  # it makes the folders that it needs
            path = f"{base_of(path)}{LINES}"
            reason = _of_file(path) or _of_folder(_nearest(os.path.dirname(path)))
        elif os.path.exists(path):  # often all that somebody may write in a folder of logs
            reason = _of_file(path)
        else:
            reason = _of_folder(os.path.dirname(path))
    except ValueError as exc:  # no path at all
        reason = str(exc)
    return None if reason is None else (option, reason)


def _of_file(path: str) -> str | None:
    """What hinders to write what is there already."""
    if os.path.isdir(path):
        return f"{path} is a folder, where a file is expected"
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return f"{path} may not be written"
    return None


def _of_folder(path: str) -> str | None:
    """What hinders to put a file there."""
    if not os.path.exists(path):
        return f"there is no folder {path}"
    if not os.path.isdir(path):
        return f"{path} is no folder"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"nothing may be written to the folder {path}"
    return None


def _nearest(path: str) -> str:
    """The folder, or the one above it that is there."""
    while not os.path.lexists(path) and (above := os.path.dirname(path)) != path:
        path = above
    return path
