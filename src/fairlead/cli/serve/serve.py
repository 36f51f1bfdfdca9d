"""`fairlead serve`: runs a server from a file or module, or the tools of modules."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...server import MCPServer
from ..framework.access_options import ACCESS, require_network
from ..framework.command_errors import CommandError, UsageError
from ..framework.parser import Parser, flag, number, option, port, repeated
from .load_server import Serve, load

if TYPE_CHECKING:
    from ..framework.listen_address import ListenAddress
    from .worker import WorkerHandoff

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    sys.stdout.flush()
    if not _is_on_network(options):
        return _serve(options, lambda server: _run_configured(server, options))
    from ..framework.listen_address import ListenAddress
    from .worker import VARIABLE, read_worker_variable

    if VARIABLE in os.environ:
        worker = read_worker_variable()
        endpoint = ListenAddress.of(options, worker.token)
        return _serve(options, lambda server: _serve_for_parent(server, endpoint, worker))
    endpoint = ListenAddress.of(options)
    if options.list_tools or not (options.reload or options.workers > 1):
        return _serve(options, lambda server: _serve_here(server, endpoint))
    from .file_watcher import CodeFiles, folders_of
    from .worker_supervisor import supervise

    _require_something(options)
    code = CodeFiles(folders_of(options.target, options.module)) if options.reload else None
    return supervise(argv, endpoint, code)


def _serve(options: Namespace, serve: Serve) -> int:
    server = _server(options, serve)
    if server is None:
        return 0  # the file ran its server itself
    if options.list_tools:
        for name, description in server.describe_tools():
            print(f"{name}  {description}".rstrip())
        return 0
    serve(server)
    return 0


def _run_configured(server: MCPServer, options: Namespace) -> None:
    """Serve on stdin and stdout, or on the transport that the server configures."""
    from ...server.run_program import run_server

    if options.transport is not None:
        server.config.transport = options.transport
    try:
        run_server(server)
    except (ConfigError, NotImplementedError) as exc:
        raise CommandError(f"Cannot serve {options.target or server.name}: {exc}") from exc


def _serve_here(server: MCPServer, endpoint: "ListenAddress") -> None:
    from ..framework.listen_address import serve_at

    settings = endpoint.settings(auth_token=server.config.auth_token, auth=server.auth)
    serve_at(server, endpoint, settings)


def _serve_for_parent(
    server: MCPServer, endpoint: "ListenAddress", worker: "WorkerHandoff"
) -> None:
    from ..framework.listen_address import ClientNeeds, run_http

    settings = endpoint.settings(auth_token=server.config.auth_token, auth=server.auth)
    worker.loaded(server.name, ClientNeeds.of(settings))
    run_http(server, endpoint, worker.listening, settings, worker.ready)


def _is_on_network(options: Namespace) -> bool:
    """Return True if the options select a network transport.

    Raises:
        UsageError: Options contradict each other, or apply only to servers on the network.
    """
    places = (options.http, options.ws, options.unix)
    named = any(place is not None for place in places)
    if options.transport == "stdio" and named:
        raise UsageError("--transport stdio cannot be combined with an address")
    if named or options.transport == "http":
        if options.reload and options.workers > 1:
            raise UsageError("--reload and --workers cannot be combined")
        return True
    if options.reload:
        raise UsageError(
            "--reload only applies to servers on the network: its client starts a stdio server",
            hint="add --http PORT, or restart the server from the client",
        )
    more = ["--host", "--port", *(["--workers"] if options.workers > 1 else [])]
    require_network(options, "servers on the network", "add --http PORT", *more)
    return False


def _parser() -> Parser:
    parser = Parser(
        "serve",
        "Run a server on stdin and stdout, for a client that starts this command, or on the\n"
        "network.",
        option(
            "target",
            metavar="FILE_OR_MODULE[:OBJ]",
            nargs="?",
            help="a Python file or a dotted module name; OBJ is the MCPServer in it (default: "
            "`server`, `mcp` or `app`, or the only MCPServer)",
        ),
        repeated(
            "--module",
            "MODULE",
            "also serve the `mcp_tool` functions of this module; without FILE_OR_MODULE, serve "
            "only these. A module that cannot be imported is reported and skipped",
        ),
        flag(
            "--entry-points",
            help="also serve the modules in the `fairlead.tools` entry points of packages",
        ),
        flag("--list-tools", help="list the tools instead of serving them"),
        usage="[options] [FILE_OR_MODULE[:OBJ]]",
        examples="  fairlead serve server.py\n"
        "  fairlead serve server.py:weather\n"
        "  fairlead serve package.module\n"
        "  fairlead serve --module package.tools --module more_tools\n"
        "  fairlead serve server.py --http 8080 --reload\n"
        "  FAIRLEAD_AUTH_TOKEN=... fairlead serve server.py --http 0.0.0.0:8080 --workers 4\n"
        "  fairlead serve server.py --unix /tmp/server.sock",
    )
    network = parser.add_argument_group(
        "network",
        "HTTP at /mcp and WebSocket at /ws of one address. An address that other machines\n"
        "can reach requires a token.",
    )
    places = network.add_mutually_exclusive_group()
    places.add_argument(
        "--http", metavar="[HOST:]PORT", help="listen on this address; port 0 selects a free port"
    )
    places.add_argument(
        "--ws", metavar="[HOST:]PORT", help="the same as --http, but show the WebSocket URL first"
    )
    places.add_argument("--unix", metavar="PATH", help="serve HTTP on a unix socket for this user")
    for names, facts in (*_NETWORK, *ACCESS):
        network.add_argument(*names, **facts)
    return parser


_NETWORK = (
    option("--transport", choices=("stdio", "http"), help="`http` uses --host and --port"),
    option("--host", help="the address to listen on (default: 127.0.0.1)"),
    option("--port", type=port, metavar="PORT", help="the port to listen on (default: 8080)"),
    flag("--reload", help="reload the code when its files change"),
    option(
        "--workers",
        type=lambda text: number(text, 1, 256),
        default=1,
        metavar="N",
        help="the number of worker processes, which do not share sessions; a process that exits "
        "is replaced",
    ),
)


def _require_something(options: Namespace) -> None:
    if options.target is None and not options.module and not options.entry_points:
        raise UsageError(
            "Missing server: FILE_OR_MODULE or --module is required",
            hint="run `fairlead serve --help` for usage",
        )


def _server(options: Namespace, serve: Serve) -> MCPServer | None:
    """Return the server; modules are imported when it starts. None if the file already ran it."""
    _require_something(options)
    target, modules, entry_points = options.target, options.module, options.entry_points
    server = MCPServer() if target is None else load(target, serve)
    if not modules and not entry_points:
        return server
    if server is None:
        raise CommandError(
            f"{target} ran its server itself, without the tools of --module and --entry-points",
            hint="put `server.run()` under `if __name__ == '__main__':`",
        )
    sys.path.insert(0, os.getcwd())
    server.config.tool_modules = (*server.config.tool_modules, *modules)
    server.config.tool_entry_points |= entry_points
    return server
