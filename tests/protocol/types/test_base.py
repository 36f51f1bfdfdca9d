import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.protocol.types.base import (
    Annotations,
    BadItem,
    CacheableResult,
    Icon,
    decode,
    decode_items,
    decoder,
    encode,
)
from fairlead.protocol.types.content import (
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
    ToolUseContent,
    UnknownContent,
    decode_content,
)
from fairlead.protocol.types.input_required import InputRequiredResult
from fairlead.protocol.types.prompts import Prompt, PromptArgument
from fairlead.protocol.types.tools import CallToolResult, Tool

EMPTY_SCHEMA = Raw(b'{"type":"object"}')


# Encoding.


def test_unset_members_of_a_struct_are_not_encoded() -> None:
    assert encode(CacheableResult()) == Raw(b"{}")
    assert encode(CacheableResult(cache_scope="")) == Raw(b'{"cacheScope":""}')


def test_members_equal_to_their_default_are_encoded() -> None:
    result = CacheableResult(ttl_ms=0, cache_scope="private")
    assert bytes(encode(result)) == b'{"ttlMs":0,"cacheScope":"private"}'
    assert bytes(encode(InputRequiredResult(request_state="s"))) == (
        b'{"resultType":"input_required","requestState":"s"}'
    )


def test_schemas_are_encoded_and_decoded_unchanged() -> None:
    schema = Raw(b'{ "type":"object", "x-mine": 1e400, "$defs": {} }')
    sent = encode(Tool(name="t", input_schema=schema))
    assert decode(sent, Tool).input_schema == schema


def test_the_type_of_a_content_block_is_encoded() -> None:
    assert bytes(encode(TextContent(text="a"))) == b'{"type":"text","text":"a"}'


def test_integers_and_floats_keep_their_json_type() -> None:
    for text in (b'{"priority":1}', b'{"priority":0.5}'):
        assert bytes(encode(decode(text, Annotations))) == text


# Decoding.


def test_unknown_members_are_ignored_by_the_decoder() -> None:
    assert decode(b'{"ttlMs":1,"later":[1]}', CacheableResult) == CacheableResult(ttl_ms=1)


def test_null_differs_from_absent_in_members_that_allow_null() -> None:
    assert decode(b'{"content":[]}', CallToolResult).structured_content is UNSET
    nothing = decode(b'{"content":[],"structuredContent":null}', CallToolResult)
    assert nothing.structured_content == Raw(b"null")


def test_null_counts_as_absent_in_members_that_forbid_null() -> None:
    sent = (
        b'{"name":"p","title":null,"later":null,"icons":[{"src":"i","theme":null}],'
        b'"arguments":[{"name":"a","required":null},{"name":"b"}],"_meta":null}'
    )
    assert decode(sent, Prompt) == Prompt(
        name="p",
        icons=[Icon(src="i")],
        arguments=[PromptArgument(name="a"), PromptArgument(name="b")],
        meta=Raw(b"null"),
    )
    result = decode(b'{"content":[null],"isError":null}', CallToolResult)
    assert result == CallToolResult(content=[Raw(b"null")])


def test_null_members_of_content_blocks_count_as_absent() -> None:
    sent = Raw(b'{"type":"image","data":"","mimeType":"image/png","annotations":null}')
    assert decode_content(sent) == ImageContent(data="", mime_type="image/png")
    inner = Raw(b'{"type":"resource","resource":{"uri":"u","text":"t","blob":null}}')
    resource = ResourceContents(uri="u", text="t")
    assert decode_content(inner) == EmbeddedResource(resource=resource)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b'{"name":null,"inputSchema":{}}', r"Expected `str`, got `null` - at `\$.name`"),
        (b'{"name":1,"title":null,"inputSchema":{}}', r"Expected `str`, got `int` - at `\$.name`"),
        (b'{"name":"t"}', "missing required field `inputSchema`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
    ],
)
def test_a_decode_error_contains_the_path_of_the_invalid_member(sent: bytes, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        decode(sent, Tool)


@pytest.mark.parametrize("sent", [b"", b"{", b'{"name":"\xff"}', b'{"name":' + b"[" * 100_000])
def test_invalid_json_raises_a_decode_error(sent: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(sent, Tool)


def test_invalid_utf_8_in_addition_to_an_invalid_member_raises_a_decode_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"name":1,"\xff":2}', Tool)


def test_a_decoder_is_built_only_once() -> None:
    assert decoder(Tool) is decoder(Tool)


def test_decoding_a_result_checks_its_result_type() -> None:
    assert decode(encode(InputRequiredResult()), CacheableResult).result_type == "input_required"
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"resultType":"complete"}', InputRequiredResult)


# Lists, decoded item by item.


def test_an_invalid_item_in_a_list_does_not_affect_other_items() -> None:
    good = Tool(name="a", input_schema=EMPTY_SCHEMA)
    page = msgspec.json.decode(
        b'[{"name":"a","inputSchema":{"type":"object"}},{"name":1},7,'
        b'{"name":"\xff","inputSchema":{}},{"name":"a","inputSchema":{"type":"object"}}]',
        type=list[Raw],
    )
    tools, bad = decode_items(page, Tool)
    assert tools == [good, good]
    assert [item.index for item in bad] == [1, 2, 3]
    assert bad[1] == BadItem(2, "Expected `object`, got `int`")


@given(st.lists(st.booleans()))
def test_invalid_items_are_returned_separately_with_their_index(fits: list[bool]) -> None:
    items = [Raw(b'{"src":"i"}') if fit else Raw(b"{}") for fit in fits]
    good, bad = decode_items(items, Icon)
    assert len(good) == sum(fits)
    assert [item.index for item in bad] == [n for n, fit in enumerate(fits) if not fit]


# Content.


@given(st.text(), st.text())
def test_content_is_encoded_and_decoded_unchanged(text: str, mime_type: str) -> None:
    blocks: list[ContentBlock] = [
        TextContent(text=text),
        ImageContent(data=text, mime_type=mime_type),
        ToolUseContent(id=text, name=text, input=Raw(b"{}")),
    ]
    for block in blocks:
        assert decode_content(encode(block)) == block


def test_content_of_an_unknown_type_is_kept_unchanged() -> None:
    raw = Raw(b'{"type":"hologram","beams":[1,2]}')
    block = decode_content(raw)
    assert isinstance(block, UnknownContent)
    assert (block.raw, block.type, block.sent_type) == (raw, "unknown", "hologram")


@pytest.mark.parametrize(
    ("raw", "type_"),
    [(b'{"type":"image"}', "image"), (b'{"text":"a"}', None), (b"3", None), (b'"\xff', None)],
)
def test_invalid_content_is_kept_as_unknown_content(raw: bytes, type_: str | None) -> None:
    block = decode_content(Raw(raw))
    assert isinstance(block, UnknownContent)
    assert (block.raw, block.type, block.sent_type) == (Raw(raw), "unknown", type_)
    assert block.reason
