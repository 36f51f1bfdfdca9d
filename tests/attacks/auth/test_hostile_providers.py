"""Authorization servers that hang, respond with garbage, or refuse one step of a login."""

import json
import time
from typing import Any

import pytest

from fairlead.auth.client.interactive_login import DeviceCode, LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.auth.token_response import LONGEST
from fairlead.errors import AuthorizationError, LoginRequired
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    ScriptedProvider,
    hang,
    request,
    responding,
    scripted_provider,
)

STEPS = ["resource", "metadata", "register", "token"]
# The step that an error names.
ERROR_STEPS = {
    "resource": "discovery",
    "metadata": "discovery",
    "register": "registration",
    "token": "token",
}
FORM = "application/x-www-form-urlencoded"


def error(code: str, status: int = 400) -> Any:
    return responding(status, json.dumps({"error": code}))


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the request timeout; the tests of the fetcher use the real one."""
    monkeypatch.setattr("fairlead.auth.guarded_fetch.DOCUMENT_TIMEOUT", 0.5)


async def expired(provider: ScriptedProvider, **options: Any) -> MemoryCredentialStore:
    """Log in, and return a store whose access token has expired."""
    store = MemoryCredentialStore()
    provider.token = {"expires_in": 0}
    await OAuthAuthorizer(provider.url, store=store, authorize=provider.user(), **options).log_in()
    provider.token = {}
    provider.refused.add("access-1")
    return store


@pytest.mark.attack(
    "an authorization server that never responds at one step of a login",
    "10 s for each request",
    "the login ends with an error that names the host",
)
@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize("step", STEPS)
async def test_a_login_times_out_if_a_required_step_hangs(step: str) -> None:
    async with scripted_provider() as provider:
        provider.scripts[step] = hang
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        with pytest.raises(AuthorizationError, match=r"127\.0\.0\.1:\d+: no response") as caught:
            await authorizer.log_in()
        assert caught.value.temporary
        assert caught.value.step == ERROR_STEPS[step]
        assert provider.steps[step] == 1


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize("step", ["par", "device"])
async def test_a_login_times_out_if_an_optional_step_hangs(step: str) -> None:
    class Prompt(LoginPrompt):
        def show_code(self, code: DeviceCode) -> None:
            raise AssertionError("no code was issued")

    async with scripted_provider() as provider:
        provider.scripts[step] = hang
        provider.metadata = {"require_pushed_authorization_requests": True}
        settings = OAuthSettings(grant="device_code" if step == "device" else "authorization_code")
        authorize = provider.user() if step == "par" else None
        authorizer = OAuthAuthorizer(
            provider.url, settings, authorize=authorize, prompt=None if authorize else Prompt()
        )
        with pytest.raises(AuthorizationError, match="no response in time") as caught:
            await authorizer.log_in()
        assert caught.value.step == "authorization"


@pytest.mark.usefixtures("short_limit")
async def test_a_login_is_deleted_even_if_its_revocation_hangs() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        authorizer = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
        await authorizer.log_in()
        provider.scripts["revoke"] = hang
        assert await authorizer.log_out()
        assert store.logins() == []


async def test_a_refused_revocation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_provider() as provider:
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        provider.scripts["revoke"] = error("invalid_request")
        assert await authorizer.log_out()
        assert (
            f"{provider.issuer} refused the revocation of a login: invalid_request" in caplog.text
        )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_an_error_is_temporary_if_a_step_is_unavailable(step: str, status: int) -> None:
    """A server error does not cause a fallback to the default endpoints of older revisions."""
    async with scripted_provider() as provider:
        provider.scripts[step] = responding(status, "<h1>Unavailable</h1>", "text/html")
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        with pytest.raises(AuthorizationError, match=f"HTTP {status}") as caught:
            await authorizer.log_in()
        assert caught.value.temporary
        assert provider.steps["none"] == 0
        assert provider.steps[step] == 1


async def test_an_error_response_with_status_200_is_treated_as_an_error() -> None:
    async with scripted_provider() as provider:
        provider.scripts["token"] = error("invalid_grant", 200)
        with pytest.raises(AuthorizationError, match="invalid_grant"):
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()


async def test_a_form_encoded_token_response_is_accepted() -> None:
    async with scripted_provider() as provider:
        provider.accepted.add("gho_1")
        body = "access_token=gho_1&scope=repo%2Cgist&token_type=bearer"
        provider.scripts["token"] = responding(200, body, FORM)
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert await request(provider, authorizer) == (200, {"token": "gho_1"})


async def test_a_form_encoded_error_response_is_treated_as_an_error() -> None:
    async with scripted_provider() as provider:
        body = "error=bad_verification_code&error_description=The+code+code-1+is+wrong"
        provider.scripts["token"] = responding(200, body, FORM)
        with pytest.raises(AuthorizationError, match="bad_verification_code") as caught:
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert "code-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("lifetime", "longest"),
    [(10**30, LONGEST), (-(10**30), 0.0), ("3600", 3600.0), (1e308, LONGEST), (0, 0.0)],
)
async def test_huge_negative_and_zero_token_lifetimes_are_limited(
    lifetime: Any, longest: float
) -> None:
    async with scripted_provider() as provider:
        provider.token = {"expires_in": lifetime}
        login = await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert login.tokens.expires_at is not None
        assert login.tokens.expires_at <= time.time() + longest


@pytest.mark.parametrize("lifetime", ["soon", [], {}, True, "", "1e9", "-5"])
async def test_an_invalid_token_lifetime_is_treated_as_unknown(lifetime: Any) -> None:
    async with scripted_provider() as provider:
        provider.token = {"expires_in": lifetime}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await authorizer.log_in()).tokens.expires_at is None
        # The token is used until the server refuses it, then renewed without a second login.
        assert await request(provider, authorizer) == (200, {"token": "access-1"})
        provider.refused.add("access-1")
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert len(provider.visits) == 1


@pytest.mark.parametrize("lifetime", [10, 20, 40])
async def test_a_token_with_a_short_lifetime_is_used_for_half_of_it(
    lifetime: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens are usually renewed 30 seconds early; a shorter lifetime would cause a renewal per
    request.
    """
    async with scripted_provider() as provider:
        provider.token = {"expires_in": lifetime}
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
        second = OAuthAuthorizer(provider.url, store=store)
        for seconds, token in ((0, "access-1"), (lifetime * 0.6, "access-2")):
            pass_time(monkeypatch, seconds)
            for _ in range(5):
                assert await request(provider, first) == (200, {"token": token})
                assert await request(provider, second) == (200, {"token": token})
        assert provider.steps["token"] == 2


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + seconds)


@pytest.mark.parametrize("skew", [-600, 600])
async def test_a_server_clock_that_is_ten_minutes_off_does_not_affect_expiry(skew: int) -> None:
    """The expiry is computed from the lifetime and the local clock, not from server times."""

    async def skewed(call: Call) -> None:
        provider.accepted.add("access-1")
        now = time.time() + skew
        await call.json(
            {
                "access_token": "access-1",
                "token_type": "Bearer",
                "expires_in": 120,
                "expires_at": int(now + 120),
                "expires_on": str(int(now + 120)),
            },
            Date=time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now)),
        )

    async with scripted_provider() as provider:
        provider.scripts["token"] = skewed
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for _ in range(3):
            assert await request(provider, authorizer) == (200, {"token": "access-1"})
        assert provider.steps["token"] == 1


@pytest.mark.parametrize(
    "script",
    [
        responding(500, "<h1>Oops</h1>", "text/html"),
        responding(503, ""),
        responding(429, "slow down", "text/plain"),
        responding(200, "<h1>Sign in to the Wi-Fi</h1>", "text/html"),
        responding(302, ""),
        responding(403, "<h1>Forbidden</h1>", "text/html"),
        error("temporarily_unavailable"),
        error("server_error", 500),
        error("invalid_request"),
        error("invalid_target"),
    ],
)
async def test_a_renewal_that_fails_without_refusing_the_refresh_token_keeps_the_login(
    script: Any,
) -> None:
    """An error page, a captive portal or a server error does not delete the login."""
    async with scripted_provider() as provider:
        store = await expired(provider)
        [login] = store.logins()
        provider.scripts["token"] = script
        with pytest.raises(AuthorizationError):
            await request(provider, OAuthAuthorizer(provider.url, store=store))
        assert store.logins() == [login]
        del provider.scripts["token"]
        renewed = OAuthAuthorizer(provider.url, store=store)
        assert await request(provider, renewed) == (200, {"token": "access-2"})
        assert len(provider.visits) == 1


async def test_the_error_for_a_refused_refresh_token_suggests_a_new_login() -> None:
    async with scripted_provider() as provider:
        store = await expired(provider)
        provider.scripts["token"] = error("invalid_grant")
        for _ in range(3):
            authorizer = OAuthAuthorizer(provider.url, store=store, remedy="run `login`")
            with pytest.raises(LoginRequired, match="requires a new login: run `login`"):
                await request(provider, authorizer)
        # The refused token is not sent again.
        assert provider.steps["token"] == 2
        [login] = store.logins()
        assert login.ended


@pytest.mark.covers("AUT-03")
async def test_a_valid_token_is_used_although_its_early_renewal_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_provider() as provider:
        provider.token = {"expires_in": 60}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        pass_time(monkeypatch, 40)  # the token is valid, but due for renewal
        provider.scripts["token"] = responding(503, "")
        assert await request(provider, authorizer) == (200, {"token": "access-1"})


async def test_a_renewal_response_without_a_refresh_token_keeps_the_old_refresh_token() -> None:
    async with scripted_provider() as provider:
        store = await expired(provider)
        provider.token = {"refresh_token": None, "expires_in": 0}
        authorizer = OAuthAuthorizer(provider.url, store=store)
        for _ in range(3):
            assert (await request(provider, authorizer))[0] == 200
        used = [form["refresh_token"] for form in provider.forms()[1:]]
        assert used == ["refresh-1"] * 3


async def test_tokens_of_unknown_lifetime_are_renewed_after_every_401() -> None:
    """The server accepts each token once, and then refuses it with a 401."""
    async with scripted_provider() as provider:
        provider.token = {"expires_in": None}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for number in range(1, 6):
            assert await request(provider, authorizer) == (200, {"token": f"access-{number}"})
            provider.refused.add(f"access-{number}")
        assert len(provider.visits) == 1


async def test_a_renewal_uses_the_stored_endpoint_without_discovery() -> None:
    async with scripted_provider() as provider:
        store = await expired(provider)
        provider.calls.clear()
        authorizer = OAuthAuthorizer(provider.url, store=store)
        assert (await request(provider, authorizer))[0] == 200
        assert provider.steps == {"token": 1, "mcp": 1}
        [call] = provider.of("token")
        assert call.path == "/as/token"


async def test_the_resource_parameter_can_be_omitted_for_servers_that_refuse_it() -> None:
    async def picky(call: Call) -> None:
        refused = b"resource=" in call.body
        await (error("invalid_target")(call) if refused else provider._token(call))

    async with scripted_provider() as provider:
        provider.scripts["token"] = picky
        with pytest.raises(AuthorizationError, match="invalid_target"):
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        settings = OAuthSettings(resource=False)
        provider.token = {"expires_in": 0}
        authorizer = OAuthAuthorizer(provider.url, settings, authorize=provider.user())
        await authorizer.log_in()
        provider.token = {}
        assert (await request(provider, authorizer))[0] == 200  # renewed
        assert "resource=" not in provider.visits[-1].url


async def test_the_setting_resource_false_also_applies_to_renewals_of_an_existing_login() -> None:
    """Some providers accept it at a login, and refuse it at a renewal."""

    async def picky(call: Call) -> None:
        refused = b"resource=" in call.body and b"refresh_token" in call.body
        await (error("invalid_target")(call) if refused else provider._token(call))

    async with scripted_provider() as provider:
        store = await expired(provider)
        provider.scripts["token"] = picky
        with pytest.raises(AuthorizationError, match="set `resource` to false"):
            await request(provider, OAuthAuthorizer(provider.url, store=store))
        settings = OAuthSettings(resource=False)
        authorizer = OAuthAuthorizer(provider.url, settings, store=store)
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert len(provider.visits) == 1


async def test_a_server_that_always_refuses_does_not_cause_endless_logins() -> None:
    async with scripted_provider() as provider:

        async def refuse(call: Call) -> None:
            await call.answer(401, WWW_Authenticate="Bearer")

        provider.scripts["mcp"] = refuse
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for _ in range(10):
            try:
                status, _ = await request(provider, authorizer)
            except AuthorizationError:
                status = 401
            assert status == 401
        assert len(provider.visits) <= 3


async def test_a_server_that_always_demands_more_scopes_does_not_cause_endless_logins() -> None:
    async with scripted_provider() as provider:

        async def more(call: Call) -> None:
            count = provider.steps["mcp"]
            text = f'Bearer error="insufficient_scope", scope="s{count}"'
            await call.answer(403, WWW_Authenticate=text)

        provider.scripts["mcp"] = more
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for _ in range(10):
            try:
                status, _ = await request(provider, authorizer)
            except AuthorizationError:
                status = 403
            assert status == 403
        assert len(provider.visits) <= 3


async def test_the_limit_on_demands_for_more_scopes_is_not_reset_by_renewals() -> None:
    async with scripted_provider() as provider:
        renewing = False

        async def respond(call: Call) -> None:
            token = call.headers.get("authorization", "").partition(" ")[2]
            if not renewing:
                text = f'Bearer error="insufficient_scope", scope="s{provider.steps["mcp"]}"'
                await call.answer(403, "null", WWW_Authenticate=text)
            elif token in tokens:
                await call.answer(401, "null", WWW_Authenticate="Bearer")
            else:
                await call.json({})

        provider.scripts["mcp"] = respond
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        for _ in range(10):
            renewing = False
            assert (await request(provider, authorizer))[0] == 403
            renewing, tokens = True, set(provider.accepted)
            assert (await request(provider, authorizer))[0] == 200
        assert (len(provider.visits), provider.steps["token"]) == (3, 13)


async def test_a_403_without_insufficient_scope_starts_no_login() -> None:
    async with scripted_provider() as provider:
        provider.scripts["mcp"] = responding(403, "null")
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert await request(provider, authorizer) == (403, None)
        assert provider.steps == {"mcp": 1}


async def test_metadata_that_names_another_issuer_fails_the_login() -> None:
    async with scripted_provider() as provider:
        provider.metadata = {"issuer": f"{provider.origin}/other"}
        with pytest.raises(AuthorizationError, match="name another issuer"):
            await OAuthAuthorizer(provider.url, authorize=provider.user()).log_in()
        assert provider.steps == {"mcp": 1, "resource": 1, "metadata": 1}
        assert provider.visits == []


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"iss": ""},
        {"code": ["a", "b"]},
        {"code": None},
        {"code": ""},
        {"state": "other"},
        {"state": None},
    ],
)
async def test_a_redirect_with_wrong_parameters_does_not_cause_a_token_request(
    changes: Any,
) -> None:
    async with scripted_provider() as provider:
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user(**changes))
        with pytest.raises(AuthorizationError) as caught:
            await authorizer.log_in()
        assert caught.value.step == "authorization"
        assert provider.steps["token"] == 0


@pytest.mark.parametrize("iss", ["https://evil.example", None])
async def test_an_error_in_a_redirect_from_another_issuer_is_ignored_and_not_shown(
    iss: str | None,
) -> None:
    async with scripted_provider() as provider:
        user = provider.user(
            iss=iss, code=None, error="access_denied", error_description="call 555-PHISH"
        )
        with pytest.raises(AuthorizationError) as caught:
            await OAuthAuthorizer(provider.url, authorize=user).log_in()
        assert caught.value.error == ""
        assert "access_denied" not in str(caught.value)
        assert "PHISH" not in str(caught.value)


@pytest.mark.parametrize("code", ["invalid_client", "unauthorized_client"])
async def test_a_registration_that_the_server_has_deleted_is_replaced_once(code: str) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        provider.scripts["token"] = error(code, 401)
        with pytest.raises(AuthorizationError, match=code):
            await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        assert provider.steps["register"] == 2


async def test_a_configured_client_is_never_replaced() -> None:
    async with scripted_provider() as provider:
        provider.scripts["token"] = error("invalid_client", 401)
        settings = OAuthSettings(client_id="mine", client_secret="s")
        with pytest.raises(AuthorizationError, match="invalid_client"):
            await OAuthAuthorizer(provider.url, settings, authorize=provider.user()).log_in()
        assert (provider.steps["register"], provider.steps["token"]) == (0, 1)


async def test_several_logins_reuse_one_client_registration() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        for _ in range(3):
            await OAuthAuthorizer(provider.url, store=store, authorize=provider.user()).log_in()
        assert provider.steps["register"] == 1
