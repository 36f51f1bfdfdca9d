"""`fairlead login` and `fairlead logout`."""

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from getpass import getpass
from typing import Any

import msgspec

from ...auth.client.api_key import ApiKeyAuthorizer
from ...auth.client.interactive_login import (
    AuthorizationRequest,
    DeviceCode,
    LoginPrompt,
)
from ...auth.client.interactive_login import open_browser as open_page
from ...auth.client.oauth_authorizer import OAuthAuthorizer
from ...auth.client.oauth_settings import OAuthSettings, settings_of_entry
from ...auth.metadata import OtherResource, plain_url
from ...client.connection.endpoint_probe import find_endpoint
from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.stored_logins import authorizer_for, own_credential_store
from ...errors import AuthorizationError, ConnectFailed
from ...transport.address_hint import certificate_hint
from ..framework.client_connection import run_async
from ..framework.command_errors import CommandError, UsageError, print_message, unknown_name_error
from ..framework.connect_target import split_target
from ..framework.output import can_ask, pluralize, safe, visible, write
from ..framework.parser import INPUT, Parser, flag, option, repeated
from ..framework.server_lookup import named_server
from ..framework.suggested_commands import suggest
from .auth_status import describe_expiry, printed_warnings

__all__ = ["run_login", "run_logout", "run_reauth", "run_unauth"]

_SERVER = option("server", metavar="SERVER", help="a configured name, or the URL of a server")
_GATEWAY = option("--gateway", metavar="FILE", help="look up the name in this file")


def run_login(argv: Sequence[str]) -> int:
    return _run_login("login", argv)


def run_reauth(argv: Sequence[str]) -> int:
    return _run_login("mcp reauth", argv)


def run_logout(argv: Sequence[str]) -> int:
    return _run_logout("logout", argv)


def run_unauth(argv: Sequence[str]) -> int:
    return _run_logout("mcp unauth", argv)


def _run_login(command: str, argv: Sequence[str]) -> int:
    parser = Parser(
        command,
        "Log in to a server that requires OAuth, replacing a stored login. The login is stored in "
        "sealed files and renewed by every program of Fairlead that uses the server. A server "
        'with `"auth": {"type": "apikey"}` gets a key, which is read from the terminal or from '
        "stdin.",
        _SERVER,
        flag("--device", help="log in with a code on another device"),
        flag("--no-browser", help="print the page instead of opening a browser"),
        repeated(
            "--scope", metavar="SCOPE", help="request this scope instead of the default scopes"
        ),
        flag(
            "--new-client",
            help="register this program again, if the login page rejects its client id",
        ),
        _GATEWAY,
        INPUT,
        examples=f"  fairlead {command} notes\n  fairlead {command} notes --device\n",
    )
    options = parser.parse_args(argv)
    with printed_warnings():
        return run_async(_login(options))


def _run_logout(command: str, argv: Sequence[str]) -> int:
    parser = Parser(
        command,
        "Delete the stored login of a server and revoke its tokens.",
        _SERVER,
        _GATEWAY,
        INPUT,
        examples=f"  fairlead {command} notes\n",
    )
    options = parser.parse_args(argv)
    with printed_warnings():
        return run_async(_logout(options))


async def _login(options: Namespace) -> int:
    entry = await _entry(options)
    settings = _settings(entry, options)
    prompt = TerminalPrompt(options.server, browser=not options.no_browser)
    authorizer = _authorizer(entry, options, settings=settings, prompt=prompt)
    if isinstance(authorizer, ApiKeyAuthorizer):
        return await _store_key(authorizer, options)
    try:
        if options.new_client:
            authorizer.register_again()
        login = await authorizer.log_in(options.scope or None)
    except AuthorizationError as exc:
        raise await _login_failure(exc, entry, options) from exc
    write(f"Logged in to {_shown(options)} at {visible(login.issuer)}.")
    expiry = describe_expiry(login, time.time())
    write(f"Scopes: {visible(' '.join(login.tokens.scopes)) or 'none'}; token {expiry}.")
    return 0


async def _store_key(authorizer: ApiKeyAuthorizer, options: Namespace) -> int:
    name = _shown(options)
    text = getpass(f"API key for {name}: ") if can_ask() else sys.stdin.readline()
    key = text.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError("invalid API key: expected one line of printable ASCII characters")
    try:
        await authorizer.log_in(key)
    except AuthorizationError as exc:
        raise _failure(exc) from exc
    write(f"Stored the API key for {name}.")
    return 0


async def _logout(options: Namespace) -> int:
    authorizer = _authorizer(await _entry(options), options)
    try:
        removed = await authorizer.log_out()
    except AuthorizationError as exc:
        raise _failure(exc, "Logout") from exc
    name = _shown(options)
    write(f"Logged out of {name}." if removed else f"No login is stored for {name}.")
    return 0


async def _entry(options: Namespace) -> MCPServerEntry:
    _, target = split_target([options.server])
    if target.url:
        return target.entry({}, sse=False)
    if options.gateway is not None:
        entry = await _gateway_entry(options)
    else:
        entry = (await named_server(options.server, options)).resolved.entry
    if isinstance(entry, MCPStdioServerConfig) and entry.auth is None:
        raise UsageError(
            f"{_shown(options)} is a local program, which needs no login",
            hint="credentials of local programs belong in `env` of their entry",
        )
    return entry


async def _gateway_entry(options: Namespace) -> MCPServerEntry:
    from ...gateway.gateway_file import read_gateway_file

    servers = read_gateway_file(options.gateway).servers
    if options.server not in servers:
        raise unknown_name_error("server", options.server, sorted(servers), place=options.gateway)
    [spec, *_] = servers[options.server]
    return spec.entry if spec.resolve is None else await spec.resolve()


def _settings(entry: MCPServerEntry, options: Namespace) -> OAuthSettings:
    settings = settings_of_entry(entry.auth, entry.oauth)
    return msgspec.structs.replace(settings, grant="device_code") if options.device else settings


def _authorizer(
    entry: MCPServerEntry, options: Namespace, **more: Any
) -> OAuthAuthorizer | ApiKeyAuthorizer:
    found = authorizer_for(entry, name=options.server, store=own_credential_store(), **more)
    if not isinstance(found, OAuthAuthorizer | ApiKeyAuthorizer):
        raise UsageError(
            f"{_shown(options)} has a configured Authorization header, or credentials in its "
            "URL, which are used instead of a login",
            hint="remove them from its entry to log in",
        )
    return found


def _shown(options: Namespace) -> str:
    """Return the name or URL that the user entered, without the parts that may be secret."""
    return visible(plain_url(options.server) if "://" in options.server else options.server)


class TerminalPrompt(LoginPrompt):
    """Shows the login page's address in the terminal, and accepts a pasted redirect URL."""

    def __init__(self, server: str, *, browser: bool) -> None:
        """`server` is the server as the user named it."""
        self._server = server
        self._browser = browser

    async def visit(self, request: AuthorizationRequest) -> None:
        opened = self._browser and await open_page(request.url)
        if self._browser and not opened:
            print_message("login", f"no browser could be opened{self._alternative(request)}")
        about = "Continue in your browser" if opened else "Open this page in a browser"
        print_message("login", f"{about}, and log in at {visible(request.issuer)}:")
        sys.stderr.write(f"\n  {visible(request.url)}\n\n")
        if can_ask():
            sys.stderr.write(
                "Waiting for the login. If the browser runs on another machine, paste the address "
                "of the page that it shows at the end:\n"
            )
        sys.stderr.flush()

    def _alternative(self, request: AuthorizationRequest) -> str:
        if not request.offers_code:
            return ""
        with_code = suggest("login", "--device", operands=[self._server])
        return f"; {with_code} logs in with a code on another device"

    def still_waiting(self, left: float) -> None:
        minutes = pluralize(max(round(left / 60), 1), "minute")
        print_message("login", f"still waiting for the login; {minutes} left")

    def login_elsewhere(self, host: str) -> None:
        text = f"another program waits for a login to {visible(host)} too"
        print_message("login", f"{text}; both use the one that is completed first")

    async def pasted(self) -> str:
        if not can_ask():
            return await super().pasted()
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str] = loop.create_future()
        loop.add_reader(sys.stdin.fileno(), lambda: _take_line(line))
        try:
            return await line
        finally:
            loop.remove_reader(sys.stdin.fileno())

    def wrong_redirect(self, request: AuthorizationRequest) -> None:
        expected = f"paste the address that begins with {visible(request.redirect_uri)}"
        print_message("login", f"this is not the page at the end of this login; {expected}")

    def show_code(self, code: DeviceCode) -> None:
        print_message("login", f"Open {visible(code.url)} and enter the code:")
        sys.stderr.write(f"\n  {visible(code.user_code)}\n\n")
        if code.complete_url is not None:
            sys.stderr.write(f"or open {visible(code.complete_url)}\n")
        sys.stderr.flush()


def _take_line(line: "asyncio.Future[str]") -> None:
    text = sys.stdin.readline().strip()
    if text and not line.done():
        line.set_result(text)


def _failure(exc: AuthorizationError, what: str = "Login") -> CommandError:
    hint = "try again later" if exc.temporary else ""
    if isinstance(exc.__cause__, ConnectFailed):
        hint = "check that the server is running, and its address"
    if exc.issuer and exc.step == "discovery":
        hint = f"check the issuer that the server names: {visible(exc.issuer)}"
    hint = certificate_hint(exc) or hint
    return CommandError(f"{what} failed: {visible(str(exc))}", hint=hint)


async def _login_failure(
    exc: AuthorizationError, entry: MCPServerEntry, options: Namespace
) -> CommandError:
    """Return the error of a login, with the right URL if the server's URL is wrong."""
    failed = _failure(exc)
    named = "://" not in options.server
    if isinstance(exc, OtherResource) and (other := safe(exc.elsewhere)):
        place = " in its entry" if named else ""
        login = "" if named else f": {suggest('login', operands=[exc.elsewhere])}"
        hint = f"use the URL {other}{place}, or correct `public_url` of the server{login}"
        return CommandError(failed.sentence, hint=hint)
    endpoint = exc.endpoint if isinstance(exc, OtherResource) else ""
    unknown = exc.step in ("discovery", "registration") and not exc.issuer
    if unknown and not endpoint and not isinstance(entry, MCPStdioServerConfig):
        endpoint = await find_endpoint(entry.url) or ""
    if not endpoint:
        return failed
    login = suggest("login", operands=[endpoint])
    if named:
        login = "correct the URL in its entry"
    return CommandError(failed.sentence, hint=f"MCP is served at {safe(endpoint)}: {login}")
