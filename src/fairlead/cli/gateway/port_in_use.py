"""Errors for a port in use: the process that holds it, and whether it is a Fairlead gateway."""

import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from ...wire.quote_text import shortened
from ..framework.command_errors import CommandError
from ..framework.output import pluralize, safe

__all__ = ["port_in_use_error"]

_PROBE = 2.0  # seconds to wait for a response of the process on the port
_LISTENING = "0A"  # state in the kernel's table


def port_in_use_error(port: int, url: str, option: str) -> CommandError:
    """Return the error for a port in use, which names the process that holds it if possible.

    `url` is the address that was wanted, and `option` selects another port.
    """
    holder = _holder(port)
    what = f"Port {port} is in use" + (f" by {holder}" if holder else "")
    other = f"{option} 0 selects a free one"
    servers = _servers_of_gateway(url)
    if servers is None:
        return CommandError(what, hint=f"choose another port; {other}")
    return CommandError(
        f"{what}, a Fairlead gateway with {pluralize(servers, 'server')}",
        hint=f"use that gateway at {url}, or choose another port; {other}",
    )


def _servers_of_gateway(url: str) -> int | None:
    """Return the number of servers of the gateway at a URL; None if it is not a gateway.

    The request has no token, because the port may belong to any process.
    """
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_PROBE)
    try:
        connection.request("GET", "/health")
        said = json.loads(connection.getresponse().read(10_000))
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if not isinstance(said, dict) or "connected" not in said:
        return None
    return said["servers"] if isinstance(said.get("servers"), int) else None


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
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    words = file.read(2000).replace(b"\0", b" ").decode("utf-8", "replace")
                return safe(f"process {process} ({shortened(words.strip(), 80)})")
        except OSError:
            continue  # the process belongs to another user, or has just ended
    return None


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
