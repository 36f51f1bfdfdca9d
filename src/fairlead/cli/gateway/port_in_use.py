"""Error messages for a port in use: the process that uses it, and whether it is a gateway."""

import json
import os
import shlex
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from ...redaction.redact_text import redact
from ...wire.quote_text import shortened
from ..framework.command_errors import CommandError
from ..framework.output import pluralize, safe

__all__ = ["port_in_use_error"]

_PROBE = 2.0  # seconds to wait for a response from the process on the port
_LONGEST = 64_000  # bytes of a command line that are read
_SHOWN = 80  # characters of a command line that are shown
_LISTENING = "0A"  # "listening" state in the kernel's socket table


def port_in_use_error(port: int, url: str, option: str) -> CommandError:
    """Build the error for a port in use; it names the process that uses the port, if possible.

    `url` is the requested address, and `option` is the option that selects another port.
    """
    holder = _holder(port)
    what = f"Port {port} is in use" + (f" by {holder}" if holder else "")
    other = f"{option} 0 selects a free port"
    health = _response(url, "/health")
    if isinstance(servers := health.get("servers"), int) and "connected" in health:
        return CommandError(
            f"{what}, a Fairlead gateway with {pluralize(servers, 'server')}",
            hint=f"use that gateway at {url}, or choose another port; {other}",
        )
    # Without its token, a server or gateway only says that it is running and whether it is ready.
    if health == {"status": "ok"} and "ready" in _response(url, "/ready"):
        return CommandError(
            f"{what}, a Fairlead server or gateway that requires a token",
            hint=f"use it at {url} with its token, or choose another port; {other}",
        )
    return CommandError(what, hint=f"choose another port; {other}")


def _response(url: str, path: str) -> dict[str, Any]:
    """Return the JSON object at a path of the server at a URL; an empty dict if there is none.

    No token is sent, because any process may listen on the port.
    """
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_PROBE)
    try:
        connection.request("GET", path)
        said = json.loads(connection.getresponse().read(10_000))
    except (OSError, HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return said if isinstance(said, dict) else {}


def _holder(port: int) -> str | None:
    """Return the process that listens on a port, if the kernel shows it (Linux only)."""
    wanted = {f"socket:[{number}]" for number in _sockets(port)}
    if not wanted:
        return None
    for process in filter(str.isdigit, os.listdir("/proc")):
        folder = f"/proc/{process}/fd"
        try:
            held = {os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}
            if held & wanted:
                return f"process {process} ({_command_of(process)})"
        except OSError:
            continue  # the process belongs to another user, or has just ended
    return None


def _command_of(process: str) -> str:
    """Return a process's command line, shortened and without secrets."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        line = file.read(_LONGEST)
    if len(line) == _LONGEST:
        line = line.rpartition(b"\0")[0]  # the start of a secret would not be recognised
    words = line.decode("utf-8", "replace").rstrip("\0").split("\0")
    # Quoted, so that a secret with spaces is masked as a whole.
    return safe(shortened(redact(shlex.join(words)), _SHOWN))


def _sockets(port: int) -> Iterator[str]:
    """Yield the inode numbers of the sockets that listen on a port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        for row in rows:
            if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port:
                yield row[9]
