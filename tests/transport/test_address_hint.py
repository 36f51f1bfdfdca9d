"""Hints of connection errors about the scheme, certificate and path of a URL."""

import asyncio
import ssl
from pathlib import Path

import pytest

from fairlead import MCPClient, MCPManager
from fairlead.errors import TransportError
from fairlead.transport.address_hint import address_hint, has_untrusted_certificate, shown_url
from tests.support.certificates import self_signed
from tests.support.web_page_server import web_server


async def failure(url: str) -> TransportError:
    with pytest.raises(TransportError) as failed:
        async with MCPClient.connect(url):
            pass
    assert str(failed.value).endswith(f"\n  hint: {failed.value.hint}")
    assert failed.value.hint not in failed.value.summary
    return failed.value


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("http://{}/welcome", "{} is a web page: check the path of the MCP endpoint, usually /mcp"),
        ("ws://{}/welcome", "{} is a web page: check the path of the MCP endpoint, usually /ws"),
        ("http://{}/missing", "check the path of the MCP endpoint, usually /mcp"),
        ("https://{}/mcp", "the server does not use TLS: write http://{}/mcp"),
        ("wss://{}/ws", "the server does not use TLS: write ws://{}/ws"),
    ],
)
async def test_a_failed_connection_to_a_web_server_has_a_hint(path: str, hint: str) -> None:
    with web_server() as address:
        url = path.format(address)
        expected = hint.format(url if hint.startswith("{}") else address)
        assert (await failure(url)).hint == expected


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_failed_connection_to_a_server_with_tls_has_a_hint(
    tmp_path: Path, scheme: str
) -> None:
    with web_server(self_signed(tmp_path)) as address:
        untrusted = await failure(f"{scheme}s://{address}/x")
        assert untrusted.hint.startswith("the certificate is self-signed or its issuer is unknown")
        assert has_untrusted_certificate(untrusted)
        plain = await failure(f"{scheme}://{address}/x?key=secret")
        assert plain.hint == f"if the server uses TLS, write {scheme}s://{address}/x"
        assert not has_untrusted_certificate(plain)


async def test_https_is_suggested_if_a_server_closes_the_connection_without_a_response(
    tmp_path: Path,
) -> None:
    """asyncio's servers with TLS, such as uvicorn, close connections without TLS in silence."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        plain = await failure(f"http://127.0.0.1:{port}/mcp")
    assert plain.hint == f"if the server uses TLS, write https://127.0.0.1:{port}/mcp"


async def test_the_report_of_a_manager_contains_the_hint() -> None:
    with web_server() as address:
        async with MCPManager() as manager:
            url = f"https://{address}/mcp"
            report = await manager.connect_servers({"web": {"type": "http", "url": url}})
    [problem] = report.errors
    assert f"hint: the server does not use TLS: write http://{address}/mcp" in problem["error"]


def test_an_error_without_a_known_cause_has_no_hint() -> None:
    assert address_hint(ConnectionRefusedError(), "http://localhost/mcp") == ""


def test_secrets_in_a_url_are_not_shown() -> None:
    assert shown_url("https://user:pass@example.com/x?key=1#f") == "https://example.com/x"
    assert shown_url("http://[") == "the URL"
