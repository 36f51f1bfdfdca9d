"""Interactive logins of several programs at once, and of programs without a browser."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.auth.client import concurrent_login, interactive_login
from fairlead.auth.client.interactive_login import AuthorizationRequest, LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.errors import AuthorizationError, LoginRequired
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider

LIMIT = 30.0


class Person:
    """A user who completes a login when the test allows it."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._provider = provider
        self.asked = asyncio.Event()
        self.may_proceed = asyncio.Event()
        self.requests: list[AuthorizationRequest] = []

    async def authorize(self, page: AuthorizationRequest) -> str:
        self.requests.append(page)
        self.asked.set()
        await self.may_proceed.wait()
        url: str = self._provider.user()(page)
        return url


class Programs:
    """Programs of one user that need the same login."""

    def __init__(self, provider: ScriptedProvider, folder: Path) -> None:
        self.provider = provider
        self.store = FileCredentialStore(folder)

    def program(self) -> tuple[OAuthAuthorizer, Person]:
        person = Person(self.provider)
        authorizer = OAuthAuthorizer(
            self.provider.url, store=self.store, authorize=person.authorize
        )
        return authorizer, person

    async def call(self, authorizer: OAuthAuthorizer) -> Any:
        return await request(self.provider, authorizer)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Programs]:
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        yield Programs(provider, folder)


class Warned(logging.Handler):
    """A log handler that sets an event at the warning about a login of another program."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "another program waits for a login to 127.0.0.1:" in record.getMessage():
            self.event.set()


@pytest.fixture
def warned() -> Iterator[asyncio.Event]:
    handler, log = Warned(), logging.getLogger("fairlead.auth")
    log.addHandler(handler)
    yield handler.event
    log.removeHandler(handler)


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_login, "STORE_POLL", 0.02)


async def test_a_program_uses_the_login_that_another_program_completes(
    tmp_path: Path, warned: asyncio.Event
) -> None:
    async with running(tmp_path) as programs:
        (first, person), (second, other) = programs.program(), programs.program()
        calling = asyncio.create_task(programs.call(first))
        await person.asked.wait()
        waiting = asyncio.create_task(programs.call(second))
        await warned.wait()
        person.may_proceed.set()
        assert await calling == await waiting == (200, {"token": "access-1"})
        assert other.requests == []


async def test_a_program_asks_the_user_if_the_login_of_another_program_is_cancelled(
    tmp_path: Path, warned: asyncio.Event
) -> None:
    async with running(tmp_path) as programs:
        (first, person), (second, other) = programs.program(), programs.program()
        calling = asyncio.create_task(programs.call(first))
        await person.asked.wait()
        waiting = asyncio.create_task(programs.call(second))
        await warned.wait()
        calling.cancel()
        await other.asked.wait()
        other.may_proceed.set()
        assert await waiting == (200, {"token": "access-1"})


async def test_a_waiting_program_uses_a_login_that_the_user_made_with_a_command(
    tmp_path: Path,
) -> None:
    """`fairlead login` shows its own login page, because that of the waiting program may be
    lost.
    """
    async with running(tmp_path) as programs:
        (first, person), (command, user) = programs.program(), programs.program()
        calling = asyncio.create_task(programs.call(first))
        await person.asked.wait()
        user.may_proceed.set()
        login = await command.log_in()
        assert login.tokens.access_token == "access-1"
        assert await calling == (200, {"token": "access-1"})
        assert programs.store.logins() == [login]


async def test_two_explicit_logins_end_with_the_result_of_the_first_completed_one(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as programs:
        (first, person), (second, other) = programs.program(), programs.program()
        logins = [asyncio.create_task(one.log_in()) for one in (first, second)]
        await person.asked.wait()
        await other.asked.wait()
        other.may_proceed.set()
        results = await asyncio.gather(*logins)
        assert results[0] == results[1]
        assert programs.store.logins() == [results[0]]


async def test_concurrent_logins_with_different_scopes_are_both_completed(tmp_path: Path) -> None:
    async with running(tmp_path) as programs:
        (first, person), (second, other) = programs.program(), programs.program()
        narrow = asyncio.create_task(first.log_in(["read"]))
        await person.asked.wait()
        other.may_proceed.set()
        await second.log_in(["write"])
        person.may_proceed.set()
        assert (await narrow).requested == ("read",)
        [stored] = programs.store.logins()
        assert stored.requested == ("read",)


async def test_a_renewal_by_another_program_does_not_end_an_explicit_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as programs:
        command, user = programs.program()
        user.may_proceed.set()
        old = await command.log_in()
        user.may_proceed.clear()
        user.asked.clear()
        again = asyncio.create_task(command.log_in())
        await user.asked.wait()
        # No lock is held while the user logs in, so another program can renew the old login.
        programs.provider.refused.add("access-1")
        assert await programs.call(programs.program()[0]) == (200, {"token": "access-2"})
        looked = asyncio.Event()
        load, loop = FileCredentialStore.load, asyncio.get_running_loop()

        def look(*names: Any) -> Any:
            found = load(*names)
            loop.call_soon_threadsafe(looked.set)
            return found

        monkeypatch.setattr(FileCredentialStore, "load", look)
        for _ in range(2):  # the first look may have begun before the renewal
            looked.clear()
            await looked.wait()
        assert not again.done()
        user.may_proceed.set()
        new = await again
        assert new.login_id != old.login_id
        assert programs.store.logins() == [new]


async def test_a_login_in_progress_continues_if_the_store_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as programs:
        command, user = programs.program()
        looked = asyncio.Event()
        login = asyncio.create_task(command.log_in())
        await user.asked.wait()
        load, loop = FileCredentialStore.load, asyncio.get_running_loop()

        def fail(*_: Any) -> Any:
            loop.call_soon_threadsafe(looked.set)
            raise AuthorizationError("the disk is gone", step="storage")

        monkeypatch.setattr(FileCredentialStore, "load", fail)
        await looked.wait()
        monkeypatch.setattr(FileCredentialStore, "load", load)
        user.may_proceed.set()
        assert (await login).tokens.access_token == "access-1"


# Programs without a browser


@contextlib.asynccontextmanager
async def headless(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> AsyncIterator[ScriptedProvider]:
    monkeypatch.setattr(interactive_login, "_opened", lambda url: False)
    monkeypatch.setattr(interactive_login, "_has_terminal", lambda: terminal)
    async with asyncio.timeout(LIMIT), scripted_provider() as provider:
        yield provider


async def test_a_login_fails_at_once_without_a_browser_and_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with headless(monkeypatch, terminal=False) as provider:
        authorizer = OAuthAuthorizer(
            provider.url, prompt=LoginPrompt(), remedy="run `fairlead login notes`"
        )
        for _ in range(3):
            with pytest.raises(LoginRequired) as caught:
                await request(provider, authorizer)
            assert str(caught.value) == (
                f"{provider.origin[7:]} requires a login; no browser can be opened here, and there "
                "is no terminal to show the page: run `fairlead login notes`"
            )
        assert provider.steps["register"] == 1, "the failed login is not repeated"


async def test_the_terminal_shows_the_login_page_if_no_browser_can_be_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interactive_login, "PROGRESS", 0.01)
    async with headless(monkeypatch, terminal=True) as provider:
        authorizer = OAuthAuthorizer(provider.url, prompt=LoginPrompt())
        calling = asyncio.create_task(request(provider, authorizer))
        shown = ""
        while "Still waiting for the login; 10 minutes left.\n" not in shown:
            await asyncio.sleep(0.01)
            shown += capsys.readouterr().err
        calling.cancel()
    assert f"Open this page in a browser, and log in at {provider.issuer}:\n" in shown
    assert f"\n  {provider.issuer}/authorize?" in shown
    assert "No browser could be opened." in shown
    assert f"run `fairlead login {provider.url}` in another terminal" in shown


async def test_other_tasks_run_while_a_browser_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, other_task = asyncio.get_running_loop(), threading.Event()

    def start(url: str) -> bool:
        loop.call_soon_threadsafe(other_task.set)
        return other_task.wait(LIMIT)

    monkeypatch.setattr(interactive_login, "_opened", start)
    monkeypatch.setattr(interactive_login, "BROWSER_TIMEOUT", LIMIT)
    assert await interactive_login.open_browser("https://as.example/authorize")


# Missing scopes


async def test_the_error_for_missing_scopes_contains_them_and_a_quoted_login_command(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as programs:
        mine, person = programs.program()
        person.may_proceed.set()
        await mine.log_in(["read"])
        other = OAuthAuthorizer(
            programs.provider.url, store=programs.store, remedy="run `fairlead login notes`"
        )

        async def demand(call: Any) -> None:
            scope = "read write $(id) `id`;x"
            await call.answer(
                403, "{}", WWW_Authenticate=f'Bearer error="insufficient_scope", scope="{scope}"'
            )

        programs.provider.scripts["mcp"] = demand
        with pytest.raises(LoginRequired) as caught:
            await programs.call(other)
        assert caught.value.scopes == ("write", "$(id)", "`id`;x")
        assert caught.value.remedy == (
            "run `fairlead login notes --scope read --scope write --scope '$(id)' --scope '`id`;x'`"
        )
        assert caught.value.public == "requires a login with more scopes: write $(id) `id`;x"
