"""A protected server and its authorization server on loopback, with replaceable responses.

Unlike real providers, it can hang or send invalid responses at each step: `resource`,
`metadata`, `register`, `token`, `device`, `par`, `revoke` and `mcp`.
"""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from fairlead.auth.client.interactive_login import AuthorizationRequest
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http1.url import EndpointUrl
from fairlead.transport.http.client.request_authorizer import RequestAuthorizer
from tests.support.scripted_http_server import Call, raw_server

Script = Callable[[Call], Awaitable[None]]

LIMIT = 30.0  # time limit of a test in seconds


class ScriptedProvider:
    """The protected server and the authorization server. `scripts` replaces responses by step."""

    def __init__(self) -> None:
        self.origin = ""
        self.scripts: dict[str, Script] = {}
        # Added or replaced metadata members; None removes a member.
        self.metadata: dict[str, Any] = {}
        self.token: dict[str, Any] = {}  # added or replaced members of token responses
        # Added or replaced members of the protected resource metadata.
        self.protected: dict[str, Any] = {}
        self.challenge: dict[str, str] = {}  # added or replaced parameters of the 401 challenge
        self.calls: list[tuple[str, Call]] = []  # all steps and requests, in order
        self.visits: list[AuthorizationRequest] = []
        self.refused: set[str] = set()  # access tokens that are refused with 401
        self.accepted: set[str] = set()
        self._issued = 0

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def issuer(self) -> str:
        return f"{self.origin}/as"

    @property
    def steps(self) -> Counter[str]:
        return Counter(step for step, _ in self.calls)

    def of(self, step: str) -> list[Call]:
        return [call for name, call in self.calls if name == step]

    def forms(self, step: str = "token") -> list[dict[str, str]]:
        """Return the forms that were sent to an endpoint."""
        return [dict(parse_qsl(call.body.decode())) for call in self.of(step)]

    async def handle(self, call: Call) -> None:
        path = call.path.partition("?")[0]
        step = self._step(path)
        self.calls.append((step, call))
        script = self.scripts.get(step)
        if script is not None:
            await script(call)
        elif step == "none":
            await call.answer(404)
        else:
            await getattr(self, f"_{step}")(call)

    def _step(self, path: str) -> str:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return "resource"
        if path == "/.well-known/oauth-authorization-server/as":
            return "metadata"
        known = {"/mcp", "/as/register", "/as/token", "/as/device", "/as/par", "/as/revoke"}
        return path.rpartition("/")[2] if path in known else "none"

    async def _resource(self, call: Call) -> None:
        document = {"resource": self.url, "authorization_servers": [self.issuer]}
        await call.json(_changed(document, self.protected))

    async def _metadata(self, call: Call) -> None:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
            **{
                f"{name}_endpoint": f"{self.issuer}/{path}"
                for name, path in (
                    ("token", "token"),
                    ("registration", "register"),
                    ("revocation", "revoke"),
                    ("device_authorization", "device"),
                    ("pushed_authorization_request", "par"),
                )
            },
        }
        await call.json(_changed(document, self.metadata))

    async def _register(self, call: Call) -> None:
        await call.json({"client_id": f"client-{self.steps['register']}"}, 201)

    async def _token(self, call: Call) -> None:
        self._issued += 1
        document = {
            "access_token": f"access-{self._issued}",
            "token_type": "Bearer",
            "expires_in": 3600,
            "refresh_token": f"refresh-{self._issued}",
        }
        document = _changed(document, self.token)
        self.accepted.add(str(document.get("access_token")))
        await call.json(document)

    async def _device(self, call: Call) -> None:
        await call.json(
            {
                "device_code": "d1",
                "user_code": "ABCD",
                "verification_uri": f"{self.issuer}/device",
                "expires_in": 60,
                "interval": 1,
            }
        )

    async def _par(self, call: Call) -> None:
        await call.json({"request_uri": "urn:request:1", "expires_in": 60}, 201)

    async def _revoke(self, call: Call) -> None:
        await call.answer(200)

    async def _mcp(self, call: Call) -> None:
        token = call.headers.get("authorization", "").partition(" ")[2]
        if token in self.accepted - self.refused:
            await call.json({"token": token})
            return
        metadata = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
        params = _changed({"resource_metadata": metadata}, self.challenge)
        text = ", ".join(f'{name}="{value}"' for name, value in params.items())
        await call.answer(401, "{}", WWW_Authenticate=f"Bearer {text}")

    def user(self, **changes: str | list[str] | None) -> Any:
        """Return an `authorize` callback that approves; `changes` replaces redirect parameters."""

        def authorize(request: AuthorizationRequest) -> str:
            self.visits.append(request)
            return self.redirect(request, **changes)

        return authorize

    def redirect(self, request: AuthorizationRequest, **changes: str | list[str] | None) -> str:
        [state] = parse_qs(urlsplit(request.url).query)["state"]
        params: dict[str, Any] = {"code": "code-1", "state": state, "iss": self.issuer}
        query = urlencode(_changed(params, changes), doseq=True)
        return f"{request.redirect_uri}?{query}"


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**document, **changes}
    return {name: value for name, value in merged.items() if value is not None}


@contextlib.asynccontextmanager
async def scripted_provider() -> AsyncIterator[ScriptedProvider]:
    """Run both servers on one port."""
    provider = ScriptedProvider()
    async with asyncio.timeout(LIMIT), raw_server(provider.handle) as served:
        provider.origin = f"http://127.0.0.1:{served.port}"
        yield provider


async def request(provider: ScriptedProvider, authorizer: RequestAuthorizer) -> tuple[int, Any]:
    """Send one authorized request; return the status and the decoded body."""
    client = HttpClient(EndpointUrl(provider.url), authorizer=authorizer)
    try:
        reply = await client.open("POST", {"X-Configured": "header-secret"}, b"{}")
        body = await reply.read(1 << 16)
        return reply.status, json.loads(body or b"null")
    finally:
        await client.close()


def responding(status: int, body: bytes | str, kind: str = "application/json") -> Script:
    """Return a script that always sends the same response."""

    async def respond(call: Call) -> None:
        await call.answer(status, body, Content_Type=kind)

    return respond


async def hang(call: Call) -> None:
    """Do not respond until the client disconnects."""
    await call.gone()
