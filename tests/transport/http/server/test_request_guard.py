"""Admission of requests by Host, Origin and bearer token."""

from typing import Any, cast

import pytest

from fairlead.auth.server.server_auth import ServerAuth
from fairlead.errors import ConfigError
from fairlead.protocol.caller import ANONYMOUS, UNNAMED
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.request_guard import RequestGuard, RequestRefusal

HERE = ("127.0.0.1", 80)
PUBLIC = ("10.0.0.5", 80)
SOCKET = ("/run/x.sock", None)


def guard(**settings: Any) -> RequestGuard:
    return RequestGuard(HttpSettings(**settings))


def refused(one: RequestGuard, server: Any = HERE, **headers: str) -> int | None:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    found = one.refuse(given, server)
    return None if found is None else found.status


@pytest.mark.parametrize(
    ("host", "server", "status"),
    [
        ("localhost", HERE, None),
        ("LOCALHOST:8080", HERE, None),
        ("127.0.0.1:80", HERE, None),
        ("[::1]:80", ("::1", 80), None),
        ("evil.example", HERE, 403),
        ("evil.example", ("localhost", 80), 403),
        ("evil.example", PUBLIC, None),
        ("evil.example", SOCKET, None),
        ("evil.example", None, None),
        ("evil.example", ("named", 80), None),
        ("[::1", HERE, None),
    ],
)
def test_a_loopback_connection_must_name_this_machine(
    host: str, server: Any, status: int | None
) -> None:
    one = guard()
    assert refused(one, server, host=host) == status
    assert refused(one, server, host=host) == status, "the cached decision is the same"


@pytest.mark.parametrize(
    ("host", "server", "status"),
    [
        ("mcp.example", HERE, None),
        ("MCP.example:1", PUBLIC, None),
        ("localhost", HERE, None),
        ("localhost", PUBLIC, 403),
        ("other.example", HERE, 403),
        ("other.example", PUBLIC, 403),
    ],
)
def test_only_configured_allowed_hosts_are_accepted(
    host: str, server: Any, status: int | None
) -> None:
    assert refused(guard(allowed_hosts=("MCP.example",)), server, host=host) == status


def test_a_host_accepted_at_one_server_address_is_checked_again_at_another() -> None:
    one = guard()
    assert refused(one, PUBLIC, host="evil.example") is None
    assert refused(one, HERE, host="evil.example") == 403


def test_a_limited_number_of_hosts_is_remembered() -> None:
    one = guard()
    for number in range(70):
        assert refused(one, PUBLIC, host=f"h{number}") is None
    assert len(one._passed) == 64


@pytest.mark.parametrize(
    ("origin", "server", "status"),
    [
        ("http://localhost:3000", HERE, None),
        ("http://127.0.0.1", HERE, None),
        ("http://localhost:3000", PUBLIC, 403),
        ("https://app.example", HERE, None),
        ("https://APP.example", PUBLIC, None),
        ("https://evil.example", HERE, 403),
        ("null", HERE, 403),
        ("http://[half", HERE, 403),
    ],
)
def test_allowed_origins_are_accepted(origin: str, server: Any, status: int | None) -> None:
    one = guard(allowed_origins=("https://App.example/",))
    assert refused(one, server, host="localhost", origin=origin) == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, None),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "no-cors"}, None),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost"}, None),
    ],
)
def test_resources_embedded_by_other_sites_are_refused(
    headers: dict[str, str], status: int | None
) -> None:
    assert refused(guard(), host="localhost", **headers) == status


def test_refusals_of_hosts_and_origins_name_the_setting_to_change() -> None:
    one = guard()
    found = one.refuse({b"host": b"h" * 200}, HERE)
    assert found is not None
    assert found.message == (
        f"Host '{'h' * 100}' is not served here; "
        "add it to allowed_hosts (or --allow-host) if it is a name of this server"
    )
    found = one.refuse({b"origin": b"https://e.example"}, HERE)
    assert found is not None
    assert found.message == (
        "Origin 'https://e.example' may not use this server; "
        "add it to allowed_origins to allow its pages"
    )
    found = one.refuse({b"sec-fetch-site": b"cross-site"}, HERE)
    assert found is not None
    assert found.message == "Pages of other sites cannot embed resources of this server"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, 401),
        ("Bearer secret", UNNAMED),
        ("bearer   secret ", UNNAMED),
        ("Bearer other", 401),
        ("Basic secret", 401),
        ("Bearer", 401),
        ("Bearer of-ann", "ann"),
    ],
)
def test_bearer_tokens_are_verified(header: str | None, expected: object) -> None:
    one = guard(auth_token="secret", verify_token={"of-ann": "ann"}.get)
    assert one.open is False
    found = one.principal({} if header is None else {b"authorization": header.encode()})
    if isinstance(found, RequestRefusal):
        assert found.status == expected
        assert found.message == "A valid bearer token is required: Authorization: Bearer ..."
        assert found.headers == ((b"www-authenticate", b"Bearer"), (b"connection", b"close"))
    else:
        assert found == expected


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("name", ["", "token", "oauth:issuer ann", "ci"])
async def test_a_function_cannot_return_the_name_of_another_principal(name: str) -> None:
    """These names belong to the owner's token, subjects of issuers, and configured clients."""

    async def later(token: str) -> str:
        return name

    access = ServerAuth(tokens={"t": "ci"}, public_url="https://h.example").open_access()
    for verify in (lambda token: name, later):
        settings = HttpSettings(verify_token=verify)
        one = RequestGuard(settings, access.endpoint("/mcp"))
        found = await one.authenticate({b"authorization": b"Bearer x"})
        assert isinstance(found, RequestRefusal), found
        assert (await one.authenticate({b"authorization": b"Bearer t"})) == "ci"


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    "found",
    [
        *(True, False, 5, b"ann", {"sub": "ann"}),
        TokenPrincipal(issuer="i", subject=""),
        TokenPrincipal(issuer="i", subject="ann", expires=cast("float", "2999")),
        TokenPrincipal(issuer="i", subject="ann", expires=float("nan")),
        TokenPrincipal(issuer="i", subject="ann", expires=1.0),
    ],
    ids=str,
)
async def test_verify_token_must_return_a_name_or_a_usable_principal(
    found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(token: str) -> Any:
        return found

    for verify in (lambda token: found, later):
        one = RequestGuard(HttpSettings(verify_token=verify))
        refusal = await one.authenticate({b"authorization": b"Bearer x"})
        assert isinstance(refusal, RequestRefusal), refusal
        assert refusal.status == 401
    has_expired = isinstance(found, TokenPrincipal) and found.expires == 1.0
    assert ("verify_token returned" in caplog.text) is not has_expired


@pytest.mark.covers("AUT-06")
async def test_a_request_gets_503_if_verify_token_raises_an_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def verify(token: str) -> str:
        raise LookupError(f"no entry for {token}")

    async def later(token: str) -> str:
        return verify(token)

    for function in (verify, later):
        one = RequestGuard(HttpSettings(verify_token=function))
        refusal = await one.authenticate({b"authorization": b"Bearer planted-secret"})
        assert isinstance(refusal, RequestRefusal), refusal
        assert (refusal.status, refusal.reason) == (503, "verification_unavailable")
        assert (b"retry-after", b"5") in refusal.headers
    assert caplog.text.count("verify_token raised LookupError") == 2
    assert "planted-secret" not in caplog.text


def test_two_functions_that_return_names_cannot_be_combined() -> None:
    auth = ServerAuth(verify=lambda token: None, public_url="https://h.example")  # type: ignore[arg-type, return-value]
    access = auth.open_access().endpoint("/mcp")
    with pytest.raises(ConfigError, match="verify_token cannot be combined with `verify`"):
        RequestGuard(HttpSettings(verify_token=lambda token: None), access)


def test_an_empty_token_is_a_configuration_error() -> None:
    """Otherwise, any client could send it: `Authorization: Bearer`."""
    with pytest.raises(ConfigError, match="auth_token is empty"):
        RequestGuard(HttpSettings(auth_token=""))


def test_clients_are_anonymous_without_tokens() -> None:
    one = guard()
    assert one.open is True
    assert one.principal({b"authorization": b"Bearer x"}) is ANONYMOUS
    assert guard(verify_token=lambda token: None).open is False
    assert guard(auth_token="secret").open is False


def test_pages_of_allowed_origins_may_read_the_response() -> None:
    one = guard(allowed_origins=("https://app.example",))
    assert one.cors({b"origin": b"https://APP.example"}) == (
        (b"access-control-allow-origin", b"https://APP.example"),
        (
            b"access-control-expose-headers",
            b"mcp-session-id, mcp-protocol-version, www-authenticate, dpop-nonce",
        ),
        (b"vary", b"origin"),
    )
    assert one.cors({b"origin": b"https://other.example"}) == ()
    assert one.cors({}) == ()
