"""OAuth settings in the entries of configuration files."""

from pathlib import Path

import pytest

from fairlead.auth.client.interactive_login import LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings, settings_of_entry
from fairlead.errors import AuthorizationError, ConfigError
from tests.support.scripted_provider import scripted_provider


@pytest.mark.parametrize("auth", [None, True, "oauth", {}, {"type": "oauth", "credentialId": "x"}])
def test_an_auth_block_without_options_has_the_default_settings(auth: object) -> None:
    assert settings_of_entry(auth, None) == OAuthSettings()


@pytest.mark.covers("AUT-01")
def test_all_members_of_the_auth_and_oauth_blocks_are_read() -> None:
    auth = {
        "type": "oauth",
        "credentialId": "x",
        "tokenUrl": "https://a/token",
        "clientId": "a",
        "clientSecret": "s",
        "resource": "https://h/mcp",
    }
    oauth = {
        "redirectUri": "http://127.0.0.1:1/back",
        "callbackPort": 7000,
        "callbackPath": "/back",
        "prompt": "login",
        "scopes": ["x", "y"],
    }
    assert settings_of_entry(auth, oauth) == OAuthSettings(
        token_url="https://a/token",
        client_id="a",
        client_secret="s",
        resource="https://h/mcp",
        redirect_uri="http://127.0.0.1:1/back",
        callback_port=7000,
        callback_path="/back",
        prompt="login",
        scopes=["x", "y"],
    )


def test_the_oauth_block_overrides_equal_settings_of_the_auth_block() -> None:
    auth = {"type": "oauth", "clientId": "a", "clientSecret": "s", "tokenUrl": "https://a/token"}
    oauth = {"clientId": "b", "callbackPort": 7000, "scopes": "x y", "prompt": "consent"}
    assert settings_of_entry(auth, oauth) == OAuthSettings(
        client_id="b",
        client_secret="s",
        token_url="https://a/token",
        callback_port=7000,
        scopes=["x", "y"],
        prompt="consent",
    )


def test_the_resource_parameter_can_be_omitted() -> None:
    assert settings_of_entry({"resource": False}, None).resource is False


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("token-PLANTED", 'expected an object or "oauth", not a string; put a token into'),
        ([5], "not a list"),
        (False, "not a boolean"),
        ({"clientID": "x"}, "unknown member of an auth block 'clientID': did you mean 'clientId'"),
        ({"callbackPort": "x"}, r"invalid auth block: .*callbackPort"),
        ({"grant": "password"}, r"invalid auth block: .*grant"),
        ({"resource": True}, "invalid auth block: .*`resource`.*a URL or false"),
        ({"enterprise": {"clientId": "x"}}, r"invalid auth block: .*tokenEndpoint.*enterprise"),
        ({"enterprise": {"clientID": "x"}}, "member of an `enterprise` block 'clientID'"),
        ({"grant": "enterprise"}, "needs an `enterprise` block"),
        ({"grant": "jwt_bearer"}, "needs `assertionFile`"),
        ({"callbackPort": 99999}, "expected `callbackPort` to be a port from 1 to 65535"),
        ({"callbackPort": -1}, "expected `callbackPort` to be a port"),
        ({"callbackPath": "callback"}, "expected `callbackPath` to be a path such as /callback"),
        ({"callbackPath": "/a b"}, "expected `callbackPath`"),
        ({"callbackPath": "/a\r\nb"}, "expected `callbackPath`"),
        ({"redirectUri": "http://localhost:99999/cb"}, "expected `redirectUri` to be a URL"),
        ({"redirectUri": "nonsense"}, "expected `redirectUri` to be a URL"),
        ({"resource": "\r\n"}, "expected `resource` to be a URL or false"),
        ({"clientMetadataUrl": "http://x/client"}, "expected `clientMetadataUrl` to be an https"),
        ({"signingAlgorithm": "none"}, "expected `signingAlgorithm` to be a name such as ES256"),
        ({"signingAlgorithm": ""}, "expected `signingAlgorithm`"),
    ],
)
def test_the_error_for_an_invalid_auth_block_names_the_member_and_no_secret(
    block: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings_of_entry(block, None)
    assert "PLANTED" not in str(caught.value)


def test_an_empty_client_id_counts_as_missing() -> None:
    assert settings_of_entry(None, {"clientId": ""}) == OAuthSettings()


@pytest.mark.parametrize("algorithm", ["none", "", "HS256", "ES257"])
async def test_an_unknown_algorithm_in_a_program_is_an_error_of_the_login(algorithm: str) -> None:
    settings = OAuthSettings(
        grant="client_credentials",
        client_id="c",
        private_key="key",
        signing_algorithm=algorithm,
        token_url="http://127.0.0.1:1/token",
    )
    with pytest.raises(AuthorizationError, match="the private key cannot sign with"):
        await OAuthAuthorizer("http://127.0.0.1:1/mcp", settings).log_in()


async def test_a_callback_port_that_does_not_exist_is_an_error_of_the_login() -> None:
    async with scripted_provider() as provider:
        settings = OAuthSettings(callback_port=99999)
        with pytest.raises(AuthorizationError, match="expected a port up to 65535"):
            await OAuthAuthorizer(provider.url, settings, prompt=LoginPrompt()).log_in()


def test_the_assertion_file_is_read_again_for_each_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    settings = settings_of_entry({"assertionFile": str(file)}, None)
    assert settings.grant == "jwt_bearer"
    assert callable(settings.assertion)
    assert settings.assertion() == "one"
    file.write_text("two")
    assert settings.assertion() == "two"
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read the assertion"):
        settings.assertion()


def test_the_id_token_file_of_an_enterprise_login_is_read_for_each_use(
    tmp_path: Path,
) -> None:
    file = tmp_path / "id-token"
    file.write_text("one\n")
    company = {
        "tokenEndpoint": "https://idp.example/token",
        "clientId": "company",
        "clientSecret": "s",
        "idTokenFile": str(file),
    }
    settings = settings_of_entry({"clientId": "c", "enterprise": company}, None)
    assert (settings.grant, settings.client_id) == ("enterprise", "c")
    assert settings.enterprise is not None
    assert settings.enterprise.token_endpoint == "https://idp.example/token"
    assert settings.enterprise.client_id == "company"
    assert settings.enterprise.client_secret == "s"
    assert callable(settings.enterprise.id_token)
    assert settings.enterprise.id_token() == "one"
    file.write_text("two")
    assert settings.enterprise.id_token() == "two"
    file.unlink()
    with pytest.raises(ConfigError, match="cannot read the ID token"):
        settings.enterprise.id_token()
