"""Resources: what a server has to read."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct

from ..protocol.types.resources import Resource

__all__ = ["ResourceEntry", "file_resource"]

ContentProvider = Callable[[], Any]  # sync or async; returns text, bytes or content objects


class ResourceEntry(Struct):
    """One registered resource: its definition, and where its contents come from."""

    definition: Resource
    provider: ContentProvider
    asynchronous: bool

    @property
    def mime_type(self) -> str | None:
        value = self.definition.mime_type
        return None if value is UNSET else str(value)


def file_resource(path: str) -> ResourceEntry:
    """SRV-05: a local file under its `file://` URI; text as text, everything else as bytes.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    import mimetypes  # with what they bring along, a tenth of a server's start-up
    from pathlib import Path

    file = Path(path).resolve(strict=True)
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    mime_type, _ = mimetypes.guess_type(file.name)

    def read() -> str | bytes:
        data = file.read_bytes()
        if b"\0" in data:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    definition = Resource(
        uri=file.as_uri(),
        name=file.name,
        mime_type=mime_type or "application/octet-stream",
        size=file.stat().st_size,
    )
    return ResourceEntry(definition, read, False)
