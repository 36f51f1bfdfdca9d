"""A process that is killed while it renews a token, and the processes that wait for it."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead import MCPClient
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import LoginLock
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.errors import LoginRequired
from tests.auth.client.test_shared_renewal import expired_login
from tests.support.oidc_provider import Provider, running_provider
from tests.support.protected_server import ProtectedServer, protected_server

LIMIT = 60.0
CONTINUED = 1.0  # maximum seconds from the kill until the other calls are answered
WAITING = 4
# Renews the stored login, and stops at one place until it is killed.
PROGRAM = """
import asyncio, sys, threading
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import LoginLock
from fairlead.auth.storage.file_store import FileCredentialStore

folder, url, place = sys.argv[1:]

def reached(name):
    if name == place:
        print(name, flush=True)
        threading.Event().wait()

class StoppingStore(FileCredentialStore):
    def lock(self, owner, server):
        lock = super().lock(owner, server)
        acquire = lock.try_acquire
        lock.try_acquire = lambda: acquire() and (reached("locked") or True)
        return lock

    def save(self, login):
        reached("renewed")
        super().save(login)
        reached("stored")

asyncio.run(OAuthAuthorizer(url, store=StoppingStore(folder)).access_token())
"""


@contextlib.asynccontextmanager
async def renewing_process(
    folder: Path, url: str, place: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process that holds the lock of the login and has stopped at a place."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder), url, place),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert (await process.stdout.readline()).decode().strip() == place
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def expired(folder: Path) -> AsyncIterator[tuple[Provider, ProtectedServer]]:
    """Run a provider and a server, and store a login that has expired."""
    async with (
        asyncio.timeout(LIMIT),
        running_provider(ttl=3600) as provider,
        protected_server(provider.issuer) as server,
    ):
        await expired_login(folder, provider, server)
        [login] = FileCredentialStore(folder).logins()
        server.revoked.add(login.tokens.access_token)
        yield provider, server


class WatchedStore(FileCredentialStore):
    """A store that reports that its user waits for another process."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.waits = threading.Event()

    def lock(self, owner: str, server: str) -> LoginLock:
        lock = super().lock(owner, server)
        acquire = lock.try_acquire

        def try_acquire() -> bool:
            if acquire():
                return True
            self.waits.set()
            return False

        lock.try_acquire = try_acquire  # type: ignore[method-assign]
        return lock


async def waiting_calls(folder: Path, url: str) -> list[asyncio.Task[str]]:
    """Start calls, and return them once all of them wait for the lock."""
    stores = [WatchedStore(folder) for _ in range(WAITING)]
    calls = [asyncio.create_task(call(folder, url, store)) for store in stores]
    for store in stores:
        await asyncio.to_thread(store.waits.wait, LIMIT)
    return calls


async def call(folder: Path, url: str, store: FileCredentialStore | None = None) -> str:
    remedy = "run `fairlead login notes`"
    store = store or FileCredentialStore(folder)
    authorizer = OAuthAuthorizer(url, store=store, remedy=remedy)
    async with MCPClient.connect_http(url, http={"authorizer": authorizer}) as client:
        return (await client.call("add", {"a": 1, "b": 2})).text


@pytest.mark.covers("AUT-03")
async def test_waiting_processes_renew_after_the_renewing_process_is_killed(tmp_path: Path) -> None:
    async with expired(tmp_path) as (provider, server):
        async with renewing_process(tmp_path, server.url, "locked") as process:
            waiting = await waiting_calls(tmp_path, server.url)
            process.kill()
            killed = time.monotonic()
            assert await asyncio.gather(*waiting) == ["3"] * WAITING
            assert time.monotonic() - killed < CONTINUED
        assert (await provider.counts())["refresh_token 200"] == 1


@pytest.mark.covers("AUT-03")
async def test_a_renewal_is_used_if_its_process_is_killed_after_storing_it(tmp_path: Path) -> None:
    """The stored result is used at once, although another process still holds the lock."""
    async with expired(tmp_path) as (provider, server):
        async with renewing_process(tmp_path, server.url, "stored") as process:
            assert await call(tmp_path, server.url) == "3"
            process.kill()
            killed = time.monotonic()
            assert await call(tmp_path, server.url) == "3"
            assert time.monotonic() - killed < CONTINUED
        assert (await provider.counts())["refresh_token 200"] == 1


@pytest.mark.covers("AUT-03")
async def test_a_renewal_lost_by_a_killed_process_requires_a_new_login(tmp_path: Path) -> None:
    async with expired(tmp_path) as (provider, server):
        async with renewing_process(tmp_path, server.url, "renewed") as process:
            waiting = await waiting_calls(tmp_path, server.url)
            process.kill()
            errors = await asyncio.gather(*waiting, return_exceptions=True)
        later = await asyncio.gather(
            *(call(tmp_path, server.url) for _ in range(WAITING)), return_exceptions=True
        )
        host = server.url.removeprefix("http://").removesuffix("/mcp")
        text = f"{host} requires a new login: run `fairlead login notes`"
        assert {(type(error), str(error)) for error in errors + later} == {(LoginRequired, text)}
        counts = await provider.counts()
        # The lost request of the killed process, and one that the provider refused.
        assert (counts["refresh_token 200"], counts["refresh_token 400"]) == (1, 1)
        # All processes use the new login.
        store = FileCredentialStore(tmp_path)
        await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
        assert await call(tmp_path, server.url) == "3"
