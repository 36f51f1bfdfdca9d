"""Mounting of one server in another, which then offers the entries of both."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, structs

from ..interceptor import Answer, Exchange, Handler
from ..protocol.caller import SERVER_INFO_KEY
from ..wire import to_json
from .features.paged_list import PagedList
from .features.prompt_entry import PromptEntry
from .features.resource_registry import ResourceEntry
from .features.tool_entry import ToolEntry
from .registration import Registration

__all__ = ["check_mountable", "mount"]

E = TypeVar("E")


def check_mountable(inner: object, prefix: object) -> None:
    """Check the types of the arguments of `MCPServer.mount`.

    Raises:
        TypeError: An argument has the wrong type.
    """
    if isinstance(prefix, Registration) and not isinstance(inner, Registration):
        raise TypeError(
            f"the server is the first argument: use server.mount(other, prefix={inner!r})"
        )
    if not isinstance(inner, Registration):
        raise TypeError(
            f"expected an MCPServer of fairlead, not {inner!r}. A Gateway combines servers that "
            "are programs, URLs or objects of other packages"
        )
    if not isinstance(prefix, str):
        raise TypeError(f"prefix must be a string, not {prefix!r}")


def mount(
    outer: Registration,
    inner: Registration,
    prefix: str = "",
    *,
    info: dict[str, Any],
    handler: Handler,
) -> None:
    """Register the entries of `inner` in `outer` and follow later changes.

    Tools and prompts are renamed to `prefix_name`; resources keep their URIs. `info` describes the
    outer server, `handler` is the handler of the inner one.

    Raises:
        ValueError: A name or URI is registered already, or `inner` is `outer`.
    """
    if inner is outer:
        raise ValueError("a server cannot be mounted in itself")
    stem = f"{prefix}_" if prefix else ""
    unnamed = _home(handler, info)

    def tool(entry: ToolEntry) -> ToolEntry:
        definition = structs.replace(entry.definition, name=stem + entry.name)
        home = _home(handler, info, entry.name)
        # Inline calls bypass the inner server's handler, which applies interceptors and limits.
        return structs.replace(entry, definition=definition, inline=False, home=home)

    def prompt(entry: PromptEntry) -> PromptEntry:
        name = entry.definition.name
        definition = structs.replace(entry.definition, name=stem + name)
        home = _home(handler, info, name)
        return structs.replace(entry, definition=definition, home=home)

    def resource(entry: ResourceEntry) -> ResourceEntry:
        return structs.replace(entry, home=unnamed)

    _follow(outer.registry.listing, inner.registry.listing, stem, tool)
    _follow(outer.prompts, inner.prompts, stem, prompt)
    _follow(outer.resources.fixed, inner.resources.fixed, "", resource)
    _follow(outer.resources.templates, inner.resources.templates, "", resource)
    outer.completions.mount(inner.completions, stem)
    inner.changes.followers.append(outer.resource_updated)


def _home(handler: Handler, info: dict[str, Any], name: str | None = None) -> Handler:
    """Return a handler that forwards requests to the inner server under the entry's own name.

    The interceptors and limits of the inner server apply.
    """

    async def answer(exchange: Exchange) -> Answer:
        result = await handler(exchange if name is None else _renamed(exchange, name))
        return _signed(result, info) if exchange.caller.stateless else result

    return answer


def _renamed(exchange: Exchange, name: str) -> Exchange:
    members = msgspec.json.decode(exchange.message.params or b"{}", type=dict[str, Raw])
    members["name"] = Raw(to_json(name))
    message = structs.replace(exchange.message, params=Raw(msgspec.json.encode(members)))
    head = structs.replace(exchange.head, name=name)
    return structs.replace(exchange, message=message, head=head)


def _signed(result: Answer, info: dict[str, Any]) -> Answer:
    """Replace the `serverInfo` in a stateless result with that of the outer server.

    The client does not know about the inner server.
    """
    members = msgspec.json.decode(result or b"{}", type=dict[str, Raw])
    meta = msgspec.json.decode(members.get("_meta", b"{}"), type=dict[str, Raw])
    # The other members of `_meta` may come from the tool and are kept.
    members["_meta"] = Raw(msgspec.json.encode({**meta, SERVER_INFO_KEY: info}))
    return msgspec.json.encode(members)


def _follow(ours: PagedList[E], theirs: PagedList[E], stem: str, adapt: Callable[[E], E]) -> None:
    # entries that are mounted now, by the names that the inner server uses
    mounted: dict[str, E] = {}

    def follow() -> None:
        now = dict(zip(theirs.names(), theirs.entries(), strict=True))
        for name in [name for name in mounted if name not in now]:
            del mounted[name]
            ours.remove(stem + name)
        for name, entry in now.items():
            # An entry that was replaced under the same name is another object.
            if mounted.get(name) is not entry:
                ours.add(stem + name, adapt(entry), replace=name in mounted)
                mounted[name] = entry

    follow()
    theirs.listeners.append(follow)
