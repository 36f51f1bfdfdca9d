"""Servers by the name they are configured under: found, allowed, and filled in."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from getpass import getpass

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.discovery import DiscoveredServers, load_all_mcp_configs
from ...config.found_server import FoundServer, Input
from ...config.trust import Trust
from ...config.variables.resolve import Resolved, resolve_in_thread
from ...config.variables.secret_commands import SecretCommands
from ...errors import ConfigError, FairleadError
from .command_errors import CommandError, UsageError, print_message
from .output import ask, can_ask, safe, visible
from .parser import read_pairs
from .remedies import diagnose
from .suggested_commands import suggest

__all__ = [
    "NamedServer",
    "ask_inputs",
    "every_server",
    "find_server",
    "named_server",
    "places_of",
    "require_project",
    "resolve_entry",
    "unknown_server",
    "values_to_hide",
]

_SHORTEST = 6  # as in the manager: shorter values are no secrets


def every_server(project: str = os.curdir) -> DiscoveredServers:
    """What is configured on this machine. Nothing is left out: no server is built in here."""
    return load_all_mcp_configs(project, filter_exa=False)


def require_project(options: Namespace) -> None:
    """Raise `CommandError` if the folder of the project is none."""
    if not os.path.isdir(options.project):
        raise UsageError(f"There is no folder {visible(options.project)}")


def find_server(name: str, loaded: DiscoveredServers, *, or_command: bool = False) -> FoundServer:
    """The entry that a name stands for; `or_command` if a command could have been meant.

    Raises:
        CommandError: if there is none, or it is switched off.
    """
    name = loaded.duplicates.get(name, name)
    if name in loaded.found:
        return loaded.found[name]
    if name in loaded.disabled:
        [(_, why), *_] = loaded.places[name]
        raise CommandError(
            f"{visible(name)} is switched off: {visible(why.removeprefix('not used: '))}",
            hint=f"{suggest('mcp', 'enable', operands=[name])} switches it on",
        )
    raise unknown_server(name, loaded, or_command=or_command)


def places_of(name: str, loaded: DiscoveredServers) -> list[tuple[FoundServer, str]]:
    """Return all entries with a name, used or not, and the state of each.

    Raises:
        CommandError: No entry has that name.
    """
    if name not in loaded.places:
        raise unknown_server(name, loaded)
    return loaded.places[name]


def unknown_server(
    name: str, loaded: DiscoveredServers, *, or_command: bool = False
) -> CommandError:
    """Nobody has configured that name: here are those that are near, and what could not be read."""
    near = get_close_matches(name, list(loaded.places), 3, 0.5)
    hint = f"did you mean {' or '.join(map(visible, near))}? " if near else ""
    hint += "`fairlead list` shows those there are"
    if or_command:
        hint += "; the command of one that is not configured goes after `--`"
    return UsageError(
        f"There is no server {visible(name)!r} in any configuration",
        hint=hint,
        details=[visible(str(problem)) for problem in loaded.warnings if not problem.harmless],
    )


@dataclass(frozen=True)
class NamedServer:
    """A configured server whose values are filled in, and what a person was asked for that."""

    found: FoundServer
    given: dict[str, str]
    resolved: Resolved

    @property
    def entry(self) -> MCPServerEntry:
        return self.resolved.entry

    @property
    def secrets(self) -> list[str]:
        return values_to_hide(self.entry)

    def diagnose(self, exc: FairleadError) -> CommandError:
        return diagnose(exc, self.found, self.resolved.missing)


async def named_server(name: str, options: Namespace) -> NamedServer:
    """The server of a name, ready to be connected.

    Raises:
        CommandError: there is none, or something is missing or wrong in it.
    """
    found = find_server(name, every_server(), or_command=True)
    try:
        given = await ask_inputs(found, read_pairs(options.input, "--input"))
        resolved = await resolve_entry(found, given)
    except ConfigError as exc:
        raise diagnose(exc, found) from exc
    for warning in resolved.warnings:
        print_message("warning", safe(warning))
    return NamedServer(found, given, resolved)


async def resolve_entry(
    found: FoundServer, given: Mapping[str, str] | None = None, *, trust: Trust | None = None
) -> Resolved:
    """The entry with its values in place; commands that it names are run.

    Raises:
        NotApproved: if it comes from a file of the project that nobody approved.
        ConfigError: for what is missing or wrong in it.
    """
    commands = SecretCommands(trust or Trust())
    return await resolve_in_thread(found, commands=commands, inputs=given)


async def ask_inputs(found: FoundServer, given: Mapping[str, str]) -> dict[str, str]:
    """What the entry asks of a person: as given, by default, or as said at the terminal."""
    defaults = {one.id: one.default for one in found.needs_input if one.default is not None}
    known = {**defaults, **given}
    missing = [one for one in found.needs_input if one.id not in given]
    if not missing or not can_ask():
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
    try:
        return ask(prompt)
    except EOFError:
        raise ConfigError(f"the input {one.id!r} has to be given first") from None


def values_to_hide(entry: MCPServerEntry) -> list[str]:
    """Values of an entry that was filled in, which no text may show."""
    held = entry.env if isinstance(entry, MCPStdioServerConfig) else entry.headers
    sent = [value for name, value in held.items() if name != "PATH"]  # where programs are sought
    values = [*sent, *(value.partition(" ")[2] for value in sent)]
    return sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)
