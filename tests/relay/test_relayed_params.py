"""What interceptors have read is what the server gets: no name is there twice."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import Caller, read_params_head
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.protocol.revisions import NEWEST
from fairlead.relay.relayed_params import params_as_decoded
from fairlead.wire import Request

Members = list[tuple[str, Any]]

names = st.sampled_from(["name", "arguments", "uri", "", "other", "_meta", "näme"])
texts = st.sampled_from(["", "echo", "ä", '"', "\\", "arguments", "x" * 20])
values = st.one_of(texts, st.dictionaries(texts, texts, max_size=2), st.none(), st.integers(0, 9))
members = st.lists(st.tuples(names, values), max_size=4)


def spelled(members: Members, space: str, *, ascii: bool) -> bytes:
    """An object in which names may come again."""
    parts = (
        f"{json.dumps(name, ensure_ascii=ascii)}:{space}"
        + json.dumps(held, ensure_ascii=ascii, separators=(",", ":"))
        for name, held in members
    )
    return f"{{{','.join(parts)}{space}}}".encode()


def exchanged(params: bytes) -> Exchange:
    message = Request(1, "tools/call", Raw(params))
    context = TransportContext(transport_type="memory")
    head, direction = read_params_head(message.params), Direction.CLIENT_TO_SERVER
    return Exchange(
        message,
        Caller(NEWEST, False, ANONYMOUS),
        head,
        direction,
        context,
        NullReplyPath(ANONYMOUS),
    )


@given(members, st.sampled_from(["", " "]), st.booleans())
@example([("name", "echo"), ("arguments", {"a": "1"})], "", True)
@example([("arguments", {}), ("name", "echo")], "", True)
@example([("name", "rm"), ("name", "echo"), ("arguments", {})], "", True)
@example([("name", "echo"), ("arguments", {"a": "1"}), ("arguments", {})], "", True)
@example([("name", "ä"), ("arguments", {})], "", True)
def test_every_name_is_there_once_with_the_value_that_was_read(
    members: Members, space: str, ascii: bool
) -> None:
    params = spelled(members, space, ascii=ascii)
    sent = params_as_decoded(exchanged(params))
    read = dict(members)
    if not read or "_meta" in read:
        assert sent is None
        return
    assert sent is not None
    pairs = json.loads(bytes(sent), object_pairs_hook=list)
    assert len(pairs) == len(dict(pairs))
    assert json.loads(bytes(sent)) == read


def test_what_cannot_be_otherwise_is_not_made_anew() -> None:
    params = b'{"name":"echo","arguments":{"text":"x"}}'
    exchange = exchanged(params)
    assert params_as_decoded(exchange) is exchange.message.params
