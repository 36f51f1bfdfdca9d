"""A small token issuer for tests, with metadata, key set and introspection over HTTP.

Tests can replace its documents. It counts the requests for each path.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from joserfc import jws, jwt
from joserfc.jwk import ECKey

from fairlead.auth.dpop import DpopKey

LIFETIME = 600


class TokenMint:
    """Keys of an issuer, and the tokens that it signs."""

    def __init__(self, issuer: str = "https://login.example") -> None:
        self.issuer = issuer
        self.key = ECKey.generate_key("P-256", {"kid": "first", "use": "sig"})
        self.published: list[dict[str, Any]] = [self.key.as_dict(private=False)]

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": self.published}

    def rotate(self, name: str) -> None:
        """Publish a new key in place of the current ones."""
        self.key = ECKey.generate_key("P-256", {"kid": name, "use": "sig"})
        self.published = [self.key.as_dict(private=False)]

    def claims(self, audience: Any, **claims: Any) -> dict[str, Any]:
        """Return the claims of a valid token; None removes a claim."""
        now = int(time.time())
        made = {
            "iss": self.issuer,
            "sub": "alice",
            "client_id": "app",
            "aud": audience,
            "iat": now,
            "exp": now + LIFETIME,
            **claims,
        }
        return {name: value for name, value in made.items() if value is not None}

    def token(
        self,
        audience: Any,
        *,
        header: dict[str, Any] | None = None,
        key: Any = None,
        **claims: Any,
    ) -> str:
        """Return a signed token; `header` and `claims` override the usual members."""
        head = {"alg": "ES256", "kid": "first", "typ": "at+jwt"}
        head["kid"] = str(self.key.kid)
        head.update(header or {})
        head = {name: value for name, value in head.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[head["alg"]], strict_check_header=False)
        return jwt.encode(head, self.claims(audience, **claims), key or self.key, registry=registry)

    def bound_token(self, audience: Any, key: DpopKey, **claims: Any) -> str:
        """Return a token that is bound to a key (DPoP)."""
        return self.token(audience, cnf={"jkt": key.thumbprint}, **claims)


class RunningIssuer(TokenMint):
    """A token issuer on a local port."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.headers: dict[str, str] = {}  # extra headers of the key set response
        self.status = 200  # HTTP status of all documents
        # If set to an event, the key set is sent once the event is set.
        self.gate: asyncio.Event | None = None
        self.introspected: Any = {"active": False}
        self.asked: list[dict[str, str]] = []  # forms and headers of introspection requests
        self._news = asyncio.Condition()

    async def requested(self, path: str) -> None:
        """Wait for the first request for a path."""
        async with self._news:
            await self._news.wait_for(lambda: self.counts[path] > 0)

    async def serve(self, request: web.Request) -> web.Response:
        async with self._news:
            self.counts[request.path] += 1
            self._news.notify_all()
        match request.path:
            case "/.well-known/oauth-authorization-server":
                document: Any = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks"}
                return web.json_response(document, status=self.status)
            case "/jwks":
                if self.gate is not None:
                    await self.gate.wait()
                return web.json_response(self.jwks, headers=self.headers, status=self.status)
            case "/introspect":
                form = {name: str(value) for name, value in (await request.post()).items()}
                self.asked.append({**form, "authorization": request.headers["Authorization"]})
                return web.json_response(self.introspected, status=self.status)
            case _:
                return web.json_response({}, status=404)


@contextlib.asynccontextmanager
async def running_issuer() -> AsyncIterator[RunningIssuer]:
    """Run a token issuer until the context ends."""
    issuer = RunningIssuer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", issuer.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        issuer.issuer = f"http://{host}:{port}"
        yield issuer
    finally:
        await runner.cleanup()
