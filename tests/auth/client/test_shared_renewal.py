"""One renewal of an expired token for many processes, threads and tasks."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
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
PROCESSES = 200
ANSWERED = 5.0  # seconds from the renewal to the last answer
# Starts processes that connect with the stored login, and call the tool after a line on stdin.
# It forks, because starting so many interpreters takes too long on a few cores.
PROGRAM = """
import asyncio, os, sys, time
from fairlead import MCPClient, MCPClientConfig
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore

PATIENT = MCPClientConfig(timeout_seconds=120)  # many processes share a few cores

async def work(folder, url, ready):
    authorizer = OAuthAuthorizer(url, store=FileCredentialStore(folder))
    async with MCPClient.connect_http(url, PATIENT, http={"authorizer": authorizer}) as client:
        os.write(1, b"connected\\n")
        await asyncio.to_thread(os.read, ready, 1)
        text = (await client.call("add", {"a": 1, "b": 2})).text
        os.write(1, f"{os.getpid()} {text} {time.time()}\\n".encode())

def main(folder, url, count):
    ready, begin = os.pipe()
    workers = []
    for _ in range(int(count)):
        workers.append(os.fork())
        if not workers[-1]:
            os.close(begin)
            asyncio.run(work(folder, url, ready))
            os._exit(0)
    sys.stdin.readline()
    os.close(begin)
    for worker in workers:
        os.waitpid(worker, 0)

main(*sys.argv[1:])
"""


async def expired_login(folder: Path, provider: Provider, server: ProtectedServer) -> None:
    """Log in, and let the stored token look expired."""
    expire(await stored_login(folder, provider, server))


def expire(store: FileCredentialStore) -> None:
    [login] = store.logins()
    tokens = msgspec.structs.replace(login.tokens, expires_at=1.0)
    store.save(msgspec.structs.replace(login, tokens=tokens))


@pytest.mark.covers("AUT-03")
@pytest.mark.parametrize("count", [8, pytest.param(PROCESSES, marks=pytest.mark.slow)])
async def test_several_processes_renew_an_expired_token_only_once(
    tmp_path: Path, count: int
) -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider(ttl=3600) as provider,
        protected_server(provider.issuer) as server,
    ):
        store = await stored_login(tmp_path, provider, server)
        async with connected_processes(tmp_path, server.url, count) as processes:
            [login] = store.logins()
            server.revoked.add(login.tokens.access_token)  # as if it had expired
            answers = [line.split() for line in await answers_of(processes, count)]
            assert len({process for process, _, _ in answers}) == count
            assert Counter(text for _, text, _ in answers) == {"3": count}
            assert (await provider.counts())["refresh_token 200"] == 1
            assert max(float(at) for _, _, at in answers) - renewed_at(tmp_path) < ANSWERED
        # The stored result is the new one, so that the next renewal works as well.
        expire(store)
        assert await call(tmp_path, server.url) == "3"
        assert (await provider.counts())["refresh_token 200"] == 2


async def stored_login(
    folder: Path, provider: Provider, server: ProtectedServer
) -> FileCredentialStore:
    store = FileCredentialStore(folder)
    await OAuthAuthorizer(server.url, store=store, authorize=provider.user()).log_in()
    return store


def renewed_at(folder: Path) -> float:
    [file] = folder.glob("login-*.sealed")
    return file.stat().st_mtime


@contextlib.asynccontextmanager
async def connected_processes(
    folder: Path, url: str, count: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program with this number of connected child processes."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", PROGRAM, str(folder), url, str(count))
    program = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, start_new_session=True
    )
    try:
        assert await lines_of(program, count) == ["connected"] * count
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        await program.communicate()


async def answers_of(program: asyncio.subprocess.Process, count: int) -> list[str]:
    """Let all processes call the tool; return their lines."""
    assert program.stdin is not None
    program.stdin.write(b"\n")
    return await lines_of(program, count)


async def lines_of(program: asyncio.subprocess.Process, count: int) -> list[str]:
    assert program.stdout is not None
    return [(await program.stdout.readline()).decode().rstrip() for _ in range(count)]


def authorized_client(folder: Path, url: str) -> MCPClient:
    authorizer = OAuthAuthorizer(url, store=FileCredentialStore(folder))
    return MCPClient.connect_http(url, http={"authorizer": authorizer})


async def call(folder: Path, url: str) -> str:
    async with authorized_client(folder, url) as client:
        return (await client.call("add", {"a": 1, "b": 2})).text


@pytest.mark.covers("AUT-03")
async def test_several_threads_renew_an_expired_token_only_once(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(LIMIT),
        running_provider(ttl=3600) as provider,
        protected_server(provider.issuer) as server,
    ):
        store = await stored_login(tmp_path, provider, server)
        [login] = store.logins()
        connected, revoked = threading.Barrier(5), threading.Event()
        answered: list[tuple[str, float]] = []

        async def many() -> None:
            async with authorized_client(tmp_path, server.url) as client:
                await asyncio.to_thread(connected.wait, LIMIT)
                await asyncio.to_thread(revoked.wait, LIMIT)

                async def one() -> None:
                    text = (await client.call("add", {"a": 1, "b": 2})).text
                    answered.append((text, time.time()))

                await asyncio.gather(*(one() for _ in range(50)))

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(connected.wait, LIMIT)
        server.revoked.add(login.tokens.access_token)
        revoked.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert Counter(text for text, _ in answered) == {"3": 200}
        assert (await provider.counts())["refresh_token 200"] == 1
        assert max(at for _, at in answered) - renewed_at(tmp_path) < ANSWERED
        expire(store)
        assert await call(tmp_path, server.url) == "3"
        assert (await provider.counts())["refresh_token 200"] == 2


async def test_a_refresh_token_that_was_already_used_is_tried_once(tmp_path: Path) -> None:
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


async def test_a_login_is_kept_if_the_authorization_server_is_unreachable(tmp_path: Path) -> None:
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
