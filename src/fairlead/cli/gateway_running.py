"""Running a gateway as a program: its socket, its servers, its screen, and an end of them all."""

import asyncio
import logging
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from socket import socket

from ..errors import FairleadError
from ..gateway import Gateway, GatewaySettings, View
from ..gateway.admission import Admission
from ..gateway.journal import Journal
from ..gateway.journal.announcing import announced
from ..gateway.observing import Observing
from ..gateway.rules.ruleset import RuleSet
from ..manager.cache import MCPToolCache
from ..manager.manager import MCPManager
from ..server.run import freeze_memory, run_program
from ..server.run_http import serve_http, url_of
from ..transport.http.settings import HttpSettings
from .access import add_access_options
from .connection import be_quiet
from .failed import USAGE, Failed, say
from .gateway_following import Following
from .gateway_notices import tell_notices
from .gateway_port import listen
from .gateway_recording import Record, recorded
from .gateway_screen import Screen
from .gateway_servers import Address, Wanted
from .network import Endpoint
from .output import visible
from .tape_recording import add_record_options
from .usage import Parser, add_input_option

__all__ = [
    "Plan",
    "add_gateway_options",
    "endpoint_of",
    "log_if_asked",
    "require_project",
    "run_gateway",
]

PORT = 8765
GRACE = 1.0  # seconds that calls may go on when the gateway ends


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A gateway that is to be run."""

    settings: GatewaySettings
    http: HttpSettings
    endpoint: Endpoint
    project: str
    read: Callable[[Address], Wanted]  # the servers, anew each time
    views: Mapping[str, View] = field(default_factory=dict)
    admission: Admission | None = None
    observing: Observing = field(default_factory=Observing)
    rules: RuleSet | None = None
    record: Record | None = None
    json: bool = False


def run_gateway(plan: Plan) -> int:
    """Serve until a signal comes.

    Raises:
        Failed: it cannot listen there, or should not.
        ConfigError: its files are wrong.
    """
    plan.endpoint.require_guard(plan.http)
    listening = listen(plan.endpoint)
    try:
        name = listening.getsockname()
        address = Address(unix=name) if isinstance(name, str) else Address(*name[:2])
        wanted = plan.read(address)
        with recorded(plan.observing.tapes, plan.record):
            run_program(lambda: _serve(plan, listening, address, wanted))
    finally:
        plan.endpoint.clean_up(listening)
    return 0


async def _serve(plan: Plan, listening: socket, address: Address, wanted: Wanted) -> None:
    tls = plan.endpoint.tls()
    url = plan.endpoint.reachable(url_of(listening, plan.http.path, tls=tls is not None))
    has_token = plan.http.auth_token is not None or plan.http.verify_token is not None
    opened = asyncio.Event()
    async with (
        MCPManager(plan.project, cache=MCPToolCache(), on_roots=None) as manager,
        Gateway(
            manager,
            settings=plan.settings,
            views=plan.views,
            observing=plan.observing,
            interceptors=() if plan.rules is None else (plan.rules,),
        ) as gateway,
        AsyncExitStack() as stack,
    ):
        if plan.rules is not None:
            plan.rules.stand_before(gateway)
            stack.callback(plan.rules.close)
        if plan.observing.journal is not None:
            await stack.enter_async_context(_watched(plan.observing.journal, gateway.info["name"]))
        token = plan.endpoint.shown_token if has_token else None
        exposure = await asyncio.to_thread(  # accounts may be looked up over the network
            plan.endpoint.exposure, has_token=has_token, socket_option="--listen unix:PATH"
        )
        screen = Screen(gateway, url, token=token, json=plan.json, exposure=exposure)
        following = Following(
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

        quiet = manager.add_status_listener(screen.happened)
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
            await manager.disconnect_all()
            await asyncio.wait((serving, attending))
        for task in (serving, attending):
            if not task.cancelled():
                task.result()


@asynccontextmanager
async def _watched(journal: Journal, name: str) -> AsyncIterator[None]:
    """Let `fairlead watch` find it; a gateway that cannot be watched still serves."""
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(announced(journal, name, "gateway"))
        except (OSError, FairleadError) as exc:
            say("warning", f"nobody can watch: {exc}", "33")
        yield


# The command line


def add_gateway_options(parser: Parser) -> None:
    """The options of both commands that run a gateway."""
    parser.add_argument("--listen", metavar="WHERE", help="[HOST:]PORT, or the path of a socket")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help=f"and the port (default: {PORT}); 0 takes any that is free",
    )
    parser.add_argument(
        "--search",
        action="store_true",
        default=None,
        help="offer a search for tools instead of all of them, for models that have too many",
    )
    parser.add_argument(
        "--project", metavar="FOLDER", default=os.curdir, help="whose project files count, too"
    )
    add_input_option(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object when it is ready: the URL, and how the servers are",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log to stderr what happens")
    add_record_options(parser, named=False)
    add_access_options(
        parser.add_argument_group("who may come in", "What other machines can reach needs a token.")
    )


def endpoint_of(options: Namespace, listen: str | None = None) -> Endpoint:
    """Where to listen: what the options say, else what a file says, else the usual place."""
    place = options.listen
    if place is None and options.host is None and options.port is None:
        place = listen
    elif place is not None and (options.host is not None or options.port is not None):
        raise Failed("--listen and --host, --port say the same twice", code=USAGE)
    unix, http = None, None
    if place is not None and (place.startswith("unix:") or "/" in place.removeprefix("http://")):
        unix = place.removeprefix("unix:").removeprefix("//")
    elif place is not None:
        http = place.removeprefix("http://")
    port = PORT if options.port is None and http is None else options.port
    chosen = {**vars(options), "http": http, "ws": None, "unix": unix, "port": port, "workers": 1}
    return Endpoint.of(Namespace(**chosen))


def require_project(options: Namespace) -> None:
    """Raises: Failed: the folder of the project is none."""
    if not os.path.isdir(options.project):
        raise Failed(f"There is no folder {visible(options.project)}", code=USAGE)


def log_if_asked(options: Namespace) -> None:
    if options.verbose:
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=form)
    else:
        be_quiet()
        tell_notices()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise ArgumentTypeError(f"{text!r} is no number from 0 to 65535")
    return int(text)
