"""Connections to hosts with several addresses ("Happy Eyeballs", RFC 8305), on any event loop.

`create_connection` of uvloop tries one address after the other and waits for each to fail.
"""

import asyncio
import errno
import socket
from itertools import chain, zip_longest
from typing import Any, TypeAlias

__all__ = ["connect_host", "connect_unix_socket"]

STAGGER = 0.25  # seconds before the next address is tried as well

_Found: TypeAlias = tuple[Any, Any, int, str, Any]


async def connect_host(host: str, port: int) -> socket.socket:
    """Return a socket connected to the address that accepts first.

    Raises:
        OSError: The host has no address, or none of them accepts.
    """
    loop = asyncio.get_running_loop()
    found: list[_Found] = list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if not found:
        raise OSError(f"{host} has no address")
    return await (_connect(found[0]) if len(found) == 1 else _race(_mixed(found)))


async def connect_unix_socket(path: str) -> socket.socket:
    """Return a socket connected to a unix socket.

    Raises:
        OSError: The connection failed.
    """
    return await _connect((socket.AF_UNIX, socket.SOCK_STREAM, 0, "", path))


async def _connect(address: _Found) -> socket.socket:
    family, kind, proto, _, where = address
    made = socket.socket(family, kind, proto)
    try:
        made.setblocking(False)
        if family != socket.AF_UNIX:
            # An event stream may be silent for long; keep-alive probes detect a peer that is gone.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # Nagle's algorithm would delay a small request until the previous segment is
            # acknowledged.
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, where)
    # Cancellation must close the socket as well: the caller has no reference to it yet.
    except BaseException as exc:
        made.close()
        missing = isinstance(exc, OSError) and exc.errno == errno.EADDRNOTAVAIL
        if missing and family == socket.AF_INET6:
            # Without IPv6 the error is EADDRNOTAVAIL, which would be reported as a shortage of
            # ports.
            raise OSError(errno.EHOSTUNREACH, "IPv6 is not available on this machine") from exc
        raise
    return made


async def _race(addresses: list[_Found]) -> socket.socket:
    loop = asyncio.get_running_loop()
    # Reversed, so that `pop()` returns the preferred address first.
    left = addresses[::-1]
    running: set[asyncio.Task[socket.socket]] = set()
    problems: list[BaseException] = []
    try:
        while left or running:
            if left:
                running.add(loop.create_task(_connect(left.pop())))
            done, _ = await asyncio.wait(
                running, timeout=STAGGER if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                running.discard(task)
                problem = task.exception()
                if problem is None:
                    return task.result()
                problems.append(problem)
    finally:
        # Not awaited: a slow address must not delay the connection that won.
        for task in running:
            task.cancel()
            task.add_done_callback(_discard)
    raise problems[0]


def _discard(task: "asyncio.Task[socket.socket]") -> None:
    """Close the socket of an attempt that connected although another one had already won."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _mixed(found: list[_Found]) -> list[_Found]:
    """Alternate address families, starting with the one the system prefers."""
    first = [address for address in found if address[0] == found[0][0]]
    rest = [address for address in found if address[0] != found[0][0]]
    pairs = chain.from_iterable(zip_longest(first, rest))
    return [address for address in pairs if address is not None]
