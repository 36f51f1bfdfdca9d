"""The lists that a server offers, and the members that identify their items."""

from enum import StrEnum
from typing import Final

from .targets import TargetKind

__all__ = ["ListKind"]


class ListKind(StrEnum):
    """Kind of list. Its value is the name of the result member that contains the items."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"

    @property
    def method(self) -> str:
        return "resources/templates/list" if self is ListKind.TEMPLATES else f"{self.value}/list"

    @property
    def key(self) -> str:
        """Return the name of the member that identifies a list item."""
        return _KEYS.get(self, "name")

    @property
    def named(self) -> bool:
        """Return True if a gateway renames the items, False if their URIs identify them."""
        return self not in _KEYS

    @property
    def target_kind(self) -> TargetKind:
        """Return the `Target` kind for items that a gateway renames."""
        return _TARGETS[self]


_KEYS: Final = {ListKind.RESOURCES: "uri", ListKind.TEMPLATES: "uriTemplate"}
_TARGETS: Final[dict[ListKind, TargetKind]] = {ListKind.TOOLS: "tool", ListKind.PROMPTS: "prompt"}
