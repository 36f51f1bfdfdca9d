"""`fairlead auth status`: the displayed properties of stored logins."""

from pathlib import Path

import pytest

from fairlead.auth.storage.credential_store import StoredLogin
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.token_response import ClientRegistration, TokenSet
from fairlead.cli.auth.auth_status import describe_expiry
from tests.support.cli_user import Person, person

__all__ = ["person"]

NOW = 1_800_000_000.0
URL = "https://h.example/mcp"


def login(left: float | None, *, refresh: str | None = "r", ended: bool = False) -> StoredLogin:
    expires = None if left is None else NOW + left
    return StoredLogin(
        owner="",
        server=URL,
        url=URL,
        issuer="https://login.example",
        resource=URL,
        token_endpoint="https://login.example/token",
        client=ClientRegistration("client"),
        auth_method="none",
        tokens=TokenSet("access-secret", "Bearer", ("a", "b"), expires, refresh),
        ended=ended,
    )


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (1, "expires in 1 second"),
        (45, "expires in 45 seconds"),
        (59.7, "expires in 1 minute"),
        (240, "expires in 4 minutes"),
        (3599, "expires in 1 hour"),
        (7200, "expires in 2 hours"),
        (200_000, "expires in 2 days"),
        (None, "has no known expiry"),
    ],
)
def test_the_expiry_of_a_login_is_shown_as_a_relative_time(left: float | None, text: str) -> None:
    assert describe_expiry(login(left), NOW) == f"{text}, renewed automatically"


def test_the_status_of_an_expired_login_says_that_its_next_use_renews_it() -> None:
    assert describe_expiry(login(-180), NOW) == "expired 3 minutes ago, renewed at the next use"
    text = "expired 3 minutes ago, not renewed automatically"
    assert describe_expiry(login(-180, refresh=None), NOW) == text


def test_the_status_of_a_login_without_refresh_token_says_that_it_is_not_renewed() -> None:
    text = "expires in 1 hour, not renewed automatically"
    assert describe_expiry(login(3600, refresh=None), NOW) == text


def stored(person: Person, *logins: StoredLogin) -> Path:
    folder = person.ours / "data" / "auth"
    for one in logins:
        FileCredentialStore(folder).save(one)
    return folder


@pytest.mark.parametrize("damage", ["truncated", "another key"])
def test_auth_status_warns_of_login_files_that_cannot_be_decrypted(
    person: Person, damage: str
) -> None:
    folder = stored(person, login(3600))
    [file] = folder.glob("login-*.sealed")
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:100])
    else:
        (folder / "sealing.key").write_bytes(b"k" * 32)
    done = person.does("auth", "status")
    assert done.code == 0
    assert done.out == (
        "No stored login can be read. `fairlead login SERVER` logs in to a server.\n"
    )
    assert done.err.startswith(f"warning: {file} cannot be opened (")
    assert "it is damaged or was encrypted with another key; log in again" in done.err


def test_the_error_for_a_missing_encryption_key_names_its_file(person: Person) -> None:
    folder = stored(person, login(3600))
    (folder / "sealing.key").unlink()
    done = person.does("auth", "status")
    assert done.code == 1
    assert "the key of the stored logins is neither in" in done.err
    assert str(folder / "sealing.key") in done.err


def test_the_status_of_an_unusable_login_contains_the_login_command(person: Person) -> None:
    folder = stored(person, login(-NOW / 2, ended=True))
    done = person.does("auth", "status")
    assert done.out == (
        f"{URL}\n"
        "  issuer: https://login.example\n"
        "  scopes: a b\n"
        "  login:  ended, because the server refused to renew it: "
        f"`fairlead login {URL}` logs in again\n"
        f"Logins are stored in {folder}.\n"
    )
    stored(person, login(-NOW / 2, refresh=None))
    shown = person.does("auth", "status").out
    assert f"not renewed automatically: `fairlead login {URL}` logs in again\n" in shown
