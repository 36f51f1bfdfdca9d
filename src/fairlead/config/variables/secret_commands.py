"""Commands in entries that print secrets, run with a time limit.

Callers must check that the entry is approved, as `resolve` does.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from ...errors import ConfigError
from ...transport.stdio.child_environment import child_environment
from ...transport.stdio.descriptor_limit import restore_descriptor_limit
from ..found_server import FoundServer

__all__ = ["headers_of_helper", "value_of_command"]

LIMIT = 10.0  # seconds for a command that prints a secret
_MAX_OUTPUT = 1 << 20  # bytes of output at most
_SECRET_NAMES = ("FAIRLEAD_", "OTEL_")

# Cached output of each command, because a password manager may prompt the user on each run.
_printed: dict[tuple[str, str, int], str] = {}


def value_of_command(found: FoundServer, command: str, env: Mapping[str, str]) -> str:
    """Return the output of `!command`, stripped. A successful output is cached.

    Raises:
        ConfigError: The command fails, prints nothing or takes too long. The message does not
            contain the command's output.
    """
    # Fairlead's own tokens are not passed to commands in entries.
    inherited = {k: v for k, v in env.items() if not k.startswith(_SECRET_NAMES)}
    key = (command, found.workspace, hash(frozenset(inherited.items())))
    known = _printed.get(key)
    if known is None:
        known = _run(found, command, inherited).strip()
        if not known:
            raise ConfigError("empty output")
        _printed[key] = known
    return known


def headers_of_helper(found: FoundServer, command: str, url: str) -> dict[str, str]:
    """Return the headers that a helper command prints as JSON. The command inherits no credentials.

    Raises:
        ConfigError: The helper fails or does not print a JSON object of strings.
    """
    names = {"CLAUDE_CODE_MCP_SERVER_NAME": found.name, "CLAUDE_CODE_MCP_SERVER_URL": url}
    printed = _run(found, command, child_environment(names, "safe"))
    try:
        return msgspec.json.decode(printed, type=dict[str, str])
    except msgspec.ValidationError:
        raise ConfigError("the output is not a map of strings") from None
    except (msgspec.DecodeError, RecursionError):
        raise ConfigError("the output is not JSON") from None


def _run(found: FoundServer, command: str, env: Mapping[str, str]) -> str:
    folder = found.workspace if os.path.isdir(found.workspace) else None
    process = subprocess.Popen(
        command,
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # stderr is discarded, because it may contain the secret
        env=dict(env),
        cwd=folder,
        # A new session, so that the command can be killed together with its child processes.
        start_new_session=os.name == "posix",
    )
    restore_descriptor_limit(process.pid)
    try:
        output = _Output(process)
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"no result within {LIMIT:g} seconds") from None
    finally:
        _end(process)
    if process.returncode != 0:
        raise ConfigError(f"exit code {process.returncode}")
    return output.text()


class _Output:
    """Output of a process up to a limit, read by a thread so that a full pipe cannot block the
    process.

    If a background process keeps the pipe open, the thread is not awaited.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._printed = b""
        self._thread = threading.Thread(target=self._read, daemon=True, name="fairlead-command")
        self._thread.start()

    def text(self) -> str:
        self._thread.join(1)
        return self._printed.decode("utf-8", "replace")

    def _read(self) -> None:
        with self._stream as stream:
            while len(self._printed) < _MAX_OUTPUT:
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    return
                self._printed += chunk


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that is still running, together with the processes it started."""
    if process.poll() is not None:
        return
    with suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
