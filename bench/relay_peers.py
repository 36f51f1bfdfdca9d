"""Placeholders in the command of a relay: the server behind it, or its address."""

from __future__ import annotations

import shlex
import sys

from . import envs
from .runtimes import Command

__all__ = ["COPY", "filled"]

COPY: Command = (sys.executable, str(envs.BENCH / "relays" / "copy_relay.py"), "{server}")


def filled(
    command: Command, *, server: Command = (), url: str = "", config: str = "", servers: str = ""
) -> Command:
    """Return the command with its placeholders replaced, except `{port}`."""
    words: list[str] = []
    for word in command:
        if word == "{server}":
            words += server
        else:
            word = word.replace("{line}", shlex.join(server)).replace("{url}", url)
            words.append(word.replace("{config}", config).replace("{servers}", servers))
    return tuple(words)
