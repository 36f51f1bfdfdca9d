"""Log filter that removes secrets and hidden characters from every record.

The filter is attached to the loggers, so that it applies to every logging call. Only records that
are actually written are examined, so disabled log levels cost nothing.
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

__all__ = [
    "ABOUT",
    "follow_secrets",
    "redact_logs",
    "redacted_logger",
    "register_secrets",
    "secrets_of_url",
]

# Log record attribute that contains the value the record is about. Its secrets are removed from
# the line, and the filter removes the attribute.
ABOUT: Final = "fairlead_about"
LOGGERS: Final = (
    *("server", "client", "peer", "peer.output", "transport", "process"),
    *("auth", "interceptor", "gateway", "manager", "upstream"),
    *(f"gateway.{topic}" for topic in ("access", "audit", "interceptors", "lock", "rules", "tape")),
)
PER_SECOND: Final = 20.0  # log lines of one kind per second, after the first `LOG_LINES`
# number of learned secrets after which the redactor forgets those without a current owner
MAX_LEARNT: Final = 1_000

# Weak references, so that registering its secrets does not keep a connection or server alive.
_owners: "WeakKeyDictionary[object, Callable[[], object]]" = WeakKeyDictionary()
_fresh: "WeakSet[object]" = WeakSet()  # owners whose secrets were not added to the redactor yet
_redactor: "Redactor | None" = None
_learnt = 0  # number of secrets that `_redactor` learned since it last forgot some
_followed = False  # True once another redactor follows `_redactor`


def register_secrets(owner: object, look: Callable[[], object]) -> None:
    """Register the secrets of an object, to be removed from all log lines while it exists.

    `look` is called at once or when the next record is logged. It returns a structure that contains
    the secrets under names that indicate secrets, such as `token`.
    """
    _owners[owner] = look
    _fresh.add(owner)
    if _followed:
        _learned()


def follow_secrets(redactor: "Redactor") -> "Redactor":
    """Let a redactor, such as that of a journal, remove all registered secrets too. Return it.

    Servers may quote the credentials that they received, in any form.
    """
    global _followed
    _followed = True
    return redactor.follow(_learned())


def redact_logs() -> None:
    """Attach the filter to all Fairlead loggers. Called when `fairlead.peer` is imported."""
    for name in LOGGERS:
        redacted_logger(f"fairlead.{name}")


def redacted_logger(name: str) -> logging.Logger:
    """Return a logger whose records contain no secrets. (Filters are not inherited.)"""
    logger = logging.getLogger(name)
    if not any(isinstance(one, _Clean) for one in logger.filters):
        # An audit log must be complete, and servers' stderr is already limited when it is read.
        logger.addFilter(_Clean(paced=not name.endswith((".audit", ".process"))))
    return logger


def secrets_of_url(url: str) -> Mapping[str, object]:
    """Return the parts of a URL that may be secret, keyed by name."""
    from urllib.parse import parse_qs, urlsplit

    try:
        parts = urlsplit(url)
        return {"password": parts.password, **parse_qs(parts.query)}
    except ValueError:
        return {}


def _shortened(text: str, redact: Callable[[str], str]) -> str:
    """Return a text without secrets, truncated to the limit."""
    limit = LOG_TEXT.value
    if len(text) <= limit:
        return redact(text)
    LOG_TEXT.hit()
    # Truncated after the search, because a secret that is cut in two would not be recognised.
    return f"{redact(text[: limit + _LONGEST_SECRET])[:limit]}… ({len(text)} characters)"


_LONGEST_SECRET: Final = 8 << 10  # maximum length of a secret, in characters


class _Clean(logging.Filter):
    """Filter that removes secrets and hidden characters from a log record."""

    def __init__(self, paced: bool = True) -> None:
        """Create a filter.

        If `paced`, surplus lines of the same kind are counted instead of written.
        """
        super().__init__()
        self._paces: dict[object, _Pace] | None = {} if paced else None

    def filter(self, record: logging.LogRecord) -> bool:
        # Imported here, because most programs log nothing.
        from .safe_display import safe

        left_out = 0
        # All records from one call site are of one kind, regardless of their arguments.
        if self._paces is not None and record.levelno > logging.DEBUG:
            pace = self._paces.setdefault((record.pathname, record.lineno), _Pace())
            if not pace.allows(record.created):
                LOG_LINES.hit()
                return False
            left_out, pace.left_out = pace.left_out, 0
        redact = _redact_for(record.__dict__.pop(ABOUT, None))
        try:
            text = record.getMessage()
        except Exception:  # the handler that formats the record reports the mistake
            return True
        clean = safe(_shortened(text, redact))
        if left_out:
            clean += f" ({left_out} similar lines were omitted)"
        # An unchanged record keeps its arguments, which other handlers may use.
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
            shown = trace
            # A traceback is shortened in the middle, because the exception itself is at its end.
            if len(trace) > 4 * LOG_TEXT.value:
                LOG_TEXT.hit()
                half = 2 * LOG_TEXT.value
                shown = f"{trace[:half]}\n… ({len(trace)} characters) …\n{trace[-half:]}"
            clean = safe(redact(shown))
            # The exception is removed, because handlers would format it again with the secret.
            if clean != trace:
                record.exc_info, record.exc_text = None, clean
        return True


class _Pace(msgspec.Struct):
    """Rate limit for log lines of one kind: `LOG_LINES` at once, then `PER_SECOND`."""

    left_out: int = 0
    _full_at: float = 0.0  # time at which a full burst is allowed again

    def allows(self, now: float) -> bool:
        full_at = max(self._full_at, now)
        if full_at - now > (LOG_LINES.value - 1) / PER_SECOND:
            self.left_out += 1
            return False
        self._full_at = full_at + 1 / PER_SECOND
        return True


def _learned() -> "Redactor":
    """Return the redactor with the secrets of all owners."""
    global _redactor, _learnt
    # Imported here: the module is slow to load, and most programs log nothing.
    from ..redaction.redact_messages import Redactor

    redactor = _redactor = _redactor or Redactor()
    # Copied, because the garbage collector may remove owners from the set meanwhile.
    for owner in list(_fresh) if _fresh else ():
        _fresh.discard(owner)
        found = set(_secrets(_owners[owner](), redactor, _Budget()))
        redactor.learn(found)
        _learnt += len(found)
    # Most of the secrets belong to objects that are gone, or were replaced by newer ones.
    if _learnt > MAX_LEARNT:
        _learnt = 0
        looks = list(_owners.values())
        current = {text for look in looks for text in _secrets(look(), redactor, _Budget())}
        redactor.forget(redactor.values - current)
    return redactor


def _redact_for(about: object) -> Callable[[str], str]:
    from ..redaction.redact_messages import Redactor

    ours = _learned()
    if about is None:
        return ours.text
    try:
        named = _secrets(about, ours, _Budget(LOG_SEARCHED.value))
        values = set(islice(named, LOG_SECRETS.value + 1))
    except _SpentError:
        LOG_SEARCHED.hit()
        return _withhold
    # Every secret is searched for in the whole text, so their number is limited.
    if len(values) > LOG_SECRETS.value:
        LOG_SECRETS.hit()
        return _withhold
    if sum(map(len, values)) > LOG_SECRET_TEXT.value:
        LOG_SECRET_TEXT.hit()
        return _withhold
    theirs = Redactor(values=values)
    return lambda text: theirs.text(ours.text(text))


def _withhold(_: str) -> str:
    return "(withheld: the request has too many values or too long secrets to search for)"


class _SpentError(Exception):
    """Raised if a value contains more values than may be searched."""


class _Budget:
    """Number of values that may still be searched."""

    def __init__(self, values: int | None = None) -> None:
        self._left = values

    def spend(self, values: int) -> None:
        """Subtract searched values from the remaining number.

        Raises:
            _SpentError: The limit is exceeded.
        """
        if self._left is not None:
            self._left -= values
            if self._left < 0:
                raise _SpentError


def _secrets(value: object, redactor: "Redactor", budget: _Budget, depth: int = 0) -> Iterator[str]:
    """Search a structure and yield the values whose names mark them as secret."""
    # Imported here, because the module is as slow to load as `Redactor`.
    from ..redaction.redact_text import is_folder

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
        # In an Authorization header, the credential follows the name of the authentication scheme.
        scheme, _, rest = value.partition(" ")
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
