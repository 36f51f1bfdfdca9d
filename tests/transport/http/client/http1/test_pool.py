"""Pool of persistent connections, without a network."""

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fairlead.transport.http.client.http1.pool as pooling
from fairlead.errors import ChannelClosed, ConnectFailed
from fairlead.transport.http.client.http1 import pool as pool_module
from fairlead.transport.http.client.http1.http1_connection import Http1Connection
from fairlead.transport.http.client.http1.pool import ConnectionPool
from fairlead.transport.http.client.http1.proxy_tunnel import Proxy
from fairlead.transport.http.client.http1.url import EndpointUrl
from tests.support.virtual_time import VirtualTime

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
URL = "http://h/mcp"


class FakeTransport:
    """A transport that answers each request immediately and is lost when aborted."""

    def __init__(self, line: Http1Connection, answers: bytes) -> None:
        self.line, self.answers = line, answers
        self.written: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if self.answers:
            asyncio.get_running_loop().call_soon(self.line.data_received, self.answers)

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.line.connection_lost, None)


class Pool(ConnectionPool):
    """A pool whose connections use fake transports."""

    def __init__(self, url: str = URL, answers: bytes = OK) -> None:
        super().__init__(EndpointUrl(url), None, 30.0)
        self.made: list[FakeTransport] = []
        self.answers = answers

    async def _connect(self) -> Http1Connection:
        line = self._line()
        transport: Any = FakeTransport(line, self.answers)
        line.connection_made(transport)
        self.made.append(transport)
        return line

    async def get(self, method: str = "GET", body: bytes | None = None) -> int:
        return (await self.ask(method, self._address.url, {}, body)).status


@pytest.fixture(autouse=True)
def _clock(virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling, "monotonic", virtual_time)


async def test_an_idle_connection_is_reused_within_four_seconds(virtual_time: VirtualTime) -> None:
    pool = Pool()
    for _ in range(3):
        assert await pool.get() == 200
        await asyncio.sleep(3.9)
    assert (len(pool.made), pool.connected) == (1, True)
    await asyncio.sleep(0.2)
    assert (pool.made[0].closing, pool.connected) == (True, False)
    assert await pool.get() == 200
    assert len(pool.made) == 2
    await pool.close()


async def test_each_idle_connection_has_its_own_timeout(virtual_time: VirtualTime) -> None:
    pool = Pool()
    await asyncio.gather(pool.get(), pool.get())
    assert len(pool.made) == 2
    await asyncio.sleep(3)
    await pool.get()
    await asyncio.sleep(1.5)
    assert sorted(one.closing for one in pool.made) == [False, True]
    await asyncio.sleep(3)
    assert all(one.closing for one in pool.made)
    await pool.close()


async def test_an_expired_connection_is_not_reused(virtual_time: VirtualTime) -> None:
    pool = Pool()
    await pool.get()
    virtual_time.now += 4.0  # the loop had no time to close the expired connection
    await pool.get()
    assert (len(pool.made), pool.made[0].closing) == (2, True)
    await pool.close()


@pytest.mark.parametrize(
    ("method", "sent_again"), [("GET", True), ("DELETE", True), ("POST", False)]
)
async def test_only_idempotent_requests_are_retried_on_a_new_connection(
    method: str, sent_again: bool
) -> None:
    pool = Pool()
    await pool.get()
    pool.made[0].answers = b""
    asking = asyncio.ensure_future(pool.get(method))
    await asyncio.sleep(0)
    pool.made[0].abort()
    if sent_again:
        assert await asking == 200
    else:
        with pytest.raises(ChannelClosed, match="h closed the connection without a response"):
            await asking
    assert len(pool.made) == 1 + sent_again
    await pool.close()


async def test_a_closed_pool_opens_no_connection() -> None:
    pool = Pool()
    await pool.get()
    await pool.close()
    assert (pool.made[0].closing, pool.connected) == (True, False)
    with pytest.raises(ChannelClosed) as refused:
        await pool.get()
    assert refused.value.delivered is False
    assert len(pool.made) == 1
    await pool.close()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://h/mcp", "h"),
        ("http://h:80/mcp", "h"),
        ("http://h:443/mcp", "h:443"),
        ("https://h:443/mcp", "h"),
        ("https://h:80/mcp", "h:80"),
        ("http://[::1]:8080/mcp", "[::1]:8080"),
        ("http://bücher.de/mcp", "xn--bcher-kva.de"),
    ],
)
async def test_the_host_header_omits_the_default_port(url: str, host: str) -> None:
    pool = Pool(url)
    await pool.get()
    assert f"\r\nHost: {host}\r\n".encode() in pool.made[0].written[0]
    await pool.close()


async def test_a_request_is_written_with_default_headers_and_a_quoted_path() -> None:
    pool = Pool("http://h/a b?q=ü")
    await pool.get("POST", b"{}")
    (written,) = pool.made[0].written
    assert written == (
        b"POST /a%20b?q=%C3%BC HTTP/1.1\r\nHost: h\r\nAccept-Encoding: identity\r\n"
        b"User-Agent: fairlead\r\nContent-Length: 2\r\n\r\n{}"
    )
    await pool.close()


async def test_the_pool_sets_framing_headers_and_callers_set_the_others() -> None:
    pool = Pool()
    headers = {"User-Agent": "mine", "Connection": "close", "Content-Length": "9", "X-A": "1"}
    await pool.ask("GET", URL, headers, None)
    (written,) = pool.made[0].written
    assert written == (
        b"GET /mcp HTTP/1.1\r\nhost: h\r\naccept-encoding: identity\r\n"
        b"User-Agent: mine\r\nX-A: 1\r\n\r\n"
    )
    await pool.close()


@pytest.mark.parametrize(
    "headers",
    [{"X": "a\r\nY: b"}, {"X": "a\n"}, {"X": "a\0"}, {"X Y": "a"}, {"": "a"}, {"X": "\ud800"}],
    ids=ascii,
)
async def test_a_request_with_an_invalid_header_is_rejected(headers: dict[str, str]) -> None:
    pool = Pool()
    for more in ({}, {"Host": "other"}):
        with pytest.raises(
            ChannelClosed, match="a request header has an invalid name or value"
        ) as refused:
            await pool.ask("GET", URL, {**headers, **more}, None)
        assert refused.value.delivered is False
    assert pool.made == []
    await pool.close()


async def test_requests_to_other_origins_are_rejected() -> None:
    pool = Pool()
    with pytest.raises(ConnectFailed, match="^Cannot send a request for another origin to h$"):
        await pool.ask("GET", "http://other/mcp", {}, None)
    with pytest.raises(ConnectFailed, match="^Invalid server URL: "):
        Pool("http://h:99999/mcp")
    await pool.close()


# Destinations of connections


@pytest.mark.parametrize(
    ("url", "proxy", "place"),
    [
        ("http://h/mcp", None, ("h", 80)),
        ("https://h/mcp", None, ("h", 443)),
        ("http://h:81/mcp", None, ("h", 81)),
        ("https://h:81/mcp", None, ("h", 81)),
        ("http://[::1]/mcp", None, ("::1", 80)),
        ("http://h/mcp", "http://p", ("p", 80)),
        ("http://h/mcp", "https://p", ("p", 443)),
        ("https://h/mcp", "http://p:3128", ("p", 3128)),
    ],
)
async def test_connections_are_opened_to_the_server_or_its_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str | None, place: tuple[str, int]
) -> None:
    dialled: list[tuple[str, int]] = []

    async def dial(host: str, port: int, *_: Any) -> Any:
        dialled.append((host, port))
        raise OSError("not here")

    monkeypatch.setattr(pooling, "connect_host", dial)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no certificate, but is fast to create
    through = None if proxy is None else Proxy(proxy, lambda: tls)
    address = EndpointUrl(url)
    pool = ConnectionPool(address, tls if url.startswith("https") else None, 30.0, through)
    with pytest.raises(ConnectFailed, match="not here") as failed:
        await pool.ask("GET", url, {}, None)
    assert dialled == [place]
    assert ("through the proxy" in str(failed.value)) == (proxy is not None)
    assert isinstance(failed.value.__cause__, OSError)
    await pool.close()


async def test_the_socket_is_closed_if_the_connection_setup_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = socket.socketpair()

    async def dial(host: str, port: int, *_: Any) -> Any:
        return ours

    class Broken(ConnectionPool):
        async def _straight(self, made: Any) -> Http1Connection:
            raise OSError("boom")

    monkeypatch.setattr(pooling, "connect_host", dial)
    pool = Broken(EndpointUrl(URL), None, 30.0)
    with theirs, pytest.raises(ConnectFailed, match="boom"):
        await pool.ask("GET", URL, {}, None)
    assert ours.fileno() == -1
    await pool.close()


@pytest.mark.parametrize(("seconds", "limit"), [(0.0, None), (3.0, 3.0)])
async def test_connecting_times_out_unless_the_limit_is_zero(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    limit: float | None,
) -> None:
    async def dial(host: str, port: int, *_: Any) -> Any:
        await asyncio.sleep(100)
        raise OSError("too late")

    monkeypatch.setattr(pooling, "connect_host", dial)
    pool = ConnectionPool(EndpointUrl(URL), None, seconds)
    begun = virtual_time.now
    text = "no connection within 3 s" if limit else "too late"
    with pytest.raises(ConnectFailed, match=f"Could not connect to h: {text}"):
        await pool.ask("GET", URL, {}, None)
    assert virtual_time.now - begun == pytest.approx(limit or 100.0)
    await pool.close()


async def test_closing_the_pool_while_it_connects_leaves_no_connection() -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    class Slow(Pool):
        async def _connect(self) -> Http1Connection:
            entered.set()
            await release.wait()
            return await super()._connect()

    pool = Slow()
    asking = asyncio.ensure_future(pool.get())
    await entered.wait()
    await pool.close()
    release.set()
    with pytest.raises(ChannelClosed) as closed:
        await asking
    assert closed.value.delivered is False
    await asyncio.sleep(0)
    assert (pool.made[0].closing, pool.made[0].written, pool.connected) == (True, [], False)


async def test_a_connection_is_not_kept_if_its_response_ends_after_close() -> None:
    pool = Pool(answers=b"")
    asking = asyncio.ensure_future(pool.get())
    for _ in range(3):
        await asyncio.sleep(0)
    (transport,) = pool.made
    transport.closing = True  # `connection_lost` follows later
    await pool.close()
    transport.closing = False
    transport.line.data_received(OK)
    assert (await asking, transport.closing) == (200, True)


@pytest.mark.parametrize("unquiet", [3, 11])
async def test_unread_data_on_a_kept_connection_is_processed_before_it_is_reused(
    unquiet: int,
) -> None:
    """The pool reuses the connection if the data is processed within ten loop iterations."""
    pool = Pool()
    await pool.get()
    line = pool.made[0].line
    looks = 0

    class Watched(Http1Connection):
        @property
        def quiet(self) -> bool:
            nonlocal looks
            looks += 1
            return looks > unquiet

    line.__class__ = Watched
    assert await pool.get() == 200
    assert len(pool.made) == (1 if unquiet == 3 else 2)
    assert pool.made[0].closing == (unquiet != 3)
    await pool.close()


async def test_waiting_for_unread_data_to_be_processed_uses_no_timer(
    virtual_time: VirtualTime,
) -> None:
    pool = Pool()
    await pool.get()

    class Unquiet(Http1Connection):
        quiet = False  # type: ignore[assignment]

    pool.made[0].line.__class__ = Unquiet
    begun = virtual_time.now
    await pool.get()
    assert virtual_time.now == begun
    await pool.close()


async def test_status_407_from_a_proxy_raises_a_connect_failure() -> None:
    answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 9\r\n\r\n"
    pool = Pool(answers=answer)
    reply = await pool.ask("GET", URL, {}, None)
    assert reply.status == 407, "an ordinary response without a proxy"
    reply.close()
    pool = Pool(answers=answer)
    pool._forwarder = pool._proxy = Proxy(
        "http://ada:pw@p", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    with pytest.raises(ConnectFailed, match="through the proxy p: the proxy answered 407 Proxy"):
        await pool.ask("GET", URL, {}, None)
    (written,) = pool.made[0].written
    assert written.startswith(b"GET http://h/mcp HTTP/1.1\r\nProxy-Authorization: Basic ")
    assert pool.made[0].closing
    await pool.close()


async def test_a_request_whose_response_has_begun_is_not_retried() -> None:
    pool = Pool()
    await pool.get()
    pool.made[0].answers = b""
    asking = asyncio.ensure_future(pool.get())
    await asyncio.sleep(0)
    pool.made[0].line.data_received(b"HTTP/1.1 200")
    pool.made[0].abort()
    with pytest.raises(ChannelClosed, match="in the middle of a response"):
        await asking
    assert len(pool.made) == 1
    await pool.close()


async def test_unprintable_characters_in_a_path_are_quoted() -> None:
    url = "http://h/!~\x7f \u00fc%20"
    pool = Pool(url)
    await pool.get()
    assert pool.made[0].written[0].startswith(b"GET /!~%7F%20%C3%BC%20 HTTP/1.1\r\n")
    await pool.close()


async def test_the_event_loop_gets_an_iteration_to_process_unread_data_before_reuse() -> None:
    pool = Pool()
    await pool.get()
    understood: list[bool] = []

    class Unread(Http1Connection):
        @property
        def quiet(self) -> bool:
            if not understood:
                asyncio.get_running_loop().call_soon(understood.append, True)
            return bool(understood)

    pool.made[0].line.__class__ = Unread
    assert await pool.get() == 200
    assert len(pool.made) == 1
    await pool.close()


class FakeNetwork:
    """Fake addresses that accept a connection after a given time, or refuse it."""

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
        return await pool_module._race(pool_module._mixed(addresses))


@pytest.fixture
def network(virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(**seconds: float | None) -> FakeNetwork:
        found = FakeNetwork(virtual_time, **seconds)
        monkeypatch.setattr(pool_module, "_connect", found.connect)
        return found

    return made


async def test_the_next_address_is_tried_after_a_quarter_second_without_a_connection(
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


async def test_the_next_address_is_tried_without_delay_if_an_address_refuses(network: Any) -> None:
    hosts = network(a=None, x=0.1)
    assert await hosts.race() == "x"
    assert hosts.begun == [("a", 0), ("x", 0)]


async def test_the_first_error_is_raised_if_no_address_accepts(network: Any) -> None:
    hosts = network(a=None, x=None)
    with pytest.raises(OSError, match="a refuses"):
        await hosts.race()


# Real sockets, and addresses that fail to connect


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
    """Replacement for the `socket` module, whose sockets fail to connect."""

    socket = FailingSocket

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


class AsyncioModule:
    """Replacement for the `asyncio` module that returns another event loop."""

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
    monkeypatch.setattr(pool_module, "socket", SocketModule())
    monkeypatch.setattr(pool_module, "asyncio", AsyncioModule(Loop()))
    address: Any = (family, socket.SOCK_STREAM, 0, "", "a")
    with pytest.raises(OSError, match=r"no") as failed:
        await pool_module._connect(address)
    assert failed.value.errno == told
    (made,) = FailingSocket.made
    assert made.closed


async def test_the_socket_of_a_cancelled_connection_attempt_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered = asyncio.Event()

    class Loop:
        async def sock_connect(self, made: Any, where: Any) -> None:
            entered.set()
            await never

    never = asyncio.get_running_loop().create_future()
    FailingSocket.made.clear()
    monkeypatch.setattr(pool_module, "socket", SocketModule())
    monkeypatch.setattr(pool_module, "asyncio", AsyncioModule(Loop()))
    address: Any = (socket.AF_INET, socket.SOCK_STREAM, 0, "", "a")
    for connect in (pool_module._connect(address), pool_module.connect_unix_socket("x")):
        connecting = asyncio.ensure_future(connect)
        await entered.wait()
        entered.clear()
        connecting.cancel()
        await asyncio.wait((connecting,))
        assert connecting.cancelled()
    assert [made.closed for made in FailingSocket.made] == [True, True]


async def test_sockets_use_keepalive_and_nodelay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = await pool_module.connect_host("127.0.0.1", server.getsockname()[1])
        with made:
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not made.getblocking()


async def test_the_error_names_the_host_that_has_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Loop:
        async def getaddrinfo(self, *args: Any, **more: Any) -> list[Any]:
            return []

    monkeypatch.setattr(pool_module, "asyncio", AsyncioModule(Loop()))
    with pytest.raises(OSError, match=r"^a\.example has no address$"):
        await pool_module.connect_host("a.example", 1)


async def test_a_connection_that_completes_after_another_was_chosen_is_closed(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    class Made(str):
        def close(self) -> None:
            closed.append(self)

    hosts = network(a=60.0, x=0.05)
    connect = pool_module._connect

    async def made(address: Any) -> Any:
        try:
            return Made(await connect(address))
        except asyncio.CancelledError:
            return Made(address[4])  # connected before the cancellation

    monkeypatch.setattr(pool_module, "_connect", made)
    assert await hosts.race() == "x"
    for _ in range(3):
        await asyncio.sleep(0)
    assert closed == ["a"]


async def test_a_unix_socket_is_non_blocking(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with await pool_module.connect_unix_socket(path) as made:
            assert not made.getblocking()
            assert made.getpeername() == path
