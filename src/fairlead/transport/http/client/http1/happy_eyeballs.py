"""A socket to a host that may have several addresses (RFC 8305), on any event loop.

uvloop's `create_connection` tries one address after the other and would wait for the first.
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
    """Connect to whichever address answers first. Raises `OSError` if none does."""
    loop = asyncio.get_running_loop()
    found: list[_Found] = list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    if not found:
        raise OSError(f"{host} has no address")
    return await (_connect(found[0]) if len(found) == 1 else _race(_mixed(found)))


async def connect_unix_socket(path: str) -> socket.socket:
    """Connect to a socket in the file system. Raises `OSError`."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, path)
    except BaseException:
        made.close()
        raise
    return made


async def _connect(address: _Found) -> socket.socket:
    family, kind, proto, _, where = address
    made = socket.socket(family, kind, proto)
    try:
        made.setblocking(False)
        # A stream of events may be silent for long; a peer that is gone is noticed this way.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(made, where)
    except OSError as exc:
        made.close()
        if exc.errno == errno.EADDRNOTAVAIL and family == socket.AF_INET6:
            # Not a shortage of ports: this machine has no IPv6.
            raise OSError(errno.EHOSTUNREACH, "IPv6 is not available here") from exc
        raise
    except BaseException:
        made.close()
        raise
    return made


async def _race(addresses: list[_Found]) -> socket.socket:
    loop = asyncio.get_running_loop()
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
        for task in running:
            task.cancel()
            task.add_done_callback(_discard)
    raise problems[0]


def _discard(task: "asyncio.Task[socket.socket]") -> None:
    """It has lost the race, perhaps by a hair."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _mixed(found: list[_Found]) -> list[_Found]:
    """Families in turn, beginning with the one that the system prefers."""
    first = [address for address in found if address[0] == found[0][0]]
    rest = [address for address in found if address[0] != found[0][0]]
    pairs = chain.from_iterable(zip_longest(first, rest))
    return [address for address in pairs if address is not None]
