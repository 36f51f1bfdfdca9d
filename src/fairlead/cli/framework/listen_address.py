"""What a command puts on the network: where, for whom, and what it says about that."""

import os
import re
import secrets
import stat
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...transport.http.server.http_settings import HttpSettings
from .command_errors import FAILED, CommandError, UsageError, print_message
from .suggested_commands import quoted

if TYPE_CHECKING:
    from ssl import SSLContext

    from ...gateway import Relay
    from ...server import MCPServer
    from ...transport.http.server.sessions.session_store import SessionStore

__all__ = ["EVERYWHERE", "ListenAddress", "NetworkExposure", "run_http", "serve_at"]

TOKEN_VARIABLE = "FAIRLEAD_AUTH_TOKEN"
GENERATED = "auto"  # as a token: make one
_NAMED = 3  # other users that a warning names
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # to connect to; our guard knows these names


@dataclass(frozen=True)
class NetworkExposure:
    """Others can use what is served: in what way, and what to do about it."""

    warning: str
    hint: str

    def show(self) -> None:
        """Write it to stderr."""
        print_message("warning", self.warning)
        print_message("hint", self.hint)


@dataclass(frozen=True, kw_only=True)
class ListenAddress:
    """One listening address and what is asked of those who come."""

    host: str = "127.0.0.1"
    port: int = 8080
    unix: str | None = None
    websocket: bool = False  # that is what it is for, so its URL is told first
    token: str | None = None
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    workers: int = 1
    sessions: str | None = None  # the file where they are kept
    session_idle: float | None = None  # seconds
    is_generated: bool = False  # the token, which is shown then

    @classmethod
    def of(cls, options: Namespace, token: str | None = None) -> "ListenAddress":
        """What the options of a command line mean.

        Raises:
            CommandError: saying which is wrong.
        """
        host, port = _address(options)
        token = token or options.token
        if token is None:
            token = os.environ.get(TOKEN_VARIABLE) or None
        if is_generated := token == GENERATED:
            token = secrets.token_urlsafe(32)
        if token is not None and not re.fullmatch(r"[!-~]+", token):
            raise UsageError("A token has no blanks and only ASCII characters")
        if options.sessions is not None and options.workers > 1:
            why = "With --workers there are no sessions to keep"
            raise UsageError(why, hint="leave out --sessions, or --workers")
        if options.tls_key is not None and options.tls_cert is None:
            raise UsageError("--tls-key needs its certificate: --tls-cert FILE")
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
        )

    def settings(self, **more: Any) -> HttpSettings:
        """For the application that is served; `auth_token` counts where the endpoint has none.

        Raises:
            CommandError: strangers could reach it, and nothing keeps them out.
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
        if self.workers > 1:  # nobody knows which of them gets the next request
            settings.sessions = False
            settings.sse_path = None
        self._require_guard(settings)
        return settings

    def _session_store(self) -> "SessionStore | None":
        """Where sessions survive a restart, if anywhere.

        Raises:
            CommandError: not in that file.
        """
        if self.sessions is None:
            return None
        from ...transport.http.server.sessions.sqlite_session_store import SqliteSessionStore

        try:
            return SqliteSessionStore(self.sessions).check()
        except OSError as exc:
            raise UsageError(f"--sessions {self.sessions}: {exc}") from exc

    def _require_guard(self, settings: HttpSettings) -> None:
        """Raises `CommandError` if strangers could reach it, and nothing keeps them out."""
        from ...server.http_app.uvicorn_runner import is_exposed

        if self.unix is None and not self.insecure and is_exposed(self.host, settings):
            raise UsageError(
                f"{self.host} can be reached from other machines, and no token keeps strangers out",
                hint=f"give it one with --token or {TOKEN_VARIABLE}, or say --insecure if "
                "something in front checks who may come in",
            )

    def listen(self) -> socket:
        """The socket. Raises `CommandError` if it cannot be had."""
        from ...server.http_app.uvicorn_runner import bind

        try:
            return bind(self.host, self.port, self.unix, HttpSettings(), insecure=True)
        except ConfigError as exc:
            taken = "Address already in use" in str(exc)
            other = "another path" if self.unix else "another port; 0 takes any that is free"
            raise CommandError(
                str(exc), hint=f"choose {other}" if taken else "", code=FAILED
            ) from exc

    def tls(self) -> "SSLContext | None":
        """The certificate, loaded. Raises `CommandError` if it cannot be used."""
        if self.certificate is None:
            return None
        import ssl

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as exc:  # an SSLError is one too
            why = exc.strerror or str(exc)
            raise UsageError(f"The certificate cannot be used: {why}") from exc
        return context

    def clean_up(self, listening: socket) -> None:
        """Afterwards: a unix socket leaves no file behind."""
        listening.close()
        if self.unix is None:
            return
        with socket(AF_UNIX) as probe, suppress(OSError):
            try:
                probe.connect(self.unix)
            except ConnectionRefusedError:  # so it is nobody else's by now
                os.unlink(self.unix)

    def announce(
        self, name: str, listening: socket, settings: HttpSettings, *, has_token: bool
    ) -> None:
        """Tell the person at the terminal what is where, how to connect and how to stop."""
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
            places = f"{socket_url} (the same over HTTP: {url})"
        else:
            places = f"{url} (the same over WebSocket: {socket_url})"
        print_message("serving", f"{name} at {places}")
        token = f" --token {self.shown_token}" if has_token else ""
        shown = f"'{pasted}'" if quoted(pasted) == pasted else quoted(pasted)  # a ? or # may follow
        print_message("connect", f"fairlead tools {shown}{token}", "36")
        print_message("stop", "Ctrl-C, or SIGTERM", "36")
        if exposure := self.exposure(has_token=has_token, socket_option="--unix PATH"):
            exposure.show()

    @property
    def shown_token(self) -> str:
        """The token for hints, if the user cannot know it otherwise."""
        return self.token if self.is_generated and self.token else "TOKEN"

    def exposure(self, *, has_token: bool, socket_option: str) -> NetworkExposure | None:
        """Return a warning if other users of this machine can use what is served.

        A loopback address keeps other machines out, but nobody on this one.
        """
        if self.unix is not None:
            folder = os.path.dirname(self.unix)
            if not _is_open_to_all(folder):
                return None
            return NetworkExposure(
                f"every user of this machine can replace the socket: anyone may write to {folder}",
                "put it into a folder of your own",
            )
        if has_token or self.insecure:
            return None
        from .other_users import other_users

        others = other_users()
        if not others:
            return None
        shown = ", ".join(others[:_NAMED]) + (" and others" if len(others) > _NAMED else "")
        return NetworkExposure(
            f"other users of this machine ({shown}) can connect, and use everything that is served "
            "here with your credentials",
            f"let in only who knows a token (`--token {GENERATED}` makes one), or listen on a "
            f"socket of your own (`{socket_option}`)",
        )

    def reachable(self, url: str) -> str:
        """An address that means all of this machine's is none to connect to."""
        if self.host not in EVERYWHERE:
            return url
        shown, other = (f"[{h}]" if ":" in h else h for h in (self.host, EVERYWHERE[self.host]))
        return url.replace(shown, other, 1)


def _is_open_to_all(folder: str) -> bool:
    """Whether every user may rename and remove what is in a folder."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def serve_at(server: "MCPServer | Relay", endpoint: ListenAddress, settings: HttpSettings) -> None:
    """Listen, tell so, and serve until a signal comes."""
    listening = endpoint.listen()

    def started() -> None:
        has_token = settings.auth_token is not None
        endpoint.announce(server.name, listening, settings, has_token=has_token)

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
    """Serve a socket until a signal comes.

    Raises:
        CommandError: the server could not start.
    """
    from ...server.http_app.uvicorn_runner import serve_http
    from ...server.run_program import run_program

    app = server.create_http_app(settings)
    tls = endpoint.tls()
    try:
        run_program(lambda: serve_http(app, listening, tls=tls, started=started))
    except SystemExit as exc:  # what uvicorn does when a lifespan fails; the log says why
        raise CommandError(f"{server.name} could not start") from exc


def _address(options: Namespace) -> tuple[str, int]:
    """Host and port, however they were given."""
    short = options.http if options.http is not None else options.ws
    if short is None:
        return options.host or "127.0.0.1", 8080 if options.port is None else options.port
    if options.host is not None or options.port is not None:
        raise UsageError("--host and --port are part of --http and --ws: [HOST:]PORT")
    host, _, port = short.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"{short!r} is no [HOST:]PORT", hint="for example 8080, localhost:8080 or [::1]:8080"
        )
    return host or "127.0.0.1", int(port)
