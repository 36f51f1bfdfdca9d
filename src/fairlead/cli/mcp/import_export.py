"""`fairlead mcp import` and `export`: convert entries from and to other programs' files."""

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
from ..framework.command_errors import CommandError, print_message, unknown_name_error
from ..framework.output import for_stream, visible, write
from ..framework.parser import Parser, flag, option
from ..framework.server_lookup import every_server, find_server, unknown_server
from ..framework.suggested_commands import suggest
from .edit_commands import OURS, own_file, report_edit_errors

__all__ = ["run_export", "run_import"]

_NAMES = option("names", metavar="NAME", nargs="*", help="names of servers (default: all)")


def run_import(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp import",
        "Copy servers from another program into your own file, or into the project's file. "
        "Variables are converted, not resolved. The other program's file is not changed.",
        option("host", metavar="PROGRAM", help="cursor, claude-code, vscode, codex, ..."),
        _NAMES,
        flag("--force", help="replace existing entries"),
        OURS,
        examples="  fairlead mcp import cursor\n  fairlead mcp import claude-code notes",
    ).parse_args(argv)
    loaded = _servers_of(options.host)
    wanted = _wanted(options, loaded)
    file = own_file(options)
    with report_edit_errors(file.path):
        done = [_import(file, name, found, options) for name, found in wanted.items()]
    write(f"{sum(done)} of {len(done)} copied to {file.path}")
    return 0 if all(done) or not options.names else 1


def _servers_of(host: str) -> DiscoveredServers:
    known = {one.id: one for one in HOSTS if one.dialect != "fairlead"}
    if host not in known:
        raise unknown_name_error("program", host, known)
    return load_all_mcp_configs(filter_exa=False, hosts=[known[host]])


def _wanted(options: Namespace, loaded: DiscoveredServers) -> dict[str, FoundServer]:
    every = {name: places[0][0] for name, places in loaded.places.items()}
    for name in options.names:
        if name not in every:
            raise unknown_server(name, loaded)
    if not every:
        raise CommandError(f"No servers are configured in {visible(options.host)}")
    return {name: every[name] for name in options.names or every}


def _import(file: ConfigFile, name: str, found: FoundServer, options: Namespace) -> bool:
    """Copy an entry; print the reason and return False if it cannot be copied."""
    there = name in file.entries()
    if there and not options.force:
        print_message(
            "skipped", f"{visible(name)}: already exists in {file.path} (--force replaces it)"
        )
        return False
    try:
        if not options.project:
            # An unapproved entry from a project file would become trusted in the user's own file.
            Trust().require(found)
        adopted = import_entry(found, anchored=not options.project)
        (file.update if there else file.add)(name, adopted.fields)
    except NotApproved:
        text = f"not approved; first run {suggest('mcp', 'approve', operands=[name])}"
        print_message("skipped", visible(f"{name}: {text}"))
        return False
    except ConfigError as exc:
        print_message("skipped", visible(f"{name}: {exc.args[0]}"))
        return False
    write(visible(f"{name}, from {found.place}"))
    for note in adopted.notes:
        print_message("note", visible(f"{name}: {note}"), "33")
    return True


def run_export(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp export",
        "Print configured servers in the format of another program. Variables are converted, not "
        "resolved; literal values are printed unchanged.",
        option("host", metavar="PROGRAM", help=", ".join(sorted(EXPORTS))),
        _NAMES,
        examples="  fairlead mcp export cursor notes\n"
        "  fairlead mcp export codex notes >> ~/.codex/config.toml",
    ).parse_args(argv)
    if options.host not in EXPORTS:
        raise unknown_name_error("program", options.host, sorted(EXPORTS))
    loaded = every_server()
    entries: dict[str, MCPServerEntry] = {}
    for name in options.names or sorted(loaded.found):
        found = find_server(name, loaded)
        try:
            entry = import_entry(found).entry
            # Entries are checked one by one, because programs do not support every kind of server.
            export(entry, options.host, name=name)
        except ConfigError as exc:
            if options.names:
                raise CommandError(visible(f"{name}: {exc.args[0]}")) from exc
            print_message("skipped", visible(f"{name}: {exc.args[0]}"))
            continue
        entries[name] = entry
        held = entry.env if isinstance(entry, MCPStdioServerConfig) else entry.headers
        for key in (key for key, value in held.items() if value.startswith("!")):
            text = f"{name}: {key} is a command, which other programs do not support"
            print_message("note", visible(text), "33")
    if not entries:
        raise CommandError("No servers to export", hint="`fairlead list` shows all servers")
    sys.stdout.write(for_stream(export_all(entries, options.host), sys.stdout))
    return 0
