"""TLS verification, kept connections and redirects of the HTTP client."""

import asyncio
import logging
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead.errors import ConfigError, ConnectFailed, HttpError
from fairlead.transport.http.client.http1 import pool as pooling
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http1.url import EndpointUrl
from tests.support.scripted_door import reply
from tests.support.scripted_http_server import Call, RawServer, raw_server
from tests.support.virtual_time import VirtualTime


async def hello(call: Call) -> None:
    await call.answer(200, "hello")


@pytest.mark.covers("HTT-17")
@pytest.mark.parametrize("trust", ["system", "file", "context", "nobody"])
async def test_the_certificate_of_a_server_is_verified_unless_verification_is_disabled(
    trust: str, certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    served = RawServer(hello)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context)
    address = EndpointUrl.parse(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    match trust:
        case "file":
            door = HttpClient(address, ca_file=str(certificate[0]))
        case "context":
            own = ssl.create_default_context(cafile=str(certificate[0]))
            door = HttpClient(address, ssl_context=own)
        case "nobody":
            door = HttpClient(address, verify=False)
        case _:
            door = HttpClient(address)
    try:
        if trust == "system":
            with pytest.raises(ConnectFailed, match="certificate") as failed:
                await door.open("GET", {})
            assert not failed.value.delivered
        else:
            # TLS messages between responses do not open another connection
            for _ in range(3):
                assert await (await door.open("POST", {}, b"x")).read() == b"hello"
            assert served.connections == 1
        warned = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warned) == (1 if trust == "nobody" else 0)
    finally:
        await door.close()
        server.close()
        await served.stop()


def test_the_error_for_a_ca_file_without_certificates_contains_its_path(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for path in (empty, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError) as wrong:
            HttpClient(EndpointUrl.parse("https://a.example"), ca_file=str(path))
        assert wrong.value.path == str(path)


@pytest.mark.covers("HTT-16")
async def test_sequential_requests_reuse_one_connection() -> None:
    async with raw_server(hello) as server:
        door = HttpClient(EndpointUrl.parse(server.url))
        for _ in range(5):
            assert await (await door.open("POST", {}, b"x")).read() == b"hello"
        assert server.connections == 1
        await door.close()


async def test_a_request_with_an_invalid_header_is_not_sent() -> None:
    async with raw_server(hello) as server:
        door = HttpClient(EndpointUrl.parse(server.url))
        with pytest.raises(ConnectionError) as refused:
            await door.open("POST", {"X-A": "1\r\nX-B: 2"}, b"x")
        assert refused.value.delivered is False  # type: ignore[attr-defined]
        assert server.calls == []
        await door.close()


def test_httptools_is_imported_by_the_first_request() -> None:
    program = (
        "import sys, asyncio\n"
        "from fairlead.transport.http.client.http_channel import HttpChannel\n"
        "async def main():\n"
        "    channel = HttpChannel('https://a.example')\n"
        "    await channel.close()\n"
        "asyncio.run(main())\n"
        "print('httptools' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


async def test_the_body_of_a_redirect_is_not_read() -> None:
    async def moved(call: Call) -> None:
        if call.path == "/mcp":
            head = b"HTTP/1.1 307 Moved\r\nLocation: /there\r\nContent-Length: 10\r\n\r\n"
            await call.raw(head + b"half")
            await call.gone()
        else:
            await call.answer(200, "here")

    async with raw_server(moved) as server, asyncio.timeout(5):
        door = HttpClient(EndpointUrl.parse(server.url))
        assert await (await door.open("GET", {})).read() == b"here"
        while server.open > 1:
            await asyncio.sleep(0)
        assert server.connections == 2
        await door.close()


# Redirects without a network


class Redirecting(HttpClient):
    """A client whose requests are answered with redirects, chosen by path."""

    def __init__(self, **targets: tuple[int, str]) -> None:
        super().__init__(EndpointUrl.parse("http://a.example/start"))
        self.asked: list[str] = []
        self._targets = targets

    def _begin(self) -> Any:
        return self

    async def ask(self, method: str, url: str, headers: Any, body: Any, _: Any) -> Any:
        name = urlsplit(url).path.removeprefix("/")
        self.asked.append(name)
        status, target = self._targets.get(name, (200, ""))
        made = reply(status, **({"Location": target} if target else {}))
        made.url = url
        return made


@pytest.mark.parametrize(
    ("method", "status", "followed"),
    [
        ("GET", 301, True),
        ("GET", 302, True),
        ("GET", 303, True),
        ("GET", 307, True),
        ("GET", 308, True),
        ("GET", 304, None),
        ("POST", 301, False),
        ("POST", 302, False),
        ("POST", 303, False),
        ("POST", 307, True),
        ("POST", 308, True),
        ("DELETE", 302, False),
    ],
)
async def test_redirects_are_followed_only_if_they_keep_the_method(
    method: str, status: int, followed: bool | None
) -> None:
    door = Redirecting(start=(status, "/end"))
    if followed is False:
        with pytest.raises(HttpError, match=f"would turn a {method} into a GET") as refused:
            await door.open(method, {})
        assert (refused.value.status, refused.value.delivered) == (status, False)
        assert "http://a.example/end" in str(refused.value)
        return
    found = await door.open(method, {})
    assert found.status == (200 if followed else status)
    assert door.asked == (["start", "end"] if followed else ["start"])


@pytest.mark.parametrize(
    ("location", "host"),
    [("http://b.example/end", "b.example"), ("https://a.example/x", "a.example"), ("", "")],
)
async def test_a_redirect_to_another_origin_is_refused(location: str, host: str) -> None:
    door = Redirecting(start=(307, location))
    with pytest.raises(HttpError, match=rf"another origin \({host}.*\) is not followed") as refused:
        await door.open("GET", {})
    assert (refused.value.status, refused.value.delivered) == (307, False)


@pytest.mark.parametrize(("status", "again"), [(308, ["end"]), (307, ["start", "end"])])
async def test_only_a_permanent_redirect_is_remembered(status: int, again: list[str]) -> None:
    door = Redirecting(start=(status, "/end"))
    await door.open("GET", {})
    door.asked.clear()
    await door.open("GET", {})
    assert door.asked == again


async def test_a_chain_of_redirects_causes_at_most_five_requests() -> None:
    chain = {"start": (307, "/1"), "1": (307, "/2"), "2": (307, "/3"), "3": (307, "/4")}
    door = Redirecting(**chain)
    assert (await door.open("GET", {})).status == 200
    assert len(door.asked) == 5
    door = Redirecting(**chain, **{"4": (307, "/5")})
    with pytest.raises(HttpError, match="more than 5 redirects") as refused:
        await door.open("GET", {})
    assert (refused.value.status, len(door.asked)) == (310, 5)


async def test_connecting_times_out_after_30_seconds(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(host: str, port: int, *_: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(pooling, "connect_host", never)
    door = HttpClient(EndpointUrl.parse("http://a.example"))
    begun = virtual_time.now
    with pytest.raises(ConnectFailed, match="no connection within 30 s"):
        await door.open("GET", {})
    assert virtual_time.now - begun == pytest.approx(30.0)
    await door.close()
