"""Running a gateway process: socket, servers, output and shutdown."""

import asyncio
import logging
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import socket
from urllib.parse import urlsplit

from ...gateway import Gateway, GatewaySettings, View
from ...gateway.backends.gateway_servers import GatewayServers
from ...gateway.clients.admission import ClientAccess
from ...gateway.operations.observability import Observability
from ...policy.rules.ruleset import RuleSet
from ...protocol.caller import Principal
from ...server.http_app.request_drain import DrainPlan
from ...server.http_app.uvicorn_runner import is_exposed, serve_http, url_of
from ...server.run_program import freeze_memory, run_program
from ...transport.http.server.http_settings import HttpSettings
from ...transport.stdio.descriptor_limit import raise_descriptor_limit
from ...upstream.memory.tool_cache import MCPToolCache
from ..framework.access_options import ACCESS
from ..framework.client_connection import silence_warnings
from ..framework.command_errors import UsageError, print_event
from ..framework.listen_address import ListenAddress
from ..framework.output import safe
from ..framework.parser import (
    INPUT,
    PROJECT,
    SERVERS_ERA,
    Parser,
    add_record_options,
    flag,
    option,
    port,
)
from ..tap.watched_relay import watchable
from .choose_servers import ChosenServers, OwnAddress
from .reload_on_change import GatewayReloader, follow_logins
from .screen import Screen
from .tape_options import record_while_running

__all__ = [
    "GatewayPlan",
    "add_gateway_options",
    "endpoint_of",
    "log_to_stderr",
    "serve_plan",
    "with_public_host",
]

PORT = 8765
AGAIN = 30.0  # seconds before the same warning is shown again
# Warnings shown without --verbose: invalid file changes, changed tools, and lost data.
_ABOUT = ("rules", "lock", "audit", "tape", "interceptors", "access")
GRACE = 1.0  # seconds for running calls when the gateway stops
LAST_CALLS = 0.1  # seconds after the end of the drain time in which cancelled calls end


@dataclass(frozen=True, kw_only=True)
class GatewayPlan:
    """The components and options of a gateway to run."""

    settings: GatewaySettings
    http: HttpSettings
    endpoint: ListenAddress
    options: Namespace
    read: Callable[[OwnAddress], ChosenServers]  # function that reads the servers from the files
    views: Mapping[str, View] = field(default_factory=dict)
    roles: Mapping[str, View] = field(default_factory=dict)  # access tokens and their views
    login_url: str | None = None  # URL at which clients log in
    admission: ClientAccess | None = None
    observing: Observability = field(default_factory=Observability)
    rules: RuleSet | None = None
    tape: Path | None = None  # path of the tape on which messages are recorded from the start
    lazy: bool = False  # True if the processes of unused servers are stopped


def serve_plan(plan: GatewayPlan) -> int:
    """Serve until a signal arrives.

    Raises:
        CommandError: The address cannot be used, or requires a token.
        ConfigError: A file is invalid.
    """
    raise_descriptor_limit()
    listening = plan.endpoint.listen()
    try:
        name = listening.getsockname()
        address = OwnAddress(unix=name) if isinstance(name, str) else OwnAddress(*name[:2])
        wanted = plan.read(address)
        with record_while_running(plan.observing.tapes, plan.tape, plan.options):
            drain = plan.endpoint.drain_plan(GRACE)
            run_program(
                lambda: _serve(plan, listening, address, wanted, drain),
                stop_limit=plan.endpoint.stop_limit,
                signals=drain.signals,
            )
    finally:
        plan.endpoint.clean_up(listening)
    return 0


async def _serve(
    plan: GatewayPlan,
    listening: socket,
    address: OwnAddress,
    wanted: ChosenServers,
    drain: DrainPlan,
) -> None:
    tls = plan.endpoint.tls()
    url = plan.endpoint.reachable(url_of(listening, plan.http.path, tls=tls is not None))
    has_token = plan.http.auth_token is not None
    if plan.admission is not None:
        has_token = has_token or plan.admission.has_tokens
    opened = asyncio.Event()
    servers = GatewayServers(plan.settings, cache=MCPToolCache(), lazy=plan.lazy)
    async with (
        Gateway(
            servers,
            settings=plan.settings,
            views=plan.views,
            roles=plan.roles,
            is_admin=_admins(plan),
            observing=plan.observing,
            interceptors=() if plan.rules is None else (plan.rules,),
        ) as gateway,
        AsyncExitStack() as stack,
    ):
        if plan.admission is not None:
            plan.admission.refused = gateway.access_refused
        if plan.rules is not None:
            plan.rules.attach_to(gateway)
            stack.callback(plan.rules.close)
        if plan.observing.journal is not None:
            name = gateway.info["name"]
            await stack.enter_async_context(watchable(plan.observing.journal, name, "gateway"))
        token = plan.endpoint.shown_token if has_token else None
        # Runs in a thread, because user accounts may be looked up over the network.
        exposure = await asyncio.to_thread(
            plan.endpoint.exposure,
            has_token=has_token or plan.http.auth is not None,
            socket_option="--listen unix:PATH",
        )
        screen = Screen(
            gateway,
            url,
            token=token,
            login_url=plan.login_url,
            json=plan.options.json,
            exposure=exposure,
        )
        following = GatewayReloader(
            gateway,
            lambda: plan.read(address),
            changed=screen.changed,
            failed=screen.failed,
            warned=screen.warned,
            admission=plan.admission,
        )

        async def attend() -> None:
            await opened.wait()
            screen.opened(wanted)
            await following.apply(wanted)
            app.starting = False
            await screen.settle(wanted)
            # Modules and tool lists are excluded from garbage collection: a full collection blocked
            # all calls for 14 ms.
            freeze_memory()
            await asyncio.gather(following.follow(wanted.files), follow_logins(servers.upstreams))

        quiet = servers.upstreams.add_status_listener(screen.happened)
        app = gateway.create_http_app(plan.http)
        # Without its servers, which are added once the socket is open, it would seem to be ready.
        app.starting = True
        loop = asyncio.get_running_loop()
        serving = loop.create_task(
            serve_http(app, listening, tls=tls, started=opened.set, drain=drain)
        )
        attending = loop.create_task(attend())
        try:
            await asyncio.wait((serving, attending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            quiet()  # the shutdown itself is not reported
            screen.close()
            serving.cancel()
            attending.cancel()
            # The servers stop after the calls; the remaining time is for servers that stop slowly.
            await asyncio.wait((serving,), timeout=drain.limit + LAST_CALLS)
            await servers.close()
            await asyncio.wait((serving, attending))
        for task in (serving, attending):
            if not task.cancelled():
                task.result()


def _admins(plan: GatewayPlan) -> Callable[[Principal], bool] | None:
    if plan.admission is None or plan.http.auth is None:
        return None
    return plan.admission.is_admin


# The command line


def add_gateway_options(parser: Parser) -> None:
    """Add the options of `gateway` and `up`."""
    parser.add(
        option("--listen", metavar="WHERE", help="[HOST:]PORT, or the path of a unix socket"),
        option("--host", help="the address to listen on (default: 127.0.0.1)"),
        option(
            "--port",
            type=port,
            metavar="PORT",
            help=f"the port to listen on (default: {PORT}); 0 selects a free port",
        ),
        flag(
            "--search",
            help="list search tools instead of all tools, if there are too many tools for a model",
        ),
        SERVERS_ERA,
        PROJECT,
        INPUT,
        flag(
            "--json",
            help="print one JSON object when ready: the URL and the state of the servers",
        ),
        flag("-v", "--verbose", help="write a log to stderr"),
    )
    add_record_options(parser, named=False)
    parser.add_group(
        "network access", "An address that other machines can reach requires a token.", *ACCESS
    )


def endpoint_of(options: Namespace, listen: str | None = None) -> ListenAddress:
    """Return the listening address from the options, else from a file, else the default."""
    place = options.listen
    if place is None and options.host is None and options.port is None:
        place = listen
    elif place is not None and (options.host is not None or options.port is not None):
        raise UsageError("--listen cannot be combined with --host and --port")
    unix, http = None, None
    if place is not None and (place.startswith("unix:") or "/" in place.removeprefix("http://")):
        unix = place.removeprefix("unix:").removeprefix("//")
    elif place is not None:
        http = place.removeprefix("http://")
    number = PORT if options.port is None and http is None else options.port
    chosen = {**vars(options), "http": http, "ws": None, "unix": unix, "port": number, "workers": 1}
    return replace(ListenAddress.of(Namespace(**chosen)), port_option="--port")


def with_public_host(endpoint: ListenAddress, public_url: str) -> ListenAddress:
    """Return an address that also accepts the public URL's host, which a proxy forwards.

    A network address accepts every host unless hosts are listed.
    """
    host = urlsplit(public_url).hostname
    if host is None or (not endpoint.hosts and is_exposed(endpoint.host, HttpSettings())):
        return endpoint
    return replace(endpoint, hosts=(*endpoint.hosts, host))


def log_to_stderr(options: Namespace) -> None:
    if options.verbose:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=form)
    else:
        silence_warnings()
        teller = _Teller(logging.WARNING)
        for topic in ("sessions", "peer.output", *(f"gateway.{one}" for one in _ABOUT)):
            logging.getLogger(f"fairlead.{topic}").addHandler(teller)


class _Teller(logging.Handler):
    """A log handler that prints warnings to stderr and suppresses repetitions."""

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
        print_event("error" if record.levelno >= logging.ERROR else "warning", safe(first), "33")
        for line in more:
            sys.stderr.write(f"  | {safe(line)}\n")
