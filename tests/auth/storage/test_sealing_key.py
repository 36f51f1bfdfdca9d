"""The key of stored logins, in a file or in the keyring of the system."""

import contextlib
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairlead.auth.storage.sealing_key import SealingKey
from fairlead.errors import AuthorizationError


class Keyring(types.ModuleType):
    """A stand-in for the package `keyring`, whose backends need a desktop session."""

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__("keyring")
        self.problem = problem
        self.passwords: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, account: str) -> str | None:
        if self.problem is not None:
            raise self.problem
        return self.passwords.get((service, account))

    def set_password(self, service: str, account: str, value: str) -> None:
        self.passwords[service, account] = value


@pytest.mark.covers("AUT-05")
def test_a_key_file_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "auth"
    key = SealingKey(folder, use_keyring=False).value()
    assert len(key) == 32
    assert SealingKey(folder, use_keyring=False).value() == key
    assert [path.name for path in folder.iterdir()] == ["sealing.key"]
    assert (folder / "sealing.key").stat().st_mode & 0o777 == 0o600


def test_the_keyring_of_the_system_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring())
    key = SealingKey(tmp_path).value()
    assert SealingKey(tmp_path).value() == key
    assert [path.name for path in tmp_path.iterdir()] == ["sealing.lock"]


class MeetingKeyring(Keyring):
    """A keyring in which the first two programs that find no key do so at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(2, timeout=1.0)

    def get_password(self, service: str, account: str) -> str | None:
        found = super().get_password(service, account)
        if found is None:
            # With a lock, only one program gets here, and the other one finds its key.
            with contextlib.suppress(threading.BrokenBarrierError):
                self.meeting.wait()
        return found


def test_programs_that_start_at_the_same_time_share_one_key_in_the_keyring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", MeetingKeyring())
    with ThreadPoolExecutor(2) as threads:
        keys = list(threads.map(lambda _: SealingKey(tmp_path).value(), range(2)))
    assert keys == [SealingKey(tmp_path).value()] * 2


class SlowKeyring(Keyring):
    """A keyring that cannot be used; another program detects this first and creates a key file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def get_password(self, service: str, account: str) -> str | None:
        SealingKey(self._folder, use_keyring=False).value()
        (self._folder / "login-x.sealed").write_bytes(b"")
        raise RuntimeError("no backend")


def test_programs_that_start_at_the_same_time_share_one_key_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", SlowKeyring(tmp_path))
    assert SealingKey(tmp_path).value() == (tmp_path / "sealing.key").read_bytes()


def test_an_existing_key_file_is_used_even_if_a_keyring_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = SealingKey(tmp_path, use_keyring=False).value()
    monkeypatch.setitem(sys.modules, "keyring", Keyring())
    assert SealingKey(tmp_path).value() == key


def test_the_key_is_stored_in_a_file_if_there_is_no_keyring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring(RuntimeError("no backend")))
    SealingKey(tmp_path).value()
    assert (tmp_path / "sealing.key").exists()


class DisabledKeyring(Keyring):
    """A keyring like that of `keyring --disable`, which stores nothing."""

    def set_password(self, service: str, account: str, value: str) -> None:
        pass


class ReadOnlyKeyring(Keyring):
    def set_password(self, service: str, account: str, value: str) -> None:
        raise PermissionError("read-only")


class SilentKeyring(Keyring):
    """A keyring that waits for its user."""

    def get_password(self, service: str, account: str) -> str | None:
        threading.Event().wait()
        raise AssertionError("the event is never set")


@pytest.mark.parametrize("kind", [DisabledKeyring, ReadOnlyKeyring])
def test_a_keyring_that_stores_nothing_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Keyring]
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", kind())
    key = SealingKey(tmp_path).value()
    assert (tmp_path / "sealing.key").read_bytes() == key
    assert SealingKey(tmp_path).value() == key


@pytest.mark.parametrize(
    ("keyring", "why"),
    [
        (Keyring(RuntimeError("locked")), "RuntimeError"),
        (SilentKeyring(), "no answer within 0 seconds"),
        (DisabledKeyring(), "LookupError"),
    ],
)
def test_a_warning_says_that_a_file_is_used_instead_of_a_keyring(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    keyring: Keyring,
    why: str,
) -> None:
    monkeypatch.setattr("fairlead.auth.storage.sealing_key.KEYRING_TIMEOUT", 0.2)
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    SealingKey(tmp_path).value()
    place = tmp_path / "sealing.key"
    what = f"the system's keyring cannot be used ({why}); {place} holds the key of stored logins"
    assert caplog.messages == [what]
    SealingKey(tmp_path).value()
    assert caplog.messages == [what]  # only once


def test_the_error_for_a_keyring_that_does_not_respond_contains_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.auth.storage.sealing_key.KEYRING_TIMEOUT", 0.2)
    monkeypatch.setitem(sys.modules, "keyring", SilentKeyring())
    (tmp_path / "login-x.sealed").write_bytes(b"")
    with pytest.raises(AuthorizationError) as caught:
        SealingKey(tmp_path).value()
    assert str(caught.value) == (
        "the credential store cannot be used: the system's keyring returns no key (no answer "
        f"within 0 seconds): unlock it, or delete {tmp_path} and log in again"
    )


@pytest.mark.parametrize("text", ["c2hvcnQ=", "not base64 \xff", "A" * 1000])
def test_the_error_for_a_damaged_key_in_a_keyring_contains_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    keyring = Keyring()
    keyring.passwords["fairlead", "credential-store"] = text
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    with pytest.raises(AuthorizationError, match="is damaged: restore it, or delete it and"):
        SealingKey(tmp_path).value()


def test_a_locked_keyring_does_not_replace_the_key_of_stored_logins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "login-x.sealed").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "keyring", Keyring(RuntimeError("locked")))
    with pytest.raises(AuthorizationError, match="unlock it"):
        SealingKey(tmp_path).value()
