"""Requests that commands send to a gateway's admin API."""

import json
import os
from argparse import Namespace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from .command_errors import NO_CONNECTION, CommandError, UsageError
from .output import safe, visible
from .parser import option

__all__ = ["ADMIN_TOKEN", "DEFAULT_URL", "TOKEN", "URL", "ask_admin"]

TOKEN = "FAIRLEAD_ADMIN_TOKEN"
AUTH = "FAIRLEAD_TOKEN"
LIMIT = 30.0


DEFAULT_URL = "http://127.0.0.1:8765"
URL = option(
    "--url", default=DEFAULT_URL, metavar="URL", help=f"gateway URL (default: {DEFAULT_URL})"
)
ADMIN_TOKEN = option(
    "--admin-token",
    metavar="TOKEN",
    help=f"the admin_token of the gateway; prefer the environment variable {TOKEN}. If the gateway "
    f"requires a client token too, set {AUTH}",
)


def ask_admin(
    options: Namespace, method: str, path: str, body: Any = None, *, wait: float = 0.0
) -> Any:
    """Send a request to the admin API and return the decoded JSON response.

    Raises:
        CommandError: The gateway cannot be reached, or it rejected the request.
    """
    try:
        parts = urlsplit(options.url if "//" in options.url else f"http://{options.url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        port = parts.port
    except ValueError:
        raise UsageError(
            f"Invalid gateway URL {options.url!r}: expected http://HOST:PORT"
        ) from None
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, port, timeout=LIMIT + wait)
    headers = {"x-admin-token": options.admin_token or os.environ.get(TOKEN, "")}
    if token := os.environ.get(AUTH):
        headers["authorization"] = f"Bearer {token}"
    sent = None if body is None else json.dumps(body).encode()
    if sent is not None:
        headers["content-type"] = "application/json"
    try:
        connection.request(method, path, sent, headers)
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, HTTPException, ValueError) as exc:
        raise CommandError(
            f"Cannot connect to the gateway at {visible(parts.netloc)}: {exc}",
            hint="check that the gateway is running, or pass its address with --url",
            code=NO_CONNECTION,
        ) from exc
    finally:
        connection.close()
    if answer.status == 200:
        try:
            return json.loads(said)
        except ValueError:
            raise CommandError(
                f"The server at {visible(parts.netloc)} is not a Fairlead gateway",
                hint="pass the address of the gateway with --url",
                code=NO_CONNECTION,
            ) from None
    text = said.decode("utf-8", "replace").strip()
    hint = f"pass --admin-token TOKEN, or set {TOKEN}" if answer.status == 401 else ""
    if answer.status == 404 and answer.getheader("x-admin-api") == "off":
        hint = f"set {TOKEN} when starting `fairlead up`, or `admin_token` in the file of "
        hint += "`fairlead gateway`"
    # The HTTP endpoint checks the client token before the admin API receives the request.
    if answer.status == 401 and answer.getheader("www-authenticate") is not None:
        text = "The gateway requires the token of a client"
        hint = f"set {AUTH} in the environment"
    raise CommandError(
        safe(text[:500]) or f"The gateway responded with HTTP {answer.status}", hint=hint
    )
