"""Messages about unknown names, with the most similar known names."""

from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import islice

__all__ = [
    "close_matches",
    "did_you_mean",
    "hint_for_unknown",
    "missing_attribute",
    "unknown_name",
]

# The names of tools come from servers, and `difflib` takes quadratic time: one comparison of two
# long names takes up to 0.4 ms. So only the names with the most common letter pairs are compared.
_LONGEST = 200  # number of characters of a name that are compared
_MOST_NAMES = 5000  # number of known names that are compared
_MOST_PAIRS = 50  # number of pairs of letters of a name that are compared
_COMPARED = 20  # number of names that are compared exactly
_CUTOFF = 0.65  # cutoff for `difflib` that excludes most names that only share some letters


def close_matches(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Return up to `most` known names that are similar to `name`, closest first.

    Case, `_` and `-` are ignored: `pageSize` matches `page_size`. Of more than 5,000 names, only
    the first are compared.
    """
    # Imported here, because only failing calls need it and every import delays the start.
    from difflib import get_close_matches

    spellings: dict[str, str] = {}
    for one in islice(known, _MOST_NAMES):
        spellings.setdefault(_folded(one), one)
    wanted = _folded(name)
    found = get_close_matches(wanted, _candidates(wanted, spellings), most, _CUTOFF)
    return [spellings[one] for one in found]


def did_you_mean(names: Iterable[str]) -> str:
    """Return the question `did you mean 'a' or 'b'?`; an empty string if there are no names."""
    quoted = " or ".join(f"'{name}'" for name in names)
    return f"did you mean {quoted}?" if quoted else ""


def hint_for_unknown(similar: Iterable[str], place: str, items: str) -> str:
    """Return the end of a message about an unknown item: `; did you mean 'NAME'? PLACE returns the
    available ITEMS`.
    """
    question = did_you_mean(similar)
    where = f"{place} returns the available {items}"
    return f"; {question} {where}" if question else f"; {where}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `unknown KIND 'NAME'`, followed by the closest known name or by all known names."""
    names = sorted(known)
    question = did_you_mean(close_matches(name, names))
    expected = f"expected one of {', '.join(names)}" if names else ""
    rest = question or expected
    return f"unknown {kind} {name!r}: {rest}" if rest else f"unknown {kind} {name!r}"


def missing_attribute(owner: object, name: str, hints: Mapping[str, str]) -> AttributeError:
    """Return the error for an unknown attribute, with the hint for this name or the closest name.

    For use in `__getattr__`. If a property of this name failed, the result is its own error.
    """
    kind = type(owner)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    # Special and private names are looked up by `copy`, `pickle` and `inspect`.
    if name.startswith("_"):
        return AttributeError(text)
    if name in dir(kind):
        try:
            object.__getattribute__(owner, name)
        except AttributeError as exc:
            return exc
    if hint := hints.get(name):
        return AttributeError(f"{text}: {hint}")
    known = [one for one in dir(owner) if not one.startswith("_")]
    question = did_you_mean(close_matches(name, known))
    return AttributeError(f"{text}: {question}" if question else text)


def _candidates(name: str, known: Iterable[str]) -> list[str]:
    """Return the folded names that share the most pairs of letters with a folded name."""
    pairs = {name[at : at + 2] for at in range(0, len(name), len(name) // _MOST_PAIRS + 1)}

    def likeness(other: str) -> float:
        return sum([pair in other for pair in pairs]) / (len(name) + len(other) + 1)

    return nlargest(_COMPARED, known, likeness)


def _folded(name: str) -> str:
    return name[:_LONGEST].replace("_", "").replace("-", "").lower()
