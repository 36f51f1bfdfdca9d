"""Errors for a port in use: the process that holds it, and whether it is a Fairlead gateway."""

import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from socket import socket

from ...wire.quote_text import shortened
from ..framework.command_errors import CommandError
from ..framework.listen_address import EVERYWHERE, ListenAddress, is_address_in_use
from ..framework.output import pluralize, safe

__all__ = ["listen"]

_PROBE = 2.0  # seconds to wait for a response of the process on the port
_LISTENING = "0A"  # state in the kernel's table


def listen(endpoint: ListenAddress) -> socket:
    """Return the listening socket. Raises `CommandError` that names the owner of a port in use."""
    try:
        return endpoint.listen()
    except CommandError as failed:
        if endpoint.unix is not None or not is_address_in_use(failed):
            raise
        raise _taken(endpoint, failed.code) from None


def _taken(endpoint: ListenAddress, code: int) -> CommandError:
    holder = _holder(endpoint.port)
    what = f"Port {endpoint.port} is in use" + (f" by {holder}" if holder else "")
    other = "--port 0 selects a free one"
    servers = _servers_of_gateway(endpoint)
    if servers is None:
        return CommandError(what, hint=f"choose another port; {other}", code=code)
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    there = endpoint.reachable(f"http://{host}:{endpoint.port}/mcp")
    return CommandError(
        f"{what}, a Fairlead gateway with {pluralize(servers, 'server')}",
        hint=f"use that gateway at {there}, or choose another port; {other}",
        code=code,
    )


def _servers_of_gateway(endpoint: ListenAddress) -> int | None:
    """Return the number of servers of the gateway on the port; None if it is not a gateway.

    The request has no token, because the port may belong to any process.
    """
    host = EVERYWHERE.get(endpoint.host, endpoint.host)
    connection = HTTPConnection(host, endpoint.port, timeout=_PROBE)
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
