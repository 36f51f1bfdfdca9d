"""Lookup of configured servers by name, and resolution of their inputs and variables."""

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from getpass import getpass
from typing import TYPE_CHECKING

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.configured_servers import headers_renewal
from ...config.discovery import UNUSED, DiscoveredServers, load_all_mcp_configs
from ...config.found_server import FoundServer, Input
from ...config.stored_logins import authorizer_for
from ...config.variables.resolve import Resolved, resolve_in_thread
from ...config.variables.variable_syntax import MissingInput
from ...errors import ConfigError, FairleadError
from ...suggestions import close_matches, did_you_mean
from ...transport.address_hint import url_of_address
from .command_errors import CommandError, UsageError, print_message
from .connect_target import INTERPRETERS, interpreter_of
from .output import ask, can_ask, safe, visible
from .parser import read_pairs
from .remedies import diagnose
from .suggested_commands import suggest

if TYPE_CHECKING:
    from ...transport.http.client.request_authorizer import RequestAuthorizer

__all__ = [
    "NamedServer",
    "ask_inputs",
    "every_server",
    "file_error",
    "find_server",
    "named_server",
    "places_of",
    "require_project",
    "unknown_server",
    "values_to_hide",
]

_SHORTEST = 6  # shorter values are not treated as secrets (the manager uses the same limit)


def every_server(project: str = os.curdir) -> DiscoveredServers:
    """Return all servers configured on this machine, including those that filters would remove."""
    return load_all_mcp_configs(project, filter_exa=False)


def require_project(options: Namespace) -> None:
    """Raise `UsageError` if the project folder does not exist."""
    if not os.path.isdir(options.project):
        raise UsageError(f"Folder not found: {visible(options.project)}")


def find_server(name: str, loaded: DiscoveredServers, *, or_command: bool = False) -> FoundServer:
    """Return the entry with this name; with `or_command`, the hint for an unknown name mentions
    `--`.

    Raises:
        CommandError: The name is unknown or the server is disabled.
    """
    name = loaded.duplicates.get(name, name)
    if name in loaded.found:
        return loaded.found[name]
    if name in loaded.disabled:
        [(_, why), *_] = loaded.places[name]
        raise CommandError(
            f"{visible(name)} is disabled: {visible(why.removeprefix(UNUSED))}",
            hint=f"{suggest('mcp', 'enable', operands=[name])} enables it",
        )
    raise unknown_server(name, loaded, or_command=or_command)


def places_of(name: str, loaded: DiscoveredServers) -> list[tuple[FoundServer, str]]:
    """Return all entries with this name, each with the reason why it is or is not used.

    Raises:
        CommandError: No entry has this name.
    """
    if name not in loaded.places:
        raise unknown_server(name, loaded)
    return loaded.places[name]


def unknown_server(
    name: str, loaded: DiscoveredServers, *, or_command: bool = False
) -> CommandError:
    """Build the error for an unknown name, with similar names and a list of unreadable files."""
    if (url := url_of_address(name)) is not None:
        hint = f"an address needs its scheme: {visible(url)}"
        return UsageError(f"Unknown server {visible(name)!r}", hint=hint)
    if or_command and (error := file_error(name)) is not None:
        return error
    near = close_matches(name, loaded.places, most=3)
    hint = f"{did_you_mean(map(visible, near))} " if near else ""
    hint += "`fairlead list` shows the configured servers"
    if or_command:
        hint += "; to start any other server, put its command after `--`"
    return UsageError(
        f"Unknown server {visible(name)!r}: it is not in any configuration file",
        hint=hint,
        details=[visible(str(problem)) for problem in loaded.warnings if not problem.harmless],
    )


def file_error(name: str) -> UsageError | None:
    """Build the error for the path of a file that is missing or cannot be started by its path.

    Return None if the name does not look like a path, or is the path of a script.
    """
    is_path = name.startswith((".", "~")) or os.sep in name
    is_path |= os.path.splitext(name)[1].lower() in INTERPRETERS
    if not is_path or interpreter_of(name) is not None:
        return None
    scripts = ", ".join(INTERPRETERS)
    expected = (
        f"expected the path of a script ({scripts}), a name that `fairlead list` shows, a URL, or "
        "a command after `--`"
    )
    if os.path.isfile(name):
        return UsageError(f"{visible(name)} is not a script", hint=expected)
    if name.startswith("~"):
        expected = f"the shell expands ~ only without quotes; {expected}"
    return UsageError(f"File not found: {visible(name)}", hint=expected)


@dataclass(frozen=True)
class NamedServer:
    """A configured server with resolved values, and the input values that were entered for it."""

    found: FoundServer
    given: dict[str, str]
    resolved: Resolved

    @property
    def secrets(self) -> list[str]:
        return values_to_hide(self.resolved.entry)

    def credentials(self, entry: MCPServerEntry | None = None) -> "RequestAuthorizer | None":
        """Return the source of the server's credentials, which may resolve its entry again."""
        renew = headers_renewal(self.found, inputs=self.given)
        entry = entry or self.resolved.entry
        return authorizer_for(entry, name=self.found.name, renew_headers=renew)

    def diagnose(self, exc: FairleadError) -> CommandError:
        return diagnose(exc, self.found, self.resolved.missing)


async def named_server(name: str, options: Namespace) -> NamedServer:
    """Look up and resolve a server.

    Raises:
        CommandError: The name is unknown, or the entry is invalid or incomplete.
    """
    loaded, tool = every_server(), vars(options).get("tool")
    if name not in loaded.places and tool in loaded.places:
        raise UsageError(
            f"Unknown server {visible(name)!r}: the name of the server comes first",
            hint=f"{suggest('call', operands=[str(tool), name])} calls the tool of this server",
        )
    found = find_server(name, loaded, or_command=True)
    try:
        given = await ask_inputs(found, read_pairs(options.input, "--input"))
        resolved = await resolve_in_thread(found, inputs=given)
    except ConfigError as exc:
        raise diagnose(exc, found) from exc
    for warning in resolved.warnings:
        print_message("warning", safe(warning))
    return NamedServer(found, given, resolved)


async def ask_inputs(found: FoundServer, given: Mapping[str, str]) -> dict[str, str]:
    """Return values for an entry's inputs: given values, defaults,
    or values entered at the terminal.
    """
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
        raise MissingInput(one.id) from None


def values_to_hide(entry: MCPServerEntry) -> list[str]:
    """Return the values in a resolved entry that messages must not contain, longest first."""
    held = entry.env if isinstance(entry, MCPStdioServerConfig) else entry.headers
    # PATH is not a secret, and masking it would hide the folders that an error is about.
    sent = [value for name, value in held.items() if name != "PATH"]
    values = [*sent, *(value.partition(" ")[2] for value in sent)]
    return sorted({v for v in values if len(v) >= _SHORTEST}, key=len, reverse=True)
