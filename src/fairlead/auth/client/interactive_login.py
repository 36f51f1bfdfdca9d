"""Interactive logins: in a browser, by pasting the redirect, or with a code on another device."""

import asyncio
import contextlib
import inspect
import logging
import shlex
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import TypeAlias

from msgspec import Struct

from ...errors import AuthorizationError
from ...observe.safe_display import visible
from ...transport import timeouts
from ..authorization_code import (
    AuthorizationAttempt,
    begin_attempt,
    check_browser_url,
    code_of,
    is_redirect,
    with_query,
)
from ..dpop import DpopKey
from ..guarded_fetch import GuardedFetcher
from ..metadata import AuthorizationServer
from ..token_response import ClientRegistration, TokenSet, refusal, seconds_of
from .loopback_listener import LoopbackListener
from .oauth_settings import OAuthSettings
from .token_endpoint import TokenEndpoint

__all__ = [
    "AuthorizationRequest",
    "Authorize",
    "BrowserLogin",
    "DeviceCode",
    "LoginPrompt",
    "LoginUnfinished",
    "NoUser",
    "default_redirect_uri",
    "progress",
]

log = logging.getLogger("fairlead.auth")

LOGIN_TIMEOUT = 600.0  # seconds for the user to log in
BROWSER_TIMEOUT = 2.0  # seconds for a browser to start
PROGRESS = 60.0  # seconds between two reports while a program waits for the user
SLOWEST_POLL = 60.0  # seconds between two polls for a device code
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class LoginUnfinished(AuthorizationError):
    """The login page did not redirect in time, for example because it rejects the client id."""


class NoUser(AuthorizationError):
    """No browser can be opened, and there is no terminal that shows the page to the user."""


class AuthorizationRequest(Struct, frozen=True):
    """A page that the user has to visit; after the login it redirects to `redirect_uri`.

    `offers_code` is True if the authorization server also offers logins by device code.
    """

    url: str
    redirect_uri: str
    server: str
    issuer: str
    scopes: tuple[str, ...]
    offers_code: bool = False


class DeviceCode(Struct, frozen=True):
    """A code that the user enters on a web page, on any device."""

    user_code: str
    url: str
    complete_url: str | None  # contains the code
    expires_in: float  # seconds


# Returns the redirect URL with its parameters.
Authorize: TypeAlias = Callable[[AuthorizationRequest], Awaitable[str] | str]


class LoginPrompt:
    """User interface of a program during a login.

    The default opens a browser, and shows the page at the terminal (stderr). `pasted` may return
    the redirect as the user pasted it, for machines without a browser.
    """

    def visit(self, request: AuthorizationRequest) -> Awaitable[None] | None:
        """Show the URL, or open it; may be asynchronous. The redirect can already be received.

        Raises:
            AuthorizationError: No user can see the page.
        """
        return self._open_or_show(request)

    async def _open_or_show(self, request: AuthorizationRequest) -> None:
        opened = await open_browser(request.url)
        if not _has_terminal():
            if not opened:
                raise NoUser(
                    "no browser can be opened here, and there is no terminal to show the page",
                    step="authorization",
                    server=request.server,
                    issuer=request.issuer,
                )
            return
        about = "Continue in your browser" if opened else "Open this page in a browser"
        _show(f"{about}, and log in at {request.issuer}:\n\n  {request.url}\n")
        command = f"fairlead login {shlex.quote(request.server)}"
        if not opened:
            _show(
                "No browser could be opened. If none runs on this machine, run "
                f"`{command}` in another terminal; this program then uses its login."
            )

    async def pasted(self) -> str:
        """Return a redirect URL that the user pasted. The default waits forever."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def wrong_redirect(self, request: AuthorizationRequest) -> None:
        """Report that the pasted text is not the redirect of this login; it is awaited again."""
        if _has_terminal():
            _show(f"This is not the address that begins with {request.redirect_uri}.")

    def show_code(self, code: DeviceCode) -> None:
        """Show the code of a device login.

        Raises:
            AuthorizationError: No user can see the code.
        """
        if not _has_terminal():
            raise NoUser("there is no terminal to show a device code", step="authorization")
        _show(f"Open {code.url} and enter the code:\n\n  {code.user_code}\n")

    def still_waiting(self, left: float) -> None:
        """Report that the user has `left` seconds to complete the login. Called every minute."""
        if _has_terminal():
            minutes = max(round(left / 60), 1)
            _show(f"Still waiting for the login; {minutes} minute{'s' * (minutes > 1)} left.")

    def login_elsewhere(self, host: str) -> None:
        """Report that another program is asking the user to log in to the same server."""
        log.warning("another program waits for a login to %s; its result is used", host)


def _has_terminal() -> bool:
    # `sys.stderr` is None in a process without a console, such as `pythonw` on Windows.
    return sys.stderr is not None and sys.stderr.isatty()


def _show(text: str) -> None:
    sys.stderr.write("\n".join(map(visible, text.split("\n"))) + "\n")
    sys.stderr.flush()


@contextlib.asynccontextmanager
async def progress(prompt: LoginPrompt, seconds: float) -> AsyncIterator[None]:
    """Report regularly how much time is left to complete a login."""
    until = time.monotonic() + seconds

    async def report() -> None:
        while True:
            await asyncio.sleep(PROGRESS)
            if (left := until - time.monotonic()) > 0:
                prompt.still_waiting(left)

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()


async def open_browser(url: str) -> bool:
    """Open a page in the user's browser; return False if no browser is known to show it.

    A browser in the terminal would block this program until the user closes it, also at its end.
    """
    outcome: Future[bool] = Future()
    threading.Thread(target=lambda: outcome.set_result(_opened(url)), daemon=True).start()
    opened = asyncio.wrap_future(outcome)
    await asyncio.wait((opened,), timeout=BROWSER_TIMEOUT)
    return opened.done() and opened.result()


def _opened(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


def default_redirect_uri(settings: OAuthSettings) -> str:
    """Return the redirect URI for programs that receive the redirect themselves."""
    return settings.redirect_uri or f"http://127.0.0.1{settings.callback_path}"


class BrowserLogin:
    """One login with an authorization code, from the login page to the tokens."""

    def __init__(
        self,
        fetcher: GuardedFetcher,
        server: AuthorizationServer,
        settings: OAuthSettings,
        *,
        server_url: str,
        resource: str | None,
        scopes: Sequence[str],
        dpop: DpopKey | None,
    ) -> None:
        self._fetcher = fetcher
        self._server = server
        self._settings = settings
        self._server_url = server_url
        self._resource = resource
        self._scopes = tuple(scopes)
        self._dpop = dpop

    async def run(
        self,
        client: ClientRegistration,
        endpoint: TokenEndpoint,
        redirect_uri: str,
        redirect: Callable[[AuthorizationRequest, str], Awaitable[str]],
    ) -> TokenSet:
        """Send the user to the login page, and exchange the code in the redirect for tokens.

        `redirect` is called with the request and its state and returns the URL of the redirect.

        Raises:
            AuthorizationError: The login was refused, or its redirect cannot be used.
        """
        attempt, params = begin_attempt(
            self._server,
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            scopes=self._scopes,
            resource=self._resource,
            prompt=self._settings.prompt or ("consent" if self._asks_offline() else None),
            dpop_thumbprint=None if self._dpop is None else self._dpop.thumbprint,
        )
        url = await self._pushed(endpoint, params) or attempt.url
        request = AuthorizationRequest(
            url,
            redirect_uri,
            self._server_url,
            self._server.issuer,
            self._scopes,
            offers_code=self._server.device_authorization_endpoint is not None,
        )
        try:
            async with timeouts.timeout(LOGIN_TIMEOUT):
                code = code_of(attempt, await redirect(request, attempt.state))
        except TimeoutError as exc:
            raise LoginUnfinished(
                f"the login was not completed within {LOGIN_TIMEOUT / 60:.0f} minutes; if its page "
                "rejects this program, `fairlead login --new-client` registers it again",
                step="authorization",
                issuer=self._server.issuer,
            ) from exc
        return await self._exchange(endpoint, attempt, code)

    def _asks_offline(self) -> bool:
        # OpenID Connect ignores `offline_access` without the consent of the user.
        return "offline_access" in self._scopes and "openid" in self._scopes

    async def _pushed(self, endpoint: TokenEndpoint, params: dict[str, str]) -> str | None:
        """Push the parameters and return the URL to open (RFC 9126), if the server requires it."""
        place = self._server.pushed_authorization_request_endpoint
        if not self._server.require_pushed_authorization_requests or place is None:
            return None
        assert self._server.authorization_endpoint is not None
        found = await endpoint.at(place).send(params, step="authorization")
        uri = (found.document or {}).get("request_uri")
        if not isinstance(uri, str):
            raise refusal(
                "the pushed request",
                found.document,
                found.status,
                issuer=self._server.issuer,
                step="authorization",
            )
        named = {"client_id": params["client_id"], "request_uri": uri}
        return with_query(self._server.authorization_endpoint, named)

    async def _exchange(
        self, endpoint: TokenEndpoint, attempt: AuthorizationAttempt, code: str
    ) -> TokenSet:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
            "resource": attempt.resource,
        }
        return await endpoint.tokens(form, requested=attempt.scopes)

    async def run_device(
        self, client: ClientRegistration, endpoint: TokenEndpoint, prompt: LoginPrompt
    ) -> TokenSet:
        """Log in with a code that the user enters on another device (RFC 8628).

        Raises:
            AuthorizationError: The server has no device endpoint, or the login was refused.
        """
        place = self._server.device_authorization_endpoint
        if place is None:
            raise AuthorizationError(
                f"the authorization server {self._server.issuer} offers no login by device code: "
                "log in with a browser",
                step="authorization",
                issuer=self._server.issuer,
            )
        form = {"scope": " ".join(self._scopes), "resource": self._resource}
        asked = {"client_id": client.client_id, **form}
        found = await endpoint.at(place).send(asked, step="authorization")
        device, code, interval = _device_code(found.document, found.status, self._server.issuer)
        prompt.show_code(code)
        form = {"grant_type": _DEVICE_GRANT, "device_code": device, "resource": self._resource}
        seconds = min(code.expires_in, LOGIN_TIMEOUT)
        deadline = time.monotonic() + seconds
        async with progress(prompt, seconds):
            while time.monotonic() < deadline:
                await asyncio.sleep(interval)
                try:
                    return await endpoint.tokens(form, requested=self._scopes)
                except AuthorizationError as exc:
                    if exc.error == "slow_down":
                        interval = min(interval + 5, SLOWEST_POLL)
                    elif exc.error != "authorization_pending" and not exc.temporary:
                        raise
        raise AuthorizationError(
            "the device code expired before the login was completed",
            step="authorization",
            issuer=self._server.issuer,
        )


def _device_code(document: object, status: int, issuer: str) -> tuple[str, DeviceCode, float]:
    found = document if isinstance(document, dict) else {}
    device, user = found.get("device_code"), found.get("user_code")
    url, complete = found.get("verification_uri"), found.get("verification_uri_complete")
    if not (isinstance(device, str) and isinstance(user, str) and isinstance(url, str)):
        what = "the request for a device code"
        raise refusal(what, document, status, issuer=issuer, step="authorization")
    lifetime, interval = seconds_of(found.get("expires_in")), seconds_of(found.get("interval"))
    code = DeviceCode(
        user_code=user[:100],
        url=check_browser_url(url, issuer),
        complete_url=check_browser_url(complete, issuer) if isinstance(complete, str) else None,
        expires_in=LOGIN_TIMEOUT if lifetime is None else lifetime,
    )
    pause = 5.0 if interval is None else interval
    return device, code, min(max(pause, 1.0), SLOWEST_POLL)


async def ask_program(authorize: Authorize, request: AuthorizationRequest) -> str:
    """Return the redirect URL that the program's own callback obtained."""
    found = authorize(request)
    return await found if inspect.isawaitable(found) else found


async def ask_person(
    listener: LoopbackListener, prompt: LoginPrompt, request: AuthorizationRequest, state: str
) -> str:
    """Return the redirect URL that the listener receives or the user pastes."""
    tasks = [asyncio.ensure_future(listener.wait(state))]
    try:
        if (visit := prompt.visit(request)) is not None:
            await visit
        tasks.append(asyncio.ensure_future(_pasted(prompt, request, state)))
        async with progress(prompt, LOGIN_TIMEOUT):
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _pasted(prompt: LoginPrompt, request: AuthorizationRequest, state: str) -> str:
    """Return the redirect that the user pastes; other text is reported and ignored."""
    while not is_redirect(text := await prompt.pasted(), state):
        prompt.wrong_redirect(request)
    return text
