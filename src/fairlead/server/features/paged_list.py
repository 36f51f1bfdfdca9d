"""Lists served in stable order and in pages, each encoded once until the list changes."""

import base64
import binascii
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Raw

from ...errors import RpcError
from ...protocol.downgrade.results import downgrade_result
from ...protocol.revisions import Revision
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS

__all__ = ["PagedList"]

E = TypeVar("E")


class PagedList(Generic[E]):
    """All registered entries of one kind, by name, in the order of registration."""

    def __init__(self, kind: str, method: str, member: str, page_size: int) -> None:
        self.kind = kind  # "tool": used in error messages
        self._method = method
        self._member = member
        self._page_size = page_size
        self._entries: dict[str, E] = {}
        self._pages: dict[tuple[Revision, int], bytes] = {}
        self.suggests = True  # False: error messages do not suggest names, which may be hidden
        self.listeners: list[Callable[[], None]] = []  # called immediately after every change
        # The dictionary's own method without a wrapper, because every call uses it.
        self.get = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        return list(self._entries)

    def entries(self) -> list[E]:
        return list(self._entries.values())

    def add(self, name: str, entry: E, *, replace: bool = False) -> None:
        """Add an entry.

        Raises:
            ValueError: The name is registered already.
        """
        if not replace and name in self._entries:
            raise ValueError(f"a {self.kind} {name!r} is already registered")
        self._entries[name] = entry
        self._changed()

    def remove(self, name: str) -> None:
        """Remove an entry.

        Raises:
            KeyError: The name is not registered.
        """
        del self._entries[name]
        self._changed()

    def _changed(self) -> None:
        self._pages.clear()
        for listener in self.listeners:
            listener()

    def page(self, cursor: str | None, revision: Revision) -> bytes:
        """Return the members of a list result, without the braces, for a revision.

        Raises:
            RpcError: -32602, the cursor is unknown.
        """
        start = 0 if cursor is None else self._offset(cursor)
        page = self._pages.get((revision, start))
        if page is None:
            page = self._pages[revision, start] = self._encode(start, revision)
        return page

    def warm_up(self, *revisions: Revision) -> None:
        """Encode every page for the given revisions."""
        for revision in revisions:
            for start in range(0, len(self._entries), self._page_size):
                if (revision, start) not in self._pages:
                    self._pages[revision, start] = self._encode(start, revision)

    def _encode(self, start: int, revision: Revision) -> bytes:
        stop = start + self._page_size
        entries: list[Any] = list(self._entries.values())[start:stop]
        result: dict[str, Any] = {self._member: [entry.definition for entry in entries]}
        if stop < len(self._entries):
            result["nextCursor"] = base64.urlsafe_b64encode(b"%d" % stop).decode()
        return bytes(downgrade_result(self._method, Raw(to_json(result)), revision))[1:-1]

    def hint(self, name: str, place: str | None = None) -> str:
        """Return the end of a message about an unknown name: the closest known name, and where all
        names are listed.
        """
        # Loaded on first use: only failing requests need it.
        from ...suggestions import close_matches, hint_for_unknown

        known = self._entries if self.suggests else ()
        return hint_for_unknown(close_matches(name, known), place or self._method, f"{self.kind}s")

    def _offset(self, cursor: str) -> int:
        try:
            offset = int(base64.urlsafe_b64decode(cursor.encode()))
        # 0 is not a valid offset of a cursor and is rejected below.
        except (ValueError, binascii.Error):
            offset = 0
        if not 0 < offset <= len(self._entries):
            raise RpcError(INVALID_PARAMS, f"Unknown cursor {cursor!r}: list again from the start")
        return offset
