"""Images, sounds and files that tools return: `return Image(path="plot.png")`."""

import base64
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...protocol.types.content import AudioContent, EmbeddedResource, ImageContent

__all__ = ["Audio", "File", "Image", "Media", "as_text", "embedded"]

# MIME subtypes that differ from the file extension.
_SUBTYPES = {"jpg": "jpeg", "svg": "svg+xml", "tif": "tiff", "ico": "x-icon"}
_SOUNDS = {"mp3": "mpeg", "m4a": "mp4", "oga": "ogg", "opus": "ogg"}


class Media:
    """Return value that becomes one content block of a result."""

    # Part of the error if the object is returned inside of other data.
    hint_for_data = "return it alone, or as an item of a list; it cannot be part of other data"

    def block(self) -> "ImageContent | AudioContent | EmbeddedResource":
        """Return the content block for the client."""
        raise NotImplementedError


class Image(Media):
    """An image from bytes or from a file, which is read immediately.

    `format` is the MIME subtype ("png", "jpeg"). By default it is derived from the extension of the
    file or from the first bytes of the data.

    Raises:
        OSError: The file cannot be read.
        TypeError: Not exactly one of `data` and `path` is given, or `data` is not bytes.
    """

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str | PathLike[str] | None = None,
        format: str | None = None,
    ) -> None:
        self.data, extension = _read("Image", data, path)
        format = format or extension or _picture_format(self.data)
        self.mime_type = f"image/{_SUBTYPES.get(format, format)}"

    def block(self) -> "ImageContent":
        from ...protocol.types.content import ImageContent

        return ImageContent(data=_base64(self.data), mime_type=self.mime_type)


class Audio(Media):
    """A sound from bytes or from a file; like `Image`, with `audio/wav` for unknown data."""

    def __init__(
        self,
        data: bytes | None = None,
        *,
        path: str | PathLike[str] | None = None,
        format: str | None = None,
    ) -> None:
        self.data, extension = _read("Audio", data, path)
        format = format or extension or "wav"
        self.mime_type = f"audio/{_SOUNDS.get(format, format)}"

    def block(self) -> "AudioContent":
        from ...protocol.types.content import AudioContent

        return AudioContent(data=_base64(self.data), mime_type=self.mime_type)


class File(Media):
    """A file with its contents as an embedded resource: text if it is UTF-8, otherwise base64.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: str | PathLike[str], *, mime_type: str | None = None) -> None:
        import mimetypes
        from pathlib import Path

        if isinstance(path, bytes | bytearray):
            raise TypeError("File takes the path of a file, not its data")
        self.path = Path(path).absolute()
        self.data = self.path.read_bytes()
        self.mime_type = mime_type or mimetypes.guess_type(self.path.name)[0]

    def block(self) -> "EmbeddedResource":
        return embedded(self.path.as_uri(), self.data, self.mime_type, text=True)


def embedded(
    uri: str | None, data: bytes, mime_type: str | None = None, *, text: bool = False
) -> "EmbeddedResource":
    """Return a resource with its contents. Without a URI, the URI is the digest of the data."""
    from ...protocol.types.content import EmbeddedResource, ResourceContents

    if uri is None:
        import hashlib

        uri = f"urn:sha256:{hashlib.sha256(data).hexdigest()}"
    words = as_text(data) if text else None
    if words is not None:
        contents = ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=words)
    else:
        kind = mime_type or "application/octet-stream"
        contents = ResourceContents(uri=uri, mime_type=kind, blob=_base64(data))
    return EmbeddedResource(resource=contents)


def _read(what: str, data: bytes | None, path: str | PathLike[str] | None) -> tuple[bytes, str]:
    if (data is None) == (path is None):
        raise TypeError(f"{what} requires exactly one of data and path")
    if data is not None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(_not_bytes(what, data))
        return bytes(data), ""
    from pathlib import Path

    file = Path(path or "")
    return file.read_bytes(), file.suffix.removeprefix(".").lower()


def _not_bytes(what: str, data: object) -> str:
    remedy = f"use {what}(path=...) for a file, and decode base64"
    if hasattr(data, "save"):  # an image of Pillow, or a figure
        remedy = "save it to an io.BytesIO, and pass its getvalue()"
    return f"data of {what} must be bytes, not {type(data).__name__}: {remedy}"


def _picture_format(data: bytes) -> str:
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(b"GIF8"):
        return "gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return "png"


def as_text(data: bytes) -> str | None:
    """Return the text of UTF-8 data, or None for binary data."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # A NUL byte is valid UTF-8 but a sign of binary data.
    return None if "\0" in text else text


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
