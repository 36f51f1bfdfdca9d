"""Tests of result fragments that are sent as notifications."""

import pytest
from msgspec import UNSET, Raw

from fairlead.protocol.result_fragments import FRAGMENT, fragment_content, fragment_notification
from fairlead.wire import Notification


def test_the_content_of_a_result_fragment_is_returned() -> None:
    for content in (b"[]", Raw(b'[{"type":"text","text":"a"}]')):
        note = fragment_notification(content)
        assert note.method == FRAGMENT
        assert fragment_content(note) == Raw(bytes(content))


@pytest.mark.parametrize("params", [b"{}", b"[]", None], ids=["empty", "list", "absent"])
def test_a_result_fragment_may_have_no_content(params: bytes | None) -> None:
    given = UNSET if params is None else Raw(params)
    assert fragment_content(Notification(FRAGMENT, given)) is None
