"""Removal of secrets from messages, by member name, by known value and by form."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self
from weakref import WeakSet

import msgspec
from msgspec import Raw

from .known_values import KnownValues
from .linear_regex import LinearPattern
from .redact_text import REDACTED, is_folder, is_secret_name, redact
from .token_patterns import may_hold_token

__all__ = ["Redactor", "repeats_a_name"]

# Quick test of a message in lower case: only messages that match are decoded. The pattern finds
# each word by a letter that is rare in other words, because searching for the first letter takes
# most of the time. Escapes that may hide letters or slashes match as well, and so do the four
# non-ASCII letters that equal i, k or s when case is ignored. `redact_text` has the list of words.
# Most messages do not even need this search, because a substring that every match contains is
# missing (see `Redactor.message`).
_SUSPICIOUS: Final = re.compile(
    rb"""
    k (?: ie (?<=cookie)
        | en (?<=token) (?<!progresstoken) (?! (?<=maxtoken)s) (?! (?<=max_token)s)
        | ey (?: (?<=apikey) | (?<=api[_-]key) | (?<=privatekey) | (?<=private[_-]key) ) )
    | w (?:or)? d (?: (?<=passwd) | (?<=password) | (?<=pwd) )
    | phrase (?<=passphrase)
    | zation (?<=authorization)
    | c (?: ret (?<=secret) | redential )
    | bearer
    | // (?<=://) [^/\s"]*@
    | \\[u/]
    | \xc4[\xb0\xb1] | \xc5\xbf | \xe2\x84\xaa
    """,
    re.VERBOSE,
).search
_BASIC: Final = re.compile(rb"basic[\s\\]").search
_LOGIN: Final = re.compile(rb"@[a-z0-9.-]{1,253}+(?::[0-9]|/)").search
_BACKSLASH, _AT, _K, _W, _Z = b"\\@kwz"  # finding a single byte is much faster than finding a word
REMEMBERED: Final = 4096  # maximum size of the remembered message in bytes

# Numbers with a fraction keep their spelling, so that only secrets change in a message.
_decode: Final = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Redactor:
    """Filter that removes secrets from messages and texts before they are stored or displayed."""

    def __init__(
        self,
        *,
        names: Iterable[str] = (),
        keep: Iterable[str] = (),
        values: Iterable[str] = (),
        patterns: Iterable[str] = (),
        longest: int = 0,
    ) -> None:
        """Configure secrets in addition to well-known names and forms.

        `names` are further members whose values are secret; `keep` are members whose values are not
        secret. `values` are known secrets, and `patterns` are regular expressions for other
        secrets. Texts over `longest` characters are truncated; 0 means no limit.

        Raises:
            ValueError: A pattern is invalid.
        """
        self._names = {name.lower() for name in names}
        self._keep = {name.lower() for name in keep}
        self._known = KnownValues()
        self._followed: set[str] = set()  # known values that only come from a followed redactor
        # Weak references, so that a redactor does not keep its followers alive.
        self._followers: WeakSet[Redactor] = WeakSet()
        self._patterns = [LinearPattern(pattern) for pattern in patterns]
        self._longest = longest
        # The search ignores case for ASCII bytes only. For a name with other letters, any non-ASCII
        # byte is therefore a reason to decode the message.
        spelled = (_spelled(name) if name.isascii() else rb"[\x80-\xff]" for name in self._names)
        self._names_bytes = re.compile(b"|".join(spelled)) if self._names else None
        self._only_values = not (self._names or self._patterns or longest)
        self._asks_more = not self._only_values
        self.learn(values)

    @property
    def values(self) -> set[str]:
        """A copy of the known values."""
        return set(self._known.values)

    def learn(self, values: Iterable[str]) -> None:
        """Add values to remove, also in the redactors that follow this one."""
        values = set(values)
        self._followed -= values
        self._add(values)

    def forget(self, values: Iterable[str]) -> None:
        """Stop removing values, also in the redactors that follow this one and do not know them
        from elsewhere.
        """
        gone = self._known.values.intersection(values)
        if not gone:
            return
        self._followed -= gone
        # Replaced as a whole, because another thread may be searching a text.
        known = KnownValues()
        known.add(self._known.values - gone)
        self._known = known
        for follower in self._followers:
            follower.forget(gone & follower._followed)

    def follow(self, other: "Redactor") -> Self:
        """Copy the values of another redactor, including values that are added to it later."""
        other._followers.add(self)
        self._copy(other._known.values)
        return self

    def _copy(self, values: set[str]) -> None:
        self._followed |= values - self._known.values
        self._add(values)

    def _add(self, values: Iterable[str]) -> None:
        if new := self._known.add(values):
            self._asks_more = True
            for follower in self._followers:
                follower._copy(new)

    def message(self, raw: bytes) -> bytes:
        """Return a message, or any JSON, without secrets; the same object if it has none.

        Several redactors examine each message one after another, so the last message without
        suspicious content is remembered for all of them.
        """
        global _harmless
        if raw != _harmless and not (_harmless_frame and _is_part(raw)):
            low = raw.lower()
            find = low.find
            if (
                (_K in low and (find(b"ken") >= 0 or find(b"key") >= 0 or find(b"cookie") >= 0))
                or find(b"cre") >= 0
                or find(b"pass") >= 0
                or find(b"bearer") >= 0
                or (_W in low and find(b"pwd") >= 0)
                or (_Z in low and find(b"zation") >= 0)
                or _AT in low
                or _BACKSLASH in low
                or not low.isascii()
            ) and _SUSPICIOUS(low) is not None:
                return self._looked_into(raw)
            if (
                (find(b"basic") >= 0 and _BASIC(low) is not None)
                or (_AT in low and _LOGIN(low) is not None)
                or may_hold_token(raw)
            ):
                return self._looked_into(raw)
            if len(raw) <= REMEMBERED:
                _harmless = raw
        if not self._asks_more:
            return raw
        # Most redactors only have known values. Calling `_asks` for them adds 1 % to a call.
        suspect = self._known.may_be_in(raw) if self._only_values else self._asks(raw)
        return self._looked_into(raw) if suspect else raw

    def frame(self, raw: bytes) -> bytes:
        """Redact a complete message; if it has no secrets, remember it for redacting its parts."""
        global _harmless_frame
        clean = self.message(raw)
        _harmless_frame = raw if clean is raw is _harmless else b""
        return clean

    def _looked_into(self, raw: bytes) -> bytes:
        try:
            value = _decode(raw)
        except _UNREADABLE:
            return msgspec.json.encode(self.text(bytes(raw).decode("utf-8", "replace")))
        try:
            clean = self.value(value)
            if clean is value and not repeats_a_name(raw, value):
                return raw
            return msgspec.json.encode(clean)
        # A value that cannot be examined is masked.
        except (RecursionError, UnicodeEncodeError):
            return msgspec.json.encode(REDACTED)

    def value(self, value: Any) -> Any:
        """Return decoded JSON without secrets; the same object if it has none."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            clean = {
                self.text(name) if isinstance(name, str) else name: self._member(name, held)
                for name, held in value.items()
            }
            same = len(clean) == len(value) and all(
                new is old for new, old in zip(clean.values(), value.values(), strict=True)
            )
            return value if same and clean.keys() == value.keys() else clean
        if isinstance(value, list | tuple):
            items = [self.value(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return value

    def text(self, text: str) -> str:
        """Return a text without credentials, known values and pattern matches."""
        if self._known.values:
            text = self._known.replace(text, REDACTED)
        for pattern in self._patterns:
            text = pattern.replace(text, REDACTED)
        clean = redact(text)
        if self._longest and len(clean) > self._longest:
            return f"{clean[: self._longest]}… ({len(clean)} characters)"
        return text if clean == text else clean

    def is_secret(self, name: str) -> bool:
        """Return True if the value of a member with this name is secret."""
        folded = name.lower()
        return folded not in self._keep and (folded in self._names or is_secret_name(name))

    def _member(self, name: object, held: Any) -> Any:
        if name == "properties" and isinstance(held, Mapping):
            return self._properties(held)
        if not isinstance(name, str) or not self.is_secret(name):
            return self.value(held)
        # Empty values and flags reveal nothing, and readers need to see that they are empty.
        if held is None or isinstance(held, bool) or held in ("", REDACTED):
            return held
        if isinstance(held, str) and is_folder(name, held):
            return self.value(held)
        return REDACTED

    def _properties(self, held: Mapping[str, Any]) -> Any:
        """Redact a schema's `properties`, but keep the descriptions of secret members."""
        if not any(isinstance(name, str) and self.is_secret(name) for name in held):
            return self.value(held)
        clean = {
            name: self._described(one)
            if self.is_secret(str(name)) and _is_schema(one)
            else self._member(name, one)
            for name, one in held.items()
        }
        return held if clean == held else clean

    def _described(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        said = {name: self.value(held) for name, held in schema.items() if name in _HARMLESS}
        for name in _EITHER & schema.keys():
            said[name] = [self._described(one) for one in schema[name]]
        return said

    def _asks(self, raw: bytes) -> bool:
        """Return True if the message may contain a secret that only this redactor searches for."""
        if self._patterns or 0 < self._longest < len(raw):
            return True
        if self._names_bytes is not None and self._names_bytes.search(raw.lower()) is not None:
            return True
        return bool(self._known.values) and self._known.may_be_in(raw)


_harmless = b""
_harmless_frame = b""


def _is_part(raw: bytes) -> bool:
    """Return True if the bytes are an object inside the last frame without secrets.

    A match cannot start before an object or end after it, so any match in the object would have
    been found in the frame.
    """
    return raw.startswith(b"{") and _harmless_frame.find(raw) >= 0


def _spelled(name: str) -> bytes:
    """Return a pattern for a name as written in JSON."""
    return re.escape(json.dumps(name).encode()[1:-1])


def repeats_a_name(raw: bytes | Raw, value: Any) -> bool:
    """Return True if an object in a JSON text, decoded as `value`, has two members with the same
    name.

    The decoded value contains only the last of these members, while another program may use the
    first. Each missing member removes a colon from the encoded form, and nothing else does, unless
    colons in strings are escaped.
    """
    text = bytes(raw)
    if text.find(b"\\u003a") < 0 and text.find(b"\\u003A") < 0:
        try:
            return text.count(b":") != msgspec.json.encode(value).count(b":")
        except (RecursionError, UnicodeEncodeError, ValueError):
            pass  # the parser below decides

    def count(members: list[tuple[str, Any]]) -> None:
        if len(dict(members)) < len(members):
            raise _Repeated

    try:
        json.loads(text, object_pairs_hook=count, parse_int=str, parse_float=str)
    # Text that Python's parser rejects, although msgspec accepts it, counts as suspicious.
    except (ValueError, RecursionError):
        return True
    return False


class _Repeated(ValueError):
    """Raised if an object has two members with the same name."""


# Schema keywords that describe a secret without revealing it.
_HARMLESS: Final = frozenset(
    {
        *("type", "format", "title", "description", "minLength", "maxLength", "pattern"),
        *("writeOnly", "deprecated", "x-mcp-header"),
    }
)
_EITHER: Final = frozenset({"anyOf", "oneOf"})
_TYPES: Final = {"string", "number", "integer", "boolean", "object", "array", "null"}


def _is_schema(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    either = [value[name] for name in _EITHER & value.keys()]
    if either:
        return all(isinstance(one, list) and one and all(map(_is_schema, one)) for one in either)
    kind = value.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return all(isinstance(one, str) and one in _TYPES for one in kinds)
