"""Signals to a server with several worker processes, which the supervisor passes on."""

import signal
from pathlib import Path

import pytest

from tests.support.cli_process import LIMIT, server_file
from tests.support.cli_user import Person, person
from tests.support.running_gateway import Running, get, running

__all__ = ["person"]

WORKERS = ("--http", "0", "--workers", "2", "--drain", "600")


def url_of(server: Running) -> str:
    words = server.wait_for("http://127.0.0.1").split()
    return next(word for word in words if word.startswith("http://"))


def test_workers_listen_after_sigterm_until_a_second_signal(tmp_path: Path, person: Person) -> None:
    file = str(server_file(tmp_path))
    with running(person, "serve", file, *WORKERS) as server:
        url = url_of(server)
        assert get(url, "/ready")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("stopping: draining: no request is running")
        assert get(url, "/health")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(LIMIT) == 0


@pytest.mark.parametrize("options", [WORKERS, WORKERS[:2] + WORKERS[4:]], ids=["two", "one"])
def test_ctrl_c_ends_an_idle_server_at_once(
    options: tuple[str, ...], tmp_path: Path, person: Person
) -> None:
    file = str(server_file(tmp_path))
    with running(person, "serve", file, *options) as server:
        url_of(server)
        assert server.ends(signal.SIGINT) == 0
        assert "draining" not in server.said
