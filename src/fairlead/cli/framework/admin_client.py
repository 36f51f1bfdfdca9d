"""The admin API of a gateway, asked from a command."""

import json
import os
from argparse import Namespace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from .command_errors import NO_CONNECTION, CommandError, UsageError
from .output import safe, visible
from .parser import option

__all__ = ["ADMIN_TOKEN", "TOKEN", "URL", "ask_admin"]

TOKEN = "FAIRLEAD_ADMIN_TOKEN"
AUTH = "FAIRLEAD_TOKEN"
LIMIT = 30.0


_USUAL = "http://127.0.0.1:8765"
URL = option("--url", default=_USUAL, metavar="URL", help=f"of the gateway (default: {_USUAL})")
ADMIN_TOKEN = option(
    "--admin-token",
    metavar="TOKEN",
    help=f"the gateway's admin_token; better in the environment, as {TOKEN}. Where the gateway "
    f"itself wants a token, {AUTH} is sent, too",
)


def ask_admin(
    options: Namespace, method: str, path: str, body: Any = None, *, wait: float = 0.0
) -> Any:
    """What the gateway says.

    Raises:
        CommandError: it is not there, or does not want to.
    """
    try:
        parts = urlsplit(options.url if "//" in options.url else f"http://{options.url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError
        port = parts.port
    except ValueError:
        raise UsageError(f"{options.url!r} is no URL of a gateway") from None
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
            f"The gateway at {visible(parts.netloc)} cannot be reached: {exc}",
            hint="does it run, and is that its address? --url URL",
            code=NO_CONNECTION,
        ) from exc
    finally:
        connection.close()
    if answer.status == 200:
        try:
            return json.loads(said)
        except ValueError:
            raise CommandError(
                f"What answers at {visible(parts.netloc)} is no gateway of Fairlead",
                hint="is that its address? --url URL",
                code=NO_CONNECTION,
            ) from None
    text = said.decode("utf-8", "replace").strip()
    hint = f"--admin-token TOKEN, or {TOKEN} in the environment" if answer.status == 401 else ""
    if answer.status == 404 and "no admin API" in text:
        hint = f"start it with {TOKEN} in the environment of `fairlead up`, or with `admin_token` "
        hint += "in the file of `fairlead gateway`"
    if answer.status == 401 and text.startswith("{"):  # said at the door, before the admin API
        text = "The gateway wants the token of a client, too"
        hint = f"{AUTH} in the environment"
    raise CommandError(
        safe(text[:500]) or f"The gateway answered with HTTP {answer.status}", hint=hint
    )
