"""`fairlead serve`: run a server that stands in a file or a module, or the tools of modules."""

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
        return 0  # the file ran it by itself
    if options.list_tools:
        for name, description in server.describe_tools():
            print(f"{name}  {description}".rstrip())
        return 0
    serve(server)
    return 0


def _run_configured(server: MCPServer, options: Namespace) -> None:
    """On stdin and stdout, or as the server itself says."""
    from ...server.run_program import run_server

    if options.transport is not None:
        server.config.transport = options.transport
    try:
        run_server(server)
    except (ConfigError, NotImplementedError) as exc:
        raise CommandError(f"{options.target or server.name} cannot be served: {exc}") from exc


def _serve_here(server: MCPServer, endpoint: "ListenAddress") -> None:
    from ..framework.listen_address import serve_at

    serve_at(server, endpoint, endpoint.settings(auth_token=server.config.auth_token))


def _serve_for_parent(
    server: MCPServer, endpoint: "ListenAddress", worker: "WorkerHandoff"
) -> None:
    from ..framework.listen_address import run_http

    settings = endpoint.settings(auth_token=server.config.auth_token)
    worker.loaded(server.name, has_token=settings.auth_token is not None)
    run_http(server, endpoint, worker.listening, settings, worker.ready)


def _is_on_network(options: Namespace) -> bool:
    """Whether an option says so. Raises `CommandError` for options that only make sense then."""
    places = (options.http, options.ws, options.unix)
    named = any(place is not None for place in places)
    if options.transport == "stdio" and named:
        raise UsageError("--transport stdio and an address exclude each other")
    if named or options.transport == "http":
        if options.reload and options.workers > 1:
            raise UsageError("--reload and --workers exclude each other")
        return True
    if options.reload:
        raise UsageError(
            "A server on stdin and stdout cannot be reloaded: its client holds the other end",
            hint="add --http PORT, or let the client start it again",
        )
    more = ["--host", "--port", *(["--workers"] if options.workers > 1 else [])]
    require_network(options, "servers on the network", "add --http PORT", *more)
    return False


def _parser() -> Parser:
    parser = Parser(
        "serve",
        "Run a server on stdin and stdout, where a client that started this command talks\n"
        "to it, or on the network.",
        option(
            "target",
            metavar="FILE_OR_MODULE[:OBJ]",
            nargs="?",
            help="a Python file or a dotted module name; OBJ names the MCPServer in it (default: "
            "`server`, `mcp` or `app`, or the only one there is)",
        ),
        repeated(
            "--module",
            "MODULE",
            "also serve the functions of this module that are marked with `mcp_tool`; without a "
            "server, a plain one of just these. One that cannot be imported is reported and "
            "skipped",
        ),
        flag(
            "--entry-points",
            help="also serve the modules that installed packages name as `fairlead.tools`",
        ),
        flag("--list-tools", help="say what it offers, instead of serving it"),
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
        "on the network",
        "HTTP at /mcp and WebSocket at /ws of one address. What other machines can reach\n"
        "needs a token.",
    )
    places = network.add_mutually_exclusive_group()
    places.add_argument(
        "--http", metavar="[HOST:]PORT", help="listen there; port 0 takes any that is free"
    )
    places.add_argument(
        "--ws", metavar="[HOST:]PORT", help="the same, for clients that use the WebSocket"
    )
    places.add_argument("--unix", metavar="PATH", help="HTTP on a unix socket, for this user only")
    for names, facts in (*_NETWORK, *ACCESS):
        network.add_argument(*names, **facts)
    return parser


_NETWORK = (
    option("--transport", choices=("stdio", "http"), help="the long form of --http, with"),
    option("--host", help="the address to listen on (default: 127.0.0.1)"),
    option("--port", type=port, metavar="PORT", help="and the port (default: 8080)"),
    flag("--reload", help="serve the new code when its files change"),
    option(
        "--workers",
        type=lambda text: number(text, 1, 256),
        default=1,
        metavar="N",
        help="serve with so many processes, without sessions; one that dies is replaced",
    ),
)


def _require_something(options: Namespace) -> None:
    if options.target is None and not options.module and not options.entry_points:
        raise UsageError(
            "There is nothing to serve: FILE_OR_MODULE or --module is required",
            hint="`fairlead serve --help` shows how",
        )


def _server(options: Namespace, serve: Serve) -> MCPServer | None:
    """What is to be served; modules are imported when it starts. None if it ran already."""
    _require_something(options)
    target, modules, entry_points = options.target, options.module, options.entry_points
    server = MCPServer() if target is None else load(target, serve)
    if not modules and not entry_points:
        return server
    if server is None:
        raise CommandError(
            f"{target} runs its server by itself, so its tools were served and no others",
            hint="put `server.run()` under `if __name__ == '__main__':`",
        )
    sys.path.insert(0, os.getcwd())
    server.config.tool_modules = (*server.config.tool_modules, *modules)
    server.config.tool_entry_points |= entry_points
    return server
