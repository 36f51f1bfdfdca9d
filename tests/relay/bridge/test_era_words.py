"""Functions with which the bridges read and convert messages."""

import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.relay.bridge import (
    bridged_input_rounds,
    handshake_to_stateless,
    stateless_to_handshake,
)
from fairlead.relay.bridge.bridged_input_rounds import kind_of
from fairlead.relay.bridge.handshake_to_stateless import possibly_missed_changes
from tests.support.single_exchange import exchange

META = "io.modelcontextprotocol/"
CURSOR = "fairlead:empty-cursor"


class Connection:
    """Fake connection with a handshake result."""

    def __init__(self, **about: Any) -> None:
        capabilities = json.dumps(about.pop("capabilities", {})).encode()
        revision = about.pop("revision", NEWEST_HANDSHAKE)
        self.agreement = Agreement(revision=revision, capabilities=capabilities, **about)
        self.name = "raw"
        self.server_info = self.agreement.server_info


@pytest.mark.parametrize(
    ("params", "granted"),
    [
        ({"notifications": {"resourceSubscriptions": ["a", "b"]}}, {"a", "b"}),
        ({"notifications": {}}, set()),
        ({}, None),
        ({"notifications": 5}, None),
    ],
)
def test_the_acknowledged_resources_of_a_subscription_are_returned(
    params: Any, granted: set[str] | None
) -> None:
    assert handshake_to_stateless._granted(json.dumps(params).encode()) == granted


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ({"nextCursor": ""}, {"nextCursor": CURSOR}),
        ({"nextCursor": "x"}, {"nextCursor": "x"}),
        ({"tools": []}, {"tools": []}),
        (["nextCursor"], ["nextCursor"]),
    ],
)
def test_an_empty_cursor_is_replaced_by_a_non_empty_cursor(result: Any, shown: Any) -> None:
    raw = Raw(json.dumps(result).encode())
    assert json.loads(bytes(handshake_to_stateless._with_visible_cursor(raw))) == shown


@pytest.mark.parametrize(
    ("capabilities", "uris", "notes"),
    [
        ({}, [], []),
        ({"tools": {"listChanged": False}, "prompts": {}}, [], []),
        (
            {"tools": {"listChanged": True}, "resources": {"listChanged": True}},
            ["b", "a"],
            [
                ("notifications/tools/list_changed", None),
                ("notifications/resources/list_changed", None),
                ("notifications/resources/updated", {"uri": "a"}),
                ("notifications/resources/updated", {"uri": "b"}),
            ],
        ),
    ],
)
def test_missed_changes_cause_notifications_for_all_lists_and_resources(
    capabilities: Any, uris: list[str], notes: list[Any]
) -> None:
    class Session:
        def __init__(self) -> None:
            self.uris = set(uris)

    link: Any = Connection(capabilities=capabilities)
    front: Any = Session()
    found = [
        (one.method, json.loads(bytes(one.params)) if isinstance(one.params, Raw) else None)
        for one in possibly_missed_changes(link, front)
    ]
    assert found == notes


@pytest.mark.parametrize(
    ("capabilities", "instructions"),
    [({"tools": {}, "tasks": {"list": {}}}, "read this"), ({}, None)],
)
def test_discover_is_answered_with_the_capabilities_of_a_handshake_server(
    capabilities: dict[str, Any], instructions: str | None
) -> None:
    info = b'{"name":"raw","version":"1"}'
    link: Any = Connection(capabilities=capabilities, instructions=instructions, server_info=info)
    found = json.loads(bytes(stateless_to_handshake._discovered(link)))
    capabilities.pop("tasks", None)  # bridges do not support tasks
    assert found["capabilities"] == capabilities
    assert found["supportedVersions"] == [revision.value for revision in reversed(Revision)]
    assert found.get("instructions") == instructions
    assert found["resultType"] == "complete"
    assert found["_meta"][f"{META}serverInfo"] == json.loads(info)


@pytest.mark.parametrize(
    ("agreed", "expected"),
    [
        (
            {"instructions": "read this", "server_info": b'{"name":"x","version":"2"}'},
            {"serverInfo": {"name": "x", "version": "2"}, "instructions": "read this"},
        ),
        ({}, {"serverInfo": {"name": "raw", "version": "0"}}),
    ],
    ids=["all", "nothing"],
)
def test_initialize_is_answered_with_the_capabilities_of_a_stateless_server(
    agreed: dict[str, Any], expected: dict[str, Any]
) -> None:
    link: Any = Connection(revision=NEWEST, capabilities={"tools": {}}, **agreed)
    bridge = handshake_to_stateless.HandshakeToStateless(link)
    asked = exchange("initialize", {}, stateless=False)
    assert json.loads(bridge.initialized(asked)) == {
        "protocolVersion": NEWEST_HANDSHAKE.value,
        "capabilities": {"tools": {}},
        **expected,
    }


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b"{}", "complete"),
        (b'{"resultType":"complete"}', "complete"),
        (b'{"resultType":"input_required"}', "input_required"),
        (b'{"resultType":"odd"}', "odd"),
        (b'{"resultType":5}', "malformed"),
        (b'{"a":{"resultType":"odd"}}', "complete"),
        (b'["resultType"]', "malformed"),
        (b'{"resultType"', "complete"),
    ],
)
def test_the_kind_of_a_result_is_determined_by_its_result_type(result: bytes, kind: str) -> None:
    assert kind_of(Raw(result)) == kind


@pytest.mark.parametrize(
    ("question", "url"),
    [
        ({"params": {"mode": "url", "url": "https://x.example"}}, "https://x.example"),
        ({"params": {"mode": "form", "url": "https://x.example"}}, None),
        ({"params": {"url": "https://x.example"}}, None),
        ({"params": {"mode": "url"}}, None),
        ({}, None),
        (5, None),
    ],
)
def test_the_page_url_is_read_from_an_input_request(question: Any, url: str | None) -> None:
    assert bridged_input_rounds._url(Raw(json.dumps(question).encode())) == url


def test_each_page_visit_has_its_own_id() -> None:
    params, visit = bridged_input_rounds._with_id(Raw(b'{"a":1}'))
    assert json.loads(bytes(params)) == {"a": 1, "elicitationId": visit}
    again, other = bridged_input_rounds._with_id(Raw(b"[]"))
    assert json.loads(bytes(again)) == {"elicitationId": other}
    assert len(visit) == len(other) == 32
    assert visit != other


def test_the_error_for_a_missing_capability_contains_its_name() -> None:
    asked = exchange("tools/call", {})
    error = bridged_input_rounds._cannot(asked, "elicitation/create", "elicitation.url")
    assert error.data == {
        "source": "proxy",
        "requiredCapabilities": {"elicitation": {"url": {}}},
    }
    assert "tools/call requires a response to elicitation/create" in error.message
    assert "'elicitation.url'" in error.message
