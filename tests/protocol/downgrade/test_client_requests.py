"""Tests of elicitation and sampling requests downgraded to the revision of a client."""

from typing import Any

import pytest

from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.downgrade_examples import (
    ASK,
    BEFORE_2025_11_25,
    FORM,
    LINK,
    PICK,
    TEXT,
    TOOLS,
    URL,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    params_for,
    result_for,
)


def test_an_elicitation_form_is_converted_for_the_first_revision_with_forms() -> None:
    assert params_for(V2025_06_18, "elicitation/create", FORM) == {
        "message": "Which?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "age": {"type": "integer", "minimum": 0},
                "sure": {"type": "boolean", "default": False},
                "plain": {"type": "string", "enum": ["a", "b"]},
                "size": {
                    "type": "string",
                    "title": "Size",
                    "enum": ["s", "l"],
                    "enumNames": ["Small", "Large"],
                },
            },
            "required": ["name"],
        },
    }
    assert params_for(V2025_11_25, "elicitation/create", FORM) == FORM


def test_invalid_choices_of_a_form_field_are_left_unchanged() -> None:
    def asked(question: object) -> Any:
        form = {"message": "?", "requestedSchema": {"properties": {"q": question}}}
        return params_for(V2025_06_18, "elicitation/create", form)["requestedSchema"]["properties"][
            "q"
        ]

    assert asked({"oneOf": [{"const": "a"}]}) == {"enum": ["a"], "enumNames": ["a"]}
    others: list[Any] = [{"oneOf": [{"type": "string"}]}, {"oneOf": []}, {"oneOf": 1}, 7]
    for question in others:
        assert asked(question) == question


@pytest.mark.parametrize(
    ("revision", "question", "reason"),
    [
        (V2024_11_05, FORM, "has no elicitation"),
        (V2025_03_26, URL, "has no elicitation"),
        (V2025_06_18, URL, "in mode 'url'"),
        (V2025_11_25, {**FORM, "mode": "voice"}, "in mode 'voice'"),
        (V2025_11_25, {**URL, "mode": 3}, "in mode None"),
        (V2025_11_25, {"message": "m", "mode": "url", "url": "u:v"}, "without an elicitationId"),
        (V2025_06_18, {"requestedSchema": {"properties": {"a": PICK}}}, "several choices"),
    ],
)
def test_unsupported_elicitation_raises_a_downgrade_error(
    revision: Revision, question: object, reason: str
) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "elicitation/create", question)


def test_url_elicitation_keeps_its_id_in_one_revision_only() -> None:
    assert params_for(V2025_11_25, "elicitation/create", URL) == URL
    assert params_for(NEWEST, "elicitation/create", {**URL, "task": {}}) == {
        "message": "Sign in",
        "mode": "url",
        "url": "https://example.com",
    }


USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}


ANSWER = {"type": "tool_result", "toolUseId": "1", "content": [LINK], "structuredContent": [1]}


@pytest.mark.parametrize("revision", BEFORE_2025_11_25)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tools": TOOLS}, "not support tools in sampling"),
        ({"tools": 7}, "not support tools in sampling"),
        ({"messages": [{"role": "user", "content": USE}]}, "not support tools in sampling"),
        ({"messages": [{"role": "user", "content": [ANSWER]}]}, "not support tools in sampling"),
        ({"messages": [{"role": "user", "content": [TEXT, TEXT]}]}, "one block of content"),
        ({"messages": [{"role": "user", "content": []}]}, "one block of content"),
    ],
)
def test_unsupported_sampling_raises_a_downgrade_error(
    revision: Revision, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "sampling/createMessage", {**ASK, **change})


def test_a_sampled_tool_result_is_downgraded_like_the_result_of_a_call() -> None:
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


def test_a_sampled_message_of_several_blocks_cannot_be_downgraded() -> None:
    several = {"role": "assistant", "model": "m", "content": [TEXT, TEXT]}
    assert result_for(V2025_11_25, "sampling/createMessage", several) == several
    with pytest.raises(DowngradeError, match="one block of content"):
        result_for(V2025_06_18, "sampling/createMessage", several)
