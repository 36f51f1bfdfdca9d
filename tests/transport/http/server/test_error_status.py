"""HTTP status codes of JSON-RPC errors."""

from typing import Any

import pytest

from fairlead.protocol.headers import status_of
from fairlead.transport.http.server.asgi import AsgiCall
from fairlead.transport.http.server.error_status import ErrorStatus, mapped_status
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.wire import Decoder, encode, failure
from tests.support.http_server import call, make_server, serving


@pytest.mark.covers("DEC-08")
async def test_the_http_status_of_an_error_depends_on_the_protocol_era(
    options: dict[str, Any],
) -> None:
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


@pytest.mark.parametrize(
    ("code", "stateless", "mapped"),
    [
        (-32700, 400, 400),
        (-32600, 400, 400),
        (-32602, 400, 400),
        (-32020, 400, 400),
        (-32021, 400, 400),
        (-32022, 400, 400),
        (-32601, 404, 404),
        (-32603, 200, 500),
        (-32002, 200, 500),
        (-1, 200, 500),
    ],
)
def test_each_error_code_has_a_stateless_and_a_mapped_status(
    code: int, stateless: int, mapped: int
) -> None:
    assert (status_of(code), mapped_status(code)) == (stateless, mapped)


@pytest.mark.parametrize(
    ("setting", "prefer", "mapped"),
    [
        ("spec", b"", False),
        ("spec", b"Status=Mapped, x", True),
        ("spec", b"status=other", False),
        ("mapped", b"", True),
    ],
)
async def test_mapped_statuses_are_selected_by_the_setting_or_the_prefer_header(
    setting: Any, prefer: bytes, mapped: bool
) -> None:
    async def never(*_: Any) -> Any: ...

    scope = {"method": "POST", "path": "/", "headers": [(b"prefer", prefer)]}
    asked = AsgiCall(scope, never, never)
    status = ErrorStatus(HttpSettings(error_status=setting), Decoder())
    assert status.is_mapped(asked) is mapped
    assert status.stateless(asked)(-32603) == (500 if mapped else 200)
    assert status.handshake(asked)(-32602) == (400 if mapped else 200)
    assert status.of_frame(asked, encode(failure(1, -32602, "no"))) == (400 if mapped else 200)
    assert status.of_frame(asked, b'{"jsonrpc":"2.0","id":1,"result":{}}') == 200
