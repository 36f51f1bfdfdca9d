"""`fairlead mcp export`: servers as another program wants them, to be pasted into its file."""

import sys
from collections.abc import Sequence

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.edit.export_entry import EXPORTS, export, export_all
from ...config.edit.import_entry import import_entry
from ...errors import ConfigError
from ..framework.errors import CommandError, UsageError, print_message
from ..framework.output import for_stream, visible
from ..framework.parser import Parser, option
from ..framework.server_lookup import every_server, find_server

__all__ = ["run_export"]


def run_export(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp export",
        "Print configured servers as another program writes them into its file. Variables stay "
        "variables; values that are written down are printed as they are.",
        option("host", metavar="PROGRAM", help=", ".join(sorted(EXPORTS))),
        option("names", metavar="NAME", nargs="*", help="which ones (default: all)"),
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
