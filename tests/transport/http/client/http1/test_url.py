import base64

import pytest

from fairlead.errors import ConfigError
from fairlead.transport.http.client.http1.url import (
    EndpointUrl,
    basic_authorization,
    same_origin,
)


@pytest.mark.covers("DEC-22")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://a.example", EndpointUrl("http://a.example/mcp")),
        ("http://a.example/", EndpointUrl("http://a.example/mcp")),
        ("https://a.example:8443", EndpointUrl("https://a.example:8443/mcp")),
        ("http://a.example/x/", EndpointUrl("http://a.example/x/")),
        ("http://a.example/x%2Fy?z=%7E#f", EndpointUrl("http://a.example/x%2Fy?z=%7E")),
        ("http://a.example?x=1", EndpointUrl("http://a.example/?x=1")),
        ("http://[::1]:80", EndpointUrl("http://[::1]:80/mcp")),
        ("http://u:p%40@a.example/x", EndpointUrl("http://a.example/x", None, "Basic dTpwQA==")),
        ("unix:///run/a%20b.sock", EndpointUrl("http://localhost/mcp", "/run/a b.sock")),
        ("unix:///run/a.sock#/there", EndpointUrl("http://localhost/there", "/run/a.sock")),
    ],
)
def test_a_url_is_split_into_address_socket_path_and_credentials(
    url: str, address: EndpointUrl
) -> None:
    assert EndpointUrl.parse(url) == address


@pytest.mark.parametrize(
    "url", ["", "a.example", "ftp://a.example", "http://", "http://[", "http://a:99999/", "unix:x"]
)
def test_invalid_urls_are_rejected(url: str) -> None:
    with pytest.raises(ConfigError):
        EndpointUrl.parse(url)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a/x", "http://a:80/y", True),
        ("https://A/x", "https://a:443/y", True),
        ("http://a/x", "https://a/x", False),
        ("http://a/x", "http://b/x", False),
        ("http://a:1/x", "http://a:2/x", False),
        ("http://u@a/x", "http://a/x", False),
        ("http://[", "http://[", False),
    ],
)
def test_origins_are_compared_with_their_default_ports(one: str, other: str, same: bool) -> None:
    assert same_origin(one, other) is same


@pytest.mark.parametrize(
    ("username", "password", "pair"),
    [
        (None, None, None),
        ("ada", "secret", b"ada:secret"),
        ("ada", None, b"ada:"),
        (None, "secret", b":secret"),
        ("a%40b", "%C3%BC", "a@b:ü".encode()),
    ],
)
def test_credentials_become_a_basic_authorization_header(
    username: str | None, password: str | None, pair: bytes | None
) -> None:
    value = basic_authorization(username, password)
    assert value == (None if pair is None else f"Basic {base64.b64encode(pair).decode()}")
