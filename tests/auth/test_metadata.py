"""Places and checks of the metadata of resources and authorization servers."""

import pytest

from fairlead.auth.metadata import (
    AuthorizationServer,
    OtherResource,
    canonical_resource,
    check_issuer,
    check_pkce,
    check_resource,
    default_endpoints,
    is_within,
    named_endpoint,
    read_authorization_server,
    read_protected_resource,
    resource_metadata_urls,
    server_metadata_urls,
    server_resource,
)
from fairlead.errors import AuthorizationError


@pytest.mark.parametrize(
    ("url", "places"),
    [
        (
            "https://h/server/mcp",
            [
                "https://h/.well-known/oauth-protected-resource/server/mcp",
                "https://h/.well-known/oauth-protected-resource",
            ],
        ),
        ("https://h:8443", ["https://h:8443/.well-known/oauth-protected-resource"]),
        ("https://h/", ["https://h/.well-known/oauth-protected-resource"]),
    ],
)
def test_resource_metadata_urls_are_tried_with_the_path_and_then_at_the_root(
    url: str, places: list[str]
) -> None:
    assert resource_metadata_urls(url) == places


def test_metadata_of_an_issuer_with_a_path_are_not_requested_at_the_root() -> None:
    assert server_metadata_urls("https://a/t1") == [
        "https://a/.well-known/oauth-authorization-server/t1",
        "https://a/.well-known/openid-configuration/t1",
        "https://a/t1/.well-known/openid-configuration",
    ]
    assert server_metadata_urls("https://a") == [
        "https://a/.well-known/oauth-authorization-server",
        "https://a/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        ("https://h/mcp", "https://h/mcp"),
        ("https://h", "https://h/mcp"),
        ("https://h/", "https://h/mcp"),
        ("https://H:443/a", "https://h/a/mcp"),
        ("https://h/a/", "https://h/a/mcp"),
    ],
)
def test_published_metadata_may_be_for_the_server_or_a_parent_of_its_path(
    resource: str, server: str
) -> None:
    check_resource(resource, server)


@pytest.mark.parametrize(
    ("resource", "server"),
    [
        ("https://other/mcp", "https://h/mcp"),
        ("http://h/mcp", "https://h/mcp"),
        ("https://h:444/mcp", "https://h/mcp"),
        ("https://h/mc", "https://h/mcp"),
        ("https://h/mcp/more", "https://h/mcp"),
    ],
)
def test_published_metadata_for_another_resource_are_refused(resource: str, server: str) -> None:
    with pytest.raises(AuthorizationError, match="another resource"):
        check_resource(resource, server)


@pytest.mark.parametrize(
    ("url", "within"),
    [
        ("https://h/a/mcp", True),
        ("HTTPS://H:443/a/mcp/?x=1", True),
        ("https://h/a/mcp/b%2Fc", True),
        ("https://h/a/mcp2", False),
        ("https://h/a", False),
        ("https://h/a/mcp/../../b/mcp", False),
        ("https://h/a/mcp/%2e%2E/%2e./b", False),
        ("https://h/a/mcp/..%2f..%2Fb", False),
        ("https://h/a/mcp/..\\..\\b", False),
        ("https://h/a/mcp/..;/..;x/b", False),
        ("https://h/a/mcp/%252e%252e/b", False),
        ("https://[::1/a/mcp", False),
    ],
)
def test_only_urls_with_the_path_of_a_resource_and_no_dot_segments_are_below_it(
    url: str, within: bool
) -> None:
    assert is_within(url, "https://h/a/mcp") is within


def test_the_error_about_another_resource_contains_no_query() -> None:
    with pytest.raises(AuthorizationError) as caught:
        check_resource("https://x/mcp?key=SECRET", "https://h/mcp?key=SECRET")
    assert "SECRET" not in str(caught.value) + caught.value.server


@pytest.mark.parametrize("issuer", ["https://a/\r\nINFO x", "https://a\t/", "https://a/\x1b[2J"])
def test_an_issuer_with_control_characters_is_refused(issuer: str) -> None:
    """URL parsers remove some of them, but the issuer is shown and logged as it is."""
    with pytest.raises(AuthorizationError, match="invalid authorization server") as caught:
        server_metadata_urls(issuer)
    assert str(caught.value).isprintable()


def test_the_issuer_in_metadata_must_equal_the_requested_issuer() -> None:
    check_issuer(AuthorizationServer(issuer="https://a"), "https://a")
    for other in ("https://a/", "https://A", "https://a:443"):
        with pytest.raises(AuthorizationError, match="another issuer"):
            check_issuer(AuthorizationServer(issuer=other), "https://a")


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_an_authorization_server_without_s256_is_refused(methods: list[str] | None) -> None:
    server = AuthorizationServer(issuer="https://a", code_challenge_methods_supported=methods)
    with pytest.raises(AuthorizationError, match="S256"):
        check_pkce(server)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"resource": "https://h"},
        {"resource": "https://h", "authorization_servers": []},
        {"resource": 1, "authorization_servers": ["https://a"]},
        {"resource": "x" * 3000, "authorization_servers": ["https://a"]},
        {"resource": "https://h", "authorization_servers": ["https://a"] * 33},
    ],
)
def test_documents_without_valid_members_are_not_resource_metadata(document: object) -> None:
    assert read_protected_resource(document) is None


def test_unknown_members_of_metadata_are_ignored() -> None:
    found = read_authorization_server({"issuer": "https://a", "x": [1], "scopes_supported": None})
    assert found == AuthorizationServer(issuer="https://a")


def test_default_endpoints_are_at_the_root_of_the_host() -> None:
    found = default_endpoints("https://h:8443/a/mcp?x=1")
    assert (found.issuer, found.token_endpoint) == ("https://h:8443", "https://h:8443/token")


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTPS://Host.Example:443/MCP", "https://host.example/MCP"),
        ("http://h:80/", "http://h"),
        ("http://[::1]:8000/mcp#part", "http://[::1]:8000/mcp"),
        ("https://h/mcp/", "https://h/mcp/"),
    ],
)
def test_the_canonical_uri_of_a_server_has_lower_case_host_and_no_fragment(
    url: str, canonical: str
) -> None:
    assert canonical_resource(url) == canonical


def test_the_resource_of_a_server_contains_neither_credentials_nor_a_query() -> None:
    assert server_resource("https://me:secret@H/mcp?key=secret#x") == "https://h/mcp"


KNOWN = "/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("server", "metadata", "endpoint"),
    [
        ("https://h", f"https://h{KNOWN}/mcp", "https://h/mcp"),
        ("https://user:pass@h/x?key=1", f"https://h{KNOWN}/mcp?k=2", "https://h/mcp"),
        ("https://h/mcp", f"https://h{KNOWN}/mcp", ""),
        ("https://h/mcp/tenant", f"https://h{KNOWN}/mcp", ""),
        ("https://h/x", f"https://h{KNOWN}", ""),
        ("https://h/x", f"https://h{KNOWN}/", ""),
        ("https://h/x", f"https://other{KNOWN}/mcp", ""),
        ("https://h/x", f"http://h{KNOWN}/mcp", ""),
        ("https://h/x", "https://h/elsewhere/mcp", ""),
        ("https://h/x", "https://[", ""),
        ("https://h/x", f"https://h{KNOWN}/m\u202ecp", ""),
    ],
)
def test_a_challenge_names_the_endpoint_of_a_url_with_the_wrong_path(
    server: str, metadata: str, endpoint: str
) -> None:
    assert named_endpoint(server, metadata) == endpoint


@pytest.mark.parametrize(
    ("resource", "endpoint"),
    [
        ("https://h/mcp?secret=1", "https://h/mcp"),
        ("https://other/mcp", ""),
        ("https://[/mcp", ""),
    ],
)
def test_metadata_of_another_resource_name_the_endpoint_at_the_same_host(
    resource: str, endpoint: str
) -> None:
    with pytest.raises(OtherResource, match="name another resource") as caught:
        check_resource(resource, "https://h/x")
    assert caught.value.endpoint == endpoint
