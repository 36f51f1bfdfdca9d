"""Tests of correlation ids."""

import re
from collections.abc import Mapping

import pytest
from msgspec import Raw

from fairlead.interceptor.direct_edge import direct_exchange
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST
from fairlead.server.context.correlation_id import correlation_id
from fairlead.wire import Request


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (None, False),
        ({}, False),
        ({"x-correlation-id": ""}, False),
        ({"x-correlation-id": "a"}, True),
        ({"x-correlation-id": "a" * 128}, True),
        ({"x-correlation-id": "a" * 129}, False),
        ({"x-correlation-id": "a\nb"}, False),
    ],
    ids=["none", "other", "empty", "short", "longest", "too long", "two lines"],
)
def test_the_correlation_id_of_a_client_is_used_if_it_is_safe_to_log(
    headers: Mapping[str, str] | None, kept: bool
) -> None:
    caller = Caller(NEWEST, True, ANONYMOUS)
    exchange = direct_exchange(Request(1, "x", Raw(b"{}")), caller, headers=headers)
    found = correlation_id(exchange)
    if kept:
        assert found == (headers or {})["x-correlation-id"]
    else:
        assert re.fullmatch("[0-9a-f]{16}", found)
        assert found != correlation_id(exchange)
