"""Tests of capabilities downgraded to the revision of a peer."""

import json
from typing import Any

from fairlead.protocol.downgrade.capabilities import downgrade_capabilities
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.downgrade_examples import CLIENT, V2024_11_05, V2025_06_18, V2025_11_25, encoded


def capabilities_for(revision: Revision, value: object) -> Any:
    return json.loads(downgrade_capabilities(encoded(value), revision))


def test_capabilities_that_a_revision_lacks_are_removed() -> None:
    ours = CLIENT["capabilities"]
    old = {"roots": {"listChanged": True}, "sampling": {}}
    assert capabilities_for(V2024_11_05, ours) == old
    assert capabilities_for(V2025_06_18, ours) == {**old, "elicitation": {}}
    assert capabilities_for(V2025_11_25, ours) == {
        k: v for k, v in ours.items() if k != "extensions"
    }
    assert capabilities_for(NEWEST, ours) == {
        "roots": {},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }


def test_elicitation_with_only_url_mode_is_removed_for_revisions_that_support_only_forms() -> None:
    assert capabilities_for(V2025_06_18, {"elicitation": {"url": {}}}) == {}
    assert capabilities_for(V2025_06_18, {"elicitation": {}}) == {"elicitation": {}}


def test_the_ui_extension_is_kept_since_2025_06_18_and_the_tasks_extension_since_2026_07_28() -> (
    None
):
    apps: Any = {
        "extensions": {"io.modelcontextprotocol/ui": {}, "io.modelcontextprotocol/tasks": {}}
    }
    ui: Any = {"extensions": {"io.modelcontextprotocol/ui": {}}}
    got = [capabilities_for(revision, apps) for revision in Revision]
    assert got == [{}, {}, ui, ui, apps]
