"""Tests of params downgraded to the revision of a peer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.downgrade.params import downgrade_params
from fairlead.protocol.revisions import NEWEST, Revision
from tests.support.downgrade_examples import (
    PARAMS,
    encoded,
    envelope,
    mutated,
    params_for,
    validator,
)

params = st.sampled_from([(m, v) for m, (_, v, _) in PARAMS.items()])


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(
    ("method", "revision"), [(method, r) for method in PARAMS for r in PARAMS[method][2]]
)
def test_downgraded_params_are_valid_in_the_revision_of_the_peer(
    method: str, revision: Revision, closed: bool
) -> None:
    name, value, _ = PARAMS[method]
    params = params_for(revision, method, value)
    if revision.stateless:  # the caller of a stateless server adds its metadata
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        closed = False
    validator(revision, name, closed=closed).validate(envelope(method, params))


@pytest.mark.parametrize("method", ["notifications/progress", "resources/read", "roots/list"])
def test_params_without_changes_are_not_decoded(method: str) -> None:
    unreadable = Raw(b"not even JSON")
    assert downgrade_params(method, unreadable, NEWEST) is unreadable


@given(params.flatmap(lambda r: st.tuples(st.just(r[0]), mutated(r[1]))), st.sampled_from(Revision))
def test_downgrading_params_a_second_time_has_no_effect(
    case: tuple[str, Any], revision: Revision
) -> None:
    method, value = case
    try:
        once = downgrade_params(method, encoded(value), revision)
    except DowngradeError:
        return
    assert downgrade_params(method, once, revision) is once


def test_the_task_member_of_params_is_kept_only_in_one_revision() -> None:
    call = {"name": "t", "task": {"ttl": 1}}
    for revision in Revision:
        assert ("task" in params_for(revision, "tools/call", call)) == revision.core_tasks
