"""Servers that require access tokens: settings, challenges, scopes and metadata."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.auth.challenge import Challenge, parse_challenges
from fairlead.auth.server.server_auth import Introspection, ServerAuth, StaticClient, TokenIssuer
from fairlead.errors import ConfigError
from fairlead.observe.log_filter import redacted_logger
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.http_server import Answer, Web, serving
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

ISSUER = "https://login.example"


def make_notes(auth: ServerAuth | None, **settings: Any) -> MCPServer:
    server = MCPServer("notes", auth=auth, **settings)

    @server.tool()
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal)

    @server.tool(scopes=["notes:write"])
    async def write() -> str:
        return "written"

    return server


@contextlib.asynccontextmanager
async def protected(**settings: Any) -> AsyncIterator[tuple[Web, RunningIssuer]]:
    """Serve notes with tokens of a running issuer."""
    async with running_issuer() as issuer:
        auth = ServerAuth(**{"issuer": issuer.issuer, **settings})
        async with serving(make_notes(auth)) as web:
            yield web, issuer


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def call(web: Web, tool: str, token: str | None, **headers: str) -> Answer:
    given = headers if token is None else {**bearer(token), **headers}
    return await web.stateless("tools/call", {"name": tool, "arguments": {}}, given)


def challenge_of(answer: Answer) -> Challenge:
    (found,) = parse_challenges(", ".join(answer.headers.getall("WWW-Authenticate")))
    return found


@pytest.mark.covers("AUT-06")
async def test_a_request_without_a_token_gets_the_url_of_the_metadata() -> None:
    async with protected(scopes=["notes:read"]) as (web, issuer):
        answer = await call(web, "whoami", None)
        assert answer.status == 401
        challenge = challenge_of(answer)
        base = web.url.removesuffix("/mcp")
        place = f"{base}/.well-known/oauth-protected-resource/mcp"
        assert challenge == Challenge(
            "bearer", (("scope", "notes:read"), ("resource_metadata", place))
        )
        found = await web.get(place)
        assert found.json == {
            "resource": web.url,
            "authorization_servers": [issuer.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["notes:read", "notes:write"],
        }
        assert found.headers["Access-Control-Allow-Origin"] == "*"
        assert (await web.get(f"{base}/.well-known/oauth-protected-resource")).json == found.json


@pytest.mark.covers("AUT-06")
async def test_a_token_of_the_issuer_is_accepted_and_names_the_caller() -> None:
    async with protected() as (web, issuer):
        token = issuer.token(web.url)
        for _ in range(3):  # on the ASGI path, then on the fast path
            answer = await call(web, "whoami", token)
            assert answer.text == f"oauth:{issuer.issuer} alice app"
        assert issuer.counts["/jwks"] == 1


@pytest.mark.covers("AUT-06")
async def test_a_tool_with_scopes_needs_a_token_with_all_of_them() -> None:
    async with protected(scopes="notes:read") as (web, issuer):
        for scope in ("notes:read", "notes:write", ""):
            refused = await call(web, "write", issuer.token(web.url, scope=scope))
            assert refused.status == 403
            challenge = challenge_of(refused)
            assert challenge.error == "insufficient_scope"
            assert challenge.scopes == ("notes:read", "notes:write")
            assert refused.json["id"] == 5
        token = issuer.token(web.url, scope="notes:read notes:write")
        for _ in range(3):
            assert (await call(web, "write", token)).text == "written"


@pytest.mark.parametrize(
    ("authorization", "status", "error"),
    [
        ("Bearer not-a-jwt", 401, "invalid_token"),
        ("Bearer", 400, "invalid_request"),
        ("Bearer two words", 400, "invalid_request"),
        ("Basic YTpi", 401, None),
    ],
)
async def test_invalid_credentials_get_the_status_and_error_of_rfc_6750(
    authorization: str, status: int, error: str | None
) -> None:
    async with protected() as (web, _):
        answer = await call(web, "whoami", None, Authorization=authorization)
        assert (answer.status, challenge_of(answer).error) == (status, error)


@pytest.mark.covers("AUT-06")
async def test_scopes_of_a_first_login_are_requested_but_not_required() -> None:
    async with protected(scopes=["notes:read"], login_scopes="notes:list offline_access") as (
        web,
        issuer,
    ):
        challenge = challenge_of(await call(web, "whoami", None))
        assert challenge.scopes == ("notes:read", "notes:list")
        base = web.url.removesuffix("/mcp")
        document = await web.get(f"{base}/.well-known/oauth-protected-resource/mcp")
        assert document.json["scopes_supported"] == ["notes:read", "notes:list", "notes:write"]
        token = issuer.token(web.url, scope="notes:read")
        assert (await call(web, "whoami", token)).status == 200
        refused = await call(web, "write", token)
        assert challenge_of(refused).scopes == ("notes:read", "notes:write")


async def test_challenges_never_contain_the_scope_offline_access() -> None:
    """Clients request this scope by themselves; it does not belong to a resource."""
    async with protected(scopes=["offline_access", "notes:read"]) as (web, issuer):
        for token in (None, issuer.token(web.url, scope="other")):
            answer = await call(web, "write", token)
            assert "notes:read" in challenge_of(answer).scopes
            assert "offline_access" not in str(challenge_of(answer).params)


async def test_a_static_token_identifies_a_name_and_its_scopes() -> None:
    tokens = {"t1": "ci", "t2": StaticClient(name="bot", scopes=["notes:write"])}
    async with serving(make_notes(ServerAuth(tokens=tokens))) as web:
        assert (await call(web, "whoami", "t1")).text == "ci"
        assert (await call(web, "write", "t1")).status == 403
        assert (await call(web, "write", "t2")).text == "written"
        refused = await call(web, "whoami", "t3")
        assert refused.status == 401
        assert challenge_of(refused) == Challenge(
            "bearer",
            (("error", "invalid_token"), ("error_description", "the token is not accepted")),
        )
        base = web.url.removesuffix("/mcp")
        missing = await web.get(f"{base}/.well-known/oauth-protected-resource/mcp")
        assert missing.status == 404


async def test_a_function_may_verify_tokens() -> None:
    asked: list[str] = []

    async def verify(token: str) -> TokenPrincipal | str | None:
        asked.append(token)
        if token == "subject":
            return TokenPrincipal(issuer="i", subject="s", scopes=frozenset(["notes:write"]))
        names = {"name": "ann", "reserved": "oauth:i s", "owner": "token", "static": "ci"}
        return names.get(token)

    async with serving(make_notes(ServerAuth(verify=verify, tokens={"t": "ci"}))) as web:
        assert (await call(web, "write", "subject")).text == "written"
        assert (await call(web, "whoami", "subject")).text == "oauth:i s"
        assert (await call(web, "whoami", "name")).text == "ann"
        for reserved in ("reserved", "owner", "static"):
            assert (await call(web, "whoami", reserved)).status == 401
        assert (await call(web, "whoami", "t")).text == "ci"
        assert (await call(web, "whoami", "other")).status == 401
        assert asked.count("subject") == 1, "the verdict is remembered"


async def test_a_failing_verify_function_causes_a_503_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def verify(token: str) -> Any:
        if token == "number":
            return 5
        raise RuntimeError(f"no entry for {token}")

    async with serving(make_notes(ServerAuth(verify=verify))) as web:
        for token in ("planted-secret", "number"):
            assert (await call(web, "whoami", token)).status == 503
    assert "`verify` raised RuntimeError" in caplog.text
    assert "`verify` returned int" in caplog.text
    assert "planted-secret" not in caplog.text


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    "options",
    [{"subject": ""}, {"expires": "2999"}, {"expires": float("nan")}, {"expires": 1.0}],
    ids=str,
)
async def test_a_principal_from_verify_is_refused_without_a_subject_or_a_valid_expiry(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def verify(token: str) -> TokenPrincipal:
        return TokenPrincipal(**{"issuer": "i", "subject": "s", **options})

    has_expired = options == {"expires": 1.0}
    async with serving(make_notes(ServerAuth(verify=verify))) as web:
        assert (await call(web, "whoami", "any")).status == (401 if has_expired else 503)
    assert ("unusable TokenPrincipal" in caplog.text) is not has_expired


@pytest.mark.covers("AUT-06")
async def test_scopes_of_settings_and_functions_may_be_strings_separated_by_spaces() -> None:
    scopes = {"longer": "notes:writers", "shorter": "notes:w", "right": "notes:write a"}

    async def verify(token: str) -> TokenPrincipal:
        return TokenPrincipal(issuer="i", subject="s", scopes=scopes.get(token, token))

    tokens = {
        "part": StaticClient(name="part", scopes="notes:writers"),
        "both": StaticClient(name="both", scopes="notes:read notes:write"),
        "boss": StaticClient(name="boss", scopes="admin"),
    }
    implied = {"admin": "notes:read notes:write"}
    auth = ServerAuth(verify=verify, tokens=tokens, implied_scopes=implied)
    async with serving(make_notes(auth)) as web:
        for token in ("part", "longer", "shorter"):
            assert (await call(web, "write", token)).status == 403
        for token in ("both", "boss", "right", "admin"):
            assert (await call(web, "write", token)).text == "written"


async def test_verify_token_may_be_a_coroutine_function() -> None:
    async def verify(token: str) -> str | None:
        return {"a": "ann", "o": "oauth:issuer ann"}.get(token)

    async with serving(make_notes(None), verify_token=verify) as web:
        assert (await call(web, "whoami", "a")).text == "ann"
        # The name has no scopes.
        assert (await call(web, "write", "a")).status != 200
        assert (await call(web, "whoami", "o")).status == 401
        assert (await call(web, "whoami", "b")).status == 401


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "no token would be accepted"),
        ({"issuer": "name-only"}, "its keys cannot be found"),
        ({"issuer": TokenIssuer("name", jwks_uri=f"{ISSUER}/k")}, "authorization_server"),
        ({"issuer": ISSUER, "public_url": "mcp.example"}, "invalid public_url"),
        ({"issuer": ISSUER, "algorithms": ["HS256"]}, "invalid algorithm 'HS256'"),
        ({"issuer": ISSUER, "dpop": "maybe"}, "invalid dpop"),
        ({"issuer": ISSUER, "algorithms": []}, "invalid algorithms"),
        ({"issuer": ISSUER, "algorithms": "RS256"}, "expected a list such as"),
        ({"issuer": ISSUER, "remember": -1}, "invalid remember -1"),
        ({"issuer": ISSUER, "remember": float("nan")}, "invalid remember nan"),
        ({"issuer": None}, "invalid issuer None: expected the URL"),
        ({"issuer": [ISSUER, 5]}, "invalid issuer"),
        ({"issuer": f"{ISSUER}/ "}, "its keys cannot be found"),
        ({"issuer": "https://"}, "its keys cannot be found"),
        ({"issuer": TokenIssuer(ISSUER, jwks_uri="keys.json")}, "invalid jwks_uri 'keys.json'"),
        (
            {"introspection": Introspection(url="idp/ask", client_id="a", client_secret="b")},
            "invalid url 'idp/ask' of Introspection",
        ),
        ({"issuer": ISSUER, "audience": ""}, "invalid audience ''"),
        ({"issuer": ISSUER, "audience": [f"{ISSUER}/mcp", ""]}, "invalid audience ''"),
        ({"tokens": {"": "ci"}}, "the token of the client 'ci' is empty"),
        ({"tokens": {"": StaticClient(name="ci")}}, "the token of the client 'ci' is empty"),
        ({"tokens": {"t": "oauth:x"}}, "invalid client name 'oauth:x'"),
        ({"tokens": {"t": "token"}}, "invalid client name 'token'"),
        (
            {
                "introspection": Introspection(url=ISSUER, client_id="a", client_secret="b"),
                "verify": lambda token: None,
            },
            "either introspection or verify",
        ),
    ],
)
def test_invalid_auth_settings_raise_configuration_errors(
    settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        ServerAuth(**settings)


async def test_a_server_for_other_machines_needs_a_public_url_without_the_endpoint_path() -> None:
    server = make_notes(ServerAuth(issuer=ISSUER))
    with pytest.raises(ConfigError, match="set public_url"):
        await server.run_http("0.0.0.0", 0)
    with pytest.raises(ConfigError, match="leave out '/mcp'"):
        make_notes(ServerAuth(issuer=ISSUER, public_url="https://a.example/mcp")).create_http_app()


def test_an_issuer_may_have_a_name_that_is_not_a_url() -> None:
    """An issuer that is not a URL, with keys from the settings."""
    mint = TokenMint("accounts")
    issuer = TokenIssuer("accounts", jwks=mint.jwks, authorization_server=ISSUER)
    auth = ServerAuth(issuer=issuer, public_url="https://a.example")
    assert auth.open_access().rules.authorization_servers == (ISSUER,)


async def test_published_urls_come_from_the_settings_only() -> None:
    """Forwarded headers and a chosen Host must not appear in the metadata or in challenges."""
    public = "https://mcp.example/base"
    auth = ServerAuth(issuer=ISSUER, public_url=f"{public}/", tokens={"t": "ci"})
    async with serving(make_notes(auth), allowed_hosts=("evil.example",)) as web:
        chosen = {
            "Host": "evil.example",
            "X-Forwarded-Host": "evil.example",
            "X-Forwarded-Proto": "ftp",
            "Forwarded": "host=evil.example",
        }
        challenge = challenge_of(await call(web, "whoami", None, **chosen))
        place = f"{public}/.well-known/oauth-protected-resource/mcp"
        assert challenge.get("resource_metadata") == place
        base = web.url.removesuffix("/mcp")
        for path in ("/mcp", "/base/mcp"):
            url = f"{base}/.well-known/oauth-protected-resource{path}"
            found = await web.get(url, headers=chosen)
            assert found.json["resource"] == f"{public}/mcp"
            assert b"evil" not in found.body
        page = await web.get(f"{base}/", headers={**chosen, "Authorization": "Bearer t"})
        assert f"<code>{public}/mcp</code>" in page.body.decode()
        assert b"evil" not in page.body


async def test_metadata_are_sent_to_foreign_origins_but_not_for_a_foreign_host() -> None:
    """DNS rebinding: a page of another host must not reach a local server under its own name."""
    async with protected() as (web, _):
        base = web.url.removesuffix("/mcp")
        place = f"{base}/.well-known/oauth-protected-resource/mcp"
        assert (await web.get(place, headers={"Host": "evil.example"})).status == 403
        foreign = await web.get(place, headers={"Origin": "https://app.example"})
        assert (foreign.status, foreign.headers["Access-Control-Allow-Origin"]) == (200, "*")
        async with web.http.options(place, headers={"Origin": "https://app.example"}) as answer:
            assert answer.status == 204
        assert (await web.get(f"{place}/other")).status == 404


async def test_web_pages_of_allowed_origins_can_read_challenges() -> None:
    auth = ServerAuth(issuer=ISSUER, public_url="https://a.example")
    async with serving(make_notes(auth), allowed_origins=("https://app.example",)) as web:
        answer = await call(web, "whoami", None, Origin="https://app.example")
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert "www-authenticate" in answer.headers["Access-Control-Expose-Headers"]


async def test_each_endpoint_has_its_own_audience() -> None:
    """A token of one path is refused at another, also if both are paths of one program."""
    mint = TokenMint()
    issuer = TokenIssuer(mint.issuer, jwks=mint.jwks)
    access = ServerAuth(issuer=issuer, public_url="https://a.example").open_access()
    ends = {path: access.endpoint(path) for path in ("/mcp", "/mcp/a", "/mcp/b")}
    for aimed in ends:
        token = mint.token(f"https://a.example{aimed}")
        for path, end in ends.items():
            given = {b"authorization": f"Bearer {token}".encode()}
            found = await end.verify(given, "POST", None)
            if path == aimed:
                assert isinstance(found, TokenPrincipal)
                continue
            # The operator has to configure the audience at the authorization server.
            assert isinstance(found, RequestRefusal)
            assert found.message.endswith(f"another audience, expected https://a.example{path}")
            now = end.verify_now(given, "POST", None)
            assert isinstance(now, RequestRefusal)
            assert now.message == found.message
    for path in ends:
        document = access.metadata(f"/.well-known/oauth-protected-resource{path}")
        assert document is not None
        assert f'"https://a.example{path}"'.encode() in document
    assert access.metadata("/.well-known/oauth-protected-resource") is None


async def test_the_challenge_for_a_token_of_another_audience_names_the_expected_audience() -> None:
    async with running_issuer() as issuer:
        asked = Introspection(
            url=f"{issuer.issuer}/introspect", client_id="a", client_secret="secret"
        )
        auth = ServerAuth(
            issuer=issuer.issuer, audience=["api://notes", "other"], introspection=asked
        )
        issuer.introspected = {"active": True, "sub": "ann", "aud": "account"}
        async with serving(make_notes(auth)) as web:
            for _ in range(2):  # the second refusal is remembered
                refused = await call(web, "whoami", "opaque")
                assert refused.status == 401
                description = challenge_of(refused).get("error_description")
                assert description.endswith("another audience, expected api://notes")


async def test_secrets_of_the_settings_are_removed_from_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A static token and the secret of the introspection client."""
    asked = Introspection(url=ISSUER, client_id="c", client_secret="introspection-secret-1")
    auth = ServerAuth(introspection=asked, tokens={"static-secret-2": "ci"})
    access = auth.open_access()
    assert "secret-" not in repr(auth)
    log = redacted_logger("fairlead.auth")
    log.warning("seen: %s %s", "introspection-secret-1", "static-secret-2")
    assert "secret-1" not in caplog.text
    assert "secret-2" not in caplog.text
    await access.close()
