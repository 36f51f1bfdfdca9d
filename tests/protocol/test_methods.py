import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.protocol.caller import has_capability
from fairlead.protocol.methods import (
    METHOD_NAMES,
    METHODS,
    TASKS_EXTENSION,
    MessageKind,
    Side,
    find,
)
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision

OLDEST = Revision.V2024_11_05


def sent(kind: MessageKind, revision: Revision, side: Side) -> set[str]:
    rows = [row for row in METHODS if row.kind == kind and row.within(revision)]
    return {row.name for row in rows if row.sent_by(side)}


# Lookup of methods.


def test_a_method_is_found_only_in_revisions_that_have_it() -> None:
    assert [revision for revision in Revision if find("initialize", revision)] == [*HANDSHAKE]
    assert [revision for revision in Revision if find("server/discover", revision)] == [NEWEST]
    assert all(find("tools/call", revision) for revision in Revision)
    assert find("tools/fly", NEWEST) is None


def test_method_names_contain_the_methods_of_all_revisions() -> None:
    assert "initialize" in METHOD_NAMES
    assert "notifications/tasks" in METHOD_NAMES
    assert "notifications/mine" not in METHOD_NAMES


def test_a_method_has_at_most_one_row_per_revision() -> None:
    for revision in Revision:
        rows = [row.name for row in METHODS if row.within(revision)]
        assert len(rows) == len(set(rows))


def test_every_row_of_the_method_table_applies_to_at_least_one_revision() -> None:
    for row in METHODS:
        assert any(row.within(revision) for revision in Revision), row


@given(st.text(), st.sampled_from(Revision))
def test_a_method_found_in_a_revision_exists_in_the_table(name: str, revision: Revision) -> None:
    assert find(name, revision) is None or name in METHOD_NAMES


# Senders.


@pytest.mark.covers("PRO-16")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_every_notification_has_a_direction(revision: Revision) -> None:
    both = {"notifications/cancelled", "notifications/progress"}
    client = {"notifications/initialized", "notifications/roots/list_changed"}
    server = {
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
        "notifications/tools/list_changed",
        "notifications/message",
    }
    if revision is Revision.V2025_11_25:
        both = both | {"notifications/tasks/status"}
        server = server | {"notifications/elicitation/complete"}
    assert sent("notification", revision, "client") == client | both
    assert sent("notification", revision, "server") == server | both


@pytest.mark.covers("PRO-16")
def test_the_newest_revision_defines_one_notification_of_clients_and_nine_of_servers() -> None:
    assert sent("notification", NEWEST, "client") == {"notifications/cancelled"}
    assert sent("notification", NEWEST, "server") == {
        "notifications/cancelled",
        "notifications/message",
        "notifications/progress",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/subscriptions/acknowledged",
        "notifications/tasks",
        "notifications/tools/list_changed",
    }


@pytest.mark.covers("PRO-16")
def test_roots_list_changed_requires_a_client_capability() -> None:
    told = find("notifications/roots/list_changed", OLDEST)
    assert told is not None
    assert told.capability == "roots.listChanged"
    assert has_capability({"roots": {"listChanged": True}}, told.capability)
    assert not has_capability({"roots": {}}, told.capability)


def test_stateless_servers_send_no_requests() -> None:
    assert sent("request", NEWEST, "server") == set()


def test_stateless_revisions_embed_server_requests_in_results() -> None:
    for name in ("roots/list", "sampling/createMessage", "elicitation/create"):
        assert find(name, NEWEST) is None
        row = find(name, Revision.V2025_11_25)
        assert row is not None
        assert row.embedded_since is NEWEST
    assert [row.embedded_since for row in METHODS if row.name == "ping"] == [None]


def test_requests_embedded_in_results_are_not_separate_messages_in_their_revision() -> None:
    for row in METHODS:
        if row.embedded_since is not None:
            assert row.until is not None
            assert row.until < row.embedded_since


# Properties of rows.


def test_three_request_methods_may_have_input_required_results() -> None:
    asking = {row.name for row in METHODS if row.asks}
    assert asking == {"tools/call", "prompts/get", "resources/read"}


def test_six_result_types_may_be_cached() -> None:
    cacheable = [row for row in METHODS if row.cacheable]
    assert {row.name for row in cacheable} == {
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tasks/get", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
        ("tools/list", None),
    ],
)
def test_the_target_member_of_a_method_names_the_requested_item(
    name: str, target: str | None
) -> None:
    row = find(name, NEWEST)
    assert row is not None
    assert row.target == target


def test_completion_has_a_capability_from_its_second_revision_on() -> None:
    flags = [find("completion/complete", revision) for revision in Revision]
    assert [row and row.capability for row in flags] == [None, *["completions"] * 4]


def test_tasks_have_separate_rows_as_core_feature_and_as_extension() -> None:
    core, extension = find("tasks/get", Revision.V2025_11_25), find("tasks/get", NEWEST)
    assert core is not None
    assert extension is not None
    assert (core.sender, core.capability, core.extension) == ("both", "tasks", None)
    assert (extension.sender, extension.capability) == ("client", None)
    assert extension.extension == TASKS_EXTENSION
    assert find("tasks/result", NEWEST) is None


# Capabilities.


@pytest.mark.parametrize(
    ("declared", "path", "on"),
    [
        ({"tools": {}}, "tools", True),
        ({"tools": True}, "tools", True),
        ({"tools": {"listChanged": False}}, "tools", True),
        ({"tools": None}, "tools", False),
        ({"tools": False}, "tools", False),
        ({}, "tools", False),
        ({"resources": {"subscribe": True}}, "resources.subscribe", True),
        ({"resources": {"subscribe": False}}, "resources.subscribe", False),
        ({"resources": {}}, "resources.subscribe", False),
        ({"resources": True}, "resources.subscribe", False),
        ({"resources": False}, "resources.subscribe", False),
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, "tasks.requests.tools.call", True),
        ({"tasks": {"requests": {"tools": {}}}}, "tasks.requests.tools.call", False),
        ({"elicitation": {}}, "elicitation", True),
        ({"elicitation": {}}, "elicitation.form", True),
        ({"elicitation": True}, "elicitation.form", True),
        ({"elicitation": {"form": {}}}, "elicitation.form", True),
        ({"elicitation": {"form": None}}, "elicitation.form", True),
        ({"elicitation": {"form": False}}, "elicitation.form", False),
        ({"elicitation": {"url": {}}}, "elicitation.form", False),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation.url", True),
        ({"elicitation": {}}, "elicitation.url", False),
        ({"elicitation": None}, "elicitation.form", False),
        ({}, "elicitation.form", False),
    ],
)
def test_has_capability_is_true_for_declared_capabilities(
    declared: dict[str, object], path: str, on: bool
) -> None:
    assert has_capability(declared, path) is on


def test_input_requests_are_elicitation_roots_and_sampling() -> None:
    from fairlead.protocol.methods import METHODS, QUESTIONS

    asked = {row.name for row in METHODS if row.name in QUESTIONS}
    assert asked == {"elicitation/create", "roots/list", "sampling/createMessage"}
