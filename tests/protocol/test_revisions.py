import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.protocol.revisions import (
    HANDSHAKE,
    NEWEST,
    NEWEST_HANDSHAKE,
    STATELESS,
    Revision,
    find_revision,
    negotiate_revision,
)


def having(trait: str) -> list[str]:
    return [revision.value for revision in Revision if getattr(revision, trait)]


def test_revisions_are_ordered_by_age() -> None:
    assert sorted(Revision) == [*Revision]
    assert [revision.value for revision in Revision] == [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ]


def test_every_revision_belongs_to_one_era() -> None:
    assert (*HANDSHAKE, *STATELESS) == tuple(Revision)
    assert [*HANDSHAKE] == [revision for revision in Revision if revision.handshake]
    assert [*STATELESS] == [revision for revision in Revision if revision.stateless]
    assert (NEWEST_HANDSHAKE, NEWEST) == (Revision.V2025_11_25, Revision.V2026_07_28)


@pytest.mark.covers("RPC-13")
def test_only_one_revision_allows_batches() -> None:
    assert having("batches") == ["2025-03-26"]


def test_features_are_available_from_their_first_revision_on() -> None:
    since = {revision.value: [*map(str, Revision)][n:] for n, revision in enumerate(Revision)}
    for trait in ("audio", "tool_annotations", "progress_message", "completions_capability"):
        assert having(trait) == since["2025-03-26"]
    for trait in (
        "resource_links",
        "titles",
        "last_modified",
        "completion_context",
        "meta_everywhere",
        "elicitation",
    ):
        assert having(trait) == since["2025-06-18"]
    for trait in ("rich_elicitation", "icons", "implementation_details", "sampling_tools"):
        assert having(trait) == since["2025-11-25"]
    assert having("any_structured_value") == since["2026-07-28"]


def test_each_feature_is_available_only_in_the_revisions_that_define_it() -> None:
    assert having("core_tasks") == ["2025-11-25"]
    assert having("elicitation_ids") == ["2025-11-25"]
    assert having("polling") == ["2025-11-25"]
    assert having("resumable") == ["2025-03-26", "2025-06-18", "2025-11-25"]
    assert having("null_error_id") == [revision.value for revision in HANDSHAKE]


def test_no_revision_is_found_for_an_unknown_name() -> None:
    assert [find_revision(revision.value) for revision in Revision] == [*Revision]
    assert [find_revision(name) for name in ("", "2025-11-2", "latest", "2099-01-01")] == [None] * 4


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_server_agrees_to_a_requested_revision_that_it_supports(revision: Revision) -> None:
    assert negotiate_revision(revision.value) is revision


@pytest.mark.covers("PRO-03")
@pytest.mark.parametrize("requested", ["2099-01-01", "1.0", "", "2026-07-28"])
def test_a_server_proposes_its_newest_handshake_revision_for_an_unsupported_one(
    requested: str,
) -> None:
    assert negotiate_revision(requested) is NEWEST_HANDSHAKE


@given(st.text())
def test_a_negotiated_revision_always_has_a_handshake(requested: str) -> None:
    assert negotiate_revision(requested) in HANDSHAKE
