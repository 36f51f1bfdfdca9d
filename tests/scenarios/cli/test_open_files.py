"""The open file limit in commands that run a server."""

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_user import Person, person
from tests.support.running_gateway import running

__all__ = ["person"]


@contextlib.contextmanager
def soft_limit(number: int) -> Iterator[None]:
    """Start processes with the given soft limit for open files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", ["up", "gateway", "proxy", "serve"])
def test_commands_that_run_a_server_raise_the_open_file_limit(person: Person, command: str) -> None:
    (person.project / "app.py").write_text(
        "from fairlead import MCPServer\nserver = MCPServer('s')\n"
    )
    (person.project / "gateway.toml").write_text("[servers]\n")
    args = {
        "up": ("up", "--port", "0"),
        "gateway": ("gateway", "gateway.toml", "--port", "0"),
        "proxy": ("proxy", "--listen", "http://127.0.0.1:0", "--", "cat"),
        "serve": ("serve", "app.py", "--http", "127.0.0.1:0"),
    }[command]
    with soft_limit(256), running(person, *args) as program:
        program.wait_for("http://")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        raised = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        limits = Path(f"/proc/{program.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3] == str(raised)
