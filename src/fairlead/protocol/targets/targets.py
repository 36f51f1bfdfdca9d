"""Tools, prompts and resources that a message names, in the forms that policies compare.

An item has several names: the server's own name, the name in a gateway's merged list, and the name
displayed in a view. A name also has several spellings, such as `%65tc`, `x/../etc` or another
Unicode form for `etc`, and each server decides which of them it treats as equal. A policy that
compares the text as sent can be evaded with another name or spelling, so every policy uses a
`Target`:

* A *deny* applies if any form of any name matches a pattern, ignoring case.
* An *allow* applies only if one of the names that the operator controls matches as sent, including
its case, and every form of that name matches too. An allow never covers more than the text as sent
does.

Forms are the ways in which servers are known to interpret a text (`name_forms.py`, `uri_forms.py`).
If there are several interpretations (a server may decode `%2f` before or after it resolves `..`),
each of them is a form. A text with too many forms, a text that is too long, and a text with a
malformed host are
unclear: every deny applies to them and no allow does.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...limits import TARGETS
from ...wire import Params
from ...wire.json import MemberNames, read_json
from ..caller import ParamsHead
from ..methods import METHODS
from .name_forms import name_forms, normalize_name
from .uri_forms import is_plain_uri, normalize_uri, uri_forms

__all__ = [
    "NESTED",
    "NESTED_NAMES",
    "Patterns",
    "Target",
    "TargetKind",
    "head_determines_targets",
    "targets_of",
]

TargetKind: TypeAlias = Literal["tool", "prompt", "resource", "other"]

# Methods whose targets are deeper in the params than `ParamsHead` reads.
NESTED: Final = frozenset({"completion/complete", "subscriptions/listen"})

# Members of the object `ref` or `notifications` that name targets.
NESTED_NAMES: Final = MemberNames("name", "resourceSubscriptions", "type", "uri")

_CACHED: Final = 256  # maximum length of a name whose target is cached, in characters


class Target(Struct, frozen=True, dict=True):
    """An item that a message names, with all names that policies may use for it."""

    kind: TargetKind
    own: str  # the name or URI that the server uses itself
    displayed: str  # the name or URI in the client's view
    # Name of the server, if there are several servers and the name is known.
    server: str | None = None
    merged: str | None = None  # the name in the merged list, before a view renames it
    also: tuple[str, ...] = ()  # further names: the full merged name, and other spellings
    unclear: bool = False  # True if servers may interpret the message differently

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return all names, each once."""
        given = (self.displayed, self.own, self.merged, *self.also)
        return tuple(dict.fromkeys(name for name in given if name is not None))

    @cached_property
    def granted_names(self) -> tuple[str, ...]:
        """Return the names that an allow may use: those that the operator controls.

        A server chooses its own names, so on a gateway an allow must not use them.
        """
        merged = self.own if self.merged is None else self.merged
        return (self.displayed,) if merged == self.displayed else (self.displayed, merged)

    @cached_property
    def forms(self) -> tuple[str, ...] | None:
        """Return every form of every name; None if the target is unclear."""
        found: dict[str, None] = {}
        for name in self.names:
            forms = None if self.unclear else self.forms_of(name)
            if forms is None:
                return None
            found.update(dict.fromkeys(forms))
        return tuple(found)

    @cached_property
    def key(self) -> tuple[str | None, TargetKind, str]:
        """Return a value that is the same for every spelling of the same item on the same
        server.
        """
        if self.kind == "resource":
            return self.server, self.kind, normalize_uri(self.own)
        return self.server, self.kind, normalize_name(self.own).casefold()

    def forms_of(self, name: str) -> tuple[str, ...] | None:
        """Return the forms of one of this target's names; None if they are unclear."""
        return uri_forms(name) if self.kind == "resource" else name_forms(name)

    def any_form(self, test: Callable[[str], bool]) -> bool:
        """Return True if a test passes for any form of any name,
        or if the target is unclear (deny).
        """
        forms = self.forms
        return forms is None or any(map(test, forms))

    def every_form(self, test: Callable[[str], bool], names: Iterable[str] | None = None) -> bool:
        """Return True if a test passes for every form of a granted name,
        or of one of `names` (allow).
        """
        if self.unclear:
            return False
        for name in self.granted_names if names is None else names:
            forms = self.forms_of(name)
            if forms is not None and all(map(test, forms)):
                return True
        return False


# Messages


class _Reference(Struct):
    name: str | None = None
    uri: str | None = None


class _Completing(Struct):
    ref: _Reference


class _Wanted(Struct, rename="camel"):
    resource_subscriptions: list[str] = []


class _Listening(Struct):
    notifications: _Wanted = msgspec.field(default_factory=_Wanted)


_decode_completing = msgspec.json.Decoder(_Completing).decode
_decode_listening = msgspec.json.Decoder(_Listening).decode
_UNREADABLE: Final = Target("other", "", "", unclear=True)


def targets_of(method: str, head: ParamsHead, params: Params) -> tuple[Target, ...]:
    """Return the targets that a message names, as sent.

    A `completion/complete` names a prompt or a template, a `subscriptions/listen` names resources.
    Params that servers may interpret differently yield an unclear target.
    """
    if method in NESTED:
        return _nested(method, params)
    name, uri = head.name, head.uri
    if _is_malformed(method, head, params):
        return (_UNREADABLE,)
    if name is UNSET and uri is UNSET:
        return ()
    about_resources = "resources/" in method
    if isinstance(uri, str) and (about_resources or isinstance(name, UnsetType)):
        return (_plain_target("resource", uri),)
    assert isinstance(name, str)
    named = (_plain_target(_KINDS.get(method, "other"), name),)
    if isinstance(uri, str) and method not in _KINDS:
        # A server may use either the name or the URI.
        return (*named, _plain_target("resource", uri))
    return named


_KINDS: Final[dict[str, TargetKind]] = {"tools/call": "tool", "prompts/get": "prompt"}
# The member that names the target, by method.
_MEMBER_OF: Final = {row.name: row.target for row in METHODS if row.target in ("name", "uri")}


def _is_malformed(method: str, head: ParamsHead, params: Params) -> bool:
    """Return True if the name or URI of a target is present, but not a string.

    Some languages convert other values to strings: in JavaScript, `["a"]` selects the member `a`.
    """
    member = _MEMBER_OF.get(method)
    if member is None or isinstance(params, UnsetType):
        return False
    if _has_text(head, member):
        return False
    return member in read_json(params, dict[str, Raw], {member: Raw()})


def head_determines_targets(method: str, head: ParamsHead) -> bool:
    """Return True if messages with this method, name and URI have the same targets.

    Otherwise the targets also depend on the other params, so a cache must not use these three
    values as its key.
    """
    member = _MEMBER_OF.get(method)
    return method not in NESTED and (member is None or _has_text(head, member))


def _has_text(head: ParamsHead, member: str) -> bool:
    """Return True if the name or URI is a string; a missing one and another value are not."""
    return (head.name if member == "name" else head.uri) is not UNSET


def _nested(method: str, params: Params) -> tuple[Target, ...]:
    if isinstance(params, UnsetType):
        return ()
    try:
        if method == "completion/complete":
            found = _of_reference(params)
        else:
            uris = dict.fromkeys(_decode_listening(params).notifications.resource_subscriptions)
            found = tuple(_plain_target("resource", uri) for uri in uris)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return (_UNREADABLE,)
    # Only a tenth of the URIs may be unusual ones, because each of those has many forms.
    if len(found) > TARGETS.value or _odd(found) > TARGETS.value // 10:
        TARGETS.hit()
        return (*found[:1], _UNREADABLE)
    # Relays forward nested members unchanged. A server may use the first of two equal names, or
    # ignore the case of names.
    return (*found, _UNREADABLE) if _repeats_a_member(params) else found


def _of_reference(params: Raw) -> tuple[Target, ...]:
    ref = _decode_completing(params).ref
    found = []
    if ref.name is not None:
        found.append(_plain_target("prompt", ref.name))
    if ref.uri is not None:
        found.append(_plain_target("resource", ref.uri))
    return tuple(found)


def _odd(targets: Iterable[Target]) -> int:
    """Return the number of URIs that have several forms."""
    return sum(not is_plain_uri(one.own) for one in targets)


_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


def _repeats_a_member(params: Raw) -> bool:
    """Return True if the object `ref` or `notifications` has two members with the same name, or
    with names that some servers treat as the same.
    """
    for name in ("ref", "notifications"):
        inner = _MEMBERS.decode(params).get(name)
        if inner is None or memoryview(inner)[0] != _BRACE:
            continue
        # Decoding keeps only the last of two equal names, so the encoded form is shorter.
        members = _MEMBERS.decode(inner)
        if any(map(NESTED_NAMES.respells, members)):
            return True
        once = msgspec.json.encode(members)
        if len(once) < len(msgspec.json.format(inner, indent=-1)):
            return True
    return False


_BRACE: Final = ord("{")


def _plain_target(kind: TargetKind, name: str) -> Target:
    return _remembered(kind, name) if len(name) <= _CACHED else Target(kind, name, name)


@lru_cache(maxsize=1024)
def _remembered(kind: TargetKind, name: str) -> Target:
    return Target(kind, name, name)


# Patterns


class Patterns:
    """Patterns (`*`, `?`, `[abc]`) that match names and URIs."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(dict.fromkeys(patterns))
        self._everything = "*" in self._patterns

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def deny(self, target: Target) -> bool:
        """Return True if any form of any name of the target matches, ignoring case."""
        if self._everything or not self._patterns:
            return self._everything
        return target.any_form(self._loose_uri if target.kind == "resource" else self._loose_name)

    def allow(self, target: Target, names: tuple[str, ...] | None = None) -> bool:
        """Return True if a name of the target matches as sent and every form of that name matches
        too.

        `names` are the names to compare; by default all that the operator controls.
        """
        if self._everything or not self._patterns:
            return self._everything
        form = self._form_of_uri if target.kind == "resource" else self._form_of_name
        sent = filter(self._exact, target.granted_names if names is None else names)
        return target.every_form(form, sent)

    @cached_property
    def _exact(self) -> "_Match":
        return _matcher(self._patterns)

    @cached_property
    def _loose_name(self) -> "_Match":
        return _loose_matcher([*self._patterns, *_rewritten(self._patterns, _name)])

    @cached_property
    def _loose_uri(self) -> "_Match":
        return _loose_matcher([*self._patterns, *_rewritten(self._patterns, _uri)])

    @cached_property
    def _form_of_name(self) -> "_Match":
        return _matcher([*self._patterns, *_rewritten(self._patterns, _name)])

    @cached_property
    def _form_of_uri(self) -> "_Match":
        # The pattern is also read with `?` as the start of a query instead of a wildcard. A pattern
        # for the contents of a folder also matches the folder without its slash.
        patterns = [*self._patterns, *(one[:-2] for one in self._patterns if one.endswith("/*"))]
        several = list(patterns)
        for one in patterns:
            rewritten = (*_rewritten([one], _uris), *_rewritten([one], _uris, query=""))
            # Rewriting a pattern whose scheme is a wildcard may turn its authority into a path;
            # these results are left out.
            located = _PATTERN_START.match(one)
            several += [each for each in rewritten if not located or _PATTERN_START.match(each)]
        return _authority_matcher(several)


_Match: TypeAlias = Callable[[str], bool]
_GLOB: Final = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")
_SPECIAL: Final = re.compile(r"[*?\[]")
# The first of the private characters that replace wildcards while a pattern is rewritten.
_FIRST: Final = 0x100000


def _matcher(patterns: Iterable[str], flags: int = 0) -> _Match:
    # Sorted, because the iteration order of a set of strings differs between processes.
    chosen = sorted(set(patterns))
    match = re.compile("|".join(map(translate, chosen)), flags).match
    return lambda text: match(text) is not None


def _loose_matcher(patterns: list[str]) -> _Match:
    """Return a matcher that ignores case, even for characters with several case variants."""
    match = _matcher([*patterns, *_rewritten(patterns, _caseless)], re.IGNORECASE)
    return lambda text: match(text) or (not text.isascii() and match(text.casefold()))


def _authority_matcher(patterns: Iterable[str]) -> _Match:
    """Return a matcher in which a wildcard in the authority does not match a path.

    The end of the authority is marked once in the pattern and once in the text, so that a wildcard
    before the mark cannot match beyond the authority.
    """
    marked, others = [], []
    for pattern in patterns:
        found = _PATTERN_START.match(pattern)
        if found is None:
            others.append(pattern)
            continue
        end = found.end()
        open_end = "*" if end == len(pattern) and pattern.endswith("*") else ""
        marked.append(pattern[:end] + _MARK + open_end + pattern[end:])
    match, match_other = _matcher(marked), _matcher(others)

    def matches(text: str) -> bool:
        if others and match_other(text):
            return True
        found = _TEXT_START.match(text) if marked and _MARK not in text else None
        return found is not None and match(found[0] + _MARK + text[found.end() :])

    return matches


_MARK: Final = "\U0010ffff"
_TEXT_START: Final = re.compile(r"[^/:?#]*://[^/?#\\]*")
_PATTERN_START: Final = re.compile(r"[^/:#]*://(?:(?!\[\?\])[^/#\\])*")


def _rewritten(
    patterns: Iterable[str], rewrite: Callable[[str], Iterable[str]], query: str = "?"
) -> Iterator[str]:
    """Yield patterns with rewritten literal parts.

    Wildcards are kept; `query` is the single-character wildcard, or empty if `?` is literal.
    """
    for pattern in patterns:
        wildcards: list[str] = []

        def hide(found: re.Match[str], wildcards: list[str] = wildcards) -> str:
            if found[0] == "?" != query:
                return "?"
            wildcards.append(found[0])
            return chr(_FIRST + len(wildcards) - 1)

        hidden = _GLOB.sub(hide, pattern)
        for text in rewrite(hidden):
            shown = _SPECIAL.sub(lambda found: f"[{found[0]}]", text)
            for number, wildcard in enumerate(wildcards):
                shown = shown.replace(chr(_FIRST + number), wildcard)
            yield shown


def _caseless(text: str) -> Iterable[str]:
    return (text.casefold(),)


def _name(text: str) -> Iterable[str]:
    return (normalize_name(text),)


def _uri(text: str) -> Iterable[str]:
    return (normalize_uri(text),)


def _uris(text: str) -> Iterable[str]:
    return uri_forms(text) or (normalize_uri(text),)
