import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.protocol.types.base import (
    BadItem,
    EmptyResult,
    Icon,
    PaginatedParams,
    decode,
    decode_items,
    decoder,
    encode,
)
from fairlead.protocol.types.capabilities import (
    DECLARED,
    ClientCapabilities,
    ElicitationCapability,
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
from fairlead.protocol.types.logging import LEVELS, LoggingMessageParams, SetLevelParams
from fairlead.protocol.types.notifications import CancelledParams, ProgressParams
from fairlead.protocol.types.prompts import Prompt, PromptArgument
from fairlead.protocol.types.resources import ReadResourceResult
from fairlead.protocol.types.sampling import decode_blocks
from fairlead.protocol.types.tasks import CoreTask, CreateTaskResult, TaskResult
from fairlead.protocol.types.tools import CallToolResult, ListToolsResult, Tool

EMPTY_SCHEMA = Raw(b'{"type":"object"}')


# Writing.


def test_what_is_absent_is_not_written() -> None:
    assert encode(PaginatedParams()) == Raw(b"{}")
    assert encode(PaginatedParams(cursor="")) == Raw(b'{"cursor":""}')


def test_what_equals_a_default_is_written() -> None:
    result = ReadResourceResult(contents=[], ttl_ms=0, cache_scope="private")
    assert bytes(encode(result)) == b'{"ttlMs":0,"cacheScope":"private","contents":[]}'
    assert bytes(encode(InputRequiredResult(request_state="s"))) == (
        b'{"resultType":"input_required","requestState":"s"}'
    )


def test_schemas_keep_every_keyword_in_its_place() -> None:
    schema = Raw(b'{ "type":"object", "x-mine": 1e400, "$defs": {} }')
    sent = encode(Tool(name="t", input_schema=schema))
    assert decode(sent, Tool).input_schema == schema


def test_constants_are_written_as_tags() -> None:
    assert bytes(encode(TextContent(text="a"))) == b'{"type":"text","text":"a"}'


def test_numbers_stay_what_they_were() -> None:
    text = b'{"progressToken":1,"progress":3,"total":4.5}'
    assert bytes(encode(decode(text, ProgressParams))) == text


# Reading.


def test_unknown_members_are_ignored() -> None:
    assert decode(b'{"cursor":"a","later":[1]}', PaginatedParams) == PaginatedParams(cursor="a")


def test_null_and_absent_are_told_apart_where_null_is_a_value() -> None:
    assert decode(b'{"content":[]}', CallToolResult).structured_content is UNSET
    nothing = decode(b'{"content":[],"structuredContent":null}', CallToolResult)
    assert nothing.structured_content == Raw(b"null")
    task = b'{"taskId":"t","status":"working","createdAt":"","lastUpdatedAt":"","ttl":null}'
    assert decode(task, CoreTask).ttl is None


def test_null_is_absent_where_it_is_no_value() -> None:
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
    page = decode(b'{"tools":[null],"nextCursor":null}', ListToolsResult)
    assert page == ListToolsResult(tools=[Raw(b"null")])


def test_null_is_absent_in_content_too() -> None:
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
def test_what_does_not_fit_says_why(sent: bytes, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        decode(sent, Tool)


@pytest.mark.parametrize("sent", [b"", b"{", b'{"name":"\xff"}', b'{"name":' + b"[" * 100_000])
def test_what_is_no_json_is_one_kind_of_error(sent: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(sent, Tool)


def test_bad_text_beside_a_misfit_is_still_that_kind_of_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"name":1,"\xff":2}', Tool)


def test_an_id_is_no_bool() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"requestId":true}', CancelledParams)
    assert decode(b'{"requestId":"1"}', CancelledParams).request_id == "1"


def test_a_decoder_is_built_once() -> None:
    assert decoder(Tool) is decoder(Tool)


def test_a_result_tells_its_type_before_its_shape_is_known() -> None:
    assert decode(encode(InputRequiredResult()), EmptyResult).result_type == "input_required"
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"resultType":"complete"}', InputRequiredResult)


def test_a_created_task_is_no_state_of_a_task() -> None:
    created = CreateTaskResult(
        task_id="t", status="working", created_at="", last_updated_at="", ttl_ms=None
    )
    assert decode(encode(created), TaskResult).result_type == "task"


# Reading lists.


def test_one_bad_item_does_not_lose_the_others() -> None:
    good = Tool(name="a", input_schema=EMPTY_SCHEMA)
    page = decode(
        b'{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":1},7,'
        b'{"name":"\xff","inputSchema":{}},{"name":"a","inputSchema":{"type":"object"}}]}',
        ListToolsResult,
    )
    tools, bad = decode_items(page.tools, Tool)
    assert tools == [good, good]
    assert [(item.index, item.raw) for item in bad] == [
        (1, b'{"name":1}'),
        (2, b"7"),
        (3, b'{"name":"\xff","inputSchema":{}}'),
    ]
    assert bad[1] == BadItem(2, "Expected `object`, got `int`", b"7")


@given(st.lists(st.booleans()))
def test_every_item_is_either_good_or_bad(fits: list[bool]) -> None:
    items = [Raw(b'{"src":"i"}') if fit else Raw(b"{}") for fit in fits]
    good, bad = decode_items(items, Icon)
    assert len(good) == sum(fits)
    assert [item.index for item in bad] == [n for n, fit in enumerate(fits) if not fit]


# Content.


@given(st.text(), st.text())
def test_content_survives_the_wire(text: str, mime_type: str) -> None:
    blocks: list[ContentBlock] = [
        TextContent(text=text),
        ImageContent(data=text, mime_type=mime_type),
        ToolUseContent(id=text, name=text, input=Raw(b"{}")),
    ]
    for block in blocks:
        assert decode_content(encode(block)) == block


def test_content_of_a_later_kind_is_kept() -> None:
    raw = Raw(b'{"type":"hologram","beams":[1,2]}')
    block = decode_content(raw)
    assert isinstance(block, UnknownContent)
    assert (block.raw, block.type) == (raw, "hologram")


@pytest.mark.parametrize(
    ("raw", "type_"),
    [(b'{"type":"image"}', "image"), (b'{"text":"a"}', None), (b"3", None), (b'"\xff', None)],
)
def test_broken_content_is_kept(raw: bytes, type_: str | None) -> None:
    block = decode_content(Raw(raw))
    assert isinstance(block, UnknownContent)
    assert (block.raw, block.type) == (Raw(raw), type_)
    assert block.reason


def test_sampling_content_is_one_block_or_many() -> None:
    block = TextContent(text="a")
    assert decode_blocks(encode(block)) == [block]
    assert decode_blocks(encode([block, block])) == [block, block]
    assert decode_blocks(Raw(b"[]")) == []


# Details.


def test_levels_rise() -> None:
    assert LEVELS[0] == "debug"
    assert LEVELS[-1] == "emergency"
    for level in LEVELS:
        assert decode(encode(SetLevelParams(level=level)), SetLevelParams).level == level
    with pytest.raises(msgspec.ValidationError):
        decode(b'{"level":"loud","data":1}', LoggingMessageParams)


def test_unknown_capabilities_do_not_spoil_the_known() -> None:
    sent = b'{"elicitation":{"url":{"later":1}},"telepathy":{},"extensions":{"a/b":{}}}'
    assert decode(sent, ClientCapabilities) == ClientCapabilities(
        elicitation=ElicitationCapability(url=Raw(b'{"later":1}')), extensions={"a/b": DECLARED}
    )
