"""`fairlead mcp remove`: an entry out of a file of ours."""

from collections.abc import Sequence

from .failed import Failed
from .named import every_server, unknown
from .output import safe, visible, write
from .own import add_file_option, changing, own_file
from .suggest import suggest
from .usage import Parser

__all__ = ["run_remove"]


def run_remove(argv: Sequence[str]) -> int:
    parser = Parser(
        "mcp remove",
        "Remove a server from your own file, or from the project's. Files of other programs are "
        "never changed; `fairlead mcp disable` hides what they have.",
        usage="NAME [--project]",
        examples="  fairlead mcp remove notes",
    )
    parser.add_argument("name", metavar="NAME")
    add_file_option(parser)
    options = parser.parse_args(argv)
    file = own_file(options)
    with changing(file):
        if options.name not in file.entries():
            raise _elsewhere(options.name, str(file.path))
        file.remove(options.name)
    write(f"{options.name} is no longer in {file.path}")
    return 0


def _elsewhere(name: str, path: str) -> Failed:
    loaded = every_server()
    if name not in loaded.places:
        return unknown(name, loaded)
    found = loaded.places[name][0][0]
    if found.dialect == "fairlead":
        option = ["--project"] if found.level == "project" else []
        hint = (
            suggest("mcp", "remove", *option, operands=[name])
            if found.path.endswith("mcp.json")
            else f"remove it there by hand: {found.place}"
        )
    else:
        hint = f"we never change their files; {suggest('mcp', 'disable', operands=[name])} hides it"
    return Failed(
        f"{visible(name)} is not in {path}: it comes from {visible(found.host_title)}, "
        f"{visible(found.place)}",
        hint=safe(hint),
    )
