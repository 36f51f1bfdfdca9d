"""The tools, prompts and resources that a message names, in the forms that policies compare.

One item has several names: the server's own one, the one in a gateway's merged list, the one that
a view displays. And one name has several spellings, of which only the server knows which ones it
takes for the same: `%65tc` and `etc`, `x/../etc`, another Unicode form. A policy that compares the
text as sent can be evaded by choosing another name or spelling, so every policy asks a `Target`:

* A *deny* applies if any form of any name matches a pattern, in any case.
* An *allow* holds only if one of the names that the operator controls matches as it was sent, in
  this case, and every form of it matches too. It never covers more than the text as sent does.

Forms are readings that servers are known to make of a text. Where they differ (a server may decode
`%2f` before or after it resolves `..`), each reading is a form. A text that has too many of them,
or is too long, or has a malformed host, is unclear: every deny applies to it and no allow does.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...limits import TARGET_FORMS, TARGET_LENGTH, TARGETS
from ...wire import Params
from ..caller import ParamsHead
from .unicode_forms import nfkc
from .url_hosts import host_forms, place_forms, plain_port, without_final_dot

__all__ = [
    "NESTED",
    "Patterns",
    "Target",
    "TargetKind",
    "name_forms",
    "normalize_name",
    "normalize_uri",
    "targets_of",
    "uri_forms",
]

TargetKind: TypeAlias = Literal["tool", "prompt", "resource", "other"]

# Methods whose targets stand deeper in the params than a `ParamsHead` reads.
NESTED: Final = frozenset({"completion/complete", "subscriptions/listen"})

_ROUNDS: Final = 8  # of decoding, after which a text is unclear
_CACHED: Final = 256  # characters of a text whose forms are remembered


class Target(Struct, frozen=True, dict=True):
    """One item that a message names, under all names by which policies may know it."""

    kind: TargetKind
    own: str  # the server's own name, or the URI
    displayed: str  # the name that the client's view gives it, or the URI
    server: str | None = None  # where several are served together, and it is known
    merged: str | None = None  # its name in the merged list, before a view renames it
    also: tuple[str, ...] = ()  # further names: the merged one in full, and other spellings
    unclear: bool = False  # the message names it in a way that servers may read differently

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names, each once."""
        given = (self.displayed, self.own, self.merged, *self.also)
        return tuple(dict.fromkeys(name for name in given if name is not None))

    @cached_property
    def granted_names(self) -> tuple[str, ...]:
        """The names that an allow may go by: those that the operator controls.

        The server chooses its own names, so behind a gateway an allow must not go by them.
        """
        merged = self.own if self.merged is None else self.merged
        return (self.displayed,) if merged == self.displayed else (self.displayed, merged)

    @cached_property
    def forms(self) -> tuple[str, ...] | None:
        """Every form of every name; None if the target is unclear."""
        found: dict[str, None] = {}
        for name in self.names:
            forms = None if self.unclear else self.forms_of(name)
            if forms is None:
                return None
            found.update(dict.fromkeys(forms))
        return tuple(found)

    @cached_property
    def key(self) -> tuple[str | None, TargetKind, str]:
        """The same value for every spelling of one item of one server."""
        if self.kind == "resource":
            return self.server, self.kind, normalize_uri(self.own)
        return self.server, self.kind, normalize_name(self.own).casefold()

    def forms_of(self, name: str) -> tuple[str, ...] | None:
        """The forms of one of its names; None if that is unclear."""
        return uri_forms(name) if self.kind == "resource" else name_forms(name)

    def any_form(self, test: Callable[[str], bool]) -> bool:
        """Return True if a test holds for any form of any name. This is how a deny asks."""
        forms = self.forms
        return forms is None or any(map(test, forms))

    def every_form(self, test: Callable[[str], bool]) -> bool:
        """Return True if a test holds for every form of a name. This is how an allow asks."""
        if self.unclear:
            return False
        for name in self.granted_names:
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
    """Return what a message names, as it names it.

    A `completion/complete` names a prompt or a template, a `subscriptions/listen` each of its
    resources. Params that servers may read differently name something unclear.
    """
    if method in NESTED:
        return _nested(method, params)
    name, uri = head.name, head.uri
    if name is UNSET and uri is UNSET:
        return ()
    about_resources = "resources/" in method
    if isinstance(uri, str) and (about_resources or isinstance(name, UnsetType)):
        return (_plain_target("resource", uri),)
    assert isinstance(name, str)
    named = (_plain_target(_KINDS.get(method, "other"), name),)
    if isinstance(uri, str) and method not in _KINDS:
        return (*named, _plain_target("resource", uri))  # a server may go by either
    return named


_KINDS: Final[dict[str, TargetKind]] = {"tools/call": "tool", "prompts/get": "prompt"}


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
    if len(found) > TARGETS.value or _odd(found) > TARGETS.value // 10:
        TARGETS.hit()
        return (*found[:1], _UNREADABLE)
    # A relay passes nested members on as they came, and a server may go by the first of two.
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
    """Count those that cost more than a look."""
    return sum(_PLAIN_URI.fullmatch(one.own) is None for one in targets)


_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])


def _repeats_a_member(params: Raw) -> bool:
    """Return True if `ref` or `notifications` has two members of one name."""
    for name in ("ref", "notifications"):
        inner = _MEMBERS.decode(params).get(name)
        if inner is None or memoryview(inner)[0] != _BRACE:
            continue
        once = msgspec.json.encode(_MEMBERS.decode(inner))
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
    """Patterns (`*`, `?`, `[abc]`) for names and URIs."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(dict.fromkeys(patterns))
        self._everything = "*" in self._patterns

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def deny(self, target: Target) -> bool:
        """Return True if any form of any name of the target matches, in any case."""
        if self._everything or not self._patterns:
            return self._everything
        return target.any_form(self._loose_uri if target.kind == "resource" else self._loose_name)

    def allow(self, target: Target, names: tuple[str, ...] | None = None) -> bool:
        """Return True if a name of the target matches as it is, and every form of it too.

        `names` are those to go by; without them, all that the operator controls.
        """
        if self._everything or not self._patterns:
            return self._everything
        if target.unclear:
            return False
        exact, form = self._exact, self._form_of_name
        if target.kind == "resource":
            form = self._form_of_uri
        for name in target.granted_names if names is None else names:
            forms = target.forms_of(name) if exact(name) else None
            if forms is not None and all(map(form, forms)):
                return True
        return False

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
        # A wildcard `?` may be meant as the start of a query. And a folder that is allowed with
        # all that is in it may be read with and without a slash.
        patterns = [*self._patterns, *(one[:-2] for one in self._patterns if one.endswith("/*"))]
        several = list(patterns)
        for one in patterns:
            rewritten = (*_rewritten([one], _uris), *_rewritten([one], _uris, query=""))
            # With a wildcard for its scheme, an authority may have been taken for a path.
            located = _PATTERN_START.match(one)
            several += [each for each in rewritten if not located or _PATTERN_START.match(each)]
        return _authority_matcher(several)


_Match: TypeAlias = Callable[[str], bool]
_GLOB: Final = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")
_SPECIAL: Final = re.compile(r"[*?\[]")
_FIRST: Final = 0x100000  # of the private characters that replace wildcards


def _matcher(patterns: Iterable[str], flags: int = 0) -> _Match:
    chosen = sorted(set(patterns))
    match = re.compile("|".join(map(translate, chosen)), flags).match
    return lambda text: match(text) is not None


def _loose_matcher(patterns: list[str]) -> _Match:
    """Return a matcher in any case, also where a character has several in the other case."""
    match = _matcher([*patterns, *_rewritten(patterns, _caseless)], re.IGNORECASE)
    return lambda text: match(text) or (not text.isascii() and match(text.casefold()))


def _authority_matcher(patterns: Iterable[str]) -> _Match:
    """Return a matcher in which what stands for a part of an authority matches no path.

    The end of the authority is marked in the pattern and in the text. Each has one mark, so that a
    wildcard before it cannot match more than a part of the authority.
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
    """Yield patterns with their literal parts rewritten; `query` is the wildcard besides `*`."""
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


# Names

# Characters without a glyph: controls, and those that Unicode has text processes ignore.
_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_PLAIN_NAME: Final = re.compile(r"[!-~]*")


def normalize_name(name: str) -> str:
    """Return a name in compatibility form (NFKC), without invisible characters and outer space.

    A name that is too long, or not normalisable in linear time, is returned as it is.
    """
    if len(name) <= _CACHED:
        return _normal_name(name)
    return _normal_form(name)


def name_forms(name: str) -> tuple[str, ...] | None:
    """Return the forms of a name, the name as it is first; None if they are unclear."""
    if _PLAIN_NAME.fullmatch(name) and len(name) <= TARGET_LENGTH.value:
        return (name,)
    if not _is_short(name):
        return None
    try:
        normal = _fold(name)
    except _UnclearError:
        return None
    return (name,) if normal == name else (name, normal)


@lru_cache(maxsize=4096)
def _normal_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _normal_form(name)


def _normal_form(name: str) -> str:
    try:
        return _fold(name) if _is_short(name) else name
    except _UnclearError:
        return name


class _UnclearError(ValueError):
    """A text that is not normalised, because that would take too long."""


def _fold(text: str) -> str:
    """Fold what is not visible or only another form of a character, until nothing changes.

    Raises:
        _UnclearError: for too many combining marks in a row.
    """
    while True:
        folded = nfkc(_INVISIBLE.sub("", text))
        if folded is None:
            raise _UnclearError
        folded = folded.strip()
        if folded == text:
            return text
        text = folded


def _is_short(text: str) -> bool:
    if len(text) > TARGET_LENGTH.value:
        TARGET_LENGTH.hit()
        return False
    return True


# URIs

_PARTS: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL
)
_START: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?")
_SEGMENT: Final = r"""[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+(?:\.+[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+)*"""
_FILE_SEGMENT: Final = _SEGMENT.replace("$", "").replace("|", "")
# A URI that has one form only: nothing to decode, resolve, lower, complete or leave out.
_PLAIN_URI: Final = re.compile(
    rf"file://(?:/{_FILE_SEGMENT})*"
    rf"|(?:https?|wss?|ftp)://(?!xn--|[^/]*\.xn--)(?:[a-z0-9-]+\.)*[a-z][a-z0-9-]*"
    rf"/(?:{_SEGMENT}(?:/{_SEGMENT})*)?"
    rf"|(?!(?:file|https?|wss?|ftp):)[a-z][a-z0-9+.-]*:"
    rf"(?://[a-z0-9-]+(?:\.[a-z0-9-]+)*|{_SEGMENT})(?:/{_SEGMENT})*",
    re.ASCII,
)
_PLAIN_HOST: Final = re.compile(r"[!-$&-\[\]-~]*")  # ASCII without `%` and `\`
_HOST_PORT: Final = re.compile(r"(.*?)(?::([0-9]*))?", re.DOTALL)
_LOCAL: Final = ("", "localhost", "127.0.0.1", "[::1]")  # hosts of `file:` that mean this machine
# Schemes that the WHATWG URL Standard calls special, with their default ports.
_PORTS: Final = {"http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21"}
# What Windows takes for `C:`, for no prefix at all, and for the file itself.
_DRIVE: Final = re.compile(r"(file:[/\\]*[a-z])\|(?=[/\\?#]|\Z)", re.IGNORECASE)
_DRIVE_HOST: Final = re.compile(r"[A-Za-z][:|]")
_DEVICE: Final = re.compile(r"file:[/\\]+(?:[?.]|\?\?)[/\\]+(?:unc[/\\]+)?", re.IGNORECASE)
_STREAM: Final = re.compile(r":[^/\\:]*:\$\w+")
# What URL parsers leave out: blanks and controls around a URL, tabs and line ends inside.
_CONTROLS: Final = re.compile(r"\A[\x00- ]+|(?<![\x00- ])[\x00- ]+\Z|[\t\n\r]")
_NESTED_PERCENT: Final = re.compile(r"%(?:25)+(?=[0-9A-Fa-f]{2})")


def normalize_uri(uri: str) -> str:
    """Return the one form of all URIs that servers may take for the same.

    Escapes are decoded, also those that are escaped again; `..`, `.`, doubled and back slashes are
    resolved; scheme and host are in lower case, without user, default port and a local host of
    `file:`; names are folded as by `normalize_name`. Query and fragment stay. A URI that is too
    long, or escaped too often, is returned as it is.
    """
    if len(uri) <= _CACHED:
        return _normal_uri(uri)
    return _normalized(uri) or uri


def uri_forms(uri: str) -> tuple[str, ...] | None:
    """Return the readings of a URI, the URI as it is first; None if there are too many."""
    return _short_uri_forms(uri) if len(uri) <= _CACHED else _all_forms(uri)


@lru_cache(maxsize=4096)
def _normal_uri(uri: str) -> str:
    return _normalized(uri) or uri


@lru_cache(maxsize=1024)
def _short_uri_forms(uri: str) -> tuple[str, ...] | None:
    return _all_forms(uri)


def _normalized(uri: str) -> str | None:
    try:
        return _read_normal(uri) if _is_short(uri) else None
    except _UnclearError:
        return None


def _read_normal(uri: str) -> str | None:
    if _PLAIN_URI.fullmatch(uri):
        return uri
    text = uri
    for _ in range(_ROUNDS):
        before = text
        text = _windows(_folded(_decoded(text)).replace("\\", "/"))
        located = _located(text)
        if not located:
            return None
        text = _resolved(located[0], collapse=True)
        if text == before:
            return text
    return None


def _all_forms(uri: str) -> tuple[str, ...] | None:
    try:
        return _read_forms(uri) if _is_short(uri) else None
    except _UnclearError:
        return None


def _read_forms(uri: str) -> tuple[str, ...] | None:
    if _PLAIN_URI.fullmatch(uri):
        return (uri,)
    forms, left = {uri: None}, TARGET_FORMS.value
    queue, seen = [uri], {uri}
    for text in queue:
        left -= max(len(text), _CACHED)
        if left < 0:
            TARGET_FORMS.hit()
            return None
        for reading in _readings(text):
            if reading in seen and reading is not uri:
                continue
            seen.add(reading)
            located = _located(reading)
            if not located:
                return None
            for form in located:
                if form not in forms:
                    forms[form] = None
                    seen.add(form)
                    queue.append(form)
    return tuple(forms)


def _readings(text: str) -> Iterator[str]:
    """Yield what one step of reading makes of a URI; some servers take the step, some do not."""
    yield text  # with its scheme and host in their normal form
    if "%" in text:
        yield _decoded(text, once=True)
        yield _decoded(text)
    if "\\" in text:
        yield text.replace("\\", "/")
        start, path, rest = _split(text)
        if "\\" in rest:
            yield (start + path).replace("\\", "/") + rest
    stripped, visible, folded = _CONTROLS.sub("", text), _visible(text), _folded(text)
    if stripped != text:
        yield stripped
    if visible != stripped:
        yield visible
    if folded != visible:
        yield folded
    if "\x00" in text:
        yield text[: text.index("\x00")]  # where a text ends in C
    windows = _windows(text)
    if windows != text:
        yield windows
    yield _resolved(text, collapse=False)
    yield _resolved(text, collapse=True)
    start, path, rest = _split(text)
    if path.endswith("/") and path.strip("/"):
        yield start + path.rstrip("/") + rest
    for mark in ("#", "?"):
        if mark in text:
            before, _, behind = text.partition(mark)
            yield before
            if "/" in behind:  # a server that knows no queries takes it for a part of the path
                yield _resolved(text, collapse=True, whole=True)


def _decoded(text: str, *, once: bool = False) -> str:
    """Decode escapes, and escapes of their percent signs unless `once` is set."""
    from urllib.parse import unquote  # slow to load, and most servers need none

    if "%" not in text:
        return text
    return unquote(text if once else _NESTED_PERCENT.sub("%", text))


def _visible(text: str) -> str:
    return text.strip() if text.isascii() and text.isprintable() else _fold(text)


def _folded(text: str) -> str:
    """Fold characters, and leave out dots and spaces where Windows does: behind a name."""
    folded = _visible(text)
    if " " not in folded and "." not in folded:
        return folded
    start, path, rest = _split(folded)
    if ". " not in path and " " not in path and "./" not in path and not path.endswith("."):
        return folded
    return start + "/".join(map(_trimmed, path.split("/"))) + rest


def _trimmed(segment: str) -> str:
    trimmed = segment.rstrip(". ")
    return trimmed or segment.replace(" ", "")  # `..` with spaces is still one


def _windows(text: str) -> str:
    """Return a file without what Windows reads as another spelling of its path."""
    if text[:5].lower() != "file:":
        return text
    return _STREAM.sub("", _DRIVE.sub(r"\1:", _DEVICE.sub("file:///", text)))


def _split(text: str, *, whole: bool = False) -> tuple[str, str, str]:
    """Split a URI in what comes before its path, the path, and what comes behind."""
    if whole:
        found = _START.match(text)
        end = 0 if found is None else found.end()
        return text[:end], text[end:], ""
    found = _PARTS.match(text)
    assert found is not None  # the pattern matches any text
    return text[: found.start(3)], found[3], text[found.end(3) :]


def _resolved(text: str, *, collapse: bool, whole: bool = False) -> str:
    """Resolve `.` and `..`; with `collapse`, an empty segment is none, as on a file system."""
    start, path, rest = _split(text, whole=whole)
    if "./" not in path and "/." not in path and "//" not in path and path not in (".", ".."):
        return text
    segments = path.split("/")
    kept: list[str] = []
    for segment in segments[path.startswith("/") :]:
        if segment == "..":
            del kept[-1:]
        elif segment != "." and (segment or not collapse):
            kept.append(segment)
    if segments[-1] in (".", "..") or (collapse and not segments[-1] and kept):
        kept.append("")
    return start + "/" * path.startswith("/") + "/".join(kept) + rest


def _located(text: str) -> tuple[str, ...]:
    """Return a URI with scheme and host in their normal forms, the usual one first.

    Of `file:`, these are all that may be meant. A host that is malformed gives none.
    """
    found = _PARTS.match(text)
    assert found is not None  # the pattern matches any text
    scheme, authority, path = (found[1] or "").lower(), found[2], found[3]
    if scheme in _PORTS:
        return _located_at_host(scheme, text[len(scheme) :])
    rest = text[found.end(3) :]
    if authority is None and scheme != "file:":
        return (scheme + path + rest,)
    given = (authority or "//")[2:]
    host = given.rpartition("@")[2]
    if _PLAIN_HOST.fullmatch(host):  # else a part of the path may be in it, as yet in escapes
        host = _host(host.lower())
    # The user may contain a part of the path as well.
    kept = (f"{scheme}//{given}{path}{rest}",) if _may_hide_a_path(given) else ()
    if scheme != "file:":
        return f"{scheme}//{host}{path}{rest}", *kept
    rooted = path if path.startswith("/") or not path else f"/{path}"
    here = f"file://{rooted or '/'}{rest}"
    if host.partition(":")[0] in _LOCAL or host in _LOCAL:
        return here, *kept
    if _DRIVE_HOST.fullmatch(given):
        kept = (f"file:///{given[0]}:{path}{rest}",)
    # Many servers ignore the host of a file, or take it for the first folder.
    return f"file://{host}{path}{rest}", here, f"file:///{host}{path}{rest}", *kept


def _located_at_host(scheme: str, behind: str) -> tuple[str, ...]:
    """Return the forms of a URI whose scheme always has a host, behind any number of slashes."""
    found = _PARTS.match("//" + behind.lstrip("/\\"))
    assert found is not None  # the pattern matches any text
    given, rest = found[2][2:], (found[3] or "/") + (found[4] or "") + (found[5] or "")
    place = given.rpartition("@")[2]
    if "\\" in place or _decoded(place) != place:  # another reading of it has no such host
        places: tuple[str, ...] | None = (place,)
    else:
        places = place_forms(place, _PORTS[scheme])
    if places is None:
        return ()
    forms = [f"{scheme}//{one}{rest}" for one in places]
    if _may_hide_a_path(given):
        forms.append(f"{scheme}//{given}{rest}")
    return tuple(forms)


def _may_hide_a_path(authority: str) -> bool:
    return "@" in authority and not _PLAIN_HOST.fullmatch(authority)


def _host(host: str) -> str:
    """Return a host of any scheme without an empty port and without the dot of a full name."""
    while True:
        found = _HOST_PORT.fullmatch(host)
        assert found is not None  # the pattern matches any text
        shorter = without_final_dot(found[1]) + plain_port(found[2])
        if shorter == host:
            break
        host = shorter
    if host.startswith("[") and host.endswith("]"):
        return (host_forms(host) or (host,))[0]
    return host
