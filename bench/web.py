"""Load generator for HTTP: keep-alive connections, prepared requests, no decoding.

One call at a time uses a blocking socket. With more in flight, each has its own connection, an
`asyncio.Protocol` on uvloop that writes the next request when a response is complete.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Self

import msgspec
import uvloop

from .answers import Reply, is_whole, read
from .calls import Work
from .child import Child, Failed, deadline
from .equal_answers import sample_line
from .load import Burst
from .requests import INITIALIZE, INITIALIZED, Era

__all__ = ["WebServer"]

_CHUNK = 1 << 15  # larger ones are a memory map each, which takes longer than the call
_PORTS = range(20_000, 32_000)
_PATIENCE = 30  # seconds for an opening or a burst, before a runtime counts as failed


class WebServer:
    """An HTTP server under test, ready for bursts; in the handshake era with one session."""

    def __init__(
        self,
        command: Sequence[str],
        *arguments: str,
        era: Era = Era.STATELESS,
        path: str = "/mcp",
        token: str | None = None,
    ) -> None:
        """Start the command with the port at `{port}` or at its end, followed by the arguments."""
        self._era = era
        self._path = path
        self._token = token
        self._number = 1
        self._session: str | None = None
        self._port = _free_port()
        self.child = Child([*_with_port(command, self._port), *arguments], mute=True)
        self._loop = uvloop.new_event_loop()
        try:
            with deadline(_PATIENCE):
                self._wait_until_up()
                if era is Era.HANDSHAKE:
                    with self.connect() as line:
                        self._session = self.open_session(line)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.child.close()
        self._loop.close()

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self._port}{self._path}"

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port

    @property
    def resident(self) -> int:
        """The resident set of the server in bytes."""
        return self.child.resident

    def requests(self, work: Work, first: int, count: int) -> list[bytes]:
        """Return `count` complete requests, numbered from `first`."""
        lines = work.lines(self._era, first, count)
        return [self._request(line, session=self._session) for line in lines]

    def connect(self) -> Line:
        """Return a connection for one request at a time."""
        return Line(self._port, self.child)

    def open_session(self, line: Line) -> str:
        """Open a session and return its id."""
        opening = line.ask(self._request(INITIALIZE))
        session = opening.headers.get("mcp-session-id")
        if opening.status != 200 or not session or b'"protocolVersion"' not in opening.messages[0]:
            raise Failed(f"no session: {opening}\n{self.child.complaint()}")
        told = line.ask(self._request(INITIALIZED, session=session))
        if told.status != 202:
            raise Failed(f"not initialized: {told}")
        return session

    def end_session(self, line: Line, session: str) -> None:
        """End a session with DELETE."""
        done = line.ask(self._request(b"", session=session, verb=b"DELETE"))
        if done.status not in (200, 204):
            raise Failed(f"the session was not ended: {done}")

    def burst(self, work: Work, calls: int, *, window: int) -> Burst:
        """Make `calls` calls with `window` of them in flight.

        Every connection makes one additional call before the clock starts.

        Raises:
            Failed: The server exits, does not respond, or gives a wrong response.
        """
        first, count = self._number, calls + window
        self._number += count
        requests = self.requests(work, first, count)
        gc.collect()
        gc.disable()
        try:
            if window == 1:
                burst, answers = self._one_at_a_time(requests)
            else:
                burst, answers = self._loop.run_until_complete(self._in_flight(requests, window))
        finally:
            gc.enable()
        work.check([_only_message(answer) for answer in answers], first, count)
        return burst

    def ask(self, work: Work) -> bytes:
        """Return the response to the call of `work` that is the same for every server.

        Raises:
            Failed: The server exits, does not respond, or gives a wrong response.
        """
        body = sample_line(work, self._era, self._number)
        self._number += 1
        with deadline(_PATIENCE), self.connect() as line:
            return _only_message(line.exchange(self._request(body, session=self._session)))

    def _one_at_a_time(self, requests: list[bytes]) -> tuple[Burst, list[bytes]]:
        with deadline(_PATIENCE), self.connect() as line:
            answers = [line.exchange(requests[0])]
            clock = _Clock(self.child)
            answers += [line.exchange(request) for request in requests[1:]]
            return clock.stop(answers[1:]), answers

    async def _in_flight(self, requests: list[bytes], window: int) -> tuple[Burst, list[bytes]]:
        loop = asyncio.get_running_loop()
        connections = [
            (await loop.create_connection(_Connection, "127.0.0.1", self._port))[1]
            for _ in range(window)
        ]
        try:
            async with asyncio.timeout(_PATIENCE):
                greeted = await _run(connections, requests[:window])
                clock = _Clock(self.child)
                answers = await _run(connections, requests[window:])
                return clock.stop(answers), greeted + answers
        except TimeoutError:
            raise Failed(f"no answer within {_PATIENCE} s") from None
        except ConnectionError:
            raise Failed(self.child.complaint()) from None
        finally:
            for connection in connections:
                connection.close()

    def _request(self, line: bytes, *, session: str | None = None, verb: bytes = b"POST") -> bytes:
        body = line.rstrip(b"\n")
        fields = [
            b"%b %b HTTP/1.1" % (verb, self._path.encode()),
            b"host: 127.0.0.1:%d" % self._port,
            b"accept: application/json, text/event-stream",
            b"content-type: application/json",
            b"content-length: %d" % len(body),
        ]
        if self._token is not None:
            fields.append(b"authorization: Bearer " + self._token.encode())
        if self._era is Era.STATELESS:
            fields.append(b"mcp-protocol-version: 2026-07-28")
            call = _decode(body)
            fields += [b"mcp-method: " + call.method.encode(), b"mcp-name: " + call.name]
        elif session is not None:
            fields.append(b"mcp-protocol-version: 2025-11-25")
            fields.append(b"mcp-session-id: " + session.encode())
        return b"\r\n".join([*fields, b"", body])

    def _wait_until_up(self) -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            except ConnectionRefusedError:
                if not self.child.running:
                    raise Failed(self.child.complaint()) from None
                time.sleep(0.02)


class Line:
    """A blocking connection that stays open from request to request."""

    def __init__(self, port: int, child: Child) -> None:
        self._child = child
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def exchange(self, request: bytes) -> bytes:
        """Send a request and return the raw response.

        Raises:
            Failed: The connection ends instead.
        """
        receive = self._socket.recv
        self._socket.sendall(request)
        data = receive(_CHUNK)
        while not is_whole(data):
            more = receive(_CHUNK)
            if not more:
                raise Failed(f"hung up after {data[:300]!r}\n{self._child.complaint()}")
            data += more
        return data

    def ask(self, request: bytes) -> Reply:
        """Send a request and return the parsed response."""
        return read(self.exchange(request))


class _Clock:
    """A clock that starts when it is created."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._served, self._busy, self._start = child.cpu, time.process_time(), time.perf_counter()

    def stop(self, answers: list[bytes]) -> Burst:
        seconds, busy = time.perf_counter() - self._start, time.process_time() - self._busy
        served, size = self._child.cpu - self._served, sum(map(len, answers))
        return Burst(len(answers), seconds, busy, round(size / len(answers)), served)


class _Connection(asyncio.Protocol):
    """A connection that sends the next request when a response is complete."""

    _todo: Iterator[bytes]
    _answers: list[bytes]

    def __init__(self) -> None:
        self._partial = b""
        self._idle: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._write, self.close = transport.write, transport.close

    def run(self, todo: Iterator[bytes], answers: list[bytes]) -> asyncio.Future[None]:
        """Send requests from `todo` until it is empty."""
        self._todo, self._answers = todo, answers
        self._idle = asyncio.get_running_loop().create_future()
        self._next()
        return self._idle

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        if is_whole(data):
            self._partial = b""
            self._answers.append(data)
            self._next()
        else:
            self._partial = data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_exception(ConnectionError("the server hung up"))

    def _next(self) -> None:
        request = next(self._todo, None)
        if request is not None:
            self._write(request)
        elif self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


async def _run(connections: list[_Connection], requests: list[bytes]) -> list[bytes]:
    todo, answers = iter(requests), list[bytes]()
    await asyncio.gather(*[connection.run(todo, answers) for connection in connections])
    return answers


def _only_message(answer: bytes) -> bytes:
    reply = read(answer)
    if reply.status != 200 or len(reply.messages) != 1:
        raise Failed(f"a wrong answer: {answer[:300]!r}")
    return reply.messages[0]


def _with_port(command: Sequence[str], port: int) -> list[str]:
    words = [word.replace("{port}", str(port)) for word in command]
    return words if words != [*command] else [*words, str(port)]


def _free_port() -> int:
    """Return a free port outside the range of ephemeral ports."""
    for port in random.sample(_PORTS, len(_PORTS)):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise Failed(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")


class _Call(msgspec.Struct):
    method: str
    params: dict[str, msgspec.Raw]

    @property
    def name(self) -> bytes:
        return bytes(self.params["name"]).strip(b'"')


_decode = msgspec.json.Decoder(_Call).decode
