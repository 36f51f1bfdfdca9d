"""Secrets out of messages: by the names of members, by what values look like, and by value."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from .redact import REDACTED, is_secret_name, redact

__all__ = ["Redactor"]

# Whether it is worth to open a message at all: one look over its bytes decides for most of them.
# Escapes that hide letters or slashes are reason enough. Plain words are found far faster than by a
# pattern, which matters for a result of some megabytes.
_SUSPICIOUS: Final = (
    *(b"authorization", b"cookie", b"secret", b"passwd", b"password", b"passphrase", b"credential"),
    *(b"apikey", b"api_key", b"api-key", b"privatekey", b"private_key", b"private-key"),
    *(b"bearer", b"\\u", b"\\/"),
)
_HARMLESS_TOKENS: Final = (b"progresstoken", b"maxtokens", b"max_tokens")
_URL_USER: Final = re.compile(rb"://[^/\s\"]*@")
SHORTEST: Final = 6  # shorter values are no secrets, and would be found everywhere

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
        self._values: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self._known_bytes: re.Pattern[bytes] | None = None
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._longest = longest
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Further values that must not be seen."""
        new = {value for value in values if len(value) >= SHORTEST} - self._values
        if new:
            self._values |= new
            longest_first = sorted(self._values, key=len, reverse=True)
            self._known = re.compile("|".join(map(re.escape, longest_first)))
            spelled = {form for value in self._values for form in _spellings(value)}
            self._known_bytes = re.compile(b"|".join(map(re.escape, spelled)))

    def message(self, raw: bytes) -> bytes:
        """A message, or any JSON; itself if there is nothing to hide."""
        if not self._worth_a_look(raw):
            return raw
        try:
            value = _decode(raw)
        except _UNREADABLE:
            return msgspec.json.encode(self.text(bytes(raw).decode("utf-8", "replace")))
        try:
            clean = self.value(value)
            return raw if clean is value else msgspec.json.encode(clean)
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
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern in self._patterns:
            text = pattern.sub(REDACTED, text)
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

    def _worth_a_look(self, raw: bytes) -> bool:
        if self._names or self._patterns or self._longest:
            return True
        if _is_suspicious(raw):
            return True
        return self._known_bytes is not None and self._known_bytes.search(raw) is not None


def _is_suspicious(raw: bytes) -> bool:
    folded = raw.lower()
    for word in _SUSPICIOUS:
        if word in folded:
            return True
    if b"token" in folded:
        tokens = folded.count(b"token")
        if tokens > sum(folded.count(word) for word in _HARMLESS_TOKENS):
            return True
    return b"@" in folded and _URL_USER.search(folded) is not None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as exc:
        raise ValueError(f"{pattern!r} is no regular expression: {exc}") from None


def _spellings(value: str) -> set[bytes]:
    """How a text stands in JSON; escapes by number are looked into anyway."""
    plain = value.encode("utf-8", "replace")
    quoted = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")[1:-1]
    return {plain, quoted}


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
