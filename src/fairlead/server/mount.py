"""One server inside another: what the inner one offers is offered by the outer one too."""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from .lists import Listing
from .prompts import PromptEntry
from .tools import ToolEntry

if TYPE_CHECKING:
    from .offers import Offers

__all__ = ["mount"]

E = TypeVar("E")


def mount(outer: "Offers", inner: "Offers", prefix: str = "") -> None:
    """Tools and prompts become `prefix_name`, resources keep their URIs; changes are followed.

    Raises:
        ValueError: if a name or URI is taken, or a server would contain itself.
    """
    if inner is outer:
        raise ValueError("a server cannot be mounted in itself")
    stem = f"{prefix}_" if prefix else ""

    def tool(entry: ToolEntry) -> ToolEntry:
        renamed = copy(entry)
        renamed.name = stem + entry.name
        outer.registry.has_inline |= entry.inline
        renamed.definition = structs.replace(entry.definition, name=renamed.name)
        return renamed

    def prompt(entry: PromptEntry) -> PromptEntry:
        definition = structs.replace(entry.definition, name=stem + entry.definition.name)
        return structs.replace(entry, definition=definition)

    _follow(outer.registry.listing, inner.registry.listing, stem, tool)
    _follow(outer.prompts, inner.prompts, stem, prompt)
    _follow(outer.resources.fixed, inner.resources.fixed, "", lambda entry: entry)
    _follow(outer.resources.templates, inner.resources.templates, "", lambda entry: entry)
    outer.completions.mount(inner.completions, stem)
    inner.changes.followers.append(outer.resource_updated)


def _follow(ours: Listing[E], theirs: Listing[E], stem: str, adapt: Callable[[E], E]) -> None:
    mounted: dict[str, E] = {}  # their entries by their names, as we have them now

    def follow() -> None:
        now = dict(zip(theirs.names(), theirs.entries(), strict=True))
        for name in [name for name in mounted if name not in now]:
            del mounted[name]
            ours.remove(stem + name)
        for name, entry in now.items():
            if mounted.get(name) is not entry:
                ours.add(stem + name, adapt(entry), replace=name in mounted)
                mounted[name] = entry

    follow()
    theirs.listeners.append(follow)
