"""Messages about unknown names, with the known names that are spelled most like them."""

from collections.abc import Iterable

__all__ = ["check_keywords", "close_matches", "did_you_mean", "unknown_name"]

# `difflib` takes quadratic time, and the names of tools come from servers.
_LONGEST = 200
_CUTOFF = 0.65  # of `difflib`: excludes most names that only share some letters


def close_matches(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Return up to `most` known names that are spelled like `name`, the closest one first.

    Case, `_` and `-` are ignored: `pageSize` matches `page_size`.
    """
    # Imported here: only failing calls need it, and every server pays for imports at start-up.
    from difflib import get_close_matches

    spellings: dict[str, str] = {}
    for one in known:
        spellings.setdefault(_folded(one), one)
    return [spellings[one] for one in get_close_matches(_folded(name), spellings, most, _CUTOFF)]


def did_you_mean(names: Iterable[str]) -> str:
    """Return the question `did you mean 'a' or 'b'?`, or an empty text without names."""
    quoted = " or ".join(f"'{name}'" for name in names)
    return f"did you mean {quoted}?" if quoted else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return `unknown KIND 'NAME'`, followed by the closest known name or by all of them."""
    names = sorted(known)
    question = did_you_mean(close_matches(name, names))
    expected = f"expected one of {', '.join(names)}" if names else ""
    rest = question or expected
    return f"unknown {kind} {name!r}: {rest}" if rest else f"unknown {kind} {name!r}"


def check_keywords(given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of keyword arguments.

    Raises:
        TypeError: A name is unknown; the message contains the closest known one.
    """
    names = set(known)
    for name in given:
        if name not in names:
            raise TypeError(unknown_name("keyword argument", name, names))


def _folded(name: str) -> str:
    return name[:_LONGEST].replace("_", "").replace("-", "").lower()
