"""The login store: full disks, wrong file modes, failing keyrings, moved and stolen files."""

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import MemoryCredentialStore, StoredLogin
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.storage.sealing_key import SealingKey
from fairlead.auth.token_response import ClientRegistration, TokenSet
from fairlead.errors import AuthorizationError, LoginRequired
from tests.auth.storage.test_sealing_key import Keyring
from tests.support.cli_process import fairlead
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider

SERVER = "https://h/mcp"
LOGIN = StoredLogin(
    owner="alice",
    server=SERVER,
    url=SERVER,
    issuer="https://as",
    resource=SERVER,
    token_endpoint="https://as/token",
    client=ClientRegistration("c", "client-secret"),
    auth_method="none",
    tokens=TokenSet("access", "Bearer", ("a",), 5.0, "refresh"),
)
NOBODY = 65534


def file_store(folder: Path) -> FileCredentialStore:
    return FileCredentialStore(folder, SealingKey(folder, use_keyring=False))


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Limit the size of files that this process writes, to simulate a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, ignored)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_full_disk_keeps_the_stored_login_and_leaves_no_partial_file(
    tmp_path: Path, size: int
) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    before = files(tmp_path)
    with full_disk(size), pytest.raises(AuthorizationError, match="cannot write") as caught:
        store.save(LOGIN.renewed(TokenSet("newer", "Bearer")))
    assert caught.value.step == "storage"
    assert files(tmp_path) == before
    assert store.load("alice", SERVER) == LOGIN


def test_a_full_disk_leaves_no_partial_key_file(tmp_path: Path) -> None:
    with full_disk(8), pytest.raises(AuthorizationError, match="cannot create"):
        SealingKey(tmp_path, use_keyring=False).value()
    assert files(tmp_path) == {}
    assert len(SealingKey(tmp_path, use_keyring=False).value()) == 32


@contextmanager
def ordinary_user(folder: Path) -> Iterator[None]:
    """Switch to an unprivileged user if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_saving_a_login_fails_in_a_read_only_folder_but_loading_succeeds() -> None:
    # The parents of `tmp_path` are accessible only to the user who runs the tests.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file_store(folder).save(LOGIN)
        folder.chmod(0o500)
        with ordinary_user(folder):
            store = file_store(folder)
            with pytest.raises(AuthorizationError, match="cannot write"):
                store.save(LOGIN)
            with pytest.raises(AuthorizationError, match="cannot lock"):
                store.lock("alice", SERVER).try_acquire()
            assert store.load("alice", SERVER) == LOGIN


def test_an_unreadable_login_file_is_an_error_and_not_a_missing_login() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file_store(folder).save(LOGIN)
        for path in folder.glob("*.sealed"):
            path.chmod(0)
        with (
            ordinary_user(folder),
            pytest.raises(AuthorizationError, match="cannot read .*: Permission denied"),
        ):
            file_store(folder).load("alice", SERVER)


def test_a_key_file_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    file_store(tmp_path).save(LOGIN)
    key = tmp_path / "sealing.key"
    key.chmod(0o644)
    assert file_store(tmp_path).load("alice", SERVER) == LOGIN
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_missing_key_is_not_replaced_while_logins_are_stored(tmp_path: Path) -> None:
    """A new key would make all stored logins unreadable."""
    file_store(tmp_path).save(LOGIN)
    moved = (tmp_path / "sealing.key").rename(tmp_path / "key.backup")
    for _ in range(2):
        with pytest.raises(AuthorizationError, match=r"neither in .*sealing\.key"):
            file_store(tmp_path).logins()
    moved.rename(tmp_path / "sealing.key")
    assert file_store(tmp_path).logins() == [LOGIN]


def test_the_key_is_not_replaced_if_the_keyring_package_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring())
    FileCredentialStore(tmp_path).save(LOGIN)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "keyring", None)
        with pytest.raises(AuthorizationError, match="storage|keyring"):
            FileCredentialStore(tmp_path).logins()
    assert FileCredentialStore(tmp_path).logins() == [LOGIN]


@pytest.mark.parametrize("text", [None, "", "c2hvcnQ=", "not base64 \xff", "A" * 1000])
def test_the_key_is_not_replaced_if_the_keyring_has_lost_or_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    FileCredentialStore(tmp_path).save(LOGIN)
    [(name, key)] = keyring.passwords.items()
    keyring.passwords = {} if text is None else {name: text}
    with pytest.raises(AuthorizationError, match="the credential store cannot be used"):
        FileCredentialStore(tmp_path).logins()
    assert not (tmp_path / "sealing.key").exists()
    keyring.passwords = {name: key}
    assert FileCredentialStore(tmp_path).logins() == [LOGIN]


def test_a_stolen_login_file_cannot_be_decrypted_with_another_key(tmp_path: Path) -> None:
    file_store(tmp_path / "mine").save(LOGIN)
    thief = tmp_path / "thief"
    file_store(thief).save(msgspec.structs.replace(LOGIN, owner="mallory"))
    for path in (tmp_path / "mine").glob("login-*"):
        shutil.copy(path, thief)
    assert file_store(thief).load("alice", SERVER) is None
    assert [login.owner for login in file_store(thief).logins()] == ["mallory"]


def test_a_client_registration_cannot_be_loaded_for_another_issuer(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.save_registration("https://honest", "r", ClientRegistration("c", "secret"))
    store.save_registration("https://evil", "r", ClientRegistration("d"))
    honest, evil = (
        store._client_path("https://honest", "r"),
        store._client_path("https://evil", "r"),
    )
    shutil.copy(honest, evil)
    assert store.load_registration("https://evil", "r") is None
    assert store.load_registration("https://honest", "r") == ClientRegistration("c", "secret")


def test_a_login_file_cannot_be_loaded_as_a_client_registration(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    shutil.copy(store._login_path("alice", SERVER), store._client_path("https://as", "r"))
    assert store.load_registration("https://as", "r") is None


def test_temporary_files_left_by_a_killed_process_are_ignored(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    path = store._login_path("alice", SERVER)
    path.with_name(f".{path.name}.123-abc").write_bytes(path.read_bytes()[:50])
    assert store.logins() == [LOGIN]


@pytest.mark.parametrize("length", [0, 1, 30, 100, 200])
def test_a_truncated_login_file_is_replaced_by_the_next_login(tmp_path: Path, length: int) -> None:
    store = file_store(tmp_path)
    store.save(LOGIN)
    path = store._login_path("alice", SERVER)
    path.write_bytes(path.read_bytes()[:length])
    assert store.load("alice", SERVER) is None
    store.save(LOGIN)
    assert store.load("alice", SERVER) == LOGIN


@pytest.mark.parametrize("problem", ["fine", "no key", "cut", "another key"])
def test_the_auth_status_command_changes_no_files(tmp_path: Path, problem: str) -> None:
    folder = tmp_path / "data" / "auth"
    store = file_store(folder)
    store.save(LOGIN)
    if problem == "no key":
        (folder / "sealing.key").unlink()
    elif problem == "cut":
        (folder / "sealing.key").write_bytes(b"x")
    elif problem == "another key":
        (folder / "sealing.key").write_bytes(os.urandom(32))
    before = files(folder)
    for _ in range(2):
        done = fairlead("auth", "status", "--json", env={"FAIRLEAD_HOME": str(tmp_path)})
        assert files(folder) == before
        assert "Traceback" not in done.stderr
        assert (done.returncode == 0) is (problem in ("fine", "another key"))
    if problem == "fine":
        assert [login["server"] for login in json.loads(done.stdout)] == [SERVER]


async def logged_in(provider: ScriptedProvider, store: object) -> OAuthAuthorizer:
    """Return an authorizer whose access token has expired."""
    provider.token = {"expires_in": 0}
    authorizer = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())  # type: ignore[arg-type]
    await authorizer.log_in()
    provider.token = {}
    return authorizer


async def test_a_renewed_token_is_used_although_the_disk_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = file_store(tmp_path)
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider, store)
        with full_disk(100):
            assert await request(provider, authorizer) == (200, {"token": "access-2"})
            [stale] = store.logins()
            assert stale.tokens.refresh_token == "refresh-1"
        assert "cannot write" in caplog.text
        # The next request stores the renewed login, which could not be stored before.
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        [stored] = store.logins()
        assert stored.tokens.refresh_token == "refresh-2"
        provider.refused.add("access-2")
        assert await request(provider, authorizer) == (200, {"token": "access-3"})
        [login] = store.logins()
        assert login.tokens.refresh_token == "refresh-3"
        assert [form.get("refresh_token") for form in provider.forms()[1:]] == [
            "refresh-1",
            "refresh-2",
        ]


async def test_a_renewal_in_a_read_only_folder_raises_an_error_with_the_path_of_the_file() -> None:
    """A rotated refresh token that cannot be stored would end the login."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = file_store(folder)
        async with scripted_provider() as provider:
            await logged_in(provider, store)
            before = files(folder)
            for path in folder.glob("*.lock"):
                path.unlink()
            folder.chmod(0o500)
            with ordinary_user(folder):
                authorizer = OAuthAuthorizer(provider.url, store=file_store(folder))
                with pytest.raises(AuthorizationError, match=f"cannot lock {name}/login-"):
                    await request(provider, authorizer)
            assert provider.steps["token"] == 1
            folder.chmod(0o700)
            kept = files(folder)
            assert {path: kept[path] for path in kept if path in before} == kept
            renewed = OAuthAuthorizer(provider.url, store=file_store(folder))
            assert await request(provider, renewed) == (200, {"token": "access-2"})


@pytest.mark.parametrize("newer", [True, False])
async def test_a_late_write_neither_replaces_a_newer_login_nor_restores_a_deleted_one(
    tmp_path: Path, newer: bool
) -> None:
    store = file_store(tmp_path)
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider, store)
        with full_disk(100):
            assert await request(provider, authorizer) == (200, {"token": "access-2"})
        store.delete("", provider.url)
        if newer:
            other = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
            login = await other.log_in()
            store.save(msgspec.structs.replace(login, generation=9))
        before = store.logins()
        assert (await request(provider, authorizer))[0] == 200
        assert store.logins() == before


async def test_a_login_that_another_program_deleted_is_not_stored_again(tmp_path: Path) -> None:
    store = file_store(tmp_path)
    async with scripted_provider() as provider:
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        running = OAuthAuthorizer(provider.url, store=store)
        assert (await request(provider, running))[0] == 200
        store.delete("", provider.url)
        provider.refused.add("access-1")
        with pytest.raises(LoginRequired):
            await request(provider, running)
        assert store.logins() == []
        assert provider.steps["token"] == 1


async def test_a_memory_store_keeps_its_login_after_a_failed_renewal() -> None:
    store = MemoryCredentialStore()
    async with scripted_provider() as provider:
        authorizer = await logged_in(provider, store)
        [login] = store.logins()
        provider.scripts["token"] = _unavailable
        with pytest.raises(AuthorizationError, match="HTTP 503"):
            await request(provider, authorizer)
        assert store.logins() == [login]
        del provider.scripts["token"]
        assert await request(provider, authorizer) == (200, {"token": "access-2"})


async def _unavailable(call: object) -> None:
    await call.answer(503, "later")  # type: ignore[attr-defined]
