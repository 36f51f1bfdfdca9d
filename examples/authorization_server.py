"""Authorization server to try logins on this machine. Not for production: any name may log in.

    python examples/authorization_server.py 9000
    ISSUER=http://127.0.0.1:9000 python examples/protected_server.py 8090
    fairlead login http://127.0.0.1:8090/mcp

It has the parts of OAuth 2.1 that `fairlead login` uses: metadata, registration, a login page,
authorization codes with PKCE, refresh tokens and revocation. It redirects only to this machine,
grants every scope, and keeps everything in memory. With `--lifetime 45`, access tokens are valid
for 45 seconds, to see how clients renew them.
"""

import argparse
import base64
import contextlib
import hashlib
import html
import json
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey

PAGE = """<!doctype html><title>Log in</title>
<h1>Log in</h1><p>For tests only: any name is accepted.</p>
<form method="post" action="/authorize">{fields}
<input name="login" placeholder="name" required autofocus><button>Log in</button></form>"""


@dataclass(frozen=True)
class Grant:
    """What a user has allowed a client to do."""

    user: str
    client: str
    redirect: str
    challenge: str
    resource: str
    scope: str


class Refused(Exception):
    """A request that is answered with an OAuth error code."""


class AuthorizationServer:
    """ASGI application with the endpoints of one issuer."""

    def __init__(self, issuer: str, lifetime: int) -> None:
        self.issuer = issuer
        self.lifetime = lifetime  # seconds of an access token
        self.key = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig"})
        self.codes: dict[str, Grant] = {}
        self.refresh: dict[str, Grant] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, message = b"", {"more_body": True}
        while message["more_body"]:
            message = {"body": b"", "more_body": False, **await receive()}
            body += message["body"]
        kind, location = "application/json", ""
        try:
            status, answer = self.respond(scope["method"], scope["path"], scope, body)
        except (Refused, KeyError, ValueError) as exc:
            error = str(exc) if isinstance(exc, Refused) else "invalid_request"
            status, answer = 400, {"error": error}
        if isinstance(answer, str):
            kind, location = "text/html; charset=utf-8", answer if status == 303 else ""
        content = answer if isinstance(answer, str) else json.dumps(answer)
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-store")]
        if location:
            headers.append((b"location", location.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content.encode()})

    def respond(self, method: str, path: str, scope: Any, body: bytes) -> tuple[int, Any]:
        """Return the status and a JSON value, a page, or the target of a redirect."""
        match method, path:
            case "GET", "/.well-known/oauth-authorization-server":
                return 200, self.metadata()
            case "GET", "/jwks":
                return 200, {"keys": [self.key.as_dict(private=False)]}
            case "POST", "/register":
                return 201, {**json.loads(body), "client_id": secrets.token_hex(8)}
            case "GET", "/authorize":
                return 200, login_page(dict(parse_qsl(scope["query_string"].decode())))
            case "POST", "/authorize":
                return 303, self.redirect(form_of(body))
            case "POST", "/token":
                return 200, self.tokens(form_of(body))
            case "POST", "/revoke":
                self.refresh.pop(form_of(body)["token"], None)
                return 200, {}
        return 404, {"error": "not_found"}

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "jwks_uri": f"{self.issuer}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def redirect(self, form: dict[str, str]) -> str:
        """Return the URL of the client with a new code."""
        check_request(form)
        code = secrets.token_urlsafe(24)
        self.codes[code] = Grant(
            user=form["login"],
            client=form["client_id"],
            redirect=form["redirect_uri"],
            challenge=form["code_challenge"],
            resource=form["resource"],
            scope=form.get("scope", ""),
        )
        query = {"code": code, "state": form.get("state", ""), "iss": self.issuer}
        return f"{form['redirect_uri']}?{urlencode(query)}"

    def tokens(self, form: dict[str, str]) -> dict[str, Any]:
        """Exchange a code or a refresh token. Each is valid once."""
        if form["grant_type"] == "authorization_code":
            grant = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if grant is None or (grant.challenge, grant.redirect) != (proof, form["redirect_uri"]):
                raise Refused("invalid_grant")
        elif form["grant_type"] == "refresh_token":
            grant = self.refresh.pop(form["refresh_token"], None)
        else:
            raise Refused("unsupported_grant_type")
        if grant is None or grant.client != form["client_id"]:
            raise Refused("invalid_grant")
        again = secrets.token_urlsafe(24)
        self.refresh[again] = grant
        return {
            "access_token": self.access_token(grant),
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": again,
            "scope": grant.scope,
        }

    def access_token(self, grant: Grant) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": grant.user,
            "aud": grant.resource,
            "client_id": grant.client,
            "scope": grant.scope,
            "iat": now,
            "exp": now + self.lifetime,
        }
        return jwt.encode({"alg": "ES256", "kid": self.key.kid, "typ": "at+jwt"}, claims, self.key)


def form_of(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode()))


def check_request(query: dict[str, str]) -> None:
    target = urlsplit(query["redirect_uri"])
    local = target.hostname in ("127.0.0.1", "localhost", "::1")
    if target.scheme != "http" or not local or target.query or target.fragment:
        raise Refused("invalid_redirect_uri")
    if query["response_type"] != "code" or query["code_challenge_method"] != "S256":
        raise Refused("invalid_request")


def login_page(query: dict[str, str]) -> str:
    check_request(query)
    fields = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in query.items()
    )
    return PAGE.format(fields=fields)


def seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, not {text!r}")
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Authorization server for tests.")
    parser.add_argument("port", type=int, nargs="?", default=9000)
    lifetime_help = "lifetime of access tokens (default: 300)"
    parser.add_argument(
        "--lifetime", type=seconds, default=300, metavar="SECONDS", help=lifetime_help
    )
    options = parser.parse_args()
    sock = socket.create_server(("127.0.0.1", options.port))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    print(f"serving: an authorization server for tests at {url}", file=sys.stderr, flush=True)
    app = AuthorizationServer(url, options.lifetime)
    runner = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    with contextlib.suppress(KeyboardInterrupt):
        runner.run(sockets=[sock])
