"""A server that only accepts tokens of a real authorization server."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import uvicorn
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from fairlead import MCPServer

START = 20.0  # seconds


class ProtectedServer:
    """ASGI application that checks tokens before it calls another application."""

    def __init__(self, app: Any, issuer: str, keys: KeySet) -> None:
        self._app = app
        self._keys = keys
        self.issuer = issuer
        self.url = ""
        self.required: set[str] = set()  # required scopes; tokens without them are refused with 403
        self.revoked: set[str] = set()  # tokens that are refused with 401
        self.tokens: list[str | None] = []  # tokens of all requests, in order

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket" and (challenge := self._refusal(scope)) is not None:
            await receive()
            await respond(send, 401, b"{}", challenge, kind="websocket.http")
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"].startswith("/.well-known/oauth-protected-resource"):
            document = {
                "resource": self.url,
                "authorization_servers": [self.issuer],
                "scopes_supported": ["mcp:basic"],
            }
            await respond(send, 200, json.dumps(document).encode())
        elif (challenge := self._refusal(scope)) is not None:
            await respond(send, 403 if "insufficient" in challenge else 401, b"{}", challenge)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Any) -> str | None:
        """Return the challenge for a request, or None if its token is valid."""
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        token = headers.get("authorization", "").removeprefix("Bearer ") or None
        self.tokens.append(token)
        metadata = f'resource_metadata="{self.metadata_url}"'
        try:
            claims = jwt.decode(token or "", self._keys, algorithms=["ES256", "RS256"]).claims
            registry = jwt.JWTClaimsRegistry(
                aud={"essential": True, "value": self.url}, iss={"value": self.issuer}
            )
            registry.validate(claims)
        except (JoseError, ValueError):
            return f"Bearer {metadata}"
        if token in self.revoked:
            return f'Bearer error="invalid_token", {metadata}'
        if missing := self.required - set(claims.get("scope", "").split()):
            scopes = " ".join(sorted(missing))
            return f'Bearer error="insufficient_scope", scope="{scopes}", {metadata}'
        return None

    @property
    def metadata_url(self) -> str:
        origin, _, path = self.url.partition("/mcp")
        return f"{origin}/.well-known/oauth-protected-resource/mcp{path}"


async def respond(
    send: Any, status: int, body: bytes, challenge: str | None = None, kind: str = "http"
) -> None:
    headers = [(b"content-type", b"application/json")]
    if challenge is not None:
        headers.append((b"www-authenticate", challenge.encode()))
    await send({"type": f"{kind}.response.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


@contextlib.asynccontextmanager
async def protected_server(issuer: str) -> AsyncIterator[ProtectedServer]:
    """Serve a tool `add` to clients with tokens of an issuer."""
    server = MCPServer("protected", rate_limit_rate=0)

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with aiohttp.ClientSession() as http, http.get(f"{issuer}/jwks") as reply:
        keys = KeySet.import_key_set(await reply.json())
    app = ProtectedServer(server.create_http_app(), issuer, keys)
    sock = socket.create_server(("127.0.0.1", 0))
    app.url = f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    runner = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    task = asyncio.create_task(runner.serve(sockets=[sock]))
    try:
        yield app
    finally:
        runner.should_exit = True
        async with asyncio.timeout(START):
            await task
