"""Permissions of the folder of stored logins."""

from pathlib import Path

import pytest

from fairlead.auth.storage.private_folder import create_private_folder
from fairlead.errors import AuthorizationError
from tests.auth.storage.test_file_store import LOGIN, SERVER, file_store


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o7777


@pytest.mark.parametrize("before", [0o755, 0o777, 0o1777, 0o750, 0o700])
def test_an_existing_folder_of_logins_is_restricted_to_its_owner(
    tmp_path: Path, before: int
) -> None:
    store = file_store(tmp_path / "auth")
    store.save(LOGIN)
    (tmp_path / "auth").chmod(before)
    assert store.lock("alice", SERVER).try_acquire()
    assert mode(tmp_path / "auth") == 0o700


def test_an_empty_login_folder_is_restricted_to_its_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file_store(tmp_path).save(LOGIN)
    assert mode(tmp_path) == 0o700


def test_permissions_of_a_folder_with_other_files_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("")
    tmp_path.chmod(0o755)
    create_private_folder(tmp_path)
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("before", [0o777, 0o775, 0o1777])
def test_a_folder_with_other_files_that_other_users_can_write_is_refused(
    tmp_path: Path, before: int
) -> None:
    (tmp_path / "README").write_text("")
    tmp_path.chmod(before)
    with pytest.raises(AuthorizationError, match="run `chmod go-w") as caught:
        file_store(tmp_path).save(LOGIN)
    assert caught.value.step == "storage"
    assert [path.name for path in tmp_path.iterdir()] == ["README"]
    tmp_path.chmod(0o700)
