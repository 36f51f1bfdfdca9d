"""Tests of encoding return values as content blocks."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from fairlead import MCPToolError, RpcError
from fairlead.client import Message
from fairlead.protocol.types.content import (
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from fairlead.protocol.types.tools import CallToolResult
from fairlead.server.results.encode_result import (
    as_content,
    error_content,
    is_block_type,
    is_result_type,
    prompt_messages,
    resource_contents,
)
from fairlead.server.results.media import Audio, File, Image

PNG = b"\x89PNG\r\n\x1a\n"


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(serialization_alias="town")


class Shape(msgspec.Struct, tag=True):
    """Struct with a member `type` that does not name a content block."""

    size: int


def blocks_of(value: Any) -> Any:
    return json.loads(as_content(value).result)["content"]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.covers("SRV-29", "DEC-14")
@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("hello", [text("hello")]),
        (None, [text("")]),
        (7, [text("7")]),
        (True, [text("true")]),
        ([], [text("[]")]),
        (["a", "b"], [text('["a","b"]')]),
        ({"a": [1, None]}, [text('{"a":[1,null]}')]),
        (Path("a/b"), [text('"a/b"')]),
        (Weather(city="Bern"), [text('{"town":"Bern"}')]),
        ([Weather(city="Bern")], [text('[{"town":"Bern"}]')]),
        (Shape(3), [text('{"type":"Shape","size":3}')]),
        ("half \ud83d", [text("half \ufffd")]),
        ({"name": "\ud83d", "path": Path("x")}, [text('{"name":"\ufffd","path":"x"}')]),
        (TextContent(text="x"), [text("x")]),
        (msgspec.Raw(b'{"type":"later"}'), [{"type": "later"}]),
        (
            ResourceLink(uri="a:b", name="n"),
            [{"type": "resource_link", "uri": "a:b", "name": "n"}],
        ),
        (
            EmbeddedResource(resource=ResourceContents(uri="a:b", text="t")),
            [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}],
        ),
        (
            ("see:", ImageContent(data="eA==", mime_type="image/png"), "done"),
            [
                text("see:"),
                {"type": "image", "data": "eA==", "mimeType": "image/png"},
                text("done"),
            ],
        ),
        (
            ["look", Image(PNG)],
            [text("look"), {"type": "image", "data": coded(PNG), "mimeType": "image/png"}],
        ),
        (CallToolResult(content=[]), [text("")]),
    ],
)
def test_return_values_of_each_type_become_content_blocks(value: Any, blocks: list[Any]) -> None:
    assert blocks_of(value) == blocks


@pytest.mark.covers("SRV-29")
def test_bytes_become_an_embedded_resource_named_by_their_digest() -> None:
    assert blocks_of(b"\0\1") == [
        {
            "type": "resource",
            "resource": {
                "uri": f"urn:sha256:{hashlib.sha256(bytes((0, 1))).hexdigest()}",
                "mimeType": "application/octet-stream",
                "blob": coded(b"\0\1"),
            },
        }
    ]


@pytest.mark.covers("SRV-29")
@pytest.mark.parametrize(
    ("data", "given", "mime_type"),
    [
        (PNG, None, "image/png"),
        (b"\xff\xd8\xff\xe0", None, "image/jpeg"),
        (b"GIF89a", None, "image/gif"),
        (b"RIFF\0\0\0\0WEBP", None, "image/webp"),
        (b"?", "jpg", "image/jpeg"),
        (b"<svg/>", "svg", "image/svg+xml"),
    ],
)
def test_the_type_of_an_image_is_detected(data: bytes, given: str | None, mime_type: str) -> None:
    assert Image(data, format=given).mime_type == mime_type


@pytest.mark.covers("SRV-29")
def test_media_can_be_read_from_files(tmp_path: Path) -> None:
    picture, sound, words, data = (tmp_path / n for n in ("a.JPG", "b.mp3", "c.md", "d.bin"))
    for file, content in (
        (picture, b"p"),
        (sound, b"s"),
        (words, "wörter".encode()),
        (data, b"\xff"),
    ):
        file.write_bytes(content)
    assert blocks_of([Image(path=picture), Audio(path=str(sound)), File(words), File(data)]) == [
        {"type": "image", "data": coded(b"p"), "mimeType": "image/jpeg"},
        {"type": "audio", "data": coded(b"s"), "mimeType": "audio/mpeg"},
        {
            "type": "resource",
            "resource": {"uri": words.as_uri(), "mimeType": "text/markdown", "text": "wörter"},
        },
        {
            "type": "resource",
            "resource": {
                "uri": data.as_uri(),
                "mimeType": "application/octet-stream",
                "blob": coded(b"\xff"),
            },
        },
    ]


def test_media_require_an_existing_file_and_exactly_one_of_data_and_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Image(path=tmp_path / "none.png")
    with pytest.raises(TypeError, match="Audio requires exactly one of data and path"):
        Audio()
    with pytest.raises(TypeError, match="Image requires exactly one of data and path"):
        Image(b"", path="x")


@pytest.mark.covers("SRV-29")
def test_a_return_value_without_a_json_form_is_rejected() -> None:
    with pytest.raises(TypeError, match="a value of type object has no JSON form"):
        as_content([object()])


@pytest.mark.covers("SRV-29")
def test_a_large_result_is_encoded_completely() -> None:
    size = 20_000_000
    (block,) = blocks_of(bytes(size))
    assert len(base64.b64decode(block["resource"]["blob"])) == size


def test_media_can_be_used_as_messages_of_a_prompt() -> None:
    (message,) = prompt_messages(Image(PNG), "p")
    assert json.loads(msgspec.json.encode(message)) == {
        "role": "user",
        "content": {"type": "image", "data": coded(PNG), "mimeType": "image/png"},
    }


@pytest.mark.covers("SRV-32")
def test_a_resource_may_return_a_pydantic_model() -> None:
    assert resource_contents("a:b", "application/json", Weather(city="Bern")) == [
        {"uri": "a:b", "mimeType": "application/json", "text": '{"town":"Bern"}'}
    ]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", {"text": "text"}),
        (b"\0", {"blob": "AA=="}),
        (bytearray(b"\0"), {"blob": "AA=="}),
        (memoryview(b"\0"), {"blob": "AA=="}),
        ({"a": 1}, {"text": '{"a":1}'}),
        (("a", "b"), {"text": '["a","b"]'}),
    ],
    ids=["text", "bytes", "bytearray", "memoryview", "mapping", "tuple"],
)
def test_the_return_value_of_a_content_provider_becomes_contents(value: Any, content: Any) -> None:
    expected = {"uri": "r://1", "mimeType": "a/b", **content}
    assert resource_contents("r://1", "a/b", value) == [expected]
    assert resource_contents("r://1", "a/b", [value, value]) == [expected] * 2


def test_contents_with_a_uri_are_returned_unchanged() -> None:
    own = {"uri": "r://2", "text": "x"}
    typed = ResourceContents(uri="r://3", text="x")
    assert resource_contents("r://1", "a/b", [own, typed]) == [own, typed]


class ForeignText(pydantic.BaseModel):
    type: str
    text: str
    annotations: dict[str, Any] | None = None


class ForeignMessage(pydantic.BaseModel):
    role: str
    content: str
    meta: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("a", [{"role": "user", "content": text("a")}]),
        (("a", "b"), [{"role": "user", "content": text(one)} for one in "ab"]),
        (
            {"role": "assistant", "content": text("a")},
            [{"role": "assistant", "content": text("a")}],
        ),
        ([TextContent(text="a")], [{"role": "user", "content": text("a")}]),
        ([], []),
        (
            ["q", {"role": "assistant", "content": "a", "_meta": {"n": 1}}],
            [
                {"role": "user", "content": text("q")},
                {"role": "assistant", "content": text("a"), "_meta": {"n": 1}},
            ],
        ),
        (text("a"), [{"role": "user", "content": text("a")}]),
        (
            Message("assistant", TextContent(text="a")),
            [{"role": "assistant", "content": text("a")}],
        ),
        (ForeignMessage(role="user", content="a"), [{"role": "user", "content": text("a")}]),
        (
            {"role": "user", "content": ForeignText(type="text", text="a")},
            [{"role": "user", "content": text("a")}],
        ),
    ],
    ids=[
        *("text", "tuple", "message", "block", "nothing", "text of a message", "block as a dict"),
        *("message object", "model", "block of a model"),
    ],
)
def test_the_return_value_of_a_prompt_becomes_messages(value: Any, messages: Any) -> None:
    assert json.loads(msgspec.json.encode(prompt_messages(value, "p"))) == messages


FORMS = (
    ": expected a string, a content block, or a message such as {'role': 'user', 'content': 'text'}"
    ", where the role is 'user' or 'assistant' and the content is a string or a content block; or "
    "a list of these"
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (42, "42"),
        ({"text": "a"}, "{'text': 'a'}"),
        (["a", {"role": "system", "content": "a"}], "{'role': 'system', 'content': 'a'}"),
        ({"role": "user", "content": 5}, "{'role': 'user', 'content': 5}"),
        ([["a"]], "an object of type list"),
        (object(), "an object of type object"),
        (Shape(3), "an object of type Shape"),
        ({"role": "user" * 100}, f"{{'role': '{'user' * 48}"),
    ],
    ids=["none", "number", "dict", "role", "content", "list", "object", "struct", "long"],
)
def test_the_error_for_another_return_value_names_the_prompt_and_the_accepted_forms(
    value: Any, shown: str
) -> None:
    with pytest.raises(RpcError) as wrong:
        prompt_messages(value, "ask")
    assert wrong.value.code == -32603
    start, end = wrong.value.message[: -len(FORMS)], wrong.value.message[-len(FORMS) :]
    assert (start[:200], end) == (f"prompt 'ask' returned {shown}"[:200], FORMS)


TAIL = b',"resultType":"complete","_meta":{"server":{"name":"s"}}}'


@pytest.mark.parametrize(
    ("own", "meta"),
    [
        ({}, {"server": {"name": "s"}}),
        ({"meta": msgspec.Raw(b'{"a":1}')}, {"server": {"name": "s"}, "a": 1}),
        ({"meta": msgspec.Raw(b'{"server":5}')}, {"server": 5}),
    ],
    ids=["none", "other", "same"],
)
def test_a_complete_result_keeps_its_members_and_gets_the_members_of_its_era(
    own: Any, meta: Any
) -> None:
    value = CallToolResult(content=[TextContent(text="a")], **own)
    encoded = as_content(value, TAIL)
    assert encoded.plain is False
    assert json.loads(encoded.result) == {
        "content": [text("a")],
        "resultType": "complete",
        "_meta": meta,
    }
    plain = json.loads(as_content(value).result)
    assert plain.get("_meta") == (None if not own else json.loads(bytes(own["meta"])))
    only_type = json.loads(as_content(value, b',"resultType":"complete"}').result)
    assert only_type["resultType"] == "complete"
    assert only_type.get("_meta") == plain.get("_meta")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("a", True),
        (None, True),
        (5, True),
        (Shape(3), True),
        (TextContent(text="a"), False),
        (["a", TextContent(text="a")], False),
        (b"x", False),
    ],
    ids=["text", "none", "number", "struct", "block", "blocks", "bytes"],
)
def test_a_result_is_plain_if_it_is_valid_in_every_revision(value: Any, plain: bool) -> None:
    encoded = as_content(value, TAIL)
    assert encoded.plain is plain
    assert json.loads(encoded.result)["resultType"] == "complete"


class Loud(str):
    def __str__(self) -> str:
        return self.upper()


@pytest.mark.parametrize(
    ("kind", "block", "result"),
    [
        (TextContent, True, False),
        (CallToolResult, False, True),
        (Shape, False, False),
        (int, False, False),
        (TextContent(text="a"), False, False),
        (list[TextContent], False, False),
    ],
    ids=["block", "result", "struct", "int", "instance", "list"],
)
def test_types_of_content_blocks_and_results_are_recognized(
    kind: Any, block: bool, result: bool
) -> None:
    assert (is_block_type(kind), is_result_type(kind)) == (block, result)


def test_a_list_without_content_blocks_is_encoded_as_json() -> None:
    assert blocks_of(["a", 5]) == [text('["a",5]')]
    assert blocks_of(["a", 5, None]) == [text('["a",5,null]')]
    assert blocks_of(Loud("a")) == [text("A")]
    with pytest.raises(TypeError):
        as_content([Image(PNG), object()])


def test_an_error_is_encoded_as_one_text_block_with_is_error() -> None:
    result = json.loads(error_content(MCPToolError("no"), TAIL).result)
    assert json.loads(result["content"][0]["text"]) == {"code": "EXECUTION_ERROR", "message": "no"}
    assert (result["isError"], result["resultType"]) == (True, "complete")
