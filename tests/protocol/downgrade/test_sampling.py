"""Sampling in the terms of the revision of the client."""

from typing import Any

import pytest

from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.downgrade_examples import (
    ASK,
    BEFORE_2025_11_25,
    LINK,
    TEXT,
    TOOLS,
    V2025_06_18,
    V2025_11_25,
    params_for,
    result_for,
)

USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}


ANSWER = {"type": "tool_result", "toolUseId": "1", "content": [LINK], "structuredContent": [1]}


@pytest.mark.parametrize("revision", BEFORE_2025_11_25)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tools": TOOLS}, "no tools in sampling"),
        ({"tools": 7}, "no tools in sampling"),
        ({"messages": [{"role": "user", "content": USE}]}, "no use of tools"),
        ({"messages": [{"role": "user", "content": [ANSWER]}]}, "no use of tools"),
        ({"messages": [{"role": "user", "content": [TEXT, TEXT]}]}, "one block of content"),
        ({"messages": [{"role": "user", "content": []}]}, "one block of content"),
    ],
)
def test_sampling_that_cannot_be_asked(
    revision: Revision, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "sampling/createMessage", {**ASK, **change})


def test_the_answer_of_a_sampled_tool_is_an_answer_of_a_tool() -> None:
    tools = [{**TOOLS[1], "execution": {}}]
    asked = {**ASK, "messages": [{"role": "user", "content": [ANSWER]}], "tools": tools}
    older = params_for(V2025_11_25, "sampling/createMessage", asked)
    answer = older["messages"][0]["content"][0]
    assert answer["content"] == [LINK, {"type": "text", "text": "[1]"}]
    assert "structuredContent" not in answer
    assert older["tools"] == [{"name": "list", "inputSchema": {"type": "object"}, "execution": {}}]
    newest = params_for(NEWEST, "sampling/createMessage", asked)
    assert newest["messages"] == asked["messages"]
    assert newest["tools"] == [TOOLS[1]]


def test_a_sampled_message_of_several_blocks_has_no_older_form() -> None:
    several = {"role": "assistant", "model": "m", "content": [TEXT, TEXT]}
    assert result_for(V2025_11_25, "sampling/createMessage", several) == several
    with pytest.raises(DowngradeError, match="one block of content"):
        result_for(V2025_06_18, "sampling/createMessage", several)
