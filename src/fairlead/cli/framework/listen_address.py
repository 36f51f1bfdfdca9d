"""Listening addresses: command-line options, access checks and start-up messages."""

import errno
import os
import re
import secrets
import stat
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError
from ...server.http_app.request_drain import GRACE, DrainPlan
from ...transport.http.server.http_settings import HttpSettings
from .command_errors import FAILED, CommandError, UsageError, print_event, print_message
from .suggested_commands import quoted, started_command, suggest_any

if TYPE_CHECKING:
    from ssl import SSLContext

    from ...gateway import Relay
    from ...server import MCPServer
    from ...transport.http.server.sessions.session_store import SessionStore

__all__ = [
    "EVERYWHERE",
    "ClientNeeds",
    "ListenAddress",
    "NetworkExposure",
    "run_http",
    "serve_at",
]

TOKEN_VARIABLE = "FAIRLEAD_AUTH_TOKEN"
GENERATED = "auto"  # the value of `--token` that generates a token
STOPPING = 4.0  # seconds for stopping servers and exiting, after running requests have ended
_NAMED = 3  # maximum number of other users that a warning names
# Addresses for all interfaces, and the addresses that clients connect to instead. The host
# check of `HttpSettings` accepts the latter.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True)
class NetworkExposure:
    """A warning that other users of this machine can use the server, with a remedy."""

    warning: str
    hint: str

    def show(self) -> None:
        """Write the warning and the hint to stderr."""
        print_message("warning", self.warning)
        print_message("hint", self.hint)


@dataclass(frozen=True, kw_only=True)
class ListenAddress:
    """A listening address and the access rules for its clients."""

    host: str = "127.0.0.1"
    port: int = 8080
    unix: str | None = None
    websocket: bool = False  # True if the WebSocket URL is shown first
    token: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    workers: int = 1
    sessions: str | None = None  # SQLite file for sessions
    session_idle: float | None = None  # seconds
    is_generated: bool = False  # True if Fairlead generated the token, so that it must be shown
    drain: float | None = None  # seconds for running requests after a signal; None for the default
    reloads: bool = False  # True if the process is replaced when its code changes
    port_option: str = "--port"  # name of the option that selects another port

    @classmethod
    def of(cls, options: Namespace, token: str | None = None) -> "ListenAddress":
        """Return the listening address that the options describe.

        Raises:
            CommandError: An option is invalid or contradicts another option.
        """
        host, port = _address(options)
        token = token or options.token
        if token is None:
            token = os.environ.get(TOKEN_VARIABLE) or None
        if is_generated := token == GENERATED:
            token = secrets.token_urlsafe(32)
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise UsageError("Invalid token: expected ASCII characters without spaces")
        if options.sessions is not None and options.workers > 1:
            why = "--sessions and --workers cannot be combined: workers do not share sessions"
            raise UsageError(why, hint="omit --sessions or --workers")
        if options.tls_key is not None and options.tls_cert is None:
            raise UsageError("--tls-key requires --tls-cert FILE")
        return cls(
            host=host,
            port=port,
            unix=None if options.unix is None else os.path.abspath(options.unix),
            websocket=options.ws is not None,
            token=token,
            hosts=tuple(options.allow_host),
            origins=tuple(options.allow_origin),
            certificate=options.tls_cert,
            key=options.tls_key,
            insecure=options.insecure,
            workers=options.workers,
            sessions=options.sessions,
            session_idle=options.session_idle,
            is_generated=is_generated,
            drain=options.drain,
            reloads=bool(vars(options).get("reload")),
            port_option=next(
                (f"--{one}" for one in ("http", "ws") if vars(options)[one]), "--port"
            ),
        )

    def settings(self, **more: Any) -> HttpSettings:
        """Return the HTTP settings. An `auth_token` in `more` is used if the options set no token.

        Raises:
            UsageError: Other machines could connect without a token.
        """
        settings = HttpSettings(
            allowed_hosts=self.hosts,
            allowed_origins=self.origins,
            session_store=self._session_store(),
            **more,
        )
        settings.auth_token = self.token or settings.auth_token
        if self.session_idle is not None:
            settings.session_idle = self.session_idle
        # Requests of one session may reach different workers, which do not share sessions.
        if self.workers > 1:
            settings.sessions = False
            settings.sse_path = None
        self._require_guard(settings)
        return settings

    def _session_store(self) -> "SessionStore | None":
        """Return the store for sessions that survive a restart, if `--sessions` is set.

        Raises:
            UsageError: The file cannot be used.
        """
        if self.sessions is None:
            return None
        from ...transport.http.server.sessions.sqlite_session_store import SqliteSessionStore

        try:
            return SqliteSessionStore(self.sessions).check()
        except OSError as exc:
            raise UsageError(f"--sessions {self.sessions}: {exc}") from exc

    def _require_guard(self, settings: HttpSettings) -> None:
        """Raise `UsageError` if other machines could connect without a token."""
        from ...server.http_app.uvicorn_runner import is_exposed

        if self.unix is None and not self.insecure and is_exposed(self.host, settings):
            raise UsageError(
                f"{self.host} can be reached from other machines, and no token is required",
                hint=f"set a token with --token or {TOKEN_VARIABLE}, or pass --insecure if a "
                "proxy checks the clients",
            )

    def listen(self) -> socket:
        """Return the listening socket. Raises `CommandError` if the address cannot be used."""
        from ...server.http_app.uvicorn_runner import bind

        try:
            return bind(self.host, self.port, self.unix, HttpSettings(), insecure=True)
        except ConfigError as exc:
            if not _is_address_in_use(exc):
                raise CommandError(str(exc), code=FAILED) from exc
            if self.unix is not None:
                raise CommandError(str(exc), hint="choose another path", code=FAILED) from exc
            from ..gateway.port_in_use import port_in_use_error

            host = f"[{self.host}]" if ":" in self.host else self.host
            url = self.reachable(f"http://{host}:{self.port}/mcp")
            raise port_in_use_error(self.port, url, self.port_option) from exc

    def tls(self) -> "SSLContext | None":
        """Return the TLS context; None without a certificate. Raises `UsageError` if invalid."""
        if self.certificate is None:
            return None
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as exc:  # includes SSLError
            why = exc.strerror or str(exc)
            raise UsageError(f"Cannot use the certificate {self.certificate}: {why}") from exc
        return context

    def clean_up(self, listening: socket) -> None:
        """Close the socket; for a unix socket, also remove its file."""
        listening.close()
        if self.unix is None:
            return
        # Another process may have replaced the socket's file meanwhile, so it is removed only if
        # connecting to it is refused.
        with socket(AF_UNIX) as probe, suppress(OSError):
            try:
                probe.connect(self.unix)
            except ConnectionRefusedError:
                os.unlink(self.unix)

    def announce(
        self, name: str, listening: socket, settings: HttpSettings, access: "ClientNeeds"
    ) -> None:
        """Print the URLs, example commands to log in and to connect, and how to stop."""
        from ...server.http_app.uvicorn_runner import url_of

        tls = self.certificate is not None
        url = url_of(listening, settings.path, tls=tls)
        pasted = self.reachable(url)
        socket_url = "ws" + url.removeprefix("http").removesuffix(settings.path)
        socket_url += settings.ws_path or ""
        if self.unix is not None:
            places = f"{url} (HTTP on a unix socket)"
        elif self.websocket:
            pasted = self.reachable(socket_url)
            places = f"{socket_url} (HTTP: {url})"
        else:
            places = f"{url} (WebSocket: {socket_url})"
        print_message("serving", f"{name} at {places}")
        token = f" --token {self.shown_token}" if access.has_token else ""
        if access.public_url is not None and not self.websocket:
            pasted = access.public_url
        # Always in quotes, because users may append a query or fragment, which shells interpret.
        shown = f"'{pasted}'" if quoted(pasted) == pasted else quoted(pasted)
        program = suggest_any(*started_command())
        if access.has_login:
            print_message("log in", f"{program} login {shown}", "36")
        print_message("connect", f"{program} tools {shown}{token}", "36")
        if not self.websocket and self.unix is None:
            more = ["connect-hints", *(["--token"] if access.has_token else []), pasted]
            others = suggest_any(*started_command(), *more)
            print_message("connect", f"other programs: {others}", "36")
        print_message("stop", "Ctrl-C or SIGTERM", "36")
        guarded = access.has_token or access.has_login
        if exposure := self.exposure(has_token=guarded, socket_option="--unix PATH"):
            exposure.show()

    def drain_plan(self, default: float = GRACE) -> DrainPlan:
        """Return how long the server goes on after a signal, `default` seconds if not set."""
        return DrainPlan(
            limit=default if self.drain is None else self.drain,
            # The new process of `--reload` waits for the end of the old one.
            keeps_listening=self.drain is not None and not self.reloads,
            report=lambda text: print_event("stopping", text, "36"),
        )

    @property
    def stop_limit(self) -> float | None:
        """Return the seconds between a signal and the process's exit; None for the default."""
        return None if self.drain is None else self.drain + STOPPING

    @property
    def shown_token(self) -> str:
        """Return the token if it was generated and must be shown to the user,
        else a placeholder.
        """
        return self.token if self.is_generated and self.token else "TOKEN"

    def exposure(self, *, has_token: bool, socket_option: str) -> NetworkExposure | None:
        """Return a warning if other users of this machine can use the server.

        A loopback address excludes other machines, but not other users of this machine.
        """
        if self.unix is not None:
            folder = os.path.dirname(self.unix)
            if not _is_open_to_all(folder):
                return None
            return NetworkExposure(
                f"every user of this machine can replace the socket: {folder} is writable for all",
                "use a folder that only you can write to",
            )
        if has_token or self.insecure:
            return None
        from .other_users import other_users

        others = other_users()
        if not others:
            return None
        shown = ", ".join(others[:_NAMED]) + (" and others" if len(others) > _NAMED else "")
        return NetworkExposure(
            f"other users of this machine ({shown}) can connect and use everything that is served "
            "here with your credentials",
            f"require a token (`--token {GENERATED}` generates one), or listen on a unix socket "
            f"(`{socket_option}`)",
        )

    def reachable(self, url: str) -> str:
        """Return a URL to connect to; an address for all interfaces is replaced with a loopback
        address.
        """
        if self.host not in EVERYWHERE:
            return url
        shown, other = (f"[{h}]" if ":" in h else h for h in (self.host, EVERYWHERE[self.host]))
        return url.replace(shown, other, 1)


class ClientNeeds(NamedTuple):
    """The requirements of a server for its clients: a token, a login or nothing."""

    has_token: bool = False
    has_login: bool = False
    public_url: str | None = None  # URL for clients, if it differs from the server's own URL

    @classmethod
    def of(cls, settings: HttpSettings) -> "ClientNeeds":
        """Return the requirements in the settings of a server."""
        auth: Any = settings.auth  # from a server, so it is a `ServerAuth`
        if auth is None:
            return cls(settings.auth_token is not None)
        url = auth.client_url("", settings.path) or None
        return cls(not auth.has_login, auth.has_login, url)


def _is_address_in_use(error: BaseException) -> bool:
    """Return True if listening failed because another socket uses the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            return True
        cause = cause.__cause__
    return False


def _is_open_to_all(folder: str) -> bool:
    """Return True if every user may rename and remove files in the folder."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def serve_at(server: "MCPServer | Relay", endpoint: ListenAddress, settings: HttpSettings) -> None:
    """Listen, announce the address, and serve until a signal arrives."""
    listening = endpoint.listen()

    def started() -> None:
        endpoint.announce(server.name, listening, settings, ClientNeeds.of(settings))

    try:
        run_http(server, endpoint, listening, settings, started)
    finally:
        endpoint.clean_up(listening)


def run_http(
    server: "MCPServer | Relay",
    endpoint: ListenAddress,
    listening: socket,
    settings: HttpSettings,
    started: Callable[[], None],
) -> None:
    """Serve a listening socket until a signal arrives.

    Raises:
        CommandError: The server could not start.
    """
    from ...server.http_app.uvicorn_runner import serve_http
    from ...server.run_program import run_program
    from ...transport.stdio.descriptor_limit import raise_descriptor_limit

    raise_descriptor_limit()
    app = server.create_http_app(settings)
    tls = endpoint.tls()
    drain = endpoint.drain_plan()
    try:
        run_program(
            lambda: serve_http(app, listening, tls=tls, started=started, drain=drain),
            stop_limit=endpoint.stop_limit,
            signals=drain.signals,
        )
    # If a lifespan fails, uvicorn logs the reason and exits.
    except SystemExit as exc:
        raise CommandError(f"{server.name} could not start") from exc


def _address(options: Namespace) -> tuple[str, int]:
    """Return host and port from `--http`, `--ws`, or `--host` and `--port`."""
    short = options.http if options.http is not None else options.ws
    if short is None:
        return options.host or "127.0.0.1", 8080 if options.port is None else options.port
    if options.host is not None or options.port is not None:
        raise UsageError(
            "--host and --port cannot be combined with --http and --ws, which take [HOST:]PORT"
        )
    host, _, port = short.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"Invalid listen address {short!r}: expected [HOST:]PORT",
            hint="for example 8080, localhost:8080 or [::1]:8080",
        )
    return host or "127.0.0.1", int(port)
