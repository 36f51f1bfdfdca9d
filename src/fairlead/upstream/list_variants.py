"""Variants of a server's lists, which may depend on a client's capabilities or earlier calls."""

from collections import OrderedDict
from collections.abc import Mapping
from itertools import count
from typing import TypeAlias

from msgspec import Raw

from ..limits import LIST_VARIANTS
from ..protocol.caller import Caller
from ..protocol.targets.list_kind import ListKind
from .connection.connection_key import normal_capabilities

__all__ = ["DEFAULT_VARIANT", "ListVariants", "Lists", "VariantKey", "variant_key"]

Lists: TypeAlias = Mapping[ListKind, list[Raw]]
VariantKey: TypeAlias = tuple[bool, bytes]  # (True if stateless, capabilities in their normal form)

DEFAULT_VARIANT = 0  # the lists of the default connection
# shared by all servers, so that variants of replicas have different numbers
_numbers = count(DEFAULT_VARIANT + 1)
_NOTHING_DECLARED = b"{}"


def variant_key(caller: Caller) -> VariantKey | None:
    """Return the key of a client's lists; None if the client declares no capabilities."""
    declared = normal_capabilities(caller.capabilities)
    return None if declared == _NOTHING_DECLARED else (caller.stateless, declared)


class ListVariants:
    """The variants of one server's lists, each stored once, and the variant of each key."""

    def __init__(self) -> None:
        self._variants: OrderedDict[int, dict[ListKind, list[bytes]]] = OrderedDict()
        self._by_key: dict[VariantKey, int] = {}
        # the version of the default lists in the last comparison; None: never compare again
        self._compared: dict[VariantKey, int | None] = {}
        self._failures: dict[VariantKey, int] = {}  # comparisons that have failed since the last

    def __bool__(self) -> bool:
        return bool(self._variants)

    def of_key(self, key: VariantKey) -> int | None:
        """Return the variant for clients with this key; None before the first comparison."""
        number = self._by_key.get(key)
        if number is not None:
            self.use(number)
        return number

    def use(self, number: int) -> None:
        """Mark a variant as used; the least recently used variant is dropped first."""
        if number in self._variants:
            self._variants.move_to_end(number)

    def differences(self, one: int, other: int, default: Lists) -> set[ListKind]:
        """Return the kinds of lists that differ between two variants."""
        if one == other:
            return set()
        known = _texts(default)
        first, second = self._variants.get(one, known), self._variants.get(other, known)
        return {kind for kind in ListKind if first[kind] != second[kind]}

    def is_current(self, key: VariantKey, version: int, *, is_clients: bool = False) -> bool:
        """Return True if this key has been compared with this version of the default lists.

        A comparison that failed once is repeated on a connection that is opened for a client. It
        is not repeated after the second failure, because it may be what makes the server exit.
        """
        if is_clients and self._failures.get(key) == 1:
            return False
        return key in self._compared and self._compared[key] in (None, version)

    def assign(
        self, key: VariantKey, number: int, version: int | None, *, failed: bool = False
    ) -> None:
        """Assign a variant to all clients with this key.

        `version` is the version of the default lists in the comparison. None means that the key is
        not compared again. `failed` means that the comparison failed.
        """
        again = failed and self._compared.get(key) == version
        # Clients choose the capabilities in a key, so the number of keys is limited too.
        if key not in self._by_key and len(self._by_key) >= 4 * LIST_VARIANTS.value:
            self._forget(next(iter(self._by_key)))
        self._by_key[key] = number
        self._compared[key] = version
        self._failures[key] = (self._failures.get(key, 0) if again else 0) + failed

    def discard(self, number: int) -> None:
        """Drop a variant and all keys to which it is assigned."""
        self._variants.pop(number, None)
        for key in [key for key, seen in self._by_key.items() if seen == number]:
            self._forget(key)

    def add(self, lists: Lists, default: Lists) -> tuple[int, int | None]:
        """Store lists as a variant, unless an equal variant is stored already.

        Return the number of the variant, and the number of the variant that was dropped, if any.
        """
        texts = _texts(lists)
        if texts == _texts(default):
            return DEFAULT_VARIANT, None
        for number, known in self._variants.items():
            if known == texts:
                return number, None
        dropped = None
        if len(self._variants) >= LIST_VARIANTS.value:
            LIST_VARIANTS.hit()
            dropped = next(iter(self._variants))  # the least recently used
            self.discard(dropped)
        number = next(_numbers)
        self._variants[number] = texts
        return number, dropped

    def _forget(self, key: VariantKey) -> None:
        del self._by_key[key], self._compared[key], self._failures[key]


def _texts(lists: Lists) -> dict[ListKind, list[bytes]]:
    return {kind: [bytes(item) for item in lists.get(kind, ())] for kind in ListKind}
