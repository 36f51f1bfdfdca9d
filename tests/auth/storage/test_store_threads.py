"""Calls to credential stores that wait, for example for a locked keyring."""

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.errors import AuthorizationError
from tests.auth.storage.test_file_store import LOGIN
from tests.auth.storage.test_sealing_key import Keyring

LOGINS = 40  # more than an event loop has threads
LIMIT = 20.0


class WaitingKeyring(Keyring):
    """A keyring that waits for its user."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.unlocked = threading.Event(), threading.Event()

    def get_password(self, service: str, account: str) -> str | None:
        self.asked.set()
        self.unlocked.wait(LIMIT)
        raise RuntimeError("locked")


async def test_a_keyring_that_waits_for_its_user_does_not_delay_other_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    FileCredentialStore(tmp_path).save(LOGIN)
    waiting = WaitingKeyring()
    monkeypatch.setitem(sys.modules, "keyring", waiting)
    async with asyncio.timeout(LIMIT):
        loads = [
            asyncio.ensure_future(
                OAuthAuthorizer(
                    LOGIN.url, store=FileCredentialStore(tmp_path), owner=LOGIN.owner
                ).prepare("POST", LOGIN.url)
            )
            for _ in range(LOGINS)
        ]
        await asyncio.to_thread(waiting.asked.wait)
        # Lookups of host names need the threads of the event loop.
        assert await asyncio.to_thread(socket.getaddrinfo, "localhost", 80)
        assert not any(load.done() for load in loads)
        waiting.unlocked.set()
        for outcome in await asyncio.gather(*loads, return_exceptions=True):
            assert isinstance(outcome, AuthorizationError)
            assert "unlock it" in str(outcome)


FORKING = """
import asyncio, os, sys
from fairlead.auth.storage.store_threads import in_store_thread

async def load():
    async with asyncio.timeout(5):
        return await in_store_thread(int, "1")

asyncio.run(load())
process = os.fork()
if process:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
asyncio.run(load())
os._exit(0)
"""


def test_a_process_forked_by_a_program_with_logins_can_use_its_store() -> None:
    """Threads do not exist in the copy of a process, so calls would wait for them forever."""
    done = subprocess.run([sys.executable, "-c", FORKING], timeout=LIMIT, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
