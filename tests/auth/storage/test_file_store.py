"""Logins in sealed files, and the lock that processes share."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairlead.auth.storage.credential_store import (
    CredentialStore,
    MemoryCredentialStore,
    StoredLogin,
)
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.storage.sealing_key import SealingKey
from fairlead.auth.token_response import ClientRegistration, TokenSet
from fairlead.errors import AuthorizationError

SERVER = "https://h/mcp"
LOGIN = StoredLogin(
    owner="alice",
    server=SERVER,
    url=SERVER,
    issuer="https://as",
    resource=SERVER,
    token_endpoint="https://as/token",
    client=ClientRegistration("c", "client-secret-1"),
    auth_method="none",
    tokens=TokenSet("access-secret-2", "Bearer", ("a",), 5.0, "refresh-secret-3"),
    dpop_key={"kty": "EC", "d": "key-secret-4"},
)


def file_store(folder: Path) -> FileCredentialStore:
    return FileCredentialStore(folder, SealingKey(folder, use_keyring=False))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CredentialStore:
    return MemoryCredentialStore() if request.param == "memory" else file_store(tmp_path / "auth")


@pytest.mark.covers("AUT-05")
def test_a_stored_login_is_loaded_unchanged(store: CredentialStore) -> None:
    assert store.load("alice", SERVER) is None
    store.save(LOGIN)
    assert store.load("alice", SERVER) == LOGIN
    assert store.load("bob", SERVER) is None
    assert store.logins() == [LOGIN]


def test_a_newer_login_replaces_the_older_one(store: CredentialStore) -> None:
    store.save(LOGIN)
    newer = LOGIN.renewed(TokenSet("t2", "Bearer"))
    store.save(newer)
    assert store.logins() == [newer]
    assert newer.generation == LOGIN.generation + 1


def test_a_deleted_login_cannot_be_loaded(store: CredentialStore) -> None:
    store.save(LOGIN)
    assert store.delete("alice", SERVER)
    assert not store.delete("alice", SERVER)
    assert store.load("alice", SERVER) is None


def test_registrations_are_kept_per_issuer_and_redirect(store: CredentialStore) -> None:
    client = ClientRegistration("c", origin="dynamic")
    store.save_registration("https://as", "r1", client)
    assert store.load_registration("https://as", "r1") == client
    assert store.load_registration("https://as", "r2") is None
    store.save_registration("https://as", "r1", None)
    assert store.load_registration("https://as", "r1") is None


def test_only_one_holder_has_the_lock_of_a_login(store: CredentialStore) -> None:
    one, other = store.lock("alice", SERVER), store.lock("alice", SERVER)
    assert one.try_acquire()
    assert not other.try_acquire()
    assert store.lock("bob", SERVER).try_acquire()
    one.release()
    assert other.try_acquire()


def test_a_process_releases_its_locks_when_it_ends(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    program = (
        "import sys\n"
        "from fairlead.auth.storage.file_store import FileCredentialStore\n"
        "lock = FileCredentialStore(sys.argv[1]).lock('alice', sys.argv[2])\n"
        "print(lock.try_acquire(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "True\n"
        lock = store.lock("alice", SERVER)
        assert not lock.try_acquire()
        holder.kill()
        holder.wait(10)
        assert lock.try_acquire()


def test_a_lock_is_released_even_if_a_forked_process_has_a_copy_of_its_descriptor(
    tmp_path: Path,
) -> None:
    """A forked process has a copy of the descriptor, which would keep the file locked."""
    program = (
        "import os, sys\n"
        "from fairlead.auth.storage.file_store import FileCredentialStore\n"
        "lock = FileCredentialStore(sys.argv[1]).lock('alice', sys.argv[2])\n"
        "lock.try_acquire()\n"
        "if os.fork():\n"
        "    lock.release()\n"
        "    print('released', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "released\n"
        lock = file_store(tmp_path).lock("alice", SERVER)
        assert lock.try_acquire()
        lock.release()
        holder.stdin.close()  # both processes end


@pytest.mark.covers("AUT-05")
def test_files_contain_no_secrets_and_belong_to_their_owner(tmp_path: Path) -> None:
    folder = tmp_path / "auth"
    file_store(folder).save(LOGIN)
    files = [path for path in folder.iterdir() if path.is_file()]
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o600"}
    assert all(b"secret" not in path.read_bytes() for path in files)


def test_a_login_file_copied_to_another_owner_cannot_be_opened(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    store.save(msgspec.structs.replace(LOGIN, owner="bob"))
    alice, bob = store._login_path("alice", SERVER), store._login_path("bob", SERVER)
    bob.write_bytes(alice.read_bytes())
    assert store.load("bob", SERVER) is None
    assert store.load("alice", SERVER) == LOGIN


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "text"])
def test_a_damaged_login_file_is_ignored(tmp_path: Path, damage: str) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    path = store._login_path("alice", SERVER)
    raw = path.read_bytes()
    damaged = {
        "truncated": raw[:-9],
        "changed": raw[:-20] + b"x" + raw[-19:],
        "empty": b"",
        "text": b"hello",
    }
    path.write_bytes(damaged[damage])
    assert store.load("alice", SERVER) is None
    assert store.logins() == []


def test_login_files_cannot_be_opened_with_another_key(tmp_path: Path) -> None:
    file_store(tmp_path).save(LOGIN)
    (tmp_path / "sealing.key").write_bytes(os.urandom(32))
    assert file_store(tmp_path).load("alice", SERVER) is None


def test_the_error_for_a_damaged_key_contains_a_remedy(tmp_path: Path) -> None:
    file_store(tmp_path).save(LOGIN)
    (tmp_path / "sealing.key").write_bytes(b"short")
    with pytest.raises(AuthorizationError, match="is damaged: delete it and log in again"):
        file_store(tmp_path).load("alice", SERVER)


def test_a_login_folder_that_cannot_be_created_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuthorizationError) as caught:
        file_store(tmp_path / "file" / "auth").save(LOGIN)
    assert caught.value.step == "storage"


def test_a_failed_write_keeps_the_stored_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairlead.store.atomic_write.os.replace", full)
    with pytest.raises(AuthorizationError, match="No space left on device"):
        store.save(LOGIN.renewed(TokenSet("t2", "Bearer")))
    assert store.load("alice", SERVER) == LOGIN
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


RESOLVED_TYPES = """
import sys
from fairlead.auth.storage.file_store import FileCredentialStore

def profile(frame, event, _):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        print("resolved", flush=True)

store = FileCredentialStore(sys.argv[1])
sys.setprofile(profile)
assert store.load("alice", "https://h/mcp") is not None
assert store.load_registration("https://as", "http://127.0.0.1/callback") is not None
"""


def test_loading_a_login_resolves_no_types(tmp_path: Path) -> None:
    """Threads may load logins at the same time, and msgspec crashes if one of them decodes a type
    while another one is resolving its fields.
    """
    store = file_store(tmp_path)
    store.save(LOGIN)
    store.save_registration("https://as", "http://127.0.0.1/callback", LOGIN.client)
    command = [sys.executable, "-c", RESOLVED_TYPES, str(tmp_path)]
    assert subprocess.check_output(command, timeout=60) == b""
