"""The section `[auth]` of gateway files, and the errors for invalid sections."""

from pathlib import Path

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway import View
from fairlead.gateway.auth_section import GatewayAuth, IntrospectionEntry
from fairlead.gateway.clients.auth_rules import AuthRule
from fairlead.gateway.gateway_file import GatewayFile, read_gateway_file

ISSUER = "https://id.example.com"
FULL = """
[views.readers]
deny = ["*_erase"]

[clients.bob]
token = "b"

[auth]
issuer = ["https://id.example.com", "https://${TENANT}.example.org/t1"]
public_url = "https://mcp.example.com/"
audience = "api://mcp"
scopes = ["mcp"]
implied_scopes = { "mcp:write" = ["mcp:read"] }
dpop = "required"
private_issuers = true

[auth.introspection]
url = "https://id.example.com/introspect"
client_id = "gateway"
client_secret_env = "SECRET"

[[auth.rules]]
groups = "ops"
issuer = "https://id.example.com"
client = "operators"
admin = true

[[auth.rules]]
scopes = ["mcp:read"]
claims = { "org.name" = "${TENANT}", email = { like = "*@example.com" } }
client = "staff"
view = "readers"
"""
SMALL = """[views.readers]
[clients.bob]
token = "b"
[auth]
issuer = "https://id.example.com"
public_url = "https://mcp.example.com"
[[auth.rules]]
client = "all"
[[auth.rules]]
client = "staff"
"""
ENV = {"TENANT": "acme", "SECRET": "s3"}


def read(tmp_path: Path, text: str) -> GatewayFile:
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    return read_gateway_file(path, ENV)


def test_all_keys_of_the_auth_section_are_read(tmp_path: Path) -> None:
    file = read(tmp_path, FULL)
    assert file.auth == GatewayAuth(
        issuers=(ISSUER, "https://acme.example.org/t1"),
        public_url="https://mcp.example.com",
        audience="api://mcp",
        scopes=("mcp",),
        implied_scopes={"mcp:write": ("mcp:read",)},
        dpop="required",
        private_issuers=True,
        introspection=IntrospectionEntry(
            url="https://id.example.com/introspect",
            client_id="gateway",
            client_secret="s3",
        ),
        rules=(
            AuthRule(client="operators", admin=True, issuer=ISSUER, groups=("ops",)),
            AuthRule(
                client="staff",
                view="readers",
                scopes=("mcp:read",),
                claims={"org.name": "acme", "email": {"like": "*@example.com"}},
            ),
        ),
    )
    assert file.role_views == {"operators": View(), "staff": View(deny=("*_erase",))}
    assert file.views == {}
    assert "s3" not in repr(file.auth)


def test_a_gateway_file_without_an_auth_section_has_no_rules(tmp_path: Path) -> None:
    file = read(tmp_path, '[clients.bob]\ntoken = "b"\n')
    assert (file.auth, file.role_views) == (None, {})


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('issuer = "https://id.example.com"\n', "", 4, "`auth`: missing `issuer`"),
        ('public_url = "https://mcp.example.com"\n', "", 4, "`auth`: missing `public_url`"),
        ('"https://id.example.com"', '"id.example.com"', 5, "invalid `issuer` 'id.example.com'"),
        ('"https://id.example.com"', "7", 5, "`issuer` must be a string or a list of strings"),
        ("https://mcp", "http://mcp", 6, "http is allowed for loopback addresses only: use https"),
        ("mcp.example.com", "mcp.example.com/?a", 6, "a query or a fragment is not allowed"),
        ("public_url", "publicurl", 6, "unknown key 'publicurl': did you mean 'public_url'?"),
        ("[[auth", 'dpop = "maybe"\n[[auth', 7, '`dpop` must be "off" or "allowed" or "required"'),
        ("[[auth", 'audience = ""\n[[auth', 7, "`audience` must not be empty"),
        ('client = "all"', 'view = "readers"', 7, "Rule 1: missing `client`"),
        ('client = "staff"', 'client = "bob"', 10, r'"bob" belongs to \[clients.bob\]'),
        ('client = "staff"', 'client = "token"', 10, "invalid client name 'token': reserved"),
        ('client = "staff"', 'client = "oauth:x"', 10, "invalid client name 'oauth:x': reserved"),
        ('"staff"', '"staff"\nview = "reader"', 11, "unknown view 'reader': did you mean 'readers"),
        ('"staff"', '"all"\nadmin = true', 9, 'client "all" has another `view` or `admin`'),
        ('"staff"', '"staff"\nscopes = []', 11, "Rule 2: `scopes` must not be empty"),
        ('"staff"', '"staff"\ngroups = ""', 11, "Rule 2: `groups` must not be empty"),
        ('"staff"', '"staff"\nissuer = "https://b"', 11, "unknown issuer 'https://b'"),
        ('"staff"', '"staff"\nclaims = {a = {lik = 1}}', 11, "unknown operator 'lik': did you"),
        ('"staff"', '"staff"\ngroup = "x"', 11, "Rule 2: unknown key 'group': did you mean 'gro"),
    ],
)
def test_an_error_in_the_auth_section_is_reported_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        read(tmp_path, SMALL.replace(old, new, 1))
    assert error.value.line == line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[auth]\nissuer = "https://a"\npublic_url = "https://b"\n', "missing `\\[\\[auth.rules"),
        (
            SMALL.replace("[[auth", '[auth.introspection]\nurl = "https://a"\n[[auth', 1),
            "missing `client_id`",
        ),
        (
            FULL.replace('client_secret_env = "SECRET"', ""),
            "`client_secret` or `client_secret_env`",
        ),
        (FULL.replace('"SECRET"', '"OTHER"'), "the environment variable OTHER is not set"),
        ("auth = 3", "`auth` must be a map"),
        ('[clients."oauth:x"]\ntoken = "x"', "reserved for access tokens"),
    ],
)
def test_incomplete_auth_sections_and_reserved_client_names_are_refused(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path, text)
