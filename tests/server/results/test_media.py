"""Tests of images, sounds and files that tools return."""

import base64
import hashlib
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.server.results.media import Audio, File, Image, Media, embedded


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"\xff\xd8\x00", "image/png"),
        (b"GIF89a", "image/gif"),
        (b"GIF7", "image/png"),
        (b"RIFF0000WEBP", "image/webp"),
        (b"RIFF0000WEBPVP8 ", "image/webp"),
        (b"RIFF000WEBPVP8 ", "image/png"),
        (b"RIFF0000WAVE", "image/png"),
        (b"0000RIFFWEBP", "image/png"),
        (b"\x89PNG", "image/png"),
        (b"", "image/png"),
    ],
)
def test_the_format_of_an_image_is_detected_from_its_first_bytes(data: bytes, kind: str) -> None:
    block = Image(data).block()
    assert (block.mime_type, base64.b64decode(block.data)) == (kind, data)


@pytest.mark.parametrize(
    ("make", "name", "kind"),
    [
        (Image, "a.JPG", "image/jpeg"),
        (Image, "a.svg", "image/svg+xml"),
        (Image, "a.tif", "image/tiff"),
        (Image, "a.ico", "image/x-icon"),
        (Image, "a.webp", "image/webp"),
        (Image, "a", "image/png"),
        (Audio, "a.mp3", "audio/mpeg"),
        (Audio, "a.m4a", "audio/mp4"),
        (Audio, "a.oga", "audio/ogg"),
        (Audio, "a.opus", "audio/ogg"),
        (Audio, "a.flac", "audio/flac"),
        (Audio, "a", "audio/wav"),
    ],
)
def test_the_format_of_a_file_is_derived_from_its_extension(
    tmp_path: Path, make: Any, name: str, kind: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"data")
    made = make(path=path)
    assert (made.mime_type, made.data) == (kind, b"data")
    assert made.block().mime_type == kind
    assert make(path=path, format="own").mime_type == f"{kind.partition('/')[0]}/own"


@pytest.mark.parametrize("make", [Image, Audio])
def test_media_require_either_data_or_a_path(make: Any) -> None:
    message = f"^{make.__name__} requires exactly one of data and path$"
    with pytest.raises(TypeError, match=message):
        make()
    with pytest.raises(TypeError, match=message):
        make(b"x", path="y")
    with pytest.raises(NotImplementedError):
        Media().block()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("plot.png", "not str: use Image(path=...) for a file, and decode base64"),
        (5, "not int: use Image(path=...)"),
        (io.BytesIO(b"x"), "not BytesIO: use Image(path=...)"),
        (SimpleNamespace(save=print), "save it to an io.BytesIO, and pass its getvalue()"),
    ],
)
def test_image_data_must_be_bytes(given: Any, reason: str) -> None:
    with pytest.raises(TypeError, match="^data of Image must be bytes") as raised:
        Image(given)
    assert reason in str(raised.value)
    with pytest.raises(TypeError, match="^File takes the path of a file, not its data$"):
        File(b"x")  # type: ignore[arg-type]
    assert Audio(memoryview(b"x")).data == b"x"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "text"), [(b"hi", "hi"), ("ü".encode(), "ü"), (b"\xff", None), (b"a\0b", None)]
)
def test_an_embedded_file_is_text_if_it_is_utf8(
    tmp_path: Path, data: bytes, text: str | None
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    contents: Any = File(path).block().resource
    assert (contents.uri, contents.mime_type) == (path.as_uri(), "text/csv")
    if text is None:
        assert base64.b64decode(contents.blob) == data
    else:
        assert contents.text == text
    assert File(path, mime_type="x/y").mime_type == "x/y"


def test_the_uri_of_embedded_bytes_is_their_digest() -> None:
    contents: Any = embedded(None, b"hi").resource
    assert contents.uri == f"urn:sha256:{hashlib.sha256(b'hi').hexdigest()}"
    assert (contents.mime_type, contents.blob) == ("application/octet-stream", "aGk=")
    words: Any = embedded("u:x", b"hi", text=True).resource
    assert (words.uri, words.mime_type, words.text) == ("u:x", "text/plain", "hi")
    named: Any = embedded("u:x", b"hi", "a/b").resource
    assert (named.mime_type, named.blob) == ("a/b", "aGk=")
