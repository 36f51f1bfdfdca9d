"""Action that renames tools and prompts in lists and calls."""

from typing import ClassVar, Final

from msgspec import Raw

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.envelope import Direction
from ...protocol.json_edit import encoded, items_of, members_of, string_of
from ...protocol.targets.name_forms import normalize_name
from ...wire.error_codes import INVALID_PARAMS
from ...wire.quote_text import quoted
from ..edit_message import members_of_params, with_params
from .block import blocked_error

__all__ = ["Rename"]

_LISTS: Final = {"tools/list": "tools", "prompts/list": "prompts"}
_NAMED: Final = ("tools/call", "prompts/get")


class Rename(InterceptorBase):
    """Action that renames tools and prompts. The old names are no longer accepted.

    On a gateway's endpoints for single servers, all items keep their original names.
    """

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, names: dict[str, str]) -> None:
        """Set the new names, keyed by the names that the server uses.

        Raises:
            ValueError: Two items have the same new name.
        """
        if len(set(names.values())) < len(names):
            given = list(names.values())
            same = next(name for name in given if given.count(name) > 1)
            raise ValueError(f"two items in `names` have the same new name {quoted(same)}")
        self._names = dict(names)
        self._back = {new: old for old, new in names.items()}
        # A server may accept another spelling of an old name, so all spellings are refused.
        self._taken = {normalize_name(old).casefold() for old in names}

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.direction is not Direction.CLIENT_TO_SERVER or exchange.server is not None:
            return await proceed(exchange)
        method = exchange.method
        if method in _LISTS:
            return self._listed(exchange, _LISTS[method], await proceed(exchange))
        renamed, name = self.original(exchange)
        if renamed is not exchange:
            renamed.note(f"renamed to {name}")
        elif name is not None and normalize_name(name).casefold() in self._taken:
            what = "tool" if method == "tools/call" else "prompt"
            raise blocked_error(exchange, f"Unknown {what}: {name}", INVALID_PARAMS)
        return await proceed(renamed)

    def original(self, exchange: Exchange) -> tuple[Exchange, str | None]:
        """Return an exchange whose target has the server's own name, and that name.

        If the target was not renamed, the exchange is returned unchanged.
        """
        name, ref = exchange.target if exchange.method in _NAMED else None, None
        if exchange.method == "completion/complete":
            ref = members_of((members_of_params(exchange.message.params) or {}).get("ref")) or {}
            name = string_of(ref.get("name"))
        old = None if name is None else self._back.get(name)
        if old is None:
            return exchange, name
        changes = {"name": old} if ref is None else {"ref": {**ref, "name": encoded(old)}}
        renamed = with_params(exchange, **changes)
        renamed.displayed = exchange.displayed or name
        return renamed, old

    def _listed(self, exchange: Exchange, key: str, answer: Answer) -> Answer:
        members = members_of(answer) or {}
        items = items_of(members.get(key))
        if items is None:
            return answer
        renamed = [self._item(item) for item in items]
        if all(new is old for new, old in zip(renamed, items, strict=True)):
            return answer
        exchange.note("renamed in the list")
        return bytes(encoded({**members, key: renamed}))

    def _item(self, item: Raw) -> Raw:
        members = members_of(item) or {}
        new = self._names.get(string_of(members.get("name")) or "")
        return item if new is None else encoded({**members, "name": encoded(new)})
