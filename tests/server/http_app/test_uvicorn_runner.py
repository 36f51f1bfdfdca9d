"""Places a server listens on."""

import os
import socket
from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.server.http_app.uvicorn_runner import _bind_unix, is_exposed, url_of
from fairlead.transport.http.server.http_settings import HttpSettings


@pytest.mark.parametrize(
    ("host", "exposed"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("192.168.1.2", True),
        ("example.com", True),
    ],
)
def test_only_loopback_addresses_need_no_token(host: str, exposed: bool) -> None:
    assert is_exposed(host, HttpSettings()) is exposed
    assert is_exposed(host, HttpSettings(auth_token="t")) is False
    assert is_exposed(host, HttpSettings(verify_token=lambda token: None)) is False


def test_a_unix_socket_is_for_this_user_and_replaces_a_dead_one(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    mask = os.umask(0o022)
    try:
        with _bind_unix(path) as listening:
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert url_of(listening, "/mcp", tls=False) == f"unix://{path}#/mcp"
            with pytest.raises(ConfigError, match=f"Cannot listen on {path}: "):
                _bind_unix(path)
        with _bind_unix(path):  # nothing listens there any more
            pass
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(ConfigError):
        _bind_unix(str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "mine"


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")],
)
def test_a_url_names_the_address(family: int, host: str, shown: str) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip("no such address here")
        port = listening.getsockname()[1]
        assert url_of(listening, "/mcp", tls=False) == f"http://{shown}:{port}/mcp"
        assert url_of(listening, "/mcp", tls=True) == f"https://{shown}:{port}/mcp"
