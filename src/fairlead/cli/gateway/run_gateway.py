"""Running a gateway as a program: its socket, its servers, its screen, and an end of them all."""

import asyncio
import logging
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket

from ...gateway import Gateway, GatewaySettings, View
from ...gateway.backends.gateway_servers import GatewayServers
from ...gateway.clients.admission import ClientAccess
from ...gateway.operations.observability import Observability
from ...policy.rules.ruleset import RuleSet
from ...server.http_app.uvicorn_runner import serve_http, url_of
from ...server.run_program import freeze_memory, run_program
from ...transport.http.server.http_settings import HttpSettings
from ...upstream.memory.tool_cache import MCPToolCache
from ..framework.access_options import ACCESS
from ..framework.client_connection import silence_warnings
from ..framework.command_errors import UsageError, print_message
from ..framework.listen_address import ListenAddress
from ..framework.output import safe
from ..framework.parser import INPUT, PROJECT, Parser, add_record_options, flag, option, port
from ..tap.watched_relay import watchable
from .choose_servers import ChosenServers, OwnAddress
from .port_in_use import listen
from .reload_on_change import GatewayReloader
from .screen import Screen
from .tape_options import record_while_running

__all__ = ["GatewayPlan", "add_gateway_options", "endpoint_of", "log_to_stderr", "serve_plan"]

PORT = 8765
AGAIN = 30.0  # seconds after which the same warning is worth saying again
# What is told without --verbose: files that changed and have mistakes, tools that are not what
# they were, and what gets lost.
_ABOUT = ("rules", "lock", "audit", "tape", "interceptors")
GRACE = 1.0  # seconds that calls may go on when the gateway ends


@dataclass(frozen=True, kw_only=True)
class GatewayPlan:
    """A gateway that is to be run."""

    settings: GatewaySettings
    http: HttpSettings
    endpoint: ListenAddress
    options: Namespace
    read: Callable[[OwnAddress], ChosenServers]  # the servers, anew each time
    views: Mapping[str, View] = field(default_factory=dict)
    admission: ClientAccess | None = None
    observing: Observability = field(default_factory=Observability)
    rules: RuleSet | None = None
    tape: Path | None = None  # to record to from the start on
    lazy: bool = False  # stop processes that are not used


def serve_plan(plan: GatewayPlan) -> int:
    """Serve until a signal comes.

    Raises:
        CommandError: it cannot listen there, or should not.
        ConfigError: its files are wrong.
    """
    listening = listen(plan.endpoint)
    try:
        name = listening.getsockname()
        address = OwnAddress(unix=name) if isinstance(name, str) else OwnAddress(*name[:2])
        wanted = plan.read(address)
        with record_while_running(plan.observing.tapes, plan.tape, plan.options):
            run_program(lambda: _serve(plan, listening, address, wanted))
    finally:
        plan.endpoint.clean_up(listening)
    return 0


async def _serve(
    plan: GatewayPlan, listening: socket, address: OwnAddress, wanted: ChosenServers
) -> None:
    tls = plan.endpoint.tls()
    url = plan.endpoint.reachable(url_of(listening, plan.http.path, tls=tls is not None))
    has_token = plan.http.auth_token is not None or plan.http.verify_token is not None
    opened = asyncio.Event()
    servers = GatewayServers(plan.settings, cache=MCPToolCache(), lazy=plan.lazy)
    async with (
        Gateway(
            servers,
            settings=plan.settings,
            views=plan.views,
            observing=plan.observing,
            interceptors=() if plan.rules is None else (plan.rules,),
        ) as gateway,
        AsyncExitStack() as stack,
    ):
        if plan.rules is not None:
            plan.rules.attach_to(gateway)
            stack.callback(plan.rules.close)
        if plan.observing.journal is not None:
            name = gateway.info["name"]
            await stack.enter_async_context(watchable(plan.observing.journal, name, "gateway"))
        token = plan.endpoint.shown_token if has_token else None
        exposure = await asyncio.to_thread(  # accounts may be looked up over the network
            plan.endpoint.exposure, has_token=has_token, socket_option="--listen unix:PATH"
        )
        screen = Screen(gateway, url, token=token, json=plan.options.json, exposure=exposure)
        following = GatewayReloader(
            gateway,
            lambda: plan.read(address),
            changed=screen.changed,
            failed=screen.failed,
            admission=plan.admission,
        )

        async def attend() -> None:
            await opened.wait()
            screen.opened(wanted)
            await following.apply(wanted)
            await screen.settle(wanted)
            freeze_memory()  # modules and lists: a full collection took 14 ms, in which no call ran
            await following.follow(wanted.files)

        quiet = servers.upstreams.add_status_listener(screen.happened)
        app = gateway.create_http_app(plan.http)
        loop = asyncio.get_running_loop()
        serving = loop.create_task(serve_http(app, listening, tls=tls, started=opened.set))
        attending = loop.create_task(attend())
        try:
            await asyncio.wait((serving, attending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            quiet()  # that everything ends now is no news
            screen.close()
            serving.cancel()
            attending.cancel()
            # Calls get a moment; then servers need what is left of the time, if they are stubborn.
            await asyncio.wait((serving,), timeout=GRACE)
            await servers.close()
            await asyncio.wait((serving, attending))
        for task in (serving, attending):
            if not task.cancelled():
                task.result()


# The command line


def add_gateway_options(parser: Parser) -> None:
    """The options of both commands that run a gateway."""
    parser.add(
        option("--listen", metavar="WHERE", help="[HOST:]PORT, or the path of a socket"),
        option("--host", help="the address to listen on (default: 127.0.0.1)"),
        option(
            "--port",
            type=port,
            metavar="PORT",
            help=f"and the port (default: {PORT}); 0 takes any that is free",
        ),
        flag(
            "--search",
            help="offer a search for tools instead of all of them, for models that have too many",
        ),
        PROJECT,
        INPUT,
        flag(
            "--json",
            help="print one JSON object when it is ready: the URL, and how the servers are",
        ),
        flag("-v", "--verbose", help="log to stderr what happens"),
    )
    add_record_options(parser, named=False)
    parser.add_group("who may come in", "What other machines can reach needs a token.", *ACCESS)


def endpoint_of(options: Namespace, listen: str | None = None) -> ListenAddress:
    """Where to listen: what the options say, else what a file says, else the usual place."""
    place = options.listen
    if place is None and options.host is None and options.port is None:
        place = listen
    elif place is not None and (options.host is not None or options.port is not None):
        raise UsageError("--listen and --host, --port say the same twice")
    unix, http = None, None
    if place is not None and (place.startswith("unix:") or "/" in place.removeprefix("http://")):
        unix = place.removeprefix("unix:").removeprefix("//")
    elif place is not None:
        http = place.removeprefix("http://")
    number = PORT if options.port is None and http is None else options.port
    chosen = {**vars(options), "http": http, "ws": None, "unix": unix, "port": number, "workers": 1}
    return ListenAddress.of(Namespace(**chosen))


def log_to_stderr(options: Namespace) -> None:
    if options.verbose:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=form)
    else:
        silence_warnings()
        teller = _Teller(logging.WARNING)
        for topic in _ABOUT:
            logging.getLogger(f"fairlead.gateway.{topic}").addHandler(teller)


class _Teller(logging.Handler):
    """Says it in the words of the log, and the same thing not over and over."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said: tuple[str, float] = ("", float("-inf"))

    def emit(self, record: logging.LogRecord) -> None:
        text, now = record.getMessage(), time.monotonic()
        before, when = self._said
        if text == before and now < when + AGAIN:
            return
        self._said = (text, now)
        first, *more = text.splitlines() or [""]
        print_message("error" if record.levelno >= logging.ERROR else "warning", safe(first), "33")
        for line in more:
            sys.stderr.write(f"  | {safe(line)}\n")
