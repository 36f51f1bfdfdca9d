"""Credentials of the request that opens a WebSocket, at first and after a redirect."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from fairlead.errors import ConnectFailed, HttpError
from fairlead.transport.http.client.request_authorizer import AuthorizerBase
from fairlead.transport.websocket.websocket_client import connect_websocket


class UrlAuthorizer(AuthorizerBase):
    """Credentials that contain the URL that they are for."""

    def current(self, method: str, url: str) -> Mapping[str, str]:
        return {"Authorization": f"For {urlsplit(url).path}"}

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        return self.current(method, url)

    async def challenged(self, *_: Any) -> bool:
        return False

    def covers(self, url: str) -> bool:
        return urlsplit(url).path.startswith("/mcp")


@asynccontextmanager
async def redirecting(path: str) -> AsyncIterator[tuple[str, list[Any]]]:
    """Run a server whose `/mcp` redirects to a path, and record the requests to that path."""
    arrived: list[Any] = []

    def redirect(connection: ServerConnection, request: Request) -> Response | None:
        if request.path != "/mcp":
            arrived.append(request.headers.get_all("Authorization"))
            return None
        response = connection.respond(307, "")
        response.headers["Location"] = path
        return response

    async def script(connection: ServerConnection) -> None:
        await connection.wait_closed()

    options: Any = {"subprotocols": [Subprotocol("mcp")], "process_request": redirect}
    async with serve(script, "127.0.0.1", 0, **options) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/mcp", arrived


async def test_a_redirected_request_has_the_credentials_for_the_new_url() -> None:
    async with redirecting("/mcp/v2") as (url, arrived):
        channel = await connect_websocket(url, proxy=None, authorizer=UrlAuthorizer())
        await channel.close()
        assert arrived == [["For /mcp/v2"]]


async def test_credentials_are_not_sent_to_another_resource_after_a_redirect() -> None:
    async with redirecting("/other") as (url, arrived):
        with pytest.raises(ConnectFailed, match="redirected to /other"):
            await connect_websocket(url, proxy=None, authorizer=UrlAuthorizer())
        assert arrived == []


@pytest.mark.parametrize(
    ("headers", "sent"),
    [({}, "Basic bWU6cHc="), ({"authorization": "Bearer mine"}, "Bearer mine")],
)
async def test_configured_headers_replace_credentials_in_a_websocket_url(
    headers: dict[str, str], sent: str
) -> None:
    async with redirecting("/mcp/v2") as (url, arrived):
        place = url.replace("ws://", "ws://me:pw@")
        await (await connect_websocket(place, headers=headers, proxy=None)).close()
        assert arrived == [[sent]]


async def test_repeated_headers_of_a_refused_websocket_are_joined() -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(401, "")
        response.headers["WWW-Authenticate"] = 'Bearer scope="a"'
        response.headers["WWW-Authenticate"] = 'DPoP algs="ES256"'
        return response

    async def script(connection: ServerConnection) -> None:
        raise AssertionError("should not be reached")

    async with serve(script, "127.0.0.1", 0, process_request=refuse) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        with pytest.raises(HttpError) as caught:
            await connect_websocket(f"ws://127.0.0.1:{port}/mcp", proxy=None)
    assert caught.value.www_authenticate == 'Bearer scope="a", DPoP algs="ES256"'
