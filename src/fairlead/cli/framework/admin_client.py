"""Requests that commands send to a gateway's admin API."""

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...client.server_entry import MCPHttpServerConfig
from ...config.stored_logins import authorizer_for
from ...errors import FairleadError
from .command_errors import NO_CONNECTION, CommandError, UsageError
from .describe_failure import describe_failure
from .output import safe, visible
from .parser import option
from .suggested_commands import suggest

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
    f"requires a client token too, set {AUTH}. If it requires a login, `fairlead login` is enough",
)


def ask_admin(
    options: Namespace, method: str, path: str, body: Any = None, *, wait: float = 0.0
) -> Any:
    """Send a request to the admin API and return the decoded JSON response.

    If the gateway requires an access token, the stored login of the user is used.

    Raises:
        CommandError: The gateway cannot be reached, or it rejected the request.
    """
    gateway = _Gateway(options, LIMIT + wait)
    sent = None if body is None else json.dumps(body).encode()
    answer = gateway.send(method, path, sent, gateway.token_header())
    endpoint = gateway.endpoint_of(answer)
    if answer.status == 401 and endpoint and AUTH not in os.environ:
        answer = asyncio.run(gateway.send_with_login(method, path, sent, endpoint)) or answer
    if answer.status == 200:
        try:
            return json.loads(answer.body)
        except ValueError:
            raise CommandError(
                f"The server at {visible(gateway.netloc)} is not a Fairlead gateway",
                hint="pass the address of the gateway with --url",
                code=NO_CONNECTION,
            ) from None
    raise _refused(answer, endpoint)


class _Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class _Gateway:
    """The HTTP server of a gateway."""

    def __init__(self, options: Namespace, timeout: float) -> None:
        """Read the address from the options of a command.

        Raises:
            UsageError: The URL is invalid.
        """
        try:
            parts = urlsplit(options.url if "//" in options.url else f"http://{options.url}")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError
            self._port = parts.port
        except ValueError:
            raise UsageError(
                f"Invalid gateway URL {options.url!r}: expected http://HOST:PORT"
            ) from None
        self._host = parts.hostname
        self._secure = parts.scheme == "https"
        self._timeout = timeout
        self._admin_token = options.admin_token or os.environ.get(TOKEN, "")
        self.netloc = parts.netloc
        self.base = f"{parts.scheme}://{parts.netloc}"

    def token_header(self) -> dict[str, str]:
        token = os.environ.get(AUTH)
        return {"authorization": f"Bearer {token}"} if token else {}

    def send(
        self, method: str, path: str, body: bytes | None, authorization: Mapping[str, str]
    ) -> _Answer:
        """Send a request.

        Raises:
            CommandError: The gateway cannot be reached.
        """
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        headers = {"x-admin-token": self._admin_token, **authorization}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            fields: dict[str, str] = {}
            for name, value in answer.getheaders():
                before = fields.get(name.lower())
                fields[name.lower()] = value if before is None else f"{before}, {value}"
            return _Answer(answer.status, fields, answer.read())
        except (OSError, HTTPException, ValueError) as exc:
            raise CommandError(
                f"Cannot connect to the gateway at {visible(self.netloc)}: {exc}",
                hint="check that the gateway is running, or pass its address with --url",
                code=NO_CONNECTION,
            ) from exc
        finally:
            connection.close()

    def endpoint_of(self, answer: _Answer) -> str:
        """Return the URL to log in to, if the gateway accepts access tokens; otherwise "".

        A URL of another host is not used: the token would be sent to a server that it is not for.
        """
        challenge = answer.headers.get("www-authenticate", "")
        if "resource_metadata" not in challenge:
            return ""
        from ...auth.challenge import parse_challenges, pick_challenge
        from ...auth.metadata import named_endpoint

        found = pick_challenge(parse_challenges(challenge))
        place = None if found is None else found.get("resource_metadata")
        return named_endpoint(f"{self.base}/", place) if place else ""

    async def send_with_login(
        self, method: str, path: str, body: bytes | None, endpoint: str
    ) -> _Answer | None:
        """Send a request with the token of the stored login; return None without a login.

        Raises:
            CommandError: The gateway cannot be reached, or the login cannot be used.
        """
        authorizer = authorizer_for(MCPHttpServerConfig(url=endpoint))
        if authorizer is None:
            return None
        url = f"{self.base}{path.partition('?')[0]}"
        try:
            sent = await authorizer.prepare(method, url)
            if not sent:
                return None
            answer = self.send(method, path, body, sent)
            # The token was revoked or has too few scopes, or its proof needs a nonce.
            if answer.status in (401, 403) and await authorizer.challenged(
                answer.status, answer.headers, sent
            ):
                answer = self.send(method, path, body, await authorizer.prepare(method, url))
            return answer
        except FairleadError as exc:
            raise describe_failure(exc) from exc


def _refused(answer: _Answer, endpoint: str) -> CommandError:
    text = answer.body.decode("utf-8", "replace").strip()
    hint = f"pass --admin-token TOKEN, or set {TOKEN}" if answer.status == 401 else ""
    if answer.status == 404 and answer.headers.get("x-admin-api") == "off":
        hint = f"set {TOKEN} when starting `fairlead up`, or `admin_token` in the file of "
        hint += "`fairlead gateway`"
    # The HTTP endpoint checks the client token before the admin API receives the request.
    if answer.status == 401 and "www-authenticate" in answer.headers:
        text = "The gateway requires the token of a client"
        hint = f"set {AUTH} in the environment"
        if endpoint:
            hint += f", or log in: {suggest('login', operands=[endpoint])}"
    return CommandError(
        safe(text[:500]) or f"The gateway responded with HTTP {answer.status}", hint=hint
    )
