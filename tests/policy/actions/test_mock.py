"""Tests of the mock action."""

import json
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.policy.actions.mock import Mock
from tests.support.single_exchange import Behind, exchange


@pytest.mark.parametrize(
    ("result", "stateless", "expected"),
    [
        ("hi", False, {"content": [{"type": "text", "text": "hi"}]}),
        ("hi", True, {"resultType": "complete", "content": [{"type": "text", "text": "hi"}]}),
        ({"a": 1}, False, {"a": 1}),
        ({"a": 1}, True, {"resultType": "complete", "a": 1}),
        ({"resultType": "other"}, True, {"resultType": "other"}),
    ],
)
async def test_a_mocked_result_is_returned_without_calling_the_server(
    result: Any, stateless: bool, expected: Any
) -> None:
    asked, behind = exchange(stateless=stateless), Behind()
    answer = await Mock(result)(asked, behind)
    assert answer is not None
    assert (json.loads(bytes(answer)), behind.seen, asked.did) == (expected, [], ["mocked"])


@pytest.mark.parametrize(
    ("error", "message", "data"),
    [
        ({"code": -5}, "Refused", {"source": "proxy"}),
        ({"code": -5, "message": "no"}, "no", {"source": "proxy"}),
        ({"code": -5, "message": "no", "data": {"a": 1}}, "no", {"a": 1}),
        ({"code": -5, "data": None}, "Refused", None),
    ],
)
async def test_a_mocked_error_is_raised_without_calling_the_server(
    error: dict[str, Any], message: str, data: Any
) -> None:
    asked = exchange()
    with pytest.raises(RpcError) as refused:
        await Mock(error=error)(asked, Behind())
    assert (refused.value.code, refused.value.message, refused.value.data) == (-5, message, data)
    assert asked.did == ["mocked"]


async def test_a_mocked_notification_is_not_forwarded() -> None:
    asked, behind = exchange("notifications/x", request=False), Behind()
    assert await Mock("hi")(asked, behind) is None
    assert (behind.seen, asked.did) == ([], ["dropped: mocked"])


@pytest.mark.parametrize(
    "error",
    [{}, {"code": "x"}, {"code": True}, {"code": 1, "message": 2}, {"code": 1, "odd": 1}],
    ids=str,
)
def test_an_invalid_mocked_error_is_rejected(error: dict[str, Any]) -> None:
    why = "^`error` must have an integer `code` and may have a string `message` and `data`$"
    with pytest.raises(ValueError, match=why):
        Mock(error=error)


@pytest.mark.parametrize("settings", [{}, {"result": "x", "error": {"code": 1}}])
def test_a_mock_has_either_a_result_or_an_error(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="^exactly one of `result` and `error` must be given$"):
        Mock(**settings)
