"""Elicitation in the terms of the revision of the client."""

from typing import Any

import pytest

from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.downgrade_examples import (
    FORM,
    PICK,
    URL,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    params_for,
)


def test_a_form_for_the_first_revision_that_had_forms() -> None:
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


def test_choices_that_are_none_stay_as_they_are() -> None:
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
def test_a_question_that_cannot_be_asked(revision: Revision, question: object, reason: str) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "elicitation/create", question)


def test_a_url_has_an_id_in_one_revision_only() -> None:
    assert params_for(V2025_11_25, "elicitation/create", URL) == URL
    assert params_for(NEWEST, "elicitation/create", {**URL, "task": {}}) == {
        "message": "Sign in",
        "mode": "url",
        "url": "https://example.com",
    }
