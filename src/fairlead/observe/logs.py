"""Logs without secrets and hidden characters: the text of each record is looked over first.

Only what is really written is looked at, so nothing is spent on calls that go well.
"""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from .display import safe
from .redact import is_folder

if TYPE_CHECKING:
    from .redactor import Redactor

__all__ = ["ABOUT", "beware", "clean_logs", "cleaned", "secrets_in"]

ABOUT: Final = "fairlead_about"  # of a record: what it is about; taken off before anybody sees it
LOGGERS: Final = (
    *("server", "client", "peer", "transport", "process"),
    *("interceptor", "gateway", "manager"),
    *(f"gateway.{topic}" for topic in ("audit", "interceptors", "lock", "rules", "tape")),
)
MAX_LEARNT: Final = 2_000  # secrets, before those of the past are forgotten

_owners: "WeakKeyDictionary[object, Callable[[], object]]" = WeakKeyDictionary()
_fresh: "WeakSet[object]" = WeakSet()  # those of them whose secrets are not known yet
_redactor: "Redactor | None" = None
_learnt = 0  # by it


def beware(owner: object, look: Callable[[], object]) -> None:
    """Somebody uses secrets: `look` gives what has them, by their names, should a log be written.

    While the owner is there, they are taken out wherever they stand.
    """
    _owners[owner] = look
    _fresh.add(owner)


def clean_logs() -> None:
    """Look over all that we log. Done when the first of us is imported."""
    for name in LOGGERS:
        cleaned(f"fairlead.{name}")


def cleaned(name: str) -> logging.Logger:
    """A logger, and nothing secret in what it writes. (Filters are not inherited.)"""
    logger = logging.getLogger(name)
    if not any(isinstance(one, _Clean) for one in logger.filters):
        logger.addFilter(_Clean())
    return logger


def secrets_in(url: str) -> Mapping[str, object]:
    """What a URL has that may be secret, by its names."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(url)
        return {"password": parts.password, **parse_qs(parts.query)}
    except ValueError:
        return {}


class _Clean(logging.Filter):
    """Takes secrets and hidden characters out of a record; others stay as they are."""

    def filter(self, record: logging.LogRecord) -> bool:
        redact = _redact_for(record.__dict__.pop(ABOUT, None))
        try:
            text = record.getMessage()
        except Exception:  # whoever formats it says what is wrong
            return True
        clean = safe(redact(text))
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            clean = safe(redact(trace))
            if clean != trace:  # the exception itself would tell what its text must not
                record.exc_info, record.exc_text = None, clean
        return True


def _redact_for(about: object) -> Callable[[str], str]:
    global _redactor, _learnt
    from .redactor import Redactor  # slow to load, and most programs log nothing

    if _redactor is None or _learnt > MAX_LEARNT:  # most of those are of nobody any more
        _redactor, _learnt = Redactor(), 0
        _fresh.update(_owners)
    for owner in list(_fresh) if _fresh else ():
        _fresh.discard(owner)
        found = list(_secrets(_owners[owner](), _redactor))
        _redactor.learn(found)
        _learnt += len(found)
    if about is None:
        return _redactor.text
    theirs, ours = Redactor(values=_secrets(about, _redactor)), _redactor
    return lambda text: theirs.text(ours.text(text))


def _secrets(value: object, redactor: "Redactor", depth: int = 0) -> Iterator[str]:
    """The values in something that have the names of secrets."""
    if depth > 32:
        return
    if isinstance(value, msgspec.Raw | bytes):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
    if isinstance(value, Mapping):
        for name, held in value.items():
            if isinstance(held, str) and is_folder(str(name), held):
                continue
            if isinstance(name, str) and redactor.is_secret(name):
                yield from _texts(held, depth)
            else:
                yield from _secrets(held, redactor, depth + 1)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _secrets(one, redactor, depth + 1)


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        scheme, _, rest = value.partition(" ")  # of an Authorization header
        if rest and scheme.isalpha():
            yield rest
    elif isinstance(value, Mapping) and depth <= 32:
        for held in value.values():
            yield from _texts(held, depth + 1)
    elif isinstance(value, list | tuple) and depth <= 32:
        for one in value:
            yield from _texts(one, depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
