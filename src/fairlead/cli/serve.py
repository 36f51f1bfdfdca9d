"""`fairlead serve`: run a server that stands in a file or a module."""

import sys
from collections.abc import Sequence

from .failed import Failed
from .loading import load
from .usage import Parser

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    parser = Parser(
        "serve",
        "Run a server on stdin and stdout, where a client that started this command talks to it.",
        usage="[--list-tools] FILE_OR_MODULE[:OBJ]",
        examples="  fairlead serve server.py\n"
        "  fairlead serve server.py:weather\n"
        "  fairlead serve package.module",
    )
    parser.add_argument(
        "target",
        metavar="FILE_OR_MODULE[:OBJ]",
        help="a Python file or a dotted module name; OBJ names the MCPServer in it (default: "
        "`server`, `mcp` or `app`, or the only one there is)",
    )
    parser.add_argument(
        "--list-tools", action="store_true", help="say what it offers, instead of serving it"
    )
    options = parser.parse_args(argv)
    target = options.target
    sys.stdout.flush()
    server = load(target)
    if server is None:
        return 0  # the file ran it by itself
    if options.list_tools:
        for name, description in server.describe_tools():
            print(f"{name}  {description}".rstrip())
        return 0
    try:
        server.run()
    except NotImplementedError as exc:
        raise Failed(f"{target} cannot be served: {exc}") from exc
    return 0
