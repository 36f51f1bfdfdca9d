"""Header fields of requests, with and without credentials."""

import pytest

from fairlead.errors import ChannelClosed
from fairlead.transport.http.client.http1.header_fields import CredentialFields, format_fields
from fairlead.transport.http.client.http1.pool import ConnectionPool
from fairlead.transport.http.client.http1.url import EndpointUrl

URL = "http://a.example/mcp"


async def head(headers: dict[str, str], *credentials: dict[str, str]) -> list[str]:
    """Return the fields of the last of several requests with different credentials."""
    pool = ConnectionPool(EndpointUrl(URL), None, 1.0)
    found = b""
    for given in credentials:
        found = pool._head("POST", URL, headers, b"{}", given)
    return sorted(found.decode().rstrip().split("\r\n")[1:], key=str.lower)


USUAL = ["Accept-Encoding: identity", "Content-Length: 2", "Host: a.example"]


async def test_credentials_are_sent_beside_the_other_headers() -> None:
    token = {"Authorization": "Bearer t"}
    expected = [USUAL[0], "Authorization: Bearer t", *USUAL[1:], "User-Agent: fairlead", "X: 1"]
    assert await head({"X": "1"}, token) == expected
    # The same object again, and another one with other values.
    assert await head({"X": "1"}, token, token) == expected
    assert await head({"X": "1"}, {"Authorization": "Bearer old"}, token) == expected
    assert await head({"X": "1"}, token, {}) == [line for line in expected if "Bearer" not in line]


@pytest.mark.parametrize("name", ["authorization", "AUTHORIZATION", "Authorization"])
async def test_credentials_replace_a_header_of_the_same_name(name: str) -> None:
    lines = await head({name: "Basic configured"}, {"Authorization": "Bearer t"})
    assert [line for line in lines if line.lower().startswith("authorization")] == [
        "Authorization: Bearer t"
    ]


async def test_credentials_may_replace_a_default_header_but_no_framing_header() -> None:
    lines = await head({}, {"user-agent": "mine", "Content-Length": "7", "X-Key": "k"})
    assert lines == [
        "accept-encoding: identity",
        "Content-Length: 2",
        "host: a.example",
        "user-agent: mine",
        "X-Key: k",
    ]


@pytest.mark.parametrize("value", ["t\r\nX: 1", "t\n", "t\0", "t\r"])
async def test_credentials_with_line_breaks_are_never_sent(value: str) -> None:
    fields = CredentialFields(())
    for _ in range(2):
        with pytest.raises(ChannelClosed, match="invalid name or value"):
            fields.beside({"Authorization": value}, set())
    with pytest.raises(ChannelClosed, match="invalid name or value"):
        await head({}, {"Authorization": value})
    with pytest.raises(ChannelClosed, match="invalid name or value"):
        format_fields({"X\r\nY": "1"})
