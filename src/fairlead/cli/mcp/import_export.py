"""`fairlead mcp import` and `export`: servers of other programs for ours, and the other way."""

import sys
from argparse import Namespace
from collections.abc import Sequence

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.discovery import DiscoveredServers, load_all_mcp_configs
from ...config.edit.config_file import ConfigFile
from ...config.edit.export_entry import EXPORTS, export, export_all
from ...config.edit.import_entry import import_entry
from ...config.found_server import FoundServer
from ...config.hosts import HOSTS
from ...config.trust import NotApproved, Trust
from ...errors import ConfigError
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.output import for_stream, visible, write
from ..framework.parser import Parser, flag, option
from ..framework.server_lookup import every_server, find_server, unknown_server
from ..framework.suggested_commands import suggest
from .edit_commands import OURS, own_file, report_edit_errors

__all__ = ["run_export", "run_import"]

_NAMES = option("names", metavar="NAME", nargs="*", help="which ones (default: all)")


def run_import(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp import",
        "Copy servers that another program has configured into your own file, or the project's. "
        "Variables stay variables, spelled our way; the program's file is not changed.",
        option("host", metavar="PROGRAM", help="cursor, claude-code, vscode, codex, ..."),
        _NAMES,
        flag("--force", help="replace entries of the same names"),
        OURS,
        examples="  fairlead mcp import cursor\n  fairlead mcp import claude-code notes",
    ).parse_args(argv)
    loaded = _servers_of(options.host)
    wanted = _wanted(options, loaded)
    file = own_file(options)
    with report_edit_errors(file):
        done = [_import(file, name, found, options) for name, found in wanted.items()]
    write(f"{sum(done)} of {len(done)} copied to {file.path}")
    return 0 if all(done) or not options.names else 1


def _servers_of(host: str) -> DiscoveredServers:
    known = {one.id: one for one in HOSTS if one.dialect != "fairlead"}
    if host not in known:
        raise UsageError(
            f"There is no program {visible(host)!r} whose files we read",
            hint=f"there are {', '.join(known)}",
        )
    return load_all_mcp_configs(filter_exa=False, hosts=[known[host]])


def _wanted(options: Namespace, loaded: DiscoveredServers) -> dict[str, FoundServer]:
    every = {name: places[0][0] for name, places in loaded.places.items()}
    for name in options.names:
        if name not in every:
            raise unknown_server(name, loaded)
    if not every:
        raise CommandError(f"{visible(options.host)} has no servers configured")
    return {name: every[name] for name in options.names or every}


def _import(file: ConfigFile, name: str, found: FoundServer, options: Namespace) -> bool:
    """Whether it was copied; why not is said."""
    there = name in file.entries()
    if there and not options.force:
        print_message(
            "left out", f"{visible(name)}: {file.path} has one already (--force replaces it)"
        )
        return False
    try:
        if not options.project:
            # What a stranger wrote would be believed in a file of the user's.
            Trust().require(found)
        adopted = import_entry(found, anchored=not options.project)
        (file.update if there else file.add)(name, adopted.fields)
    except NotApproved:
        text = f"it is a file of the project's; first {suggest('mcp', 'approve', operands=[name])}"
        print_message("left out", visible(f"{name}: {text}"))
        return False
    except ConfigError as exc:
        print_message("left out", visible(f"{name}: {exc.args[0]}"))
        return False
    write(visible(f"{name}, from {found.place}"))
    for note in adopted.notes:
        print_message("note", visible(f"{name}: {note}"), "33")
    return True


def run_export(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp export",
        "Print configured servers as another program writes them into its file. Variables stay "
        "variables; values that are written down are printed as they are.",
        option("host", metavar="PROGRAM", help=", ".join(sorted(EXPORTS))),
        _NAMES,
        examples="  fairlead mcp export cursor notes\n"
        "  fairlead mcp export codex notes >> ~/.codex/config.toml",
    ).parse_args(argv)
    if options.host not in EXPORTS:
        raise UsageError(
            f"There is no program {visible(options.host)!r} whose files we can write",
            hint=f"there are {', '.join(sorted(EXPORTS))}",
        )
    loaded = every_server()
    entries: dict[str, MCPServerEntry] = {}
    for name in options.names or sorted(loaded.found):
        found = find_server(name, loaded)
        try:
            entry = import_entry(found).entry
            export(entry, options.host, name=name)  # not every program has a word for everything
        except ConfigError as exc:
            if options.names:
                raise CommandError(visible(f"{name}: {exc.args[0]}")) from exc
            print_message("left out", visible(f"{name}: {exc.args[0]}"))
            continue
        entries[name] = entry
        held = entry.env if isinstance(entry, MCPStdioServerConfig) else entry.headers
        for key in (key for key, value in held.items() if value.startswith("!")):
            text = f"{name}: {key} is a command, which other programs do not run"
            print_message("note", visible(text), "33")
    if not entries:
        raise CommandError("There is nothing to export", hint="`fairlead list` shows what there is")
    sys.stdout.write(for_stream(export_all(entries, options.host), sys.stdout))
    return 0
