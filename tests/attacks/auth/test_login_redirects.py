"""Unexpected requests to the login listener, and URLs that must not be opened."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.auth.authorization_code import begin_attempt
from fairlead.auth.client.interactive_login import LoginPrompt
from fairlead.auth.client.loopback_listener import LoopbackListener
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.metadata import AuthorizationServer
from fairlead.errors import AuthorizationError
from tests.support.scripted_provider import request, scripted_provider

LIMIT = 10.0


class Browser(LoginPrompt):
    """A browser that sends other requests before the redirect, and repeats it afterwards."""

    def __init__(self, provider: Any, **changes: Any) -> None:
        self._provider = provider
        self._changes = changes
        self.statuses: list[int] = []
        self.late = 0

    def visit(self, request: Any) -> None:
        self.task = asyncio.ensure_future(self._browse(request))

    async def _browse(self, request: Any) -> None:
        good = self._provider.redirect(request, **self._changes)
        origin = good.partition("/callback")[0]
        async with aiohttp.ClientSession() as http:
            for url in (
                f"{origin}/favicon.ico",
                f"{origin}/callback",
                f"{origin}/callback?code=stolen&state=wrong",
                f"{origin}/callback?error=access_denied&state=wrong",
                good,
                good,
            ):
                try:
                    async with http.get(url) as reply:
                        self.statuses.append(reply.status)
                        page = await reply.text()
                        assert not any(word in page for word in ("stolen", "code-1", "denied"))
                except aiohttp.ClientError:
                    self.late += 1  # the listener has closed


async def test_the_login_listener_ignores_other_requests_and_accepts_one_redirect() -> None:
    async with scripted_provider() as provider:
        browser = Browser(provider)
        authorizer = OAuthAuthorizer(provider.url, prompt=browser)
        assert (await request(provider, authorizer))[0] == 200
        await browser.task
        assert browser.statuses[:5] == [404, 404, 404, 404, 200]
        assert len(browser.statuses) + browser.late == 6
        assert [form["code"] for form in provider.forms()] == ["code-1"]


async def test_a_redirect_with_two_codes_fails_the_login() -> None:
    async with scripted_provider() as provider:
        browser = Browser(provider, code=["code-1", "code-2"])
        with pytest.raises(AuthorizationError, match="parameter 'code' twice"):
            await OAuthAuthorizer(provider.url, prompt=browser).log_in()
        await browser.task
        assert provider.steps["token"] == 0


async def test_the_redirect_of_another_login_is_refused() -> None:
    async with scripted_provider() as provider:
        redirects: list[str] = []

        def swap(login: Any) -> str:
            redirects.append(provider.redirect(login))
            return redirects[0]  # that of the first login, also for the second one

        await OAuthAuthorizer(provider.url, authorize=swap).log_in()
        with pytest.raises(AuthorizationError, match="another login"):
            await OAuthAuthorizer(provider.url, authorize=swap).log_in()
        assert provider.steps["token"] == 1


async def test_concurrent_logins_refuse_the_redirects_of_each_other() -> None:
    async with scripted_provider() as provider:
        logins: list[Any] = []
        both = asyncio.Barrier(2)

        async def swap(login: Any) -> str:
            logins.append(login)
            await both.wait()
            [other] = [one for one in logins if one is not login]
            return provider.redirect(other)

        attempts = [OAuthAuthorizer(provider.url, authorize=swap).log_in() for _ in range(2)]
        for outcome in await asyncio.gather(*attempts, return_exceptions=True):
            assert "another login" in str(outcome)
        assert provider.steps["token"] == 0


async def test_a_redirect_after_the_time_limit_of_a_login_is_not_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.auth.client.interactive_login.LOGIN_TIMEOUT", 0.1)
    async with scripted_provider() as provider:
        pages: list[Any] = []

        class Slow(LoginPrompt):
            def visit(self, request: Any) -> None:
                pages.append(request)

        with pytest.raises(AuthorizationError, match="not completed"):
            await OAuthAuthorizer(provider.url, prompt=Slow()).log_in()
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientConnectionError):
                await http.get(provider.redirect(pages[0]))
        assert provider.steps["token"] == 0


async def test_the_error_for_an_occupied_callback_port_names_the_setting() -> None:
    async with scripted_provider() as provider:
        port = int(provider.origin.rpartition(":")[2])
        settings = OAuthSettings(callback_port=port)
        with pytest.raises(AuthorizationError, match="set another `callbackPort`") as caught:
            await OAuthAuthorizer(provider.url, settings, prompt=LoginPrompt()).log_in()
        assert str(port) in str(caught.value)
        assert provider.steps["register"] == 0


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[LoopbackListener, "asyncio.Future[str]"]]:
    listener = LoopbackListener()
    await listener.start()
    waiting = asyncio.ensure_future(listener.wait("s1"))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(LIMIT):
            yield listener, waiting
    finally:
        waiting.cancel()
        await listener.close()


async def send(listener: LoopbackListener, head: bytes) -> bytes:
    port = int(listener.redirect_uri.split(":")[2].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.replace(b"PORT", str(port).encode()))
    reply = await reader.read()
    writer.close()
    return reply.partition(b"\r\n")[0]


GOOD = b"GET /callback?state=s1&code=c HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n"


@pytest.mark.attack(
    "requests to the login listener: foreign hosts, repeated parameters, malformed headers",
    "only a GET with the expected path, host and `state` is accepted",
    "refused without repeating the input; the listener keeps waiting",
)
@pytest.mark.parametrize(
    "head",
    [
        GOOD.replace(b"127.0.0.1:PORT", b"evil.example"),
        GOOD.replace(b"127.0.0.1:PORT", b"127.0.0.1:1"),
        GOOD.replace(b"127.0.0.1:PORT", b"127.0.0.1"),
        GOOD.replace(b"127.0.0.1:PORT", b"127.0.0.1.evil.example:PORT"),
        GOOD.replace(b"Host: 127.0.0.1:PORT\r\n", b""),
        GOOD.replace(b"Host: 127", b"Host: evil\r\nHost: 127"),
        GOOD.replace(b"GET", b"POST"),
        GOOD.replace(b"GET", b"HEAD"),
        GOOD.replace(b"GET", b"OPTIONS"),
        GOOD.replace(b"/callback", b"/callback/"),
        GOOD.replace(b"/callback", b"//callback"),
        GOOD.replace(b"/callback", b"/Callback"),
        GOOD.replace(b"/callback", b"//[::1/callback"),
        GOOD.replace(b"/callback", b"http://[/callback"),
        GOOD.replace(b"state=s1", b"state=s1&state=s1"),
        GOOD.replace(b"state=s1", b"state=s2"),
        GOOD.replace(b"state=s1", b"state="),
        GOOD.replace(b"state=s1", b"state=%ED%A0%80"),
        GOOD.replace(b"state=s1", b"state=\xff"),
        GOOD.replace(b"state=s1", b"STATE=s1"),
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=range(24),
)
async def test_the_login_listener_refuses_all_requests_except_the_redirect(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as (listener, waiting):
        reply = await send(listener, head)
        assert reply in (b"HTTP/1.1 403 Forbidden", b"HTTP/1.1 404 Not Found")
        assert not waiting.done()
        assert await send(listener, GOOD) == b"HTTP/1.1 200 OK"
        assert (await waiting).endswith("/callback?state=s1&code=c")
    assert caplog.text == ""


async def test_idle_connections_do_not_delay_the_end_of_a_login() -> None:
    """Browsers open connections in advance and keep them open."""
    async with listening() as (listener, waiting):
        port = int(listener.redirect_uri.split(":")[2].split("/")[0])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        assert await send(listener, GOOD) == b"HTTP/1.1 200 OK"
        await waiting
        async with asyncio.timeout(2):
            await listener.close()
            for reader, writer in idle:
                assert await reader.read() == b""
                writer.close()


async def test_the_redirect_is_accepted_despite_many_idle_connections() -> None:
    async with listening() as (listener, waiting):
        port = int(listener.redirect_uri.split(":")[2].split("/")[0])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        assert await send(listener, GOOD) == b"HTTP/1.1 200 OK"
        await waiting
        for _, writer in idle:
            writer.close()


async def test_the_login_listener_refuses_connections_after_it_was_closed() -> None:
    async with listening() as (listener, _):
        await listener.close()
        with pytest.raises(OSError):
            await send(listener, GOOD)


REFUSED = [
    "javascript:alert(document.cookie)",
    "data:text/html,<script>1</script>",
    "file:///etc/passwd",
    "http://as.example/authorize",
    "ftp://as.example/",
    "vbscript:x",
    "ms-settings:",
    "-https://as.example/",
    "--help",
    " https://as.example/",
    "https://as.example/\n--new-window",
    "https://as.example/\r\nX: y",
    "https://as.example/a b",
    "https://as.example/\x00",
    "https://as.example/\x1b]0;x\x07",
    'https://as.example/"; rm -rf "',
    "https://as.example/`id`",
    "https://as.example/a|id",
    "https://as.example/<x>",
    "https://as.example\\@evil.example/",
    "https://accounts.example@evil.example/",
    "https:///authorize",
    "https://[::1",
    "https://h:99999/",
    "https://as.example/\u202egro.live",
    "http:$(calc.exe)/",
    "a:$(r(cmd.exe))",
    "",
]


@pytest.mark.attack(
    "an authorization endpoint that a shell or a browser would execute",
    "only https and URL characters are allowed; the browser is started without a shell",
    "the login ends before a page is opened",
)
@pytest.mark.parametrize("url", REFUSED)
def test_urls_that_a_shell_or_browser_could_execute_are_not_opened(url: str) -> None:
    server = AuthorizationServer("https://as.example", authorization_endpoint=url)
    with pytest.raises(AuthorizationError, match="expected an https URL"):
        begin_attempt(server, client_id="c", redirect_uri="r", scopes=[], resource=None)


BROWSER = """\
#!{python}
import json, os, sys
with open({report!r}, "w") as file:
    json.dump(sys.argv[1:], file)
os.rename({report!r}, {report!r} + ".done")
"""


@pytest.mark.parametrize("tail", ["$(id)", "';touch%20pwned;'", "&calc", "%0a--x", "*?a=~"])
async def test_the_url_is_passed_to_the_browser_as_a_single_argument(
    tmp_path: Path, tail: str
) -> None:
    """The browser is configured with `$BROWSER`, as on machines without a desktop."""
    report = tmp_path / "report"
    browser = tmp_path / "browser"
    browser.write_text(BROWSER.format(python=sys.executable, report=str(report)))
    browser.chmod(0o700)
    program = (
        "import asyncio, sys\nfrom fairlead.auth.client.interactive_login import open_browser\n"
    )
    program += "from fairlead.auth.authorization_code import check_browser_url\n"
    program += "asyncio.run(open_browser(check_browser_url(sys.argv[1], 'x')))\n"
    url = f"https://as.example/authorize{tail}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, url),
        env={**os.environ, "BROWSER": str(browser)},
        cwd=tmp_path,
    )
    async with asyncio.timeout(30):
        assert await process.wait() == 0
        # A browser that starts slowly may still be running.
        while not (done := Path(f"{report}.done")).exists():
            await asyncio.sleep(0.05)
    assert json.loads(done.read_text()) == [url]
    assert not (tmp_path / "pwned").exists()


async def test_a_browser_in_the_terminal_does_not_block_the_login(tmp_path: Path) -> None:
    pipe, browser = tmp_path / "pipe", tmp_path / "browser"
    os.mkfifo(pipe)
    browser.write_text(f"#!/bin/sh\nread line < {pipe}\n")
    browser.chmod(0o700)
    program = "import asyncio\nfrom fairlead.auth.client import interactive_login as login\n"
    program += "login.BROWSER_TIMEOUT = 0.2\n"
    program += "assert not asyncio.run(login.open_browser('https://as.example/authorize'))\n"
    # Held open for both directions: the browser waits until it is closed.
    descriptor = os.open(pipe, os.O_RDWR)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program), env={**os.environ, "BROWSER": str(browser)}
        )
        async with asyncio.timeout(30):
            assert await process.wait() == 0
    finally:
        os.close(descriptor)
