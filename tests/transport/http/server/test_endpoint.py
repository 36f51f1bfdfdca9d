"""Admission of requests to an endpoint, and the HTTP methods it supports."""

from typing import Any

import pytest

from tests.support.http_server import make_server, serving

Headers = dict[str, str]


@pytest.mark.covers("SRV-46")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost.evil.example:80"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Origin": "https://app.example"}, 200),
    ],
)
async def test_foreign_hosts_and_origins_are_refused(
    headers: Headers, status: int, options: dict[str, Any]
) -> None:
    server = make_server()
    async with serving(server, allowed_origins=("https://app.example",), **options) as web:
        answer = await web.stateless("server/discover", headers=headers)
        assert answer.status == status
        if status == 403:
            assert "allowed_" in answer.json["error"]["message"]


async def test_a_request_with_an_allowed_host_is_served() -> None:
    async with serving(make_server(), allowed_hosts=("mcp.example",)) as web:
        answer = await web.stateless("server/discover", headers={"Host": "mcp.example"})
        assert answer.status == 200
        assert (await web.get(headers={"Host": "other.example"})).status == 403


@pytest.mark.covers("SRV-46")
async def test_only_pages_from_allowed_origins_may_read_responses() -> None:
    async with serving(make_server(), allowed_origins=("https://app.example",)) as web:
        asks = {"Origin": "https://app.example", "Access-Control-Request-Headers": "mcp-method"}
        async with web.http.options(web.url, headers=asks) as response:
            assert response.status == 204
            assert response.headers["access-control-allow-origin"] == "https://app.example"
            assert response.headers["access-control-allow-headers"] == "mcp-method"
        answer = await web.stateless("server/discover", headers={"Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        local = await web.stateless("server/discover", headers={"Origin": "http://localhost:1"})
        assert "access-control-allow-origin" not in local.headers


@pytest.mark.covers("SRV-47")
async def test_every_method_requires_the_configured_token(options: dict[str, Any]) -> None:
    async with serving(make_server(), auth_token="s3cret", **options) as web:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
            answer = await web.stateless("server/discover", headers=headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert (await web.get(headers=headers)).status == 401
            assert (await web.get(web.url.replace("/mcp", "/"), headers)).status == 401
        good = {"Authorization": "Bearer s3cret"}
        assert (await web.stateless("server/discover", headers=good)).status == 200


@pytest.mark.covers("SRV-41")
@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
async def test_unsupported_methods_get_a_405_with_the_allowed_methods(method: str) -> None:
    async with serving(make_server()) as web, web.http.request(method, web.url) as response:
        assert response.status == 405
        assert "POST" in response.headers["allow"]


@pytest.mark.covers("SRV-31")
async def test_refusals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="fairlead")
    async with serving(make_server()) as web:
        await web.stateless("tools/list", headers={"Mcp-Method": "wrong"})
        await web.stateless("tools/list", headers={"Origin": "https://evil.example"})
        await web.stateless("tools/call", {"name": "nobody", "arguments": {}})
    assert "Mcp-Method is 'wrong'" in caplog.text
    assert "evil.example" in caplog.text
    assert "nobody" in caplog.text
