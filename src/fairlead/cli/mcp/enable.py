"""`fairlead mcp enable`, `disable` and `remove`: a name used, hidden, or out of a file of ours."""

from argparse import Namespace
from collections.abc import Sequence

from ...config.discovery import DiscoveredServers
from ...config.edit.own_file import ConfigFile
from ..framework.errors import CommandError, UsageError, print_message
from ..framework.output import safe, visible, write
from ..framework.parser import NAME, Parser
from ..framework.server_lookup import every_server, places_of
from ..framework.suggested_commands import suggest
from .edit_own_file import OURS, own_file, report_edit_errors

__all__ = ["run_disable", "run_enable", "run_remove"]


def run_enable(argv: Sequence[str]) -> int:
    options = _options(
        "enable",
        "Use a server again that was switched off, by its own entry or by a list of ours.",
        argv,
    )
    file = own_file(options)
    with report_edit_errors(file):
        ours = options.name in file.entries()
        if options.project and not ours:
            raise UsageError(
                f"{visible(options.name)} is not in {file.path}, and a project cannot switch on "
                "what others have configured",
                hint=f"{suggest('mcp', 'enable', operands=[options.name])} does, for you",
            )
        file.enable(options.name)
    _report(options, file, ours, "enabledServers")
    now = every_server()
    if options.name in now.disabled:
        print_message("warning", f"it is still off: {_why(now, options.name)}")
    return 0


def run_disable(argv: Sequence[str]) -> int:
    options = _options(
        "disable",
        "Hide a server, wherever it is configured. Files of other programs are not changed: the "
        "name is put on a list in ours.",
        argv,
    )
    file = own_file(options)
    with report_edit_errors(file):
        ours = options.name in file.entries()
        file.disable(options.name)
    _report(options, file, ours, "disabledServers")
    now = every_server()
    if options.name in now.found:
        print_message("warning", f"it is still used: {_why(now, options.name)}")
    return 0


def _options(command: str, description: str, argv: Sequence[str]) -> Namespace:
    examples = f"  fairlead mcp {command} notes"
    parser = Parser(f"mcp {command}", description, NAME, OURS, examples=examples)
    options = parser.parse_args(argv)
    places_of(options.name, every_server())
    return options


def _report(options: Namespace, file: ConfigFile, ours: bool, key: str) -> None:
    state = "used" if key == "enabledServers" else "hidden"
    write(f"{options.name} is {state}; written to {file.path}")
    if not ours:
        found = every_server().places[options.name][0][0]
        text = f"it comes from {found.host_title}, {found.place}, which is not changed"
        print_message("note", safe(f"{text}; `{key}` in our file says so"))


def _why(loaded: DiscoveredServers, name: str) -> str:
    found, what = loaded.places[name][0]
    return safe(f"{found.place}: {what.removeprefix('not used: ')}")


def run_remove(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp remove",
        "Remove a server from your own file, or from the project's. Files of other programs are "
        "never changed; `fairlead mcp disable` hides what they have.",
        NAME,
        OURS,
        examples="  fairlead mcp remove notes",
    ).parse_args(argv)
    file = own_file(options)
    with report_edit_errors(file):
        if options.name not in file.entries():
            raise _elsewhere(options.name, str(file.path))
        file.remove(options.name)
    write(f"{options.name} is no longer in {file.path}")
    return 0


def _elsewhere(name: str, path: str) -> CommandError:
    found = places_of(name, every_server())[0][0]
    if found.dialect == "fairlead":
        option = ["--project"] if found.level == "project" else []
        hint = (
            suggest("mcp", "remove", *option, operands=[name])
            if found.path.endswith("mcp.json")
            else f"remove it there by hand: {found.place}"
        )
    else:
        hint = f"we never change their files; {suggest('mcp', 'disable', operands=[name])} hides it"
    return CommandError(
        f"{visible(name)} is not in {path}: it comes from {visible(found.host_title)}, "
        f"{visible(found.place)}",
        hint=safe(hint),
    )
