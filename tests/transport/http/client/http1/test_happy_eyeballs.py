"""Connections to hosts with several addresses."""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fairlead.transport.http.client.http1 import happy_eyeballs
from tests.support.virtual_time import VirtualTime


class FakeNetwork:
    """Addresses that accept after some seconds, or fail."""

    def __init__(self, clock: VirtualTime, **seconds: float | None) -> None:
        self.begun: list[tuple[str, float]] = []
        self.given_up: list[str] = []
        self._start = clock.now
        self._clock = clock
        self._seconds = seconds

    async def connect(self, address: Any) -> Any:
        name = address[4]
        self.begun.append((name, round(self._clock.now - self._start, 6)))
        seconds = self._seconds[name]
        if seconds is None:
            raise OSError(f"{name} refuses")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.given_up.append(name)
            raise
        return name

    async def race(self) -> Any:
        addresses: Any = [
            (socket.AF_INET6 if name < "m" else socket.AF_INET, None, 0, "", name)
            for name in self._seconds
        ]
        return await happy_eyeballs._race(happy_eyeballs._mixed(addresses))


@pytest.fixture
def network(virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**seconds: float | None) -> FakeNetwork:
        found = FakeNetwork(virtual_time, **seconds)
        monkeypatch.setattr(happy_eyeballs, "_connect", found.connect)
        return found

    return made


async def test_the_next_address_is_tried_after_a_quarter_second_without_response(
    network: Any,
) -> None:
    hosts = network(a=60.0, b=60.0, x=0.1)
    assert await hosts.race() == "x"
    assert hosts.begun == [("a", 0), ("x", 0.25)]
    await asyncio.sleep(0)
    assert hosts.given_up == ["a"]


async def test_address_families_alternate_and_a_slow_address_can_win(network: Any) -> None:
    hosts = network(a=0.6, b=60.0, x=60.0)
    assert await hosts.race() == "a"
    assert hosts.begun == [("a", 0), ("x", 0.25), ("b", 0.5)]
    await asyncio.sleep(0)
    assert sorted(hosts.given_up) == ["b", "x"]


async def test_a_refused_address_is_followed_by_the_next_without_delay(network: Any) -> None:
    hosts = network(a=None, x=0.1)
    assert await hosts.race() == "x"
    assert hosts.begun == [("a", 0), ("x", 0)]


async def test_the_first_error_is_raised_if_no_address_accepts(network: Any) -> None:
    hosts = network(a=None, x=None)
    with pytest.raises(OSError, match="a refuses"):
        await hosts.race()


# Real sockets, and addresses that fail in a given way


class FailingSocket:
    """A socket that cannot be connected."""

    made: ClassVar[list["FailingSocket"]] = []

    def __init__(self, family: int, kind: int, proto: int = 0) -> None:
        self.family = family
        self.closed = False
        FailingSocket.made.append(self)

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *option: int) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class SocketModule:
    """The module `socket` for the tested module, with sockets that fail."""

    socket = FailingSocket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


class AsyncioModule:
    """The module `asyncio` for the tested module, with another loop."""

    def __init__(self, loop: Any) -> None:
        self.get_running_loop = lambda: loop


@pytest.mark.parametrize(
    ("family", "number", "told"),
    [
        (socket.AF_INET6, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH),
        (socket.AF_INET, errno.EADDRNOTAVAIL, errno.EADDRNOTAVAIL),
        (socket.AF_INET6, errno.ECONNREFUSED, errno.ECONNREFUSED),
    ],
    ids=["no IPv6", "no ports", "refused"],
)
async def test_missing_ipv6_is_not_reported_as_a_shortage_of_ports(
    monkeypatch: pytest.MonkeyPatch, family: int, number: int, told: int
) -> None:
    class Loop:
        async def sock_connect(self, made: Any, where: Any) -> None:
            raise OSError(number, "no")

    FailingSocket.made.clear()
    monkeypatch.setattr(happy_eyeballs, "socket", SocketModule())
    monkeypatch.setattr(happy_eyeballs, "asyncio", AsyncioModule(Loop()))
    address: Any = (family, socket.SOCK_STREAM, 0, "", "a")
    with pytest.raises(OSError, match=r"no") as failed:
        await happy_eyeballs._connect(address)
    assert failed.value.errno == told
    (made,) = FailingSocket.made
    assert made.closed


async def test_a_cancelled_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = asyncio.Event()

    class Loop:
        async def sock_connect(self, made: Any, where: Any) -> None:
            entered.set()
            await never

    never = asyncio.get_running_loop().create_future()
    FailingSocket.made.clear()
    monkeypatch.setattr(happy_eyeballs, "socket", SocketModule())
    monkeypatch.setattr(happy_eyeballs, "asyncio", AsyncioModule(Loop()))
    address: Any = (socket.AF_INET, socket.SOCK_STREAM, 0, "", "a")
    for connect in (happy_eyeballs._connect(address), happy_eyeballs.connect_unix_socket("x")):
        connecting = asyncio.ensure_future(connect)
        await entered.wait()
        entered.clear()
        connecting.cancel()
        await asyncio.wait((connecting,))
        assert connecting.cancelled()
    assert [made.closed for made in FailingSocket.made] == [True, True]


async def test_sockets_use_keepalive_and_nodelay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = await happy_eyeballs.connect_host("127.0.0.1", server.getsockname()[1])
        with made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not made.getblocking()


async def test_the_error_names_a_host_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        async def getaddrinfo(self, *args: Any, **more: Any) -> list[Any]:
            return []

    monkeypatch.setattr(happy_eyeballs, "asyncio", AsyncioModule(Loop()))
    with pytest.raises(OSError, match=r"^a\.example has no address$"):
        await happy_eyeballs.connect_host("a.example", 1)


async def test_a_connection_that_completes_after_the_winner_is_closed(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Made(str):
        def close(self) -> None:
            closed.append(self)

    hosts = network(a=60.0, x=0.05)
    connect = happy_eyeballs._connect

    async def made(address: Any) -> Any:
        try:
            return Made(await connect(address))
        except asyncio.CancelledError:
            return Made(address[4])  # connected before the cancellation

    monkeypatch.setattr(happy_eyeballs, "_connect", made)
    assert await hosts.race() == "x"
    for _ in range(3):
        await asyncio.sleep(0)
    assert closed == ["a"]


async def test_a_unix_socket_is_non_blocking(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with await happy_eyeballs.connect_unix_socket(path) as made:
            assert not made.getblocking()
            assert made.getpeername() == path
