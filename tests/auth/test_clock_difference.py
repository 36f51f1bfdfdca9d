"""Hints about clocks in errors of refused proofs and assertions."""

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.clock_difference import clock_difference
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import request, scripted_provider

NOW = 1_800_000_000.0
BEHIND = "the clock of this machine is 10 minutes behind that of the server: correct the wrong one"


@pytest.mark.parametrize(
    ("there", "text"),
    [
        (NOW, ""),
        (NOW + 200, ""),
        (NOW - 200, ""),
        (NOW + 600, BEHIND),
        (NOW - 600, BEHIND.replace("behind", "ahead of")),
    ],
)
def test_a_clock_difference_of_more_than_four_minutes_is_reported(there: float, text: str) -> None:
    assert clock_difference({"date": formatdate(there, usegmt=True)}, NOW) == text


@given(st.text(max_size=60))
def test_an_arbitrary_date_header_raises_no_exception(text: str) -> None:
    assert isinstance(clock_difference({"date": text}, NOW), str)
    assert clock_difference({}, NOW) == ""


@pytest.mark.parametrize("skew", [600, -600])
async def test_a_proof_that_is_refused_because_of_a_wrong_clock_starts_no_login(skew: int) -> None:
    async def refuse(call: Call) -> None:
        if "authorization" not in call.headers:
            await provider._mcp(call)
            return
        date = formatdate(time.time() + skew, usegmt=True)
        challenge = 'DPoP error="invalid_dpop_proof", algs="ES256"'
        await call.answer(401, "{}", WWW_Authenticate=challenge, Date=date)

    async with scripted_provider() as provider:
        provider.token = {"token_type": "DPoP"}
        provider.scripts["mcp"] = refuse
        settings = OAuthSettings(dpop=True)
        authorizer = OAuthAuthorizer(provider.url, settings, authorize=provider.user())
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="10 minutes .* correct the wrong one"):
                await request(provider, authorizer)
        assert (len(provider.visits), provider.steps["token"]) == (1, 1)


async def test_the_error_for_a_refused_assertion_mentions_a_wrong_clock() -> None:
    async def refuse(call: Call) -> None:
        date = formatdate(time.time() + 600, usegmt=True)
        await call.json({"error": "invalid_client"}, 401, Date=date)

    async with scripted_provider() as provider:
        provider.scripts["token"] = refuse
        pem = ECKey.generate_key("P-256").as_pem(private=True).decode()
        settings = OAuthSettings(grant="client_credentials", client_id="c", private_key=pem)
        with pytest.raises(AuthorizationError, match="invalid_client; the clock .* behind"):
            await OAuthAuthorizer(provider.url, settings).log_in()
