import json
import sys
import tracemalloc
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.errors import RemoteProtocolError
from fairlead.wire import (
    MAX_MESSAGE,
    Batch,
    Decoder,
    Failure,
    LineSplitter,
    Message,
    Notification,
    Request,
    Success,
    TooLong,
    decode,
    encode,
    encode_success,
    failure,
)
from fairlead.wire.codec import MAX_BATCH, MAX_BATCH_MISTAKES
from fairlead.wire.error_codes import INVALID_REQUEST, PARSE_ERROR
from tests.support.examples import examples

# Messages that any peer could send.

ENVELOPE = {"jsonrpc", "id", "method", "params", "result", "error"}
HUGE = 10**60

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ids = st.integers(-HUGE, HUGE) | texts
values = st.recursive(
    st.none() | st.booleans() | st.integers(-HUGE, HUGE) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def pretty(part: Raw) -> Raw:
    """Return the JSON indented and with Windows line ends, as other programs may write it."""
    return Raw(msgspec.json.format(bytes(part), indent=2).replace(b"\n", b"\r\n"))


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    code, message = draw(st.integers(-40_000, 40_000)), draw(texts)
    error = {**draw(objects), "code": code, "message": message}
    request_id = draw(st.none() | ids)
    absent = request_id is None and draw(st.booleans())
    return Failure(request_id, code, message, raw(error), draw(extras), absent)


params = st.just(UNSET) | objects.map(raw)
extras = st.none() | st.dictionaries(
    texts.filter(lambda name: name not in ENVELOPE), values.map(raw), min_size=1, max_size=2
)
messages = st.one_of(
    st.builds(Request, ids, texts, params, extras),
    st.builds(Notification, texts, params, extras),
    st.builds(Success, ids, values.map(raw), extras),
    failures(),
)


def refusal(frame: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(frame)
    return caught.value


def plain(error: RemoteProtocolError) -> tuple[int, int | str | None]:
    return error.code, error.request_id


# Round trips.


@pytest.mark.covers("RPC-02", "RPC-03", "RPC-04", "RPC-05", "RPC-06")
@given(messages)
def test_an_encoded_message_decodes_to_the_same_message(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.covers("RPC-08")
@given(messages)
def test_an_encoded_frame_is_utf_8_json_on_one_line(message: Message) -> None:
    frame = encode(message)
    assert b"\n" not in frame
    assert b"\r" not in frame
    assert json.loads(frame.decode())["jsonrpc"] == "2.0"


def reprinted(message: Message) -> Message:
    """Return the same message with every part pretty-printed."""
    changes: dict[str, Any] = {}
    for name in ("params", "result", "error"):
        part = getattr(message, name, UNSET)
        if isinstance(part, Raw):
            changes[name] = pretty(part)
    if message.extra is not None:
        changes["extra"] = {name: pretty(part) for name, part in message.extra.items()}
    return msgspec.structs.replace(message, **changes)


@pytest.mark.covers("RPC-08")
@given(messages)
def test_pretty_printed_parts_are_encoded_on_one_line(message: Message) -> None:
    frame = encode(reprinted(message))
    assert b"\n" not in frame
    assert b"\r" not in frame
    assert decode(frame) == message


@pytest.mark.covers("RPC-06")
@given(
    st.from_regex(rb"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
)
def test_numbers_in_params_keep_their_spelling(number: bytes) -> None:
    params = b'{"n":%b,"deep":[{"n":%b}]}' % (number, number)
    request = b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params
    answer = b'{"jsonrpc":"2.0","id":1,"result":%b}' % params
    mistake = b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":%b}}' % number
    for frame in (request, answer, mistake):
        assert encode(decode(frame)) == frame  # type: ignore[arg-type]
    assert encode(Notification("m", pretty(Raw(params)))) == (
        b'{"jsonrpc":"2.0","method":"m","params":%b}' % params
    )


@pytest.mark.covers("RPC-06")
def test_escapes_and_meta_in_params_are_preserved() -> None:
    frame = (
        rb'{"jsonrpc":"2.0","id":"\u0061","method":"m",'
        rb'"params":{"_meta":{"a\/b":"\u00e9\ud83d\ude00"},"unknown":[1.10,"\u000a"]}}'
    )
    message = decode(frame)
    assert message == Request(
        "a", "m", Raw(rb'{"_meta":{"a\/b":"\u00e9\ud83d\ude00"},"unknown":[1.10,"\u000a"]}')
    )
    assert encode(message) == frame.replace(rb'"\u0061"', b'"a"')


# Frames that are not messages.


def messy_frames() -> st.SearchStrategy[bytes]:
    """Generate random bytes, JSON that is not a message, and truncated or modified messages."""
    whole = messages.map(encode)
    cut = st.tuples(whole, st.integers(0, 80)).map(lambda pair: pair[0][: pair[1]])
    bent = st.tuples(whole, st.integers(0, 200), st.binary(max_size=3)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
    )
    odd = st.dictionaries(st.sampled_from(sorted(ENVELOPE)), values).map(msgspec.json.encode)
    batch = st.lists(whole | odd | cut, max_size=4).map(lambda items: b"[%b]" % b",".join(items))
    return st.one_of(st.binary(max_size=60), values.map(msgspec.json.encode), cut, bent, odd, batch)


@pytest.mark.covers("RPC-08")
@settings(max_examples=examples(300))
@given(messy_frames())
def test_decoding_raises_only_remote_protocol_errors(frame: bytes) -> None:
    for item in outcome(frame):
        if isinstance(item, RemoteProtocolError):
            assert item.code in (PARSE_ERROR, INVALID_REQUEST)
            assert encode(failure(item.request_id, item.code, str(item)))
        else:
            assert decode(encode(item))


@settings(max_examples=examples(200))
@given(messages.map(encode) | messy_frames())
def test_trailing_space_does_not_change_the_decoded_message(frame: bytes) -> None:
    """The trailing space disables the decoder's fast path for common requests."""
    assert [told(item) for item in outcome(frame)] == [told(item) for item in outcome(frame + b" ")]


def told(item: Message | RemoteProtocolError) -> object:
    return plain(item) if isinstance(item, RemoteProtocolError) else item


def outcome(frame: bytes) -> tuple[Message | RemoteProtocolError, ...]:
    try:
        decoded = decode(frame)
    except RemoteProtocolError as error:
        return (error,)
    return decoded.items if isinstance(decoded, Batch) else (decoded,)


@pytest.mark.covers("RPC-08", "RPC-11")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"   ",
        b"hello",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"method":"m"} trailing',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}\x00',
        b'{"jsonrpc":"2.0","id":01,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\x"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"raw\x01control"}}',
        b'{"unknown":1,"jsonrpc":"2.0","id":1,"method":"m"',
        b"[1,2",
    ],
)
def test_invalid_json_raises_a_parse_error(frame: bytes) -> None:
    assert plain(refusal(frame)) == (PARSE_ERROR, None)


@pytest.mark.covers("RPC-07", "RPC-11")
@pytest.mark.parametrize("frame", [b"1", b'"text"', b"null", b"true", b"[]", b"1e400"])
def test_json_other_than_an_object_is_an_invalid_request(frame: bytes) -> None:
    assert plain(refusal(frame)) == (INVALID_REQUEST, None)


@pytest.mark.covers("RPC-02", "RPC-03", "RPC-07")
@pytest.mark.parametrize(
    "members",
    [
        b'"id":7',  # neither a request nor a response
        b'"id":7,"params":{}',
        b'"id":7,"method":null',
        b'"id":7,"method":5',
        b'"id":7,"method":"m","params":[]',
        b'"id":7,"method":"m","params":"text"',
        b'"id":7,"method":"m","result":{}',
        b'"id":7,"method":"m","error":{"code":1,"message":"m"}',
        b'"id":7,"result":{},"error":{"code":1,"message":"m"}',
        b'"id":7,"error":null',
        b'"id":7,"error":"text"',
        b'"id":7,"error":{"message":"no code"}',
        b'"id":7,"error":{"code":1}',
        b'"id":7,"error":{"code":"1","message":"m"}',
        b'"id":7,"error":{"code":1.5,"message":"m"}',
        b'"id":7,"error":{"code":true,"message":"m"}',
        b'"id":7,"error":{"code":1,"message":null}',
        b'"id":7,"method":5,"unknown":{}',
        b'"id":7,"method":"m","params":[],"unknown":{}',
    ],
)
def test_an_invalid_message_raises_an_error_that_has_its_id(members: bytes) -> None:
    assert plain(refusal(b'{"jsonrpc":"2.0",%b}' % members)) == (INVALID_REQUEST, 7)


@pytest.mark.covers("RPC-02", "RPC-03", "RPC-04")
@pytest.mark.parametrize(
    "version", [b"", b'"jsonrpc":"1.0",', b'"jsonrpc":2.0,', b'"jsonrpc":null,', b'"jsonrpc":[],']
)
@pytest.mark.parametrize("rest", [b"", b',"unknown":1'])
def test_a_message_without_jsonrpc_2_0_is_rejected(version: bytes, rest: bytes) -> None:
    frame = b'{%b"id":"x","method":"m"%b}' % (version, rest)
    assert plain(refusal(frame)) == (INVALID_REQUEST, "x")


def test_the_jsonrpc_version_may_contain_escapes() -> None:
    request = b'{"jsonrpc":"2\\u002e0","id":1,"method":"m"%b}'
    assert decode(request % b"") == Request(1, "m")
    assert decode(request % b',"x":1') == Request(1, "m", UNSET, {"x": Raw(b"1")})


@pytest.mark.covers("RPC-07")
def test_the_members_of_an_envelope_determine_the_kind_of_message() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}') == Request(1, "m")
    assert decode(b'{"jsonrpc":"2.0","method":"m"}') == Notification("m")
    assert decode(b'{"jsonrpc":"2.0","id":1,"result":null}') == Success(1, Raw(b"null"))
    assert decode(b'{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"no"}}') == Failure(
        1, 5, "no", Raw(b'{"code":5,"message":"no"}')
    )


def test_null_params_of_a_message_count_as_absent() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}') == Request(1, "m")
    assert decode(b'{"jsonrpc":"2.0","method":"m","params": null}') == Notification("m")


# Ids.


@pytest.mark.covers("RPC-02", "RPC-10")
@given(ids, st.booleans())
def test_decoded_ids_keep_their_value_and_type(request_id: int | str, is_error: bool) -> None:
    frame = b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % msgspec.json.encode(request_id)
    request = decode(frame)
    assert request == Request(request_id, "m")
    assert type(request.id) is type(request_id)
    answer = failure(request.id, -1, "no") if is_error else Success(request.id, Raw(b"{}"))
    assert json.loads(encode(answer))["id"] == request_id
    assert type(json.loads(encode(answer))["id"]) is type(request_id)


@pytest.mark.covers("RPC-02")
@pytest.mark.parametrize("written", [b"1.0", b"1.5", b"1e2", b"-0.0", b"true", b"false", b"null"])
@pytest.mark.parametrize("rest", [b"", b',"unknown":1'])
def test_fractions_booleans_and_null_are_not_ids(written: bytes, rest: bytes) -> None:
    request = b'{"jsonrpc":"2.0","id":%b,"method":"m"%b}' % (written, rest)
    answer = b'{"jsonrpc":"2.0","id":%b,"result":{}%b}' % (written, rest)
    assert plain(refusal(request)) == (INVALID_REQUEST, None)
    assert plain(refusal(answer)) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("written", [b"1.0", b"true", b"[1]", b"{}"])
def test_an_error_response_with_an_invalid_id_is_rejected(written: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":%b,"error":{"code":5,"message":"no"}}' % written
    assert plain(refusal(frame)) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("member", [b"", b'"id":null,'])
def test_an_error_response_may_have_no_id_or_a_null_id(member: bytes) -> None:
    frame = b'{"jsonrpc":"2.0",%b"error":{"code":-32700,"message":"?"}}' % member
    message = decode(frame)
    error = Raw(b'{"code":-32700,"message":"?"}')
    assert message == Failure(None, -32700, "?", error, None, not member)
    assert encode(message) == frame


@pytest.mark.covers("RPC-02")
def test_integers_beyond_64_bits_are_valid_ids() -> None:
    for number in (2**63, 2**64, -(2**64), 10**4299):
        frame = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number
        assert decode(frame) == Success(number, Raw(b"{}"))
        assert encode(decode(frame)) == frame  # type: ignore[arg-type]
        assert encode_success(number, b"{}") == frame


def test_an_integer_id_of_5000_digits_is_rejected_and_not_rounded() -> None:
    digits = b"9" * 5000
    assert plain(refusal(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % digits)) == (
        INVALID_REQUEST,
        None,
    )
    kept = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":%b}}' % digits
    assert encode(decode(kept)) == kept  # type: ignore[arg-type]


# Envelope members that JSON-RPC does not define.


@pytest.mark.covers("RPC-06")
def test_unknown_members_of_the_envelope_are_preserved() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"trace":{"a":1.0},"z":null}'
    message = decode(frame)
    extra = {"trace": Raw(b'{"a":1.0}'), "z": Raw(b"null")}
    assert message == Request(1, "m", Raw(b"{}"), extra)
    assert encode(message) == frame


@pytest.mark.parametrize("known", ['"id":1,"method":"m"', '"method":"m"', '"id":1,"result":{}'])
def test_members_that_differ_from_the_envelope_in_case_only_are_dropped(known: str) -> None:
    """Programs in Go and C# would read them instead of the members that Fairlead has read."""
    more = '"ID":2,"Method":"n","PARAMS":{},"param\u017f":{},"Result":{},"Error":{},"trace":1'
    message = decode(f'{{"jsonrpc":"2.0",{known},{more}}}'.encode())
    assert not isinstance(message, Batch)
    assert message.extra == {"trace": Raw(b"1")}


@pytest.mark.covers("RPC-06")
@pytest.mark.parametrize("outcome", [b'"result":{}', b'"error":{"code":1,"message":"no"}'])
def test_params_in_a_response_are_preserved(outcome: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":1,%b,"params":[1]}' % outcome
    assert encode(decode(frame)) == frame  # type: ignore[arg-type]


def test_only_the_last_of_duplicate_keys_is_used_and_forwarded() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b","params":{"n":1}%b}'
    assert decode(frame % b"") == Request(2, "b", Raw(b'{"n":1}'))
    message = decode(frame % b',"x":1,"x":2')
    assert message == Request(2, "b", Raw(b'{"n":1}'), {"x": Raw(b"2")})
    assert encode(message) == (b'{"jsonrpc":"2.0","id":2,"method":"b","params":{"n":1},"x":2}')


# Regressions


@pytest.mark.covers("RPC-08")
def test_a_nested_object_is_not_written_on_a_separate_line() -> None:
    smuggled = b'{"jsonrpc":"2.0","id":9,"method":"tools/call"}'
    body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":\n%b\n}}' % smuggled
    frame = encode(decode(body))  # type: ignore[arg-type]
    assert frame == body.replace(b"\n", b"")
    assert encode_success(1, b'{"x":\r\n%b}' % smuggled) == (
        b'{"jsonrpc":"2.0","id":1,"result":{"x":%b}}' % smuggled
    )


@pytest.mark.parametrize("control", [b"\n", b"\r"])
def test_a_raw_line_end_inside_a_string_raises_a_parse_error(control: bytes) -> None:
    """Removing the line end would change the text."""
    for place in (b'"params":{"a":"x%by"}', b'"params":{"x%by":1}', b'"x%by":1'):
        frame = b'{"jsonrpc":"2.0","id":1,"method":"m",%b}' % (place % control)
        assert plain(refusal(frame)) == (PARSE_ERROR, None)


@pytest.mark.covers("RPC-08")
@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"\ud83d", rb"\ufffd"),
        (rb"\uDE00", rb"\ufffd"),
        (rb"\ude00\ud83d", rb"\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
        (rb"\ud83dx", rb"\ufffdx"),
        (rb"\\ud83d\ud83d", rb"\\ud83d\ufffd"),
    ],
)
def test_a_lone_surrogate_is_replaced_and_counted(sent: bytes, read: bytes) -> None:
    decoder = Decoder()
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%b"}}'
    assert decoder.decode(frame % sent) == Request(1, "m", Raw(b'{"a":"%b"}' % read))
    assert decoder.repaired == 1


@pytest.mark.parametrize("good", [rb"\ud83d\ude00", rb"\\ud83d", rb"\\\\ude00", rb"\u00e9"])
def test_surrogate_pairs_and_escaped_backslashes_are_preserved(good: bytes) -> None:
    decoder = Decoder()
    params = b'{"a":"%b"}' % good
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params
    assert decoder.decode(frame) == Request(1, "m", Raw(params))
    assert decoder.repaired == 0


def test_a_lone_surrogate_is_replaced_in_every_member() -> None:
    frame = rb'{"jsonrpc":"2.0","id":"\ud83d","method":"\ud83d","\ud83d":"\ud83d"}'
    replaced = Raw(rb'"\ufffd"')
    assert decode(frame) == Request("\ufffd", "\ufffd", UNSET, {"\ufffd": replaced})
    batch = decode(b"[%b]" % frame)
    assert batch == Batch((Request("\ufffd", "\ufffd", UNSET, {"\ufffd": replaced}),))


def test_a_lone_surrogate_in_invalid_json_raises_a_parse_error() -> None:
    decoder = Decoder()
    with pytest.raises(RemoteProtocolError) as caught:
        decoder.decode(rb'{"jsonrpc":"2.0","id":1,"method":"\ud83d"')
    assert plain(caught.value) == (PARSE_ERROR, None)
    assert decoder.repaired == 0


def test_a_lone_surrogate_is_replaced_when_a_message_is_encoded() -> None:
    request = Request("\ud83d", "m\udc00", Raw(b'{"n":1.50}'), {"\ud83d": Raw(b"1.0")})
    assert decode(encode(request)) == Request(
        "\ufffd", "m\ufffd", Raw(b'{"n":1.50}'), {"\ufffd": Raw(b"1.0")}
    )
    assert encode_success("\ud83d", b"{}") == '{"jsonrpc":"2.0","id":"�","result":{}}'.encode()
    assert decode(encode(failure(1, -1, "no \ud83d", {"file": "\udcff"}))) == failure(
        1, -1, "no �", {"file": "�"}
    )


@pytest.mark.covers("RPC-08")
@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xed\xa0\xbd", b"\xc0\x80", b"\xf4\x90\x80\x80"]
)
@pytest.mark.parametrize(
    "frame",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"%b"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"deep":["%b"]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"%b":1}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":"%b"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","unknown":"%b"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%b"}}]',
    ],
)
def test_invalid_utf_8_inside_a_raw_part_raises_a_parse_error(frame: bytes, bad: bytes) -> None:
    assert plain(refusal(frame % bad)) == (PARSE_ERROR, None)


def nested(levels: int) -> bytes:
    deep = b"[" * levels + b"]" * levels
    return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % deep


def deeper(frames: int, frame: bytes) -> Any:
    """Decode a frame with this many additional stack frames."""
    return decode(frame) if frames == 0 else deeper(frames - 1, frame)


@pytest.mark.covers("RPC-08")
def test_128_levels_of_nesting_are_decoded_from_a_deep_stack() -> None:
    room = sys.getrecursionlimit() // 2
    assert encode(deeper(room, nested(128))) == nested(128)


@pytest.mark.covers("RPC-08")
@pytest.mark.parametrize(
    "frame",
    [
        nested(100_000),
        nested(100_000)[:-1] + b',"unknown":1}',
        b'{"unknown":1,' + nested(100_000)[1:],
        b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 100_000,
    ],
)
def test_nesting_deeper_than_the_stack_raises_a_parse_error(frame: bytes) -> None:
    assert plain(refusal(frame)) == (PARSE_ERROR, None)


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"nan"])
def test_nan_and_infinity_are_rejected_as_invalid_json(word: bytes) -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":%b}}' % word
    assert plain(refusal(frame)) == (PARSE_ERROR, None)


@pytest.mark.parametrize(
    ("frame", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"n":NaN}}', 7),
        (b'{ "jsonrpc": "2.0", "id": "a b", "error": {"n":}}', "a b"),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":0,"result":{}}', 0),
        (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', 7),
        (b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 200_000, 7),
        (b'{"jsonrpc":"2.0","id":007,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":"\\u00","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"n":NaN}}', None),
    ],
)
def test_the_error_for_an_unreadable_response_contains_the_id_of_its_request(
    frame: bytes, answers: int | str | None
) -> None:
    error = refusal(frame)
    assert plain(error) == (PARSE_ERROR, None)
    assert error.answers == answers


def test_a_raw_part_keeps_its_frame_in_memory_and_a_copy_does_not() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}' + b" " * 1000
    before = sys.getrefcount(frame)
    message = decode(frame)
    assert isinstance(message, Request)
    assert isinstance(message.params, Raw)
    assert sys.getrefcount(frame) > before
    kept = message.params.copy()
    del message
    assert sys.getrefcount(frame) == before
    assert kept == Raw(b'{"a":1}')


def test_decoded_items_of_a_batch_do_not_keep_the_frame_in_memory() -> None:
    frame = b'[{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}},%b1]' % (b" " * 1000)
    before = sys.getrefcount(frame)
    batch = decode(frame)
    assert isinstance(batch, Batch)
    assert sys.getrefcount(frame) == before


# Batches.


@pytest.mark.covers("RPC-13")
@given(st.lists(messages, min_size=1, max_size=5))
def test_an_array_of_messages_is_decoded_as_a_batch(batch: list[Message]) -> None:
    frame = b" [%b] " % b" , ".join(encode(message) for message in batch)
    assert decode(frame) == Batch(tuple(batch))


@pytest.mark.covers("RPC-13")
def test_invalid_items_of_a_batch_become_errors_at_their_position() -> None:
    batch = decode(
        b'[1,{"jsonrpc":"2.0","method":"m"},{"jsonrpc":"2.0","id":5},[],"x",null,'
        b'[{"jsonrpc":"2.0","method":"m"}]]'
    )
    assert isinstance(batch, Batch)
    assert batch.items[1] == Notification("m")
    errors = [item for item in batch.items if isinstance(item, RemoteProtocolError)]
    expected = [None, 5, None, None, None, None]
    assert [plain(error) for error in errors] == [(INVALID_REQUEST, id_) for id_ in expected]


@pytest.mark.covers("RPC-13")
def test_an_empty_batch_is_rejected() -> None:
    assert plain(refusal(b" [ ] ")) == (INVALID_REQUEST, None)


def test_the_number_of_items_and_bytes_in_a_batch_is_limited() -> None:
    """Without a limit, an item `1,` of two bytes would become an exception of about 1000 bytes."""
    note = b'{"jsonrpc":"2.0","method":"m"}'
    most = decode(b"[" + b",".join([note] * MAX_BATCH) + b"]")
    assert isinstance(most, Batch)
    assert len(most.items) == MAX_BATCH
    assert plain(refusal(b"[" + b",".join([note] * (MAX_BATCH + 1)) + b"]")) == (
        INVALID_REQUEST,
        None,
    )


def test_a_batch_with_too_many_invalid_items_is_rejected() -> None:
    mistakes = decode(b"[" + b"1," * (MAX_BATCH_MISTAKES - 1) + b"1]")
    assert isinstance(mistakes, Batch)
    assert len(mistakes.items) == MAX_BATCH_MISTAKES
    assert plain(refusal(b"[" + b"1," * MAX_BATCH_MISTAKES + b"1]")) == (INVALID_REQUEST, None)


def test_nested_arrays_in_a_batch_are_not_decoded() -> None:
    batch = decode(b"[" * 500 + b"]" * 500)
    assert isinstance(batch, Batch)
    [error] = batch.items
    assert isinstance(error, RemoteProtocolError)
    assert plain(error) == (INVALID_REQUEST, None)


@given(ids, values.map(raw))
def test_encode_success_returns_the_same_frame_as_encode(
    request_id: int | str, result: Raw
) -> None:
    frame = encode(Success(request_id, result, {}))
    assert encode(Success(request_id, result)) == frame
    assert encode_success(request_id, result) == frame
    assert encode_success(request_id, bytes(result)) == frame


@pytest.mark.parametrize("request_id", [7, "a"])
@pytest.mark.parametrize(
    ("result", "line"),
    [
        (b'{"a":1}', b'{"a":1}'),
        (b'{"a":\n1}', b'{"a":1}'),
        (b'{"a":\r1}', b'{"a":1}'),
        (b'{"a":\r\n1}', b'{"a":1}'),
        (b'"' + b"x" * (8 << 10) + b'"', b'"' + b"x" * (8 << 10) + b'"'),
    ],
)
def test_line_breaks_in_an_encoded_result_are_removed(
    request_id: int | str, result: bytes, line: bytes
) -> None:
    frame = encode_success(request_id, result, b"\n")
    assert frame.count(b"\n") == 1
    assert frame.endswith(b"}\n")
    assert b"\r" not in frame
    found = msgspec.json.decode(frame)
    assert found == {"jsonrpc": "2.0", "id": request_id, "result": msgspec.json.decode(line)}
    assert encode_success(request_id, result) == frame[:-1]


BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r\n\x0b\x0c"

# Bytes in which line ends, blanks and byte order marks are frequent.
streams = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b" ", b"\r", BOM, b"{}", b'{"a":1}', b"x" * 9])
    | st.binary(max_size=6),
    max_size=30,
).map(b"".join)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in pairwise(edges)]


def all_lines(splitter: LineSplitter, chunks: list[bytes]) -> list[bytes | TooLong]:
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


def expected(stream: bytes, limit: int) -> list[bytes | TooLong]:
    """Return the expected lines, computed by a slow reference implementation."""
    out: list[bytes | TooLong] = []
    at_start = True
    *whole, last = stream.split(b"\n")
    for line in (*whole, last) if last else whole:
        if len(line) > limit:
            out.append(TooLong(len(line), line[:200]))
            continue
        if at_start:
            line = line.removeprefix(BOM)
        at_start = False
        if line.strip(BLANKS):
            out.append(line.strip(BLANKS))
    return out


@pytest.mark.covers("RPC-08")
@given(streams, st.lists(st.integers(0, 300), max_size=12), st.sampled_from([4, 16, 1000]))
def test_decoded_lines_do_not_depend_on_the_chunks(
    stream: bytes, places: list[int], limit: int
) -> None:
    lines = all_lines(LineSplitter(limit), cut(stream, places))
    assert lines == expected(stream, limit)
    assert all(type(line) is bytes for line in lines if not isinstance(line, TooLong))


@given(streams, st.sampled_from([4, 1000]))
def test_decoded_lines_are_the_same_if_bytes_arrive_one_by_one(stream: bytes, limit: int) -> None:
    drip = [stream[i : i + 1] for i in range(len(stream))]
    assert all_lines(LineSplitter(limit), drip) == expected(stream, limit)


@pytest.mark.covers("RPC-08")
@given(streams, st.lists(st.integers(0, 300), max_size=12), st.sampled_from([4, 16]))
def test_buffered_bytes_never_exceed_the_limit(
    stream: bytes, places: list[int], limit: int
) -> None:
    splitter = LineSplitter(limit)
    for chunk in cut(stream, places):
        splitter.feed(chunk)
        assert splitter.held <= max(limit, 200)
    splitter.finish()
    assert splitter.held == 0


def test_a_line_is_returned_when_its_end_arrives() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.held == 5
    assert splitter.feed(b'1}\n{"b":2}\n{"c"') == [b'{"a":1}', b'{"b":2}']
    assert splitter.held == 4
    assert splitter.feed(b":3}\n") == [b'{"c":3}']
    assert splitter.held == 0
    assert splitter.finish() == []


def test_a_carriage_return_before_a_newline_is_not_part_of_a_line() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"{}\r") == []
    assert splitter.feed(b"\n{}\r\n\r\n") == [b"{}", b"{}"]


def test_blank_lines_and_blanks_around_a_line_are_removed() -> None:
    assert LineSplitter().feed(b"\n \t\r\n\x0b\x0c\n  {} \t\n") == [b"{}"]


def test_a_byte_order_mark_is_dropped_once_at_the_start() -> None:
    splitter = LineSplitter()
    assert splitter.feed(BOM[:2]) == []
    assert splitter.feed(BOM[2:] + b"{}\n" + BOM + b"{}\n") == [b"{}", BOM + b"{}"]
    assert LineSplitter().feed(BOM + b"\n{}\n") == [b"{}"]


def test_the_last_line_may_lack_its_line_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"{}\n{}") == [b"{}"]
    assert splitter.finish() == [b"{}"]
    assert splitter.finish() == []


@pytest.mark.covers("RPC-08")
def test_a_line_may_be_as_long_as_the_limit() -> None:
    assert MAX_MESSAGE == 16 * 1024 * 1024
    for chunk_size in (1, 3, 100):
        splitter = LineSplitter(10)
        stream = b"0123456789\n0123456789x\n"
        lines = all_lines(splitter, cut(stream, list(range(0, 99, chunk_size))))
        assert lines == [b"0123456789", TooLong(11, b"0123456789x")]


@pytest.mark.covers("RPC-08")
def test_a_line_over_the_limit_is_reported_once_and_the_next_is_read() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"{}\n" + b"x" * 8) == [b"{}"]
    for _ in range(1000):
        assert splitter.feed(b"y" * 50) == []
    assert splitter.feed(b"z\n{}\n") == [TooLong(50_009, (b"x" * 8 + b"y" * 200)[:200]), b"{}"]


def test_the_reported_start_of_a_too_long_line_does_not_depend_on_the_chunks() -> None:
    line = bytes(range(48, 123)) * 10
    for size in (1, 7, 64, 199, 200, 201, 750):
        chunks = [line[i : i + size] for i in range(0, len(line), size)]
        assert all_lines(LineSplitter(64), chunks) == [TooLong(750, line[:200])]


@pytest.mark.covers("RPC-08")
def test_memory_is_bounded_for_a_line_of_any_length() -> None:
    splitter = LineSplitter(64 * 1024)
    chunk = b"x" * 32 * 1024
    tracemalloc.start()
    try:
        for _ in range(500):
            splitter.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024
    assert splitter.finish() == [TooLong(500 * len(chunk), chunk[:200])]


def test_single_bytes_are_collected_in_one_buffer() -> None:
    splitter = LineSplitter()
    tracemalloc.start()
    try:
        for _ in range(50_000):
            splitter.feed(b"x")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 50_000
    assert splitter.finish() == [b"x" * 50_000]


@pytest.mark.parametrize("sizes", [(5000, 1, 5000), (1, 5000, 1, 1), (4095, 4096, 4097)])
def test_large_and_small_chunks_of_a_line_stay_in_order(sizes: tuple[int, ...]) -> None:
    pieces = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    splitter = LineSplitter()
    for piece in pieces:
        assert splitter.feed(piece) == []
    assert splitter.feed(b"\n") == [b"".join(pieces)]


@pytest.mark.parametrize(("size", "fits"), [(20, True), (21, False)])
@pytest.mark.parametrize("pieces", [1, 2])
def test_the_length_limit_applies_to_the_fast_path_for_one_line(
    size: int, fits: bool, pieces: int
) -> None:
    line = b"{" + b" " * (size - 2) + b"}"
    splitter = LineSplitter(20)
    chunks = [line + b"\n"] if pieces == 1 else [line[:5], line[5:] + b"\n"]
    found = [one for chunk in chunks for one in splitter.feed(chunk)]
    assert found == ([line] if fits else [TooLong(size, line[:200])])
    assert splitter.held == 0
