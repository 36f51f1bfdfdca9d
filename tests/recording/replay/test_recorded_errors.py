"""Tests of errors read from a tape."""

import pytest
from msgspec import Raw

from fairlead.recording.replay.script import read_refusal


@pytest.mark.parametrize("raw", [None, Raw(b"5"), Raw(b'{"code":"x","message":"no"}')])
def test_a_missing_or_invalid_recorded_error_is_replayed_as_an_internal_error(
    raw: Raw | None,
) -> None:
    assert read_refusal(raw) == (
        -32603,
        "The recorded response cannot be decoded",
        None,
    )


def test_a_recorded_error_keeps_all_its_members() -> None:
    raw = Raw(b'{"code":-5,"message":"no","data":[1]}')
    assert read_refusal(raw) == (-5, "no", raw)
