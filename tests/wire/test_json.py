import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct, UnsetType

from fairlead.wire import single_line, to_json
from fairlead.wire.json import MemberNames

HALF = "\ud83d"  # a lone surrogate

# Python strings, which may contain lone surrogates.
strings = st.text(st.characters(), max_size=8) | st.sampled_from([HALF, "\udc00", "a\udcff"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | strings,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(strings, inner, max_size=3)
    ),
    max_leaves=6,
)


class Named(Struct, rename="camel"):
    file_name: str
    content: Raw | UnsetType = UNSET


@pytest.mark.covers("RPC-08")
@given(values)
def test_every_plain_value_becomes_valid_utf_8_on_one_line(value: Any) -> None:
    written = to_json(value)
    assert b"\n" not in written
    assert b"\r" not in written
    json.loads(written.decode(), parse_constant=pytest.fail)
    assert single_line(written) == written


@given(st.text(st.characters(), max_size=20))
def test_lone_surrogates_of_a_string_are_replaced_and_other_characters_kept(text: str) -> None:
    read = msgspec.json.decode(to_json(text))
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert read == "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in joined)


def test_a_lone_surrogate_is_replaced_and_a_pair_is_joined() -> None:
    assert to_json({HALF: [HALF + "x", ("\udc00",)]}) == '{"�":["�x",["�"]]}'.encode()
    assert to_json("\ud83d\ude00") == '"😀"'.encode()
    assert to_json("\ufeff" + HALF) == '"\ufeff�"'.encode()


def test_replacing_a_lone_surrogate_keeps_raw_parts() -> None:
    assert to_json({"name": HALF, "size": Raw(b"1.50")}) == '{"name":"�","size":1.50}'.encode()
    assert to_json([Named(HALF, Raw(b"[1E2]")), Named("b" + HALF)]) == (
        '[{"fileName":"�","content":[1E2]},{"fileName":"b�"}]'.encode()
    )


def test_nan_and_the_infinities_are_written_as_null() -> None:
    assert to_json([math.nan, math.inf, -math.inf]) == b"[null,null,null]"
    assert to_json([HALF, math.nan]) == '["�",null]'.encode()


@pytest.mark.covers("RPC-08")
def test_line_breaks_between_json_values_are_removed() -> None:
    frame = b'{\r\n  "a": [\n 1.0,\r 1E5 ],\n "b": "x\\ny\\u000d" }'
    assert single_line(frame) == b'{"a":[1.0,1E5],"b":"x\\ny\\u000d"}'


def test_json_on_one_line_is_returned_unchanged() -> None:
    frame = b'{ "a" : 1 }'
    assert single_line(frame) is frame


def test_a_value_without_a_json_form_raises_an_error() -> None:
    with pytest.raises(TypeError):
        to_json(object())
    with pytest.raises(TypeError):
        to_json([HALF, object()])


NAMES = MemberNames("uri", "arguments", "taskId")


@pytest.mark.parametrize(
    "name", ["URI", "Uri", "ur\u0131", "argument\u017f", "taskid", "TaskID", "tas\u212aId"]
)
def test_a_member_name_in_another_case_is_recognised(name: str) -> None:
    assert NAMES.respells(name)


@pytest.mark.parametrize("name", ["uri", "taskId", "uris", "task_id", "", "ürl"])
def test_exact_and_unrelated_member_names_are_not_respellings(name: str) -> None:
    assert not NAMES.respells(name)


def test_members_whose_names_differ_only_in_case_are_removed() -> None:
    assert NAMES.exact({"uri": 1, "URI": 2, "other": 3}) == {"uri": 1, "other": 3}


def test_members_with_exact_names_are_returned_unchanged() -> None:
    for members in ({}, {"uri": 1}, {"uri": 1, "other": 3}):
        assert NAMES.exact(members) is members
