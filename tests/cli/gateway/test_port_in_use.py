"""Tests of error messages for a port in use."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlead.cli.gateway.port_in_use import port_in_use_error

# Prints its port and listens until its stdin is closed; it accepts no connection.
LISTENER = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0), backlog=1)
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/net/tcp")


@contextmanager
def listening(*arguments: str) -> Iterator[tuple[int, int]]:
    """Run a process with these arguments that listens on a port; return its id and the port."""
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.communicate(timeout=30)


def sentence(port: int) -> str:
    # No process listens at the URL, so that no time is spent on asking it whether it is a gateway.
    return port_in_use_error(port, "http://127.0.0.1:1/mcp", "--port").sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("--token", "sesame-street"),
        ("--token=sesame-street",),
        ("--password", "two words sesame-street"),
        ("--header", "Authorization: Basic sesame-street"),
        ("--header", "Authorization: Custom one sesame-street"),
        ("--header", "X-Api-Key: sesame-street"),
        ("https://me:sesame-street@example.com/x",),
        ("postgres://:sesame-street@db/x",),
        ("https://example.com/x?api_key=sesame-street",),
        ("API_KEY=sesame-street",),
        ('{"token": "sesame-street"}',),
    ],
)
def test_the_command_line_of_the_process_is_shown_without_secrets(
    arguments: tuple[str, ...],
) -> None:
    with listening(*arguments) as (process, port):
        said = sentence(port)
    assert f"Port {port} is in use by process {process} (" in said
    assert "[REDACTED]" in said
    assert "sesame" not in said
    assert "street" not in said


def test_a_long_command_line_is_shortened_after_its_secrets_are_masked() -> None:
    token = "ghp_" + "a1B2" * 9
    with listening("x" * 63_990, token, "--token", "sesame-street") as (process, port):
        said = sentence(port)
    assert said.startswith(f"Port {port} is in use by process {process} (")
    assert len(said) < 140
    assert "ghp" not in said
    assert "sesame" not in said


def test_arguments_in_a_displayed_command_line_are_quoted() -> None:
    with listening("notes.py", "two words") as (_, port):
        assert sentence(port).endswith("notes.py 'two words')")
