"""A part of a result as a notification."""

import pytest
from msgspec import UNSET, Raw

from fairlead.protocol.result_fragments import FRAGMENT, fragment_content, fragment_notification
from fairlead.wire import Notification


def test_a_part_is_read_back() -> None:
    for content in (b"[]", Raw(b'[{"type":"text","text":"a"}]')):
        note = fragment_notification(content)
        assert note.method == FRAGMENT
        assert fragment_content(note) == Raw(bytes(content))


@pytest.mark.parametrize("params", [b"{}", b"[]", None], ids=["empty", "list", "absent"])
def test_a_part_may_have_been_left_out(params: bytes | None) -> None:
    given = UNSET if params is None else Raw(params)
    assert fragment_content(Notification(FRAGMENT, given)) is None
