"""Saving of a tool result's binary content to files, in a folder that the user names."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from typing import Any

from ..framework.command_errors import CommandError, UsageError, print_message

__all__ = ["MediaFolder"]

# File extensions for image and audio types. Text from a server is never used as an extension.
_EXTENSIONS = {
    "application/pdf": "pdf",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/ogg": "ogg",
    "audio/wav": "wav",
    "audio/webm": "weba",
    "audio/x-wav": "wav",
    "image/avif": "avif",
    "image/gif": "gif",
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/webp": "webp",
}
_MOST = 100_000  # maximum number of files with the same name prefix


class MediaFolder:
    """A folder for the binary content of results; existing files are never replaced."""

    def __init__(self, path: str, tool: str) -> None:
        """Create the folder if it is missing. Files are named after the tool.

        Raises:
            UsageError: The folder cannot be created or written to.
        """
        try:
            os.makedirs(path, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(0, "not writable")
        except OSError as exc:
            raise UsageError(f"Cannot write to {path}: {exc.strerror}") from exc
        self._path = path
        self._name = re.sub(r"[^\w-]+", "-", tool, flags=re.ASCII).strip("-")[:80] or "content"
        self._number = 0

    def save(self, result: Mapping[str, Any]) -> dict[int, str]:
        """Write each binary block to a file; return the paths by block position.

        Raises:
            CommandError: A file cannot be written.
        """
        saved = {}
        content = [block for block in result.get("content") or () if isinstance(block, Mapping)]
        for position, block in enumerate(content):
            data, kind = _binary(block)
            if data is None:
                continue
            try:
                saved[position] = self._write(base64.b64decode(data, validate=True), kind)
            except binascii.Error:
                print_message("warning", f"content block {position + 1} is not valid base64")
        return saved

    def _write(self, data: bytes, kind: str) -> str:
        extension = _EXTENSIONS.get(kind, "bin")
        while self._number < _MOST:
            self._number += 1
            path = os.path.join(self._path, f"{self._name}-{self._number}.{extension}")
            if self._exists():
                continue
            try:
                with open(path, "xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            except OSError as exc:
                raise CommandError(f"Cannot write {path}: {exc.strerror}") from exc
            return path
        raise CommandError(f"Cannot write to {self._path}: too many files")

    def _exists(self) -> bool:
        """Return True if a file with the current number exists, with any extension."""
        start = f"{self._name}-{self._number}."
        return any(name.startswith(start) for name in os.listdir(self._path))


def _binary(block: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return a block's encoded data and media type; None for a block without binary data."""
    held = block.get("resource") if block.get("type") == "resource" else block
    if not isinstance(held, Mapping):
        return None, ""
    data = held.get("data") if held is block else held.get("blob")
    kind = str(held.get("mimeType")).partition(";")[0].strip().lower()
    return (data if isinstance(data, str) else None), kind
