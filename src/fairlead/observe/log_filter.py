"""Logs without secrets and hidden characters: the text of each record is looked over first.

A filter of the logger does it, and not the code that logs: no call can forget it. Only what is
really written is looked at, so nothing is spent on calls that go well.
"""

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from ..limits import LOG_LINES, LOG_SEARCHED, LOG_SECRET_TEXT, LOG_SECRETS, LOG_TEXT

if TYPE_CHECKING:
    from ..redaction.redact_messages import Redactor

__all__ = ["ABOUT", "redact_logs", "redacted_logger", "register_secrets", "secrets_of_url"]

ABOUT: Final = "fairlead_about"  # of a record: what it is about; taken off before anybody sees it
LOGGERS: Final = (
    *("server", "client", "peer", "transport", "process"),
    *("interceptor", "gateway", "manager", "upstream"),
    *(f"gateway.{topic}" for topic in ("audit", "interceptors", "lock", "rules", "tape")),
)
PER_SECOND: Final = 20.0  # lines of one kind, after the first ones
MAX_LEARNT: Final = 2_000  # secrets, before those of the past are forgotten

_owners: "WeakKeyDictionary[object, Callable[[], object]]" = WeakKeyDictionary()
_fresh: "WeakSet[object]" = WeakSet()  # those of them whose secrets are not known yet
_redactor: "Redactor | None" = None
_learnt = 0  # by it


def register_secrets(owner: object, look: Callable[[], object]) -> None:
    """Somebody uses secrets: `look` gives what has them, by their names, should a log be written.

    While the owner is there, they are taken out wherever they stand.
    """
    _owners[owner] = look
    _fresh.add(owner)


def redact_logs() -> None:
    """Look over all that we log. Done when the first of us is imported."""
    for name in LOGGERS:
        redacted_logger(f"fairlead.{name}")


def redacted_logger(name: str) -> logging.Logger:
    """A logger, and nothing secret in what it writes. (Filters are not inherited.)"""
    logger = logging.getLogger(name)
    if not any(isinstance(one, _Clean) for one in logger.filters):
        # An audit is complete; what servers write to stderr is limited where it is read.
        logger.addFilter(_Clean(paced=not name.endswith((".audit", ".process"))))
    return logger


def secrets_of_url(url: str) -> Mapping[str, object]:
    """What a URL has that may be secret, by its names."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(url)
        return {"password": parts.password, **parse_qs(parts.query)}
    except ValueError:
        return {}


def _shortened(text: str, redact: Callable[[str], str]) -> str:
    """Return a text without secrets, cut to the limit."""
    limit = LOG_TEXT.value
    if len(text) <= limit:
        return redact(text)
    LOG_TEXT.hit()
    # A secret that is cut in two is not recognised, so the cut comes after the search.
    return f"{redact(text[: limit + _LONGEST_SECRET])[:limit]}… ({len(text)} characters)"


_LONGEST_SECRET: Final = 8 << 10  # characters


class _Clean(logging.Filter):
    """Takes secrets and hidden characters out of a record; others stay as they are."""

    def __init__(self, paced: bool = True) -> None:
        """`paced`: many lines of the same kind are counted instead of written."""
        super().__init__()
        self._paces: dict[object, _Pace] | None = {} if paced else None

    def filter(self, record: logging.LogRecord) -> bool:
        from .safe_display import safe  # most programs log nothing

        left_out = 0
        if self._paces is not None and record.levelno > logging.DEBUG:
            pace = self._paces.setdefault((record.pathname, record.lineno), _Pace())
            if not pace.allows(record.created):
                LOG_LINES.hit()
                return False
            left_out, pace.left_out = pace.left_out, 0
        redact = _redact_for(record.__dict__.pop(ABOUT, None))
        try:
            text = record.getMessage()
        except Exception:  # whoever formats it says what is wrong
            return True
        clean = safe(_shortened(text, redact))
        if left_out:
            clean += f" ({left_out} lines like this were left out)"
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            shown = trace
            if len(trace) > 4 * LOG_TEXT.value:
                LOG_TEXT.hit()
                half = 2 * LOG_TEXT.value
                shown = f"{trace[:half]}\n… ({len(trace)} characters) …\n{trace[-half:]}"
            clean = safe(redact(shown))
            if clean != trace:  # the exception itself would tell what its text must not
                record.exc_info, record.exc_text = None, clean
        return True


class _Pace:
    """How often a line of one kind is written: some at once, then so many a second."""

    __slots__ = ("_full_at", "left_out")

    def __init__(self) -> None:
        self.left_out = 0
        self._full_at = 0.0  # when as many as at first may be written again

    def allows(self, now: float) -> bool:
        full_at = max(self._full_at, now)
        if full_at - now > (LOG_LINES.value - 1) / PER_SECOND:
            self.left_out += 1
            return False
        self._full_at = full_at + 1 / PER_SECOND
        return True


def _redact_for(about: object) -> Callable[[str], str]:
    global _redactor, _learnt
    from ..redaction.redact_messages import Redactor  # slow to load, and most programs log nothing

    if _redactor is None or _learnt > MAX_LEARNT:  # most of those are of nobody any more
        _redactor, _learnt = Redactor(), 0
        _fresh.update(_owners)
    for owner in list(_fresh) if _fresh else ():
        _fresh.discard(owner)
        found = list(_secrets(_owners[owner](), _redactor, _Budget()))
        _redactor.learn(found)
        _learnt += len(found)
    if about is None:
        return _redactor.text
    try:
        named = _secrets(about, _redactor, _Budget(LOG_SEARCHED.value))
        values = set(islice(named, LOG_SECRETS.value + 1))
    except _SpentError:
        LOG_SEARCHED.hit()
        return _withhold
    if len(values) > LOG_SECRETS.value:  # each of them would be looked for everywhere
        LOG_SECRETS.hit()
        return _withhold
    if sum(map(len, values)) > LOG_SECRET_TEXT.value:
        LOG_SECRET_TEXT.hit()
        return _withhold
    theirs, ours = Redactor(values=values), _redactor
    return lambda text: theirs.text(ours.text(text))


def _withhold(_: str) -> str:
    return "(withheld: the request that this is about has many values or long secrets)"


class _SpentError(Exception):
    """There are more values than are looked at."""


class _Budget:
    """How many more values are looked at."""

    def __init__(self, values: int | None = None) -> None:
        self._left = values

    def spend(self, values: int) -> None:
        """Raise `_SpentError` if there are too many."""
        if self._left is not None:
            self._left -= values
            if self._left < 0:
                raise _SpentError


def _secrets(value: object, redactor: "Redactor", budget: _Budget, depth: int = 0) -> Iterator[str]:
    """The values in something that have the names of secrets."""
    from ..redaction.redact_text import is_folder  # as slow to load as `Redactor`

    if depth > 32:
        return
    if isinstance(value, msgspec.Raw | bytes):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
    if isinstance(value, Mapping):
        budget.spend(len(value))
        for name, held in value.items():
            if isinstance(held, str) and is_folder(str(name), held):
                continue
            if isinstance(name, str) and redactor.is_secret(name):
                yield from _texts(held, depth)
            else:
                yield from _secrets(held, redactor, budget, depth + 1)
    elif isinstance(value, list | tuple):
        budget.spend(len(value))
        for one in value:
            yield from _secrets(one, redactor, budget, depth + 1)


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
