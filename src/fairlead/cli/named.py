"""Servers by the name they are configured under: found, allowed, and filled in."""

import asyncio
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from getpass import getpass

from ..client.entries import MCPServerEntry, MCPStdioServerConfig
from ..errors import ConfigError
from ..manager.commands import Commands
from ..manager.expand import Resolved, resolve_in_thread
from ..manager.found import Found, Input
from ..manager.load import Loaded, load_all_mcp_configs
from ..manager.trust import Trust
from .failed import USAGE, Failed
from .output import visible
from .suggest import suggest

__all__ = [
    "ask_inputs",
    "every_server",
    "fill_in",
    "find_server",
    "inputs_of",
    "unknown",
    "values_to_hide",
]

_SHORTEST = 6  # as in the manager: shorter values are no secrets


def every_server(project: str = os.curdir) -> Loaded:
    """What is configured on this machine. Nothing is left out: no server is built in here."""
    return load_all_mcp_configs(project, filter_exa=False)


def find_server(name: str, loaded: Loaded, *, or_command: bool = False) -> Found:
    """The entry that a name stands for; `or_command` if a command could have been meant.

    Raises:
        Failed: if there is none, or it is switched off.
    """
    name = loaded.duplicates.get(name, name)
    if name in loaded.found:
        return loaded.found[name]
    if name in loaded.disabled:
        [(_, why), *_] = loaded.places[name]
        raise Failed(
            f"{visible(name)} is switched off: {visible(why.removeprefix('not used: '))}",
            hint=f"{suggest('mcp', 'enable', operands=[name])} switches it on",
        )
    raise unknown(name, loaded, or_command=or_command)


def unknown(name: str, loaded: Loaded, *, or_command: bool = False) -> Failed:
    """Nobody has configured that name: here are those that are near, and what could not be read."""
    near = get_close_matches(name, list(loaded.places), 3, 0.5)
    hint = f"did you mean {' or '.join(map(visible, near))}? " if near else ""
    hint += "`fairlead list` shows those there are"
    if or_command:
        hint += "; the command of one that is not configured goes after `--`"
    return Failed(
        f"There is no server {visible(name)!r} in any configuration",
        hint=hint,
        details=[visible(str(problem)) for problem in loaded.warnings if not problem.harmless],
        code=USAGE,
    )


async def fill_in(
    found: Found, given: Mapping[str, str] | None = None, *, trust: Trust | None = None
) -> Resolved:
    """The entry with its values in place; commands that it names are run.

    Raises:
        NotApproved: if it comes from a file of the project that nobody approved.
        ConfigError: for what is missing or wrong in it.
    """
    trust = trust or Trust()
    trust.require(found)
    inputs = inputs_of(found, given or {})
    return await resolve_in_thread(found, commands=Commands(trust), inputs=inputs)


def inputs_of(found: Found, given: Mapping[str, str]) -> dict[str, str]:
    """What the entry asks of a person; the defaults stand for what was not given."""
    defaults = {one.id: one.default for one in found.needs_input if one.default is not None}
    return {**defaults, **given}


async def ask_inputs(found: Found, given: Mapping[str, str]) -> dict[str, str]:
    """The same, but somebody at the terminal is asked for what is missing."""
    known = inputs_of(found, given)
    missing = [one for one in found.needs_input if one.id not in given]
    if not missing or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return known
    for one in missing:
        answer = await asyncio.to_thread(_ask, one)
        if answer or one.id not in known:
            known[one.id] = answer
    return known


def _ask(one: Input) -> str:
    about = visible(one.description or one.id)
    choices = f" ({' | '.join(map(visible, one.options))})" if one.options else ""
    default = f" [{visible(one.default)}]" if one.default is not None and not one.password else ""
    prompt = f"{about}{choices}{default}: "
    if one.password:
        return getpass(prompt, stream=sys.stderr)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise ConfigError(f"the input {one.id!r} has to be given first")
    return line.strip()


def values_to_hide(entry: MCPServerEntry) -> list[str]:
    """Values of an entry that was filled in, which no text may show."""
    held = entry.env if isinstance(entry, MCPStdioServerConfig) else entry.headers
    sent = [value for name, value in held.items() if name != "PATH"]  # where programs are sought
    values = [*sent, *(value.partition(" ")[2] for value in sent)]
    return sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)
