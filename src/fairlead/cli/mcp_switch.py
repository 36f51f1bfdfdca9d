"""`fairlead mcp enable` and `disable`: a name used or hidden, wherever it is configured."""

from argparse import Namespace
from collections.abc import Sequence

from ..manager.load import Loaded
from ..manager.write import ConfigFile
from .failed import USAGE, Failed, say
from .named import every_server, unknown
from .output import safe, visible, write
from .own import add_file_option, changing, own_file
from .suggest import suggest
from .usage import Parser

__all__ = ["run_disable", "run_enable"]


def run_enable(argv: Sequence[str]) -> int:
    options = _options(
        "enable",
        "Use a server again that was switched off, by its own entry or by a list of ours.",
        argv,
    )
    file = own_file(options)
    with changing(file):
        ours = options.name in file.entries()
        if options.project and not ours:
            raise Failed(
                f"{visible(options.name)} is not in {file.path}, and a project cannot switch on "
                "what others have configured",
                hint=f"{suggest('mcp', 'enable', operands=[options.name])} does, for you",
                code=USAGE,
            )
        file.enable(options.name)
    _report(options, file, ours, "enabledServers")
    now = every_server()
    if options.name in now.disabled:
        say("warning", f"it is still off: {_why(now, options.name)}", "33")
    return 0


def run_disable(argv: Sequence[str]) -> int:
    options = _options(
        "disable",
        "Hide a server, wherever it is configured. Files of other programs are not changed: the "
        "name is put on a list in ours.",
        argv,
    )
    file = own_file(options)
    with changing(file):
        ours = options.name in file.entries()
        file.disable(options.name)
    _report(options, file, ours, "disabledServers")
    now = every_server()
    if options.name in now.found:
        say("warning", f"it is still used: {_why(now, options.name)}", "33")
    return 0


def _options(command: str, description: str, argv: Sequence[str]) -> Namespace:
    parser = Parser(
        f"mcp {command}",
        description,
        usage="NAME [--project]",
        examples=f"  fairlead mcp {command} notes",
    )
    parser.add_argument("name", metavar="NAME")
    add_file_option(parser)
    options = parser.parse_args(argv)
    loaded = every_server()
    if options.name not in loaded.places:
        raise unknown(options.name, loaded)
    return options


def _report(options: Namespace, file: ConfigFile, ours: bool, key: str) -> None:
    state = "used" if key == "enabledServers" else "hidden"
    write(f"{options.name} is {state}; written to {file.path}")
    if not ours:
        found = every_server().places[options.name][0][0]
        text = f"it comes from {found.host_title}, {found.place}, which is not changed"
        say("note", safe(f"{text}; `{key}` in our file says so"))


def _why(loaded: Loaded, name: str) -> str:
    found, what = loaded.places[name][0]
    return safe(f"{found.place}: {what.removeprefix('not used: ')}")
