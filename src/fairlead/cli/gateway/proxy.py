"""`fairlead proxy`: serves one server to clients of another transport or revision."""

import asyncio
import os
import re
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...config.upstream_settings import OLD_SHARE
from ..framework.access_options import ACCESS, require_network
from ..framework.command_errors import NO_CONNECTION, CommandError, UsageError, print_message
from ..framework.connect_target import ConnectTarget, parse_with_server
from ..framework.parser import (
    INPUT,
    JOURNAL,
    RELAY_ERA,
    RULES,
    Parser,
    add_record_options,
    add_url_options,
    flag,
    option,
    seconds,
)

if TYPE_CHECKING:
    from ...client.server_entry import MCPServerEntry
    from ...gateway import Relay
    from ...interceptor import Interceptor
    from ...policy.rules.ruleset import RuleSet
    from ...upstream.server_target import ServerTarget

__all__ = [
    "ListenTarget",
    "add_listen_options",
    "require_program",
    "run",
    "run_record",
    "serve",
    "target_of_options",
]


def run(argv: Sequence[str]) -> int:
    from .tape_options import recording

    options, target = parse_with_server(_parser(), argv, "proxy")
    made: list[Relay] = []
    with recording(options) as interceptors:

        def make() -> "Relay":
            made.append(_relay(options, target, interceptors))
            return made[0]

        code = serve(options, make)
    if options.listen == "stdio" and not made[0].pool.opener.wanted:
        print_message("note", f"stdin closed before any request; {made[0].name} was not used")
    return code


def run_record(argv: Sequence[str]) -> int:
    """Run `fairlead record NAME ...` as `fairlead proxy --record NAME ...`."""
    if not argv or argv[0] in ("-h", "--help"):
        Parser(
            "record",
            "Run a proxy for one server and record all messages on a tape. Equivalent to\n"
            "`fairlead proxy --record NAME`, with the same options.",
            usage="NAME [options] (SERVER | URL | -- COMMAND...)",
            examples="  fairlead record monday -- uvx some-server\n"
            "  fairlead record monday --listen http://127.0.0.1:8080 notes\n"
            "  fairlead tape show monday\n\n`fairlead proxy --help` shows the options.",
        ).print_help()
        return 0
    if argv[0].startswith("-"):
        raise UsageError("Missing tape name: it must come first", hint="`fairlead record NAME ...`")
    return run(["--record", *argv])


def serve(options: Namespace, make: Callable[[], "Relay"]) -> int:
    """Serve the relay that `make` returns at the `--listen` address."""
    listen = ListenTarget.of(options.listen)
    if listen.kind == "stdio":
        who, hint = "a proxy on the network", "add --listen http://HOST:PORT"
        require_network(options, who, hint)
        return _on_stdio(make())
    return _on_network(listen, options, make)


@dataclass(frozen=True)
class ListenTarget:
    """The address where clients connect; by default this process's stdin and stdout."""

    kind: str = "stdio"  # or http, https, ws, wss, unix
    place: str = ""  # HOST:PORT, or the path of a socket
    path: str = ""  # path of the endpoint in the URL

    @classmethod
    def of(cls, text: str) -> "ListenTarget":
        """Parse the value of `--listen`. Raises `UsageError` if it is invalid."""
        if text == "stdio":
            return cls()
        if text.startswith("unix:") and text != "unix:":
            return cls("unix", text.removeprefix("unix:").removeprefix("//"))
        # The short form [HOST:]PORT is accepted for consistency with other commands.
        if re.fullmatch(r"(?:[^/]*:)?\d+", text):
            text = f"http://{text}" if ":" in text else f"http://127.0.0.1:{text}"
        try:
            parts = urlsplit(text)
            known = parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname)
            extra = parts.query or parts.fragment or parts.username is not None
            if known and not extra and parts.port is not None:
                return cls(parts.scheme, parts.netloc, "" if parts.path == "/" else parts.path)
        except ValueError:
            pass
        raise UsageError(
            f"Invalid listen address {text!r}",
            hint="expected stdio, [HOST:]PORT, http://HOST:PORT[/path], ws://HOST:PORT[/path] or "
            "unix:PATH; port 0 selects a free port",
        )


def _on_stdio(relay: "Relay") -> int:
    from ...server.run_program import run_program
    from ...transport.stdio.descriptor_limit import raise_descriptor_limit

    raise_descriptor_limit()
    if sys.stdin is not None and sys.stdin.isatty():
        print_message("serving", f"{relay.name} on stdin and stdout. Stop with Ctrl-C or Ctrl-D.")
    run_program(relay.run_stdio)
    return 0


def _on_network(listen: ListenTarget, options: Namespace, make: Callable[[], "Relay"]) -> int:
    from ..framework.listen_address import ListenAddress, serve_at

    if listen.kind in ("https", "wss") and options.tls_cert is None:
        raise UsageError(f"{listen.kind} requires a certificate: --tls-cert FILE")
    kind = {"https": "http", "wss": "ws"}.get(listen.kind, listen.kind)
    places: dict[str, str | None] = {"http": None, "ws": None, "unix": None, kind: listen.place}
    endpoint = ListenAddress.of(
        Namespace(**vars(options), **places, host=None, port=None, workers=1)
    )
    endpoint = replace(endpoint, port_option="--listen")
    path = "ws_path" if listen.kind.startswith("ws") else "path"
    settings = endpoint.settings(**({path: listen.path} if listen.path else {}))
    serve_at(make(), endpoint, settings)
    return 0


# The upstream server


def _relay(
    options: Namespace,
    target: ConnectTarget,
    interceptors: "Callable[[MCPServerEntry], list[Interceptor]]",
) -> "Relay":
    from ...gateway import Relay, RelaySettings

    limits = {}
    if options.timeout is not None:
        limits = {"connect_timeout": options.timeout, "call_timeout": options.timeout}
    if options.upstream is not None:
        options.share = OLD_SHARE[options.upstream]
        print_message("warning", f"--upstream {options.upstream} is now --share {options.share}")
    way, entry = target_of_options(options, target)
    settings = RelaySettings(
        share=options.share,
        era=entry.era if options.era == "auto" else options.era,
        strict=options.strict,
        **limits,
    )
    require_program(entry)
    rules = _rules(options.rules, entry)
    among = [*interceptors(entry), *rules]
    if options.journal:
        relay = _watched(way, entry, settings=settings, interceptors=among)
    else:
        relay = Relay(way, settings=settings, interceptors=among)
    for one in rules:
        one.attach_to(relay)
    return relay


def _watched(way: "ServerTarget", entry: "MCPServerEntry", **options: Any) -> "Relay":
    from ...observe.log_filter import follow_secrets
    from ...recording.journal import Journal
    from ...recording.tape.known_secrets import secrets_of
    from ...redaction.redact_messages import Redactor
    from ..tap.watched_relay import WatchedRelay

    journal = Journal(redactor=follow_secrets(Redactor(values=secrets_of(entry))))
    return WatchedRelay(way, journal=journal, **options)


def require_program(entry: "MCPServerEntry") -> None:
    """Raise `CommandError` for a missing program at start-up,
    because the first client may connect later.
    """
    from ...client.server_entry import MCPStdioServerConfig
    from ..framework.output import visible
    from ..framework.remedies import find_program

    if isinstance(entry, MCPStdioServerConfig) and find_program(entry) is None:
        raise CommandError(
            f"Program not found: {visible(entry.command)!r}",
            hint="check the spelling and the PATH",
            code=NO_CONNECTION,
        )


def _rules(path: str | None, entry: "MCPServerEntry") -> "list[RuleSet]":
    if path is None:
        return []
    from ...observe.log_filter import follow_secrets
    from ...policy.rules.gateway_actions import gateway_actions
    from ...policy.rules.ruleset import RuleSet
    from ...recording.tape.known_secrets import secrets_of
    from ...redaction.redact_messages import Redactor

    known = follow_secrets(Redactor(values=secrets_of(entry)))
    return [RuleSet.of_file(path, actions=gateway_actions(), known=known)]


def target_of_options(
    options: Namespace, target: ConnectTarget
) -> "tuple[ServerTarget, MCPServerEntry]":
    """Return the server target given on the command line, and its configuration entry.

    A configured server's variables are resolved again for each connection.
    """
    from ...upstream.server_target import target_for

    if target.name:
        from ...config.variables.resolve import resolve_in_thread
        from ..framework.server_lookup import named_server

        server = asyncio.run(named_server(target.name, options))

        async def resolve() -> "MCPServerEntry":
            return (await resolve_in_thread(server.found, inputs=server.given)).entry

        entry = server.resolved.entry
        found = target_for(
            entry,
            target.name,
            resolve=resolve,
            on_stderr=_show,
            credentials=server.credentials,
        )
        return found, entry
    headers = {}
    if target.url:
        _require_url(target)
        headers = target.headers(Namespace(header=options.header, token=None))
        # Clients see this name. Other parts of the URL, even its path, may contain a key.
        parts = urlsplit(target.url)
        name = parts.netloc.rpartition("@")[2] or os.path.basename(parts.path) or "server"
    else:
        name = os.path.basename(target.command[0])  # clients see the name, not the script
    entry = target.entry(headers, sse=options.sse)
    return target_for(entry, name, on_stderr=_show), entry


def _require_url(target: ConnectTarget) -> None:
    """Raise `UsageError` for an invalid URL at start-up,
    because the first client may connect later.
    """
    from ...errors import ConfigError
    from ...transport.http.client.http1.url import EndpointUrl

    try:
        EndpointUrl.parse(re.sub(r"(?i)^ws", "http", target.url))
    except ConfigError as exc:
        raise UsageError(
            "Invalid server URL",
            hint="expected http://HOST[:PORT][/path], ws://HOST[:PORT][/path] or unix:PATH",
        ) from exc


def _show(line: str) -> None:
    """Forward a line of the server's stderr without a prefix, as if there were no proxy."""
    from ..framework.output import safe

    sys.stderr.write(f"{safe(line)}\n")


# The command line


def _parser() -> Parser:
    parser = Parser(
        "proxy",
        "Connect clients to one server. Both sides may use any protocol revision, over stdio,\n"
        "HTTP, WebSocket or a unix socket.",
        option(
            "server",
            metavar="SERVER | URL",
            nargs="*",
            help="a configured server (`fairlead list`), or a URL",
        ),
        option(
            "--share",
            choices=("all", "alike", "session"),
            default="alike",
            help="which clients share a connection to the server: all, those with the same "
            "principal and capabilities (alike, default), or none (session)",
        ),
        option("--upstream", choices=tuple(OLD_SHARE), help=SUPPRESS),
        RELAY_ERA,
        flag(
            "--strict",
            help="drop notifications sent in a direction that the specification does not allow",
        ),
        option(
            "--timeout",
            type=seconds,
            metavar="SECONDS",
            help="limit for connecting to the server (default: 30) and for a pause "
            "between two messages of a call (default: 3600)",
        ),
        RULES,
        INPUT,
        JOURNAL,
        usage="[options] (SERVER | URL | -- COMMAND...)",
        examples="  fairlead proxy --listen http://127.0.0.1:8081 -- uvx some-server\n"
        "  fairlead proxy https://example.com/mcp --header 'X-Key: ...'\n"
        "  fairlead proxy --listen ws://127.0.0.1:8080/ws notes\n"
        "  fairlead proxy --listen unix:/tmp/notes.sock --share session notes\n"
        "  fairlead proxy --record monday notes",
    )
    add_listen_options(parser)
    add_record_options(parser)
    add_url_options(parser)
    return parser


def add_listen_options(parser: Parser) -> None:
    """Add the options for the listening address and for access."""
    parser.add(
        option(
            "--listen",
            default="stdio",
            metavar="WHERE",
            help="stdio (default), [HOST:]PORT, http://HOST:PORT[/path], ws://HOST:PORT[/path] or "
            "unix:PATH. Every address serves both HTTP and WebSocket",
        )
    )
    parser.add_group(
        "network access", "An address that other machines can reach requires a token.", *ACCESS
    )
