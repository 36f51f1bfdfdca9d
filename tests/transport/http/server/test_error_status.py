"""The HTTP status of errors."""

from typing import Any

import pytest

from tests.support.http_server import call, make_server, serving


@pytest.mark.covers("DEC-08")
async def test_errors_have_the_status_of_their_era(options: dict[str, Any]) -> None:
    async with serving(make_server(), **options) as web:
        unknown = {"name": "nobody", "arguments": {}}
        assert (await web.stateless("tools/call", unknown)).status == 400
        session = await web.initialize()
        answer = await session.call("nobody")
        assert (answer.status, answer.error) == (200, -32602)
        mapped = await session.post(call("nobody"), {"Prefer": "status=mapped"})
        assert (mapped.status, mapped.error) == (400, -32602)
        alone = await web.post(call("nobody"), {"Prefer": "status=mapped"})
        assert alone.status == 400
        failed = await web.stateless("tools/call", {"name": "fail", "arguments": {}})
        assert failed.status == 200
        assert failed.result["isError"]


@pytest.mark.covers("DEC-08")
async def test_a_server_may_map_every_error_to_a_status() -> None:
    async with serving(make_server(), error_status="mapped") as web:
        session = await web.initialize()
        assert (await session.call("nobody")).status == 400
        assert (await session.call("add", {"a": 1, "b": 2})).status == 200
