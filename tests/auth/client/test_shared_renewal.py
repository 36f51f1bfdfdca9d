"""One renewal of an expired token for many processes, threads and tasks."""

import asyncio
import sys
import threading
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from fairlead import MCPClient
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.errors import LoginRequired
from tests.support.oidc_provider import Provider, running_provider
from tests.support.protected_server import ProtectedServer, protected_server

LIMIT = 240.0
PROGRAM = """
import asyncio, sys
from fairlead import MCPClient, MCPClientConfig
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore

PATIENT = MCPClientConfig(timeout_seconds=120)  # many processes share a few cores

async def main(folder, url):
    authorizer = OAuthAuthorizer(url, store=FileCredentialStore(folder))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with MCPClient.connect_http(url, PATIENT, http={"authorizer": authorizer}) as client:
        print((await client.call("add", {"a": 1, "b": 2})).text, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def expired_login(folder: Path, provider: Provider, server: ProtectedServer) -> None:
    """Log in, and let the stored token look expired."""
    store = FileCredentialStore(folder)
    await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
    expire(store)


def expire(store: FileCredentialStore) -> None:
    [login] = store.logins()
    tokens = msgspec.structs.replace(login.tokens, expires_at=1.0)
    store.save(msgspec.structs.replace(login, tokens=tokens))


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.slow)])
async def test_processes_share_one_renewal(tmp_path: Path, count: int) -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await expired_login(tmp_path, provider, server)
        workers = [await start(tmp_path, server.url) for _ in range(count)]
        for worker in workers:
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
        results = await asyncio.gather(*(worker.communicate(b"\n") for worker in workers))
        assert Counter(out for out, _ in results) == {b"3\n": count}
        assert (await provider.counts())["refresh_token 200"] == 1
        # The stored result is the new one, so that the next renewal works as well.
        expire(FileCredentialStore(tmp_path))
        assert await call(tmp_path, server.url) == "3"
        assert (await provider.counts())["refresh_token 200"] == 2


async def start(folder: Path, url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder), url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def call(folder: Path, url: str) -> str:
    authorizer = OAuthAuthorizer(url, store=FileCredentialStore(folder))
    async with MCPClient.connect_http(url, http={"authorizer": authorizer}) as client:
        return (await client.call("add", {"a": 1, "b": 2})).text


async def test_tasks_in_several_threads_share_one_renewal(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await expired_login(tmp_path, provider, server)
        results: list[str] = []

        async def many() -> None:
            results.extend(await asyncio.gather(*(call(tmp_path, server.url) for _ in range(10))))

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert results == ["3"] * 40
        assert (await provider.counts())["refresh_token 200"] == 1


async def test_a_login_whose_renewal_was_lost_ends_with_one_attempt(tmp_path: Path) -> None:
    """The process that renewed was killed before it stored the result."""
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        await expired_login(tmp_path, provider, server)
        store = FileCredentialStore(tmp_path)
        [old] = store.logins()
        await call(tmp_path, server.url)
        store.save(old)
        server.revoked.add(old.tokens.access_token)
        for _ in range(5):
            with pytest.raises(LoginRequired, match="requires a new login"):
                await call(tmp_path, server.url)
        counts = await provider.counts()
        assert counts["refresh_token 400"] == 1
        [login] = store.logins()
        assert login.ended


async def test_an_unreachable_provider_does_not_end_a_login(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT), running_provider() as provider:
        async with protected_server(provider.issuer) as server:
            await expired_login(tmp_path, provider, server)
            store = FileCredentialStore(tmp_path)
            [login] = store.logins()
            moved = msgspec.structs.replace(login, token_endpoint="http://127.0.0.1:1/token")
            store.save(moved)
            with pytest.raises(Exception, match="cannot fetch from"):
                await call(tmp_path, server.url)
            assert store.logins() == [moved]
            store.save(login)
            assert await call(tmp_path, server.url) == "3"
