"""What functions return, as content blocks."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from fairlead.protocol.types.content import (
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from fairlead.protocol.types.tools import CallToolResult
from fairlead.server.results.encode_result import as_content, prompt_messages, resource_contents
from fairlead.server.results.media import Audio, File, Image

PNG = b"\x89PNG\r\n\x1a\n"


class Weather(pydantic.BaseModel):
    city: str = pydantic.Field(serialization_alias="town")


class Shape(msgspec.Struct, tag=True):
    """Has a `type` as blocks have, and is none."""

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
def test_values_become_blocks(value: Any, blocks: list[Any]) -> None:
    assert blocks_of(value) == blocks


@pytest.mark.covers("SRV-29")
def test_bytes_become_an_embedded_resource_named_after_them() -> None:
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
def test_a_picture_knows_its_type(data: bytes, given: str | None, mime_type: str) -> None:
    assert Image(data, format=given).mime_type == mime_type


@pytest.mark.covers("SRV-29")
def test_media_come_from_files_too(tmp_path: Path) -> None:
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


def test_media_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Image(path=tmp_path / "none.png")
    with pytest.raises(TypeError, match="Audio is made of data or of a path"):
        Audio()
    with pytest.raises(TypeError, match="Image is made of data or of a path"):
        Image(b"", path="x")


@pytest.mark.covers("SRV-29")
def test_what_has_no_json_form_says_so() -> None:
    with pytest.raises(TypeError, match="a value of type object has no JSON form"):
        as_content([object()])


@pytest.mark.covers("SRV-29")
def test_a_big_result_is_whole() -> None:
    size = 20_000_000
    (block,) = blocks_of(bytes(size))
    assert len(base64.b64decode(block["resource"]["blob"])) == size


def test_media_are_words_in_a_prompt() -> None:
    (message,) = prompt_messages(Image(PNG))
    assert json.loads(msgspec.json.encode(message)) == {
        "role": "user",
        "content": {"type": "image", "data": coded(PNG), "mimeType": "image/png"},
    }


@pytest.mark.covers("SRV-32")
def test_a_resource_may_be_a_model() -> None:
    assert resource_contents("a:b", "application/json", Weather(city="Bern")) == [
        {"uri": "a:b", "mimeType": "application/json", "text": '{"town":"Bern"}'}
    ]
