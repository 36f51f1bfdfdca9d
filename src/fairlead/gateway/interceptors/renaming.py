"""Other names for tools and prompts, in lists and in calls."""

from typing import ClassVar, Final

from msgspec import Raw, UnsetType

from ...interceptor import Answer, Exchange, Proceed
from ...protocol.envelope import Direction
from ...protocol.rewriting import encoded, items_of, members_of, string_of
from ...wire.codes import INVALID_PARAMS
from .blocking import blocked
from .editing import with_params

__all__ = ["Rename"]

_LISTS: Final = {"tools/list": "tools", "prompts/list": "prompts"}
_NAMED: Final = ("tools/call", "prompts/get")


class Rename:
    """Gives what the server calls one thing another name, and takes the old one away.

    Where one of a gateway's servers is by itself, everything keeps the names that it gave.
    """

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, names: dict[str, str]) -> None:
        """From the server's names to those that clients see."""
        if len(set(names.values())) < len(names):
            raise ValueError("two things get the same name")
        self._names = dict(names)
        self._back = {new: old for old, new in names.items()}

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.direction is not Direction.CLIENT_TO_SERVER or exchange.server is not None:
            return await proceed(exchange)
        method = exchange.method
        if method in _LISTS:
            return self._listed(exchange, _LISTS[method], await proceed(exchange))
        if method == "completion/complete":
            return await proceed(self._completing(exchange))
        if method not in _NAMED or exchange.target is None:
            return await proceed(exchange)
        return await proceed(self._called(exchange, exchange.target))

    def _called(self, exchange: Exchange, name: str) -> Exchange:
        old = self._back.get(name)
        if old is not None:
            exchange.note(f"renamed to {old}")
            return with_params(exchange, name=old)
        if name in self._names:
            what = "tool" if exchange.method == "tools/call" else "prompt"
            raise blocked(exchange, f"Unknown {what}: {name}", INVALID_PARAMS)
        return exchange

    def _completing(self, exchange: Exchange) -> Exchange:
        params = exchange.message.params
        members = None if isinstance(params, UnsetType) else members_of(params)
        ref = None if members is None else members_of(members.get("ref"))
        old = None if ref is None else self._back.get(string_of(ref.get("name")) or "")
        if ref is None or old is None:
            return exchange
        exchange.note(f"renamed to {old}")
        return with_params(exchange, ref={**ref, "name": encoded(old)})

    def _listed(self, exchange: Exchange, key: str, answer: Answer) -> Answer:
        members = None if answer is None else members_of(answer)
        items = None if members is None else items_of(members.get(key))
        if members is None or items is None:
            return answer
        renamed = [self._item(item) for item in items]
        if all(new is old for new, old in zip(renamed, items, strict=True)):
            return answer
        exchange.note("renamed in the list")
        return bytes(encoded({**members, key: renamed}))

    def _item(self, item: Raw) -> Raw:
        members = members_of(item)
        new = None if members is None else self._names.get(string_of(members.get("name")) or "")
        if members is None or new is None:
            return item
        return encoded({**members, "name": encoded(new)})
