"""`fairlead proxy`: one server for clients that speak something else, or come another way."""

import asyncio
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .access import ACCESS, add_access_options
from .failed import NO_CONNECTION, USAGE, Failed, say
from .tape_recording import add_record_options, recording
from .target import Target, split_target
from .usage import Parser, add_input_option, read_pairs, seconds

if TYPE_CHECKING:
    from ..client.entries import MCPServerEntry
    from ..gateway import Relay
    from ..gateway.rules.ruleset import RuleSet
    from ..gateway.way import Way
    from ..interceptor import Interceptor
    from ..transport.base import Channel

__all__ = ["Listen", "add_listen_options", "add_url_options", "run", "serve", "way_of"]

FindEntry = Callable[[], "Awaitable[MCPServerEntry]"]

_EXAMPLE = "fairlead proxy --listen http://127.0.0.1:8081"


def run(argv: Sequence[str]) -> int:
    options, target = _read(argv)
    made: list[Relay] = []
    with recording(options) as interceptors:

        def make() -> "Relay":
            made.append(_relay(options, target, interceptors))
            return made[0]

        code = serve(options, make)
    if options.listen == "stdio" and not made[0].upstream.wanted:
        say("note", f"stdin ended before a client asked for anything; {made[0].name} was not used")
    return code


def serve(options: Namespace, make: Callable[[], "Relay"]) -> int:
    """Serve what `make` makes, where `--listen` says."""
    listen = Listen.of(options.listen)
    if listen.stdio:
        _require_no_access(options)
        return _on_stdio(make())
    return _on_network(listen, options, make)


@dataclass(frozen=True)
class Listen:
    """Where clients come in; the default is the client that started us."""

    kind: str = "stdio"  # or http, ws, unix; with an s at the end for TLS
    place: str = ""  # HOST:PORT, or the path of a socket
    path: str = ""  # of the endpoint

    @classmethod
    def of(cls, text: str) -> "Listen":
        """Raises `Failed` for what is no place to listen at."""
        if text == "stdio":
            return cls()
        if text.startswith("unix:") and text != "unix:":
            return cls("unix", text.removeprefix("unix:").removeprefix("//"))
        if re.fullmatch(r"(?:[^/]*:)?\d+", text):  # [HOST:]PORT, as other commands have it
            text = f"http://{text}" if ":" in text else f"http://127.0.0.1:{text}"
        try:
            parts = urlsplit(text)
            known = parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname)
            extra = parts.query or parts.fragment or parts.username is not None
            if known and not extra and parts.port is not None:
                return cls(parts.scheme, parts.netloc, "" if parts.path == "/" else parts.path)
        except ValueError:
            pass
        raise Failed(
            f"{text!r} is no place to listen at",
            hint="it is stdio, [HOST:]PORT, http://HOST:PORT[/path], ws://HOST:PORT[/path] or "
            "unix:PATH; port 0 takes any that is free",
            code=USAGE,
        )

    @property
    def stdio(self) -> bool:
        return self.kind == "stdio"

    @property
    def websocket(self) -> bool:
        return self.kind.startswith("ws")


def _on_stdio(relay: "Relay") -> int:
    from ..server.run import run_program

    if sys.stdin is not None and sys.stdin.isatty():
        say("serving", f"{relay.name} on stdin and stdout. Ctrl-C or Ctrl-D ends it.", "32")
    run_program(relay.run_stdio)
    return 0


def _on_network(listen: Listen, options: Namespace, make: Callable[[], "Relay"]) -> int:
    from ..transport.http.settings import HttpSettings
    from .network import Endpoint, run_http

    if listen.kind in ("https", "wss") and options.tls_cert is None:
        raise Failed(f"{listen.kind} needs a certificate: --tls-cert FILE", code=USAGE)
    kind = {"https": "http", "wss": "ws"}.get(listen.kind, listen.kind)
    places: dict[str, str | None] = {"http": None, "ws": None, "unix": None, kind: listen.place}
    endpoint = Endpoint.of(Namespace(**vars(options), **places, host=None, port=None, workers=1))
    settings = HttpSettings(
        auth_token=endpoint.token,
        allowed_hosts=endpoint.hosts,
        allowed_origins=endpoint.origins,
        session_store=endpoint.session_store(),
    )
    if listen.path and listen.websocket:
        settings.ws_path = listen.path
    elif listen.path:
        settings.path = listen.path
    endpoint.require_guard(settings)
    relay = make()
    listening = endpoint.listen()

    def started() -> None:
        has_token = settings.auth_token is not None
        endpoint.announce(relay.name, listening, has_token=has_token, settings=settings)

    try:
        run_http(relay, endpoint, listening, settings, started)
    finally:
        endpoint.clean_up(listening)
    return 0


# The server behind us


def _relay(
    options: Namespace,
    target: Target,
    interceptors: "Callable[[MCPServerEntry], list[Interceptor]]",
) -> "Relay":
    from ..gateway import Relay, RelaySettings

    limits = {}
    if options.timeout is not None:
        limits = {"connect_timeout": options.timeout, "call_timeout": options.timeout}
    settings = RelaySettings(
        upstream=options.upstream, era=options.era, strict=options.strict, **limits
    )
    way, entry = way_of(options, target)
    _require_program(entry)
    rules = _rules(options.rules, entry)
    among = [*interceptors(entry), *rules]
    if options.journal:
        relay = _watched(way, entry, settings=settings, interceptors=among)
    else:
        relay = Relay(way, settings=settings, interceptors=among)
    for one in rules:
        one.stand_before(relay)
    return relay


def _watched(way: "Way", entry: "MCPServerEntry", **options: Any) -> "Relay":
    from ..gateway.journal import Journal
    from ..gateway.tape.secrets import secrets_of
    from ..observe.redactor import Redactor
    from .tap_relaying import WatchedRelay

    journal = Journal(redactor=Redactor(values=secrets_of(entry)))
    return WatchedRelay(way, journal=journal, **options)


def _require_program(entry: "MCPServerEntry") -> None:
    """What cannot be found is told now; the first client may come much later."""
    from ..client.entries import MCPStdioServerConfig
    from ..transport.process import child_environment
    from .output import visible

    if not isinstance(entry, MCPStdioServerConfig):
        return
    command = entry.command
    if os.path.dirname(command):
        there = os.path.lexists(os.path.join(entry.cwd or os.curdir, command))
    else:
        path = child_environment(entry.env, entry.inherit_env).get("PATH")
        there = shutil.which(command, path=path) is not None
    if not there:
        raise Failed(
            f"There is no program {visible(command)!r}",
            hint="check the spelling and the PATH",
            code=NO_CONNECTION,
        )


def _rules(path: str | None, entry: "MCPServerEntry") -> "list[RuleSet]":
    """What happens to messages, if somebody says so."""
    if path is None:
        return []
    from ..errors import ConfigError
    from ..gateway.rules.ruleset import RuleSet
    from ..gateway.rules.wired import wired_actions
    from ..gateway.tape.secrets import secrets_of
    from ..observe.redactor import Redactor
    from .output import safe

    known = Redactor(values=secrets_of(entry))
    try:
        return [RuleSet.of_file(path, actions=wired_actions(), known=known)]
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc


def way_of(options: Namespace, target: Target) -> "tuple[Way, MCPServerEntry]":
    """How to reach the server that a command line names, and what it is now."""
    from ..gateway.way import Way

    find, first, name = _found(options, target)

    async def dial() -> "Channel":
        return await _dial(await find())

    shared = first.type == "stdio"
    return Way(name=name, open=dial, shared=shared, id_format=first.request_id_format), first


def _found(options: Namespace, target: Target) -> "tuple[FindEntry, MCPServerEntry, str]":
    """How to get the entry for each connection, what it is now, and what to call it."""
    from ..client.entries import (
        MCPHttpServerConfig,
        MCPSseServerConfig,
        MCPStdioServerConfig,
        MCPWebSocketServerConfig,
    )

    if target.name:
        return _configured(options, target.name)
    entry: MCPServerEntry
    if target.command:
        program, *args = target.command
        entry = MCPStdioServerConfig(command=program, args=args, env=target.environment)
        name = os.path.basename(program)
    else:
        _require_url(target)
        headers = target.headers(Namespace(header=options.header, token=None))
        kind = MCPSseServerConfig if options.sse else MCPHttpServerConfig
        if target.is_websocket:
            entry = MCPWebSocketServerConfig(url=_with_path(target.url), headers=headers)
        else:
            entry = kind(url=target.url, headers=headers)
        # Clients are told the name. A key may be anywhere else in the URL, also in its path.
        name = _host(target.url)

    async def find() -> "MCPServerEntry":
        return entry

    return find, entry, name


def _host(url: str) -> str:
    """Return the host and port of a URL, or the file name of a socket."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or os.path.basename(parts.path) or "server"


def _require_url(target: Target) -> None:
    """What can be no server is told now; the first client may come much later."""
    from ..errors import ConfigError
    from ..transport.http.address import Address

    try:
        Address.parse(re.sub(r"(?i)^ws", "http", target.url))
    except ConfigError as exc:
        raise Failed(
            "The URL names no server",
            hint="it is written http://HOST[:PORT][/path], ws://HOST[:PORT][/path] or unix:PATH",
            code=USAGE,
        ) from exc


def _configured(options: Namespace, name: str) -> "tuple[FindEntry, MCPServerEntry, str]":
    """A server that is configured; its variables are filled in for each connection anew."""
    from ..errors import ConfigError
    from .named import ask_inputs, every_server, fill_in, find_server
    from .output import safe
    from .remedies import diagnose

    found = find_server(name, every_server(), or_command=True)

    async def begin() -> "tuple[dict[str, str], MCPServerEntry]":
        given = await ask_inputs(found, read_pairs(options.input, "--input"))
        resolved = await fill_in(found, given)
        for warning in resolved.warnings:
            say("warning", safe(warning), "33")
        return given, resolved.entry

    try:
        given, entry = asyncio.run(begin())
    except ConfigError as exc:
        raise diagnose(exc, found) from exc

    async def find() -> "MCPServerEntry":
        return (await fill_in(found, given)).entry

    return find, entry, name


async def _dial(entry: "MCPServerEntry") -> "Channel":
    from ..client.entries import MCPStdioServerConfig, MCPWebSocketServerConfig
    from ..client.transports import HttpTransport, StdioTransport, WebSocketTransport
    from ..gateway.way import CALLS_AT_ONCE

    if isinstance(entry, MCPStdioServerConfig):
        return await StdioTransport(entry, on_stderr=_show).open_channel()
    if isinstance(entry, MCPWebSocketServerConfig):
        return await WebSocketTransport(entry).open_channel()
    return await HttpTransport(entry, http={"pool_size": CALLS_AT_ONCE}).open_channel()


def _with_path(url: str) -> str:
    """A WebSocket without a path is meant to be where `fairlead serve` has it."""
    parts = urlsplit(url)
    return url if parts.path not in ("", "/") else parts._replace(path="/ws").geturl()


def _show(line: str) -> None:
    """What the server writes to stderr, it would have shown without us too."""
    from .output import safe

    sys.stderr.write(f"{safe(line)}\n")


# The command line


def _read(argv: Sequence[str]) -> tuple[Namespace, Target]:
    own, target = list(argv), Target()
    if "--" in own:
        own, target = split_target(own)
    options = _parser().parse_args(own)
    if options.server:
        if target.command:
            raise Failed("There are two servers to talk to", hint="name one", code=USAGE)
        if len(options.server) > 1:
            target.require_no_stray(options.server, "proxy")
        _, target = split_target(options.server)
    about = {"header": options.header, "sse": options.sse, "input": options.input}
    target.require(Namespace(**about, token=None, insecure_tls=False), _EXAMPLE)
    return options, target


def _require_no_access(options: Namespace) -> None:
    for name in ACCESS:
        if getattr(options, name):
            raise Failed(
                f"--{name.replace('_', '-')} is for clients that come over the network",
                hint="add --listen http://HOST:PORT",
                code=USAGE,
            )


def _parser() -> Parser:
    parser = Parser(
        "proxy",
        "Stand between clients and one server. Either side may be of any era and revision,\n"
        "and come over stdio, HTTP, WebSocket or a unix socket.",
        usage="[options] (SERVER | URL | -- COMMAND...)",
        examples=f"  {_EXAMPLE} -- uvx some-server\n"
        "  fairlead proxy https://example.com/mcp --header 'X-Key: ...'\n"
        "  fairlead proxy --listen ws://127.0.0.1:8080/ws notes\n"
        "  fairlead proxy --listen unix:/tmp/notes.sock --upstream per-session notes\n"
        "  fairlead proxy --record monday notes",
    )
    parser.add_argument(
        "server",
        metavar="SERVER | URL",
        nargs="*",
        help="one that is configured (`fairlead list`), or a URL",
    )
    add_listen_options(parser)
    parser.add_argument(
        "--upstream",
        choices=("shared", "per-session"),
        default="shared",
        help="whether sessions share one process of the server (default), or each has its own",
    )
    parser.add_argument(
        "--era",
        choices=("auto", "handshake", "stateless"),
        default="auto",
        help="what to speak to the server; by default what the client speaks, if the server does",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="drop notifications that only the other side may send; else they pass like all others",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="how long the server may take to connect (default: 30), and be silent while it works "
        "on a call (default: 3600)",
    )
    parser.add_argument(
        "--rules",
        metavar="FILE",
        help="what happens to messages: TOML, YAML or JSON; it may change while this runs "
        "(`fairlead rules check FILE`)",
    )
    add_input_option(parser)
    parser.add_argument(
        "--journal", action="store_true", help="let `fairlead watch` show what passes"
    )
    add_record_options(parser)
    add_url_options(parser)
    return parser


def add_listen_options(parser: Parser) -> None:
    """Where to serve, and who may come."""
    parser.add_argument(
        "--listen",
        default="stdio",
        metavar="WHERE",
        help="stdio (default), [HOST:]PORT, http://HOST:PORT[/path], ws://HOST:PORT[/path] or "
        "unix:PATH. An address serves HTTP and WebSocket; the first is what it says",
    )
    network = parser.add_argument_group(
        "on the network", "What other machines can reach needs a token."
    )
    add_access_options(network)


def add_url_options(parser: Parser) -> None:
    remote = parser.add_argument_group(
        "a server elsewhere", "FAIRLEAD_TOKEN in the environment says to it who you are."
    )
    remote.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="send this with each request; may be repeated",
    )
    remote.add_argument(
        "--sse", action="store_true", help="try HTTP+SSE of 2024-11-05 first, not last"
    )
