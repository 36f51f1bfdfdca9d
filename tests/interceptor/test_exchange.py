"""Tests of the reply path of an exchange and its defaults."""

from msgspec import Raw

from fairlead.interceptor import ReplyPath
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.http.server.stateless_post import PostReplyPath


async def test_closing_the_reply_path_of_a_single_exchange_has_no_effect() -> None:
    path: ReplyPath = NullReplyPath(ANONYMOUS)
    path.add_extra_members(1, {"trace": Raw(b"1")})
    await path.close()
    assert (path.is_connection, path.carrier, path.session.session_id) == (False, None, None)


def test_a_peer_counts_as_a_connection_and_a_post_does_not() -> None:
    assert (Peer.is_connection, PostReplyPath.is_connection) == (True, False)


def test_the_reply_path_of_a_post_has_no_instance_dictionary() -> None:
    """A `__dict__` would cost memory for every HTTP request."""
    assert "__dict__" not in dir(PostReplyPath)
