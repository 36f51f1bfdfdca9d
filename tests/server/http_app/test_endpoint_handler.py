"""Tests of the base class for request handlers of an HTTP endpoint."""

from typing import Any

import pytest

from fairlead.protocol.caller import ANONYMOUS
from fairlead.server.http_app.endpoint_handler import EndpointHandler


async def test_the_endpoint_handler_base_class_defines_no_hooks_and_needs_no_start() -> None:
    handler = EndpointHandler()
    hooks = (handler.delegate_post, handler.on_malformed, handler.hides)
    assert (*hooks, handler.on_stateless_notification) == (None, None, None, None)
    nothing: Any = None
    assert (handler.inline_methods, handler.answer_inline(nothing)) == ((), None)
    async with handler.running() as state:
        assert state is None


async def test_the_endpoint_handler_base_class_cannot_attach_clients() -> None:
    handler, nothing = EndpointHandler(), None
    with pytest.raises(NotImplementedError):
        handler.attach(nothing, ANONYMOUS)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        handler.tool_param_headers("t", ANONYMOUS)
    with pytest.raises(NotImplementedError):
        await handler.end_streams()
