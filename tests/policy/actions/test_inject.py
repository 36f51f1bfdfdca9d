"""Tests of the inject action with single exchanges."""

import json
from typing import Any

import msgspec
import pytest

from fairlead.policy.actions.inject import Inject
from tests.support.single_exchange import Behind, exchange


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
@pytest.mark.parametrize(
    ("overwrite", "given", "sent"),
    [
        (True, {"a": 1, "b": 2}, {"a": 9, "b": 2, "c": {"x": None}}),
        (False, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": {"x": None}}),
        (True, {}, {"a": 9, "c": {"x": None}}),
        (False, None, {"a": 9, "c": {"x": None}}),
    ],
)
async def test_injected_arguments_replace_given_arguments_or_only_add_missing_ones(
    method: str, overwrite: bool, given: Any, sent: dict[str, Any]
) -> None:
    params = {"name": "t", "z": 1} | ({} if given is None else {"arguments": given})
    asked, behind = exchange(method, params), Behind()
    inject = Inject({"c": {"x": None}, "a": 9}, overwrite=overwrite)
    assert await inject(asked, behind) == b"{}"
    (passed,) = behind.seen
    assert json.loads(bytes(passed.message.params)) == {"name": "t", "z": 1, "arguments": sent}  # type: ignore[arg-type]
    assert json.loads(bytes(passed.head.arguments)) == sent  # type: ignore[arg-type]
    assert asked.did == ["injected: a, c"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {"arguments": {}}),
        ("resources/read", {"uri": "x"}),
        ("tools/call", {"name": "t", "arguments": [1]}),
        ("tools/call", {"name": "t", "arguments": "text"}),
    ],
)
async def test_inject_leaves_messages_without_arguments_unchanged(method: str, params: Any) -> None:
    asked, behind = exchange(method, params), Behind()
    assert await Inject({"a": 1})(asked, behind) == b"{}"
    assert behind.seen == [asked]
    assert not asked.did


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        (None, None),
        ({"accept": "x"}, {"accept": "x"}),
        ({"accept": "x", "mcp-param-a": "1"}, {"accept": "x"}),
    ],
)
async def test_inject_removes_headers_that_repeat_arguments(headers: Any, left: Any) -> None:
    asked, behind = exchange("tools/call", {"name": "t"}), Behind()
    asked.transport = msgspec.structs.replace(asked.transport, headers=headers)
    await Inject({"a": 1})(asked, behind)
    assert behind.seen[0].transport.headers == left
