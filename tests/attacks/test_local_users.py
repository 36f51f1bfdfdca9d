"""Protection against other users of the machine: warnings, private sockets and files."""

import io
import json
import os
import pwd
import socket
import stat
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.framework import other_users as module
from fairlead.cli.framework.listen_address import ClientNeeds, ListenAddress
from fairlead.cli.framework.other_users import other_users
from fairlead.cli.gateway.connect_hints import connect_hints
from fairlead.config.paths import HostPaths
from fairlead.recording.journal import Journal
from fairlead.recording.journal.watch_socket import announce_journal, watch_folder
from fairlead.recording.tape.writer import TapeWriter
from fairlead.server.http_app.uvicorn_runner import bind
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.sessions.sqlite_session_store import SqliteSessionStore
from tests.support.cli_user import Person, person
from tests.support.running_gateway import post, running

__all__ = ["person"]

PEOPLE = {
    0: ("root", "/bin/bash"),
    33: ("www-data", "/usr/sbin/nologin"),
    1000: ("ada", "/bin/bash"),
    1001: ("bob", "/bin/zsh"),
    1002: ("backup", "/usr/sbin/nologin"),
    1003: ("daemon2", "/bin/false"),
    65534: ("nobody", "/bin/sh"),
    1_234_567: ("eve", "/bin/sh"),  # an account from a directory service
}


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Simulate a machine with the accounts in `PEOPLE`, where the current user is Ada."""

    def entry(uid: int) -> pwd.struct_passwd:
        name, shell = PEOPLE[uid]
        return pwd.struct_passwd((name, "x", uid, uid, "", "/", shell))

    monkeypatch.setattr(pwd, "getpwuid", entry)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(module, "_process_owners", lambda: iter(()))
    monkeypatch.setattr(module, "_LOGGED_IN", str(tmp_path / "users"))
    return tmp_path


def owners(monkeypatch: pytest.MonkeyPatch, *uids: int) -> None:
    monkeypatch.setattr(module, "_process_owners", lambda: iter(uids))


def test_users_with_running_processes_are_found(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other_users() == []
    owners(monkeypatch, 0, 33, 1000, 1002, 1003, 65534, 100_000)
    assert other_users() == []
    owners(monkeypatch, 0, 1000, 1001, 1_234_567)
    assert other_users() == ["bob", "eve"]


def test_logged_in_users_are_found(people: Path) -> None:
    (people / "users").mkdir()
    for uid in (1000, 1001):
        (people / "users" / str(uid)).touch()
    assert other_users() == ["bob"]


def test_the_current_user_is_not_listed_among_the_other_users() -> None:
    assert pwd.getpwuid(os.getuid()).pw_name not in other_users()


# The warning


def endpoint(**options: Any) -> ListenAddress:
    usual = dict.fromkeys(("http", "ws", "unix", "host", "port", "token", "tls_cert", "tls_key"))
    more = {"allow_host": [], "allow_origin": [], "insecure": False, "workers": 1}
    return ListenAddress.of(
        Namespace(
            **{**usual, **more, "sessions": None, "session_idle": None, "drain": None, **options}
        )
    )


def announced_by(one: ListenAddress) -> str:
    err = io.StringIO()
    with redirect_stderr(err), socket.create_server(("127.0.0.1", 0)) as listening:
        one.announce("server", listening, HttpSettings(), ClientNeeds(one.token is not None))
    return err.getvalue()


def test_a_warning_names_other_users_who_could_connect(
    people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_AUTH_TOKEN", raising=False)
    assert "warning" not in announced_by(endpoint())
    owners(monkeypatch, 1001)
    shown = announced_by(endpoint())
    assert "warning: other users of this machine (bob) can connect" in shown
    assert "hint: require a token (`--token auto` generates one)" in shown
    assert "warning" not in announced_by(endpoint(token="t"))
    assert "warning" not in announced_by(endpoint(insecure=True))
    assert "warning" not in announced_by(endpoint(unix=str(people / "s")))


def test_a_warning_names_a_socket_that_others_can_replace(people: Path) -> None:
    (people / "open").mkdir()
    (people / "open").chmod(0o777)
    inside = endpoint(unix=str(people / "open" / "s"))
    assert "can replace the socket" in announced_by(inside)
    (people / "open").chmod(0o1777)
    assert "warning" not in announced_by(inside)


def test_fairlead_up_warns_about_other_users_of_the_machine(person: Person, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import fairlead.cli.framework.other_users as module\n"
        "module.other_users = lambda: ['bob', 'eve']\n"
    )
    env = {"PYTHONPATH": str(site)}
    with running(person, "up", "--port", "0", env=env) as up:
        assert "(bob, eve) can connect" in up.wait_for("warning: other users")
        assert "--listen unix:PATH" in up.wait_for("hint: ")
        assert up.ends() == 0
    with running(person, "up", "--port", "0", "--json", env=env) as up:
        [warning] = up.report()["warnings"]
        assert "(bob, eve)" in warning


# Generated tokens


def test_a_generated_token_is_random_and_shown_to_the_user() -> None:
    one, two = endpoint(token="auto"), endpoint(token="auto")
    assert one.token != two.token
    assert len(one.token or "") >= 32
    assert f"--token {one.token}" in announced_by(one)
    assert "--token TOKEN" in announced_by(endpoint(token="mine"))
    for program, text in connect_hints("http://127.0.0.1:1/mcp", has_token=True):
        assert "FAIRLEAD_TOKEN" in text, program


def test_fairlead_up_requires_its_generated_token_from_clients(person: Person) -> None:
    with running(person, "up", "--port", "0", "--json", "--token", "auto") as up:
        report = up.report()
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert post(report["url"], ping)[0] == 401
        status, _ = post(report["url"], ping, authorization=f"Bearer {report['token']}")
        assert status != 401


# Sockets and files


@pytest.fixture(autouse=True)
def open_mask() -> Iterator[None]:
    """Clear the umask, so that no test relies on it."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path | str) -> str:
    return oct(stat.S_IMODE(os.stat(path).st_mode))


def test_an_http_socket_is_private_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "s"
    with bind("", 0, str(path), HttpSettings(), insecure=False):
        assert (mode(path), mode(path.parent)) == ("0o600", "0o700")


async def test_the_watch_folder_is_private_to_its_user(tmp_path: Path) -> None:
    machine = HostPaths(
        platform="linux", home=str(tmp_path), env={"FAIRLEAD_HOME": f"{tmp_path}/f"}, cwd="/"
    )
    (tmp_path / "f" / "run").mkdir(parents=True)
    folder = watch_folder(machine)
    assert mode(folder) == "0o700"
    async with announce_journal(Journal(), "name", "tap", folder=folder) as path:
        assert mode(path) == "0o600"


@pytest.mark.parametrize("was_there", [False, True])
def test_a_tape_is_private_to_its_user(tmp_path: Path, was_there: bool) -> None:
    tape = tmp_path / "folder" / "a.tape.jsonl"
    if was_there:
        tape.parent.mkdir()
        tape.touch(0o666)
    TapeWriter(tape.parent / "a").close()
    assert mode(tape) == "0o600"
    assert was_there or mode(tape.parent) == "0o700"
    assert {mode(file) for file in tape.parent.iterdir()} == {"0o600"}


@pytest.mark.parametrize("was_there", [False, True])
def test_stored_sessions_are_private_to_their_user(tmp_path: Path, was_there: bool) -> None:
    path = tmp_path / "folder" / "sessions.db"
    if was_there:
        path.parent.mkdir()
        path.touch(0o666)
    store = SqliteSessionStore(path).check()
    assert {mode(file) for file in path.parent.iterdir()} == {"0o600"}
    assert was_there or mode(path.parent) == "0o700"
    store.close()


def test_approvals_and_configuration_are_private_to_their_user(person: Person) -> None:
    person.has("project/.mcp.json", {"p": {"command": "x"}})
    person.does("mcp", "approve", "p", "--yes")
    person.does("mcp", "add", "a", "--", "x")
    assert mode(person.ours / "data" / "approvals.json") == "0o600"
    assert mode(person.ours / "data") == "0o700"
    assert mode(person.ours / "mcp.json") == "0o600"
    assert json.loads((person.ours / "mcp.json").read_text())["mcpServers"]
