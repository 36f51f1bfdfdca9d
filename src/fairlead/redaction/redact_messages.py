"""Secrets out of messages: by the names of members, by what values look like, and by value."""

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

# Whether it is worth to open a message at all: one look over its bytes, in lower case, decides.
# Words are found by a letter that is rare in them, which is what takes the time. Escapes that hide
# letters or slashes are reason enough, and so are the four letters beyond ASCII that count as i, k
# or s where case does not matter. `redact` says which words are meant. Most messages need not even
# this look: there is something that nothing of it goes without (in `message` below).
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
_BACKSLASH, _AT, _K, _W, _Z = b"\\@kwz"  # single bytes are found much faster than words
REMEMBERED: Final = 4096  # bytes of a message that was harmless

# A number keeps its digits, so that a message that is passed on loses nothing but its secrets.
_decode: Final = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Redactor:
    """Takes secrets out of whatever is about to be kept or shown."""

    def __init__(
        self,
        *,
        names: Iterable[str] = (),
        keep: Iterable[str] = (),
        values: Iterable[str] = (),
        patterns: Iterable[str] = (),
        longest: int = 0,
    ) -> None:
        """`names` are further members that are secret, those in `keep` are not; `values` are
        secrets that are known, `patterns` regular expressions; texts over `longest` characters are
        cut, 0 leaves them.

        Raises:
            ValueError: a pattern is none.
        """
        self._names = {name.lower() for name in names}
        self._keep = {name.lower() for name in keep}
        self._known = KnownValues()
        self._followers: WeakSet[Redactor] = WeakSet()
        self._patterns = [LinearPattern(pattern) for pattern in patterns]
        self._longest = longest
        # Of other letters nobody knows here how they look in the other case: any may be meant.
        spelled = (_spelled(name) if name.isascii() else rb"[\x80-\xff]" for name in self._names)
        self._names_bytes = re.compile(b"|".join(spelled)) if self._names else None
        self._asks_more = bool(self._names or self._patterns or longest)
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Further values that must not be seen."""
        if new := self._known.add(values):
            self._asks_more = True
            for follower in self._followers:
                follower.learn(new)

    def follow(self, other: "Redactor") -> Self:
        """Know the values that another one knows, and those that it learns."""
        other._followers.add(self)
        self.learn(other._known.values)
        return self

    def message(self, raw: bytes) -> bytes:
        """A message, or any JSON; itself if there is nothing to hide.

        Several look at each message, one right after the other, so the last one is remembered in
        which nothing looks like a secret to anybody.
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
        return self._looked_into(raw) if self._asks_more and self._asks(raw) else raw

    def frame(self, raw: bytes) -> bytes:
        """The same for a whole message, of which others then look at parts."""
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
        except (RecursionError, UnicodeEncodeError):  # what cannot be looked into is not shown
            return msgspec.json.encode(REDACTED)

    def value(self, value: Any) -> Any:
        """The same for decoded JSON; itself if there is nothing to hide."""
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
        """A text without what looks like a credential, and without the known ones."""
        if self._known.values:
            text = self._known.replace(text, REDACTED)
        for pattern in self._patterns:
            text = pattern.replace(text, REDACTED)
        clean = redact(text)
        if self._longest and len(clean) > self._longest:
            return f"{clean[: self._longest]}… ({len(clean)} characters)"
        return text if clean == text else clean

    def is_secret(self, name: str) -> bool:
        """Whether a member of this name is nobody's business."""
        folded = name.lower()
        return folded not in self._keep and (folded in self._names or is_secret_name(name))

    def _member(self, name: object, held: Any) -> Any:
        if name == "properties" and isinstance(held, Mapping):
            return self._properties(held)
        if not isinstance(name, str) or not self.is_secret(name):
            return self.value(held)
        if held is None or isinstance(held, bool) or held in ("", REDACTED):
            return held
        if isinstance(held, str) and is_folder(name, held):
            return self.value(held)
        return REDACTED

    def _properties(self, held: Mapping[str, Any]) -> Any:
        """What a schema says of its members; how a password is described is no secret."""
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
        """Whether there may be something in it that only we look for."""
        if self._patterns or 0 < self._longest < len(raw):
            return True
        if self._names_bytes is not None and self._names_bytes.search(raw.lower()) is not None:
            return True
        return bool(self._known.values) and self._known.may_be_in(raw)


_harmless = b""
_harmless_frame = b""


def _is_part(raw: bytes) -> bool:
    """Whether it is an object in a frame in which nothing looks like a secret.

    No word begins before an object, or ends behind it: whatever is found in it is found there too.
    """
    return raw.startswith(b"{") and _harmless_frame.find(raw) >= 0


def _spelled(name: str) -> bytes:
    """How a name stands in JSON, as a pattern."""
    return re.escape(json.dumps(name).encode()[1:-1])


def repeats_a_name(raw: bytes | Raw, value: Any) -> bool:
    """Whether some object in a JSON text, which was read as `value`, has two members of one name.

    Of those only the last is in the value, and somebody else may go by the first. Each one that is
    left out takes a colon with it; nothing else does, unless colons in texts are escaped.
    """
    text = bytes(raw)
    if text.find(b"\\u003a") < 0 and text.find(b"\\u003A") < 0:
        try:
            return text.count(b":") != msgspec.json.encode(value).count(b":")
        except (RecursionError, UnicodeEncodeError, ValueError):
            pass  # then the long way

    def count(members: list[tuple[str, Any]]) -> None:
        if len(dict(members)) < len(members):
            raise _Repeated

    try:
        json.loads(text, object_pairs_hook=count, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):  # also if it is read in another way there
        return True
    return False


class _Repeated(ValueError):
    """Some name is there twice."""


# Of a schema, what can be said about a secret without telling it.
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
