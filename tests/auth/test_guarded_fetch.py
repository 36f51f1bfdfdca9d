"""Requests to URLs that a remote party chose: allowed addresses, redirects and limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.auth.guarded_fetch import (
    MAX_DOCUMENT,
    FetchBudget,
    GuardedFetcher,
    is_public_address,
)
from fairlead.errors import AuthorizationError

LIMIT = 20.0


class Site:
    """A web site on loopback with scripted responses by path."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self.url = ""
        self.silent = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        page = self.pages.get(head.split(b" ")[1].decode(), b"")
        if page:
            writer.write(page)
            await writer.drain()
        else:
            await self.silent.wait()
        writer.close()

    def json(self, path: str, body: bytes = b'{"a": 1}', more: bytes = b"") -> None:
        self.pages[path] = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + more
        ) + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    def redirect(self, path: str, target: str) -> None:
        head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
        self.pages[path] = head.encode()


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    found = Site()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(LIMIT):
        yield found
    found.silent.set()
    server.close()


LOCAL = {"allow_loopback": True}


async def test_a_json_document_is_fetched_and_decoded() -> None:
    async with serving() as site:
        site.json("/x")
        found = await GuardedFetcher(**LOCAL).get(f"{site.url}/x")
        assert (found.status, found.document) == (200, {"a": 1})


async def test_form_encoded_responses_are_read() -> None:
    async with serving() as site:
        body = b"access_token=t&scope=a"
        site.pages["/x"] = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        found = await GuardedFetcher(**LOCAL).post_form(f"{site.url}/x", {"b": "c d"})
        assert found.document == {"access_token": "t", "scope": "a"}


async def test_loopback_addresses_are_refused_unless_allowed() -> None:
    async with serving() as site:
        port = site.url.rpartition(":")[2]
        for host in ("127.0.0.1", "localhost", "2130706433", "127.1", "[::ffff:127.0.0.1]"):
            with pytest.raises(AuthorizationError):
                await GuardedFetcher().get(f"https://{host}:{port}/x")
        assert site.requests == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "https://user@127.0.0.1/x",
        "https://127.0.0.1/x#y",
        "https:///x",
        "https://[::1/x",
        "https://h:99999/x",
        "https://h/a\nb",
        "",
    ],
)
async def test_malformed_urls_and_urls_with_unsafe_parts_are_refused(url: str) -> None:
    with pytest.raises(AuthorizationError):
        await GuardedFetcher(**LOCAL).get(url)


@pytest.mark.parametrize("host", ["127%2E0%2E0%2E1", "a b", "a,b", "x" * 64 + "ü"])
async def test_hosts_with_other_characters_than_those_of_names_are_refused(host: str) -> None:
    with pytest.raises(AuthorizationError, match="valid host|URL is invalid"):
        await GuardedFetcher(**LOCAL).get(f"https://{host}/x")


async def test_up_to_three_redirects_are_followed() -> None:
    async with serving() as site:
        site.redirect("/1", "/2")
        site.redirect("/2", f"{site.url}/3")
        site.redirect("/3", "/4")
        site.json("/4")
        assert (await GuardedFetcher(**LOCAL).get(f"{site.url}/1")).document == {"a": 1}


async def test_more_than_three_redirects_are_refused() -> None:
    async with serving() as site:
        site.redirect("/1", "/1")
        with pytest.raises(AuthorizationError, match="too many redirects"):
            await GuardedFetcher(**LOCAL).get(f"{site.url}/1")
        assert len(site.requests) == 4


async def test_the_target_of_each_redirect_is_checked() -> None:
    async with serving() as site:
        for target in ("http://169.254.169.254/latest", "file:///etc/passwd", "http://h/x"):
            site.redirect("/1", target)
            with pytest.raises(AuthorizationError):
                await GuardedFetcher(**LOCAL).get(f"{site.url}/1")


async def test_redirects_of_a_post_are_refused() -> None:
    async with serving() as site:
        site.redirect("/1", "/2")
        with pytest.raises(AuthorizationError, match="redirects of POST requests"):
            await GuardedFetcher(**LOCAL).post_form(f"{site.url}/1", {"secret": "x"})
        assert len(site.requests) == 1


async def test_documents_over_the_size_limit_are_refused() -> None:
    async with serving() as site:
        site.json("/x", b'"' + b"x" * MAX_DOCUMENT + b'"')
        with pytest.raises(AuthorizationError, match="over the limit"):
            await GuardedFetcher(**LOCAL).get(f"{site.url}/x")


@pytest.mark.parametrize("body", [b"[1]", b"<html>", b"", b"\xff", b"[" * 50_000, b"5"])
async def test_a_body_that_is_not_a_json_object_is_no_document(body: bytes) -> None:
    async with serving() as site:
        site.json("/x", body)
        assert (await GuardedFetcher(**LOCAL).get(f"{site.url}/x")).document is None


async def test_a_request_to_a_server_that_does_not_respond_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as site:
        monkeypatch.setattr("fairlead.auth.guarded_fetch.DOCUMENT_TIMEOUT", 0.2)
        with pytest.raises(AuthorizationError, match="no response in time"):
            await GuardedFetcher(**LOCAL).get(f"{site.url}/silent")


async def test_fetch_errors_contain_the_host_but_no_path() -> None:
    async with serving():
        with pytest.raises(AuthorizationError) as caught:
            await GuardedFetcher().get("https://127.0.0.1:1/secret-path?token=x")
        assert "127.0.0.1:1" in str(caught.value)
        assert "secret" not in str(caught.value)


async def test_a_budget_limits_the_number_of_requests_of_a_discovery() -> None:
    budget = FetchBudget(seconds=30, requests=2)
    assert 0 < budget.take() <= 10
    budget.take()
    with pytest.raises(AuthorizationError, match="too many requests"):
        budget.take()


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.168.1.1", False),
        ("224.0.0.1", False),
        ("0.0.0.0", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
    ],
)
def test_only_globally_routable_addresses_are_public(address: str, public: bool) -> None:
    assert is_public_address(address) is public
