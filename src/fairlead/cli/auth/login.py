"""`fairlead login`, `fairlead logout` and `fairlead auth status`."""

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import msgspec

from ...auth.client.interactive_login import AuthorizationRequest, DeviceCode, LoginPrompt
from ...auth.client.interactive_login import open_browser as open_page
from ...auth.client.oauth_authorizer import OAuthAuthorizer
from ...auth.client.oauth_settings import OAuthSettings, settings_of_entry
from ...auth.storage.credential_store import StoredLogin
from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.stored_logins import authorizer_for, own_credential_store
from ...errors import AuthorizationError
from ..framework.client_connection import run_async, silence_warnings
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.connect_target import split_target
from ..framework.output import as_json, can_ask, columns, visible, write
from ..framework.parser import INPUT, JSON, Parser, flag, option, repeated
from ..framework.server_lookup import named_server

__all__ = ["run_auth", "run_login", "run_logout"]

_SERVER = option("server", metavar="SERVER", help="a configured name, or the URL of a server")


def run_login(argv: Sequence[str]) -> int:
    parser = Parser(
        "login",
        "Log in to a server that requires OAuth. The login is stored in sealed files and renewed "
        "by every program of Fairlead that uses the server.",
        _SERVER,
        flag("--device", help="log in with a code on another device"),
        flag("--no-browser", help="print the page instead of opening a browser"),
        repeated("--scope", metavar="SCOPE", help="request this scope instead of the usual ones"),
        INPUT,
        examples="  fairlead login notes\n  fairlead login https://mcp.example.com/mcp --device\n",
    )
    options = parser.parse_args(argv)
    return run_async(_login(options))


def run_logout(argv: Sequence[str]) -> int:
    parser = Parser(
        "logout",
        "Delete the stored login of a server and revoke its tokens.",
        _SERVER,
        INPUT,
        examples="  fairlead logout notes\n",
    )
    return run_async(_logout(parser.parse_args(argv)))


def run_auth(argv: Sequence[str]) -> int:
    """Show the stored logins. Nothing is sent, and no login changes."""
    parser = Parser(
        "auth",
        "Show the stored logins: server, issuer, scopes and expiry.",
        option("action", choices=("status",), nargs="?", default="status", help="show the logins"),
        JSON,
        examples="  fairlead auth status\n  fairlead auth status --json\n",
    )
    options = parser.parse_args(argv)
    try:
        logins = own_credential_store().logins()
    except AuthorizationError as exc:
        raise CommandError(str(exc)) from exc
    if as_json(options, [_facts(login) for login in logins]):
        return 0
    if not logins:
        write("No logins are stored. `fairlead login SERVER` logs in to a server.")
        return 0
    for line in columns([_row(login) for login in logins]):
        write(line)
    return 0


async def _login(options: Namespace) -> int:
    silence_warnings()
    entry = await _entry(options)
    settings = _settings(entry, options)
    prompt = TerminalPrompt(browser=not options.no_browser)
    authorizer = _authorizer(entry, options, settings=settings, prompt=prompt)
    try:
        login = await authorizer.log_in(options.scope or None)
    except AuthorizationError as exc:
        raise _failure(exc) from exc
    write(f"Logged in to {visible(options.server)} at {visible(login.issuer)}.")
    write(f"Scopes: {visible(' '.join(login.tokens.scopes)) or 'none'}; {_expiry(login)}.")
    return 0


async def _logout(options: Namespace) -> int:
    silence_warnings()
    authorizer = _authorizer(await _entry(options), options)
    try:
        removed = await authorizer.log_out()
    except AuthorizationError as exc:
        raise _failure(exc) from exc
    name = visible(options.server)
    write(f"Logged out of {name}." if removed else f"No login is stored for {name}.")
    return 0


async def _entry(options: Namespace) -> MCPServerEntry:
    _, target = split_target([options.server])
    if target.url:
        return target.entry({}, sse=False)
    entry = (await named_server(options.server, options)).resolved.entry
    if isinstance(entry, MCPStdioServerConfig):
        raise UsageError(
            f"{visible(options.server)} is a local program, which needs no login",
            hint="credentials of local programs belong into `env` of their entry",
        )
    return entry


def _settings(entry: MCPServerEntry, options: Namespace) -> OAuthSettings:
    settings = settings_of_entry(entry.auth, entry.oauth)
    return msgspec.structs.replace(settings, grant="device_code") if options.device else settings


def _authorizer(entry: MCPServerEntry, options: Namespace, **more: Any) -> OAuthAuthorizer:
    found = authorizer_for(entry, name=options.server, store=own_credential_store(), **more)
    if found is None:
        raise UsageError(
            f"{visible(options.server)} has a configured Authorization header, which is used "
            "instead of a login",
            hint="remove the header from its entry to log in",
        )
    return found


class TerminalPrompt(LoginPrompt):
    """Shows the page of a login in the terminal, and accepts a pasted redirect."""

    def __init__(self, *, browser: bool) -> None:
        self._browser = browser

    def visit(self, request: AuthorizationRequest) -> None:
        opened = self._browser and open_page(request.url)
        about = "Continue in your browser" if opened else "Open this page in a browser"
        print_message("login", f"{about}, and log in at {visible(request.issuer)}:")
        sys.stderr.write(f"\n  {visible(request.url)}\n\n")
        if can_ask():
            sys.stderr.write(
                "Waiting for the login. If the browser runs on another machine, paste the address "
                "of the page that it shows at the end:\n"
            )
        sys.stderr.flush()

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


def _facts(login: StoredLogin) -> dict[str, Any]:
    """Return what may be shown of a login: no token and no secret."""
    return {
        "server": login.server,
        "issuer": login.issuer,
        "client": login.client.client_id,
        "scopes": list(login.tokens.scopes),
        "expiresAt": login.tokens.expires_at,
        "renewable": login.tokens.refresh_token is not None,
        "ended": login.ended,
    }


def _row(login: StoredLogin) -> list[str]:
    return [visible(login.server), visible(login.issuer), _expiry(login)]


def _expiry(login: StoredLogin) -> str:
    """Describe how long a login lasts."""
    if login.ended:
        return "ended: log in again"
    if login.tokens.refresh_token is not None:
        return "renewed automatically"
    expires = login.tokens.expires_at
    if expires is None:
        return "no known expiry"
    left = expires - time.time()
    return f"expires in {left / 60:.0f} minutes" if left > 0 else "expired: log in again"


def _failure(exc: AuthorizationError) -> CommandError:
    hint = "try again later" if exc.temporary else ""
    return CommandError(f"Login failed: {visible(str(exc))}", hint=hint)
