"""`fairlead auth status`: the stored logins, without their secrets."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...auth.metadata import server_resource
from ...auth.storage.credential_store import StoredLogin
from ...config.stored_logins import login_folder, login_url, own_credential_store
from ...errors import AuthorizationError, ConfigError
from ..framework.client_connection import silence_warnings
from ..framework.command_errors import CommandError, print_message
from ..framework.output import as_json, pluralize, visible, write
from ..framework.parser import JSON, Parser, option
from ..framework.server_lookup import every_server
from ..framework.suggested_commands import suggest

__all__ = ["describe_expiry", "printed_warnings", "run_auth"]

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def run_auth(argv: Sequence[str]) -> int:
    """Show the stored logins. No request is sent, and the logins are not changed."""
    parser = Parser(
        "auth",
        "Show the stored logins: configured name, server, issuer, scopes, the expiry of the token "
        "and whether it is renewed automatically.",
        option("action", choices=("status",), nargs="?", default="status", help="show the logins"),
        JSON,
        examples="  fairlead auth status\n  fairlead auth status --json\n",
    )
    options = parser.parse_args(argv)
    store = own_credential_store()
    try:
        with printed_warnings():
            logins = store.logins()
    except AuthorizationError as exc:
        raise CommandError(str(exc)) from exc
    names = _configured_names() if logins else {}
    now = time.time()
    facts = [{**_facts(one, names, now), "file": str(store.path_of(one))} for one in logins]
    if as_json(options, facts):
        return 0
    if not logins:
        what = "No stored login can be read" if store.paths() else "No logins are stored"
        write(f"{what}. {suggest('login', 'SERVER')} logs in to a server.")
        return 0
    for login in logins:
        for line in _lines(login, names, now):
            write(line)
    write(f"Logins are stored in {visible(login_folder())}.")
    return 0


class _WarningPrinter(logging.Handler):
    """A log handler that prints warnings to stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        print_message("warning", record.getMessage())


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print warnings about logins, such as files that cannot be opened."""
    silence_warnings()
    logger, printer = logging.getLogger("fairlead.auth"), _WarningPrinter(logging.WARNING)
    logger.addHandler(printer)
    try:
        yield
    finally:
        logger.removeHandler(printer)


def describe_expiry(login: StoredLogin, now: float) -> str:
    """Describe how long a login remains valid: `expires in 4 minutes, renewed automatically`."""
    if login.ended:
        return "ended, because the server refused to renew it"
    expires, when = login.tokens.expires_at, "automatically"
    if expires is None:
        text = "has no known expiry"
    elif expires > now:
        text = f"expires in {_duration(expires - now)}"
    else:
        text, when = f"expired {_duration(now - expires)} ago", "at the next use"
    if login.tokens.refresh_token is None:
        return f"{text}, not renewed automatically"
    return f"{text}, renewed {when}"


def _duration(seconds: float) -> str:
    """Return a time in its largest unit: `3 hours`."""
    # Rounded first, so that 59.9 minutes are one hour.
    whole = round(seconds / 60) * 60 if seconds >= 59.5 else round(seconds)
    for size, unit in _UNITS:
        if whole >= size:
            return pluralize(round(whole / size), unit)
    return pluralize(whole, "second")


def _lines(login: StoredLogin, names: Mapping[str, str], now: float) -> list[str]:
    name = names.get(login.url)
    lines = [visible(login.server if name is None else f"{name}  {login.server}")]
    if login.kind == "apikey":
        return [*lines, "  API key"]
    lines.append(f"  issuer: {visible(login.issuer)}")
    lines.append(f"  scopes: {visible(' '.join(login.tokens.scopes)) or 'none'}")
    expired = login.tokens.expires_at is not None and login.tokens.expires_at <= now
    text = describe_expiry(login, now)
    if login.ended or (expired and login.tokens.refresh_token is None):
        text += f": {suggest('login', operands=[name or login.server])} logs in again"
    return [*lines, f"  {'login' if login.ended else 'token'}:  {text}"]


def _configured_names() -> dict[str, str]:
    """Return the names of configured servers by the URL that their login is for."""
    names: dict[str, str] = {}
    for name, found in every_server().found.items():
        with suppress(ConfigError, ValueError):
            names.setdefault(server_resource(login_url(found.entry)), name)
    return names


def _facts(login: StoredLogin, names: Mapping[str, str], now: float) -> dict[str, Any]:
    """Return the facts about a login that may be displayed, without tokens and secrets."""
    expires = login.tokens.expires_at
    return {
        "name": names.get(login.url),
        "server": login.server,
        "url": login.url,
        "kind": login.kind,
        "issuer": login.issuer,
        "client": login.client.client_id,
        "scopes": list(login.tokens.scopes),
        "expiresAt": expires,
        "expiresIn": None if expires is None else round(expires - now),
        "renewable": login.tokens.refresh_token is not None and not login.ended,
        "ended": login.ended,
    }
