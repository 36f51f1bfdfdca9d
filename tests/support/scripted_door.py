"""A fake HTTP client whose responses a test provides, also with virtual time."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.transport.http.client import http_channel as channels
from fairlead.transport.http.client.http1.http_client import HttpResponse

__all__ = ["Asked", "ScriptedChannel", "ScriptedDoor", "ScriptedReply", "reply", "stream"]


class Asked:
    """One request to the scripted client."""

    def __init__(self, method: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self.method = method
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.message: dict[str, Any] = json.loads(body) if body else {}
        self.at = asyncio.get_running_loop().time()

    @property
    def rpc(self) -> str:
        """Return the method of the message, or the HTTP method if the body is empty."""
        return str(self.message.get("method", self.method))


class ScriptedReply(HttpResponse):
    """A response with content from a test; `dropped` is true once its connection is closed."""

    __slots__ = ("dropped",)

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(self, asyncio.get_running_loop(), "http://a.example/mcp")
        self.dropped = False
        fields = {name.lower().encode(): value.encode() for name, value in headers.items()}
        self.begin(status, b"Reason", fields)

    def resume(self) -> None:
        pass

    def drop(self) -> None:
        self.dropped = True

    def event(self, message: Any, **fields: str) -> None:
        """Send an event; a string is sent without encoding."""
        data = message if isinstance(message, str) else json.dumps(message)
        lines = [*(f"{name}: {value}" for name, value in fields.items()), f"data: {data}"]
        self.take("\n".join([*lines, "", ""]).encode())

    def cut(self) -> None:
        """Break the connection."""
        self.end(ChannelClosed("cut"))


def reply(status: int = 200, body: Any = b"", **headers: str) -> ScriptedReply:
    """Return a whole response; header names are written with underscores."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    made = ScriptedReply(status, {"content-type": "application/json", **named})
    if data:
        made.take(data)
    made.end()
    return made


def stream() -> ScriptedReply:
    """Return a response of server-sent events, which the test sends."""
    return ScriptedReply(200, {"content-type": "text/event-stream"})


class ScriptedDoor:
    """A replacement for `HttpClient` whose responses come from the function `answer`."""

    logins = None  # no request waits for a user to log in

    def __init__(self, answer: Callable[[Asked], Awaitable[HttpResponse]]) -> None:
        self.asked: list[Asked] = []
        self.reached = True
        self.closed = False
        self._answer = answer

    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        url: str | None = None,
    ) -> HttpResponse:
        if self.closed:
            raise ChannelClosed(delivered=False)
        asked = Asked(method, headers, body)
        self.asked.append(asked)
        return await self._answer(asked)

    def of(self, rpc: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.rpc == rpc]

    async def close(self) -> None:
        self.closed = True


class ScriptedChannel:
    """An `HttpChannel` over a scripted client; records delivered items and reported errors."""

    def __init__(self, door: ScriptedDoor, channel: channels.HttpChannel) -> None:
        self.door = door
        self.channel = channel
        self.delivered: list[Any] = []
        self.errors: list[Exception] = []
        channel.on_error = self.errors.append

    @classmethod
    @contextlib.asynccontextmanager
    async def over(
        cls, answer: Callable[[Asked], Awaitable[HttpResponse]], **options: Any
    ) -> "AsyncIterator[ScriptedChannel]":
        """Run a channel until the block ends."""
        door = ScriptedDoor(answer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channels, "HttpClient", lambda address, **tls: door)
            channel = channels.HttpChannel("http://a.example/mcp", **options)
        one = cls(door, channel)
        running = asyncio.ensure_future(channel.run(one.delivered.append))
        try:
            yield one
        finally:
            await channel.close()
            await asyncio.wait((running,))
            running.exception()

    async def asked(self, rpc: str, count: int = 1) -> Asked:
        """Wait for request number `count` of the method `rpc`."""
        for _ in range(200):
            if len(self.door.of(rpc)) >= count:
                return self.door.of(rpc)[count - 1]
            await asyncio.sleep(0)
        raise AssertionError(f"{rpc} was not requested: {[asked.rpc for asked in self.door.asked]}")

    async def got(self, count: int = 1) -> Any:
        """Wait until `count` items were delivered, and return the last of them."""
        for _ in range(200):
            if len(self.delivered) >= count:
                return self.delivered[count - 1]
            await asyncio.sleep(0)
        raise AssertionError(f"only these items were delivered: {self.delivered}")
