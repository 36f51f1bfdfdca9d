"""Spellings of URIs that servers may treat as equal.

A server may decode `%65tc`, resolve `x/../etc`, fold Unicode forms, or do none of this, in any
order. Each result is a form of the URI.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ...limits import TARGET_FORMS
from .name_forms import UnclearError, fold, is_short
from .url_hosts import host_forms, place_forms, plain_port, without_final_dot

__all__ = ["is_plain_uri", "normalize_uri", "uri_forms"]

_ROUNDS: Final = 8  # maximum number of decoding rounds; a text that needs more is unclear
_CACHED: Final = 256  # maximum length of a URI whose forms are cached, in characters

_PARTS: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL
)
_START: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?")
_SEGMENT: Final = r"""[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+(?:\.+[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+)*"""
_FILE_SEGMENT: Final = _SEGMENT.replace("$", "").replace("|", "")
# A URI with a single form, which decoding, resolving and changes of case leave unchanged.
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
# Windows spellings: `C|` for `C:`, a drive as the host, a device prefix, a stream of the file.
_DRIVE: Final = re.compile(r"(file:[/\\]*[a-z])\|(?=[/\\?#]|\Z)", re.IGNORECASE)
_DRIVE_HOST: Final = re.compile(r"[A-Za-z][:|]")
_DEVICE: Final = re.compile(r"file:[/\\]+(?:[?.]|\?\?)[/\\]+(?:unc[/\\]+)?", re.IGNORECASE)
_STREAM: Final = re.compile(r":[^/\\:]*:\$\w+")
# Characters that URL parsers drop: spaces and controls around a URL, tabs and line ends inside.
_CONTROLS: Final = re.compile(r"\A[\x00- ]+|(?<![\x00- ])[\x00- ]+\Z|[\t\n\r]")
_NESTED_PERCENT: Final = re.compile(r"%(?:25)+(?=[0-9A-Fa-f]{2})")


def is_plain_uri(uri: str) -> bool:
    """Return True if a URI has a single form."""
    return _PLAIN_URI.fullmatch(uri) is not None


def normalize_uri(uri: str) -> str:
    """Return the common form of all URIs that servers may treat as equal.

    Escapes are decoded, also nested ones; `..`, `.`, double slashes and backslashes are resolved;
    scheme and host are in lower case, without user, default port and a local host of `file:`; names
    are folded as by `normalize_name`. Query and fragment stay. A URI that is too long, or escaped
    too often, is returned unchanged.
    """
    if len(uri) <= _CACHED:
        return _normal_uri(uri)
    return _normalized(uri) or uri


def uri_forms(uri: str) -> tuple[str, ...] | None:
    """Return the readings of a URI, the URI as sent first; None if there are too many."""
    return _short_uri_forms(uri) if len(uri) <= _CACHED else _all_forms(uri)


@lru_cache(maxsize=4096)
def _normal_uri(uri: str) -> str:
    return _normalized(uri) or uri


@lru_cache(maxsize=1024)
def _short_uri_forms(uri: str) -> tuple[str, ...] | None:
    return _all_forms(uri)


def _normalized(uri: str) -> str | None:
    try:
        return _read_normal(uri) if is_short(uri) else None
    except UnclearError:
        return None


def _read_normal(uri: str) -> str | None:
    if _PLAIN_URI.fullmatch(uri):
        return uri
    text = uri
    # Decoding can reveal further escapes and segments, so the steps are repeated until nothing
    # changes.
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
        return _read_forms(uri) if is_short(uri) else None
    except UnclearError:
        return None


def _read_forms(uri: str) -> tuple[str, ...] | None:
    if _PLAIN_URI.fullmatch(uri):
        return (uri,)
    forms, left = {uri: None}, TARGET_FORMS.value
    queue, seen = [uri], {uri}
    for text in queue:
        # Each form counts as at least `_CACHED` characters, so that many short ones reach the
        # limit, too.
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
    """Yield the results of single steps of reading a URI, each of which only some servers take."""
    # With scheme and host in their normal form.
    yield text
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
        # A server in C ends the text at the first NUL.
        yield text[: text.index("\x00")]
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
            # A server without queries treats the query as a part of the path.
            if "/" in behind:
                yield _resolved(text, collapse=True, whole=True)


def _decoded(text: str, *, once: bool = False) -> str:
    """Decode escapes, and escapes of percent signs unless `once` is set."""
    # Imported here: the module is slow to load, and most servers do not need it.
    from urllib.parse import unquote

    if "%" not in text:
        return text
    return unquote(text if once else _NESTED_PERCENT.sub("%", text))


def _visible(text: str) -> str:
    return text.strip() if text.isascii() and text.isprintable() else fold(text)


def _folded(text: str) -> str:
    """Fold characters, and remove dots and spaces after a name as Windows does."""
    folded = _visible(text)
    if " " not in folded and "." not in folded:
        return folded
    start, path, rest = _split(folded)
    if ". " not in path and " " not in path and "./" not in path and not path.endswith("."):
        return folded
    return start + "/".join(map(_trimmed, path.split("/"))) + rest


def _trimmed(segment: str) -> str:
    trimmed = segment.rstrip(". ")
    return trimmed or segment.replace(" ", "")  # `..` with spaces still means the parent


def _windows(text: str) -> str:
    """Return a file URI without the parts that Windows treats as another spelling of its path."""
    if text[:5].lower() != "file:":
        return text
    return _STREAM.sub("", _DRIVE.sub(r"\1:", _DEVICE.sub("file:///", text)))


def _split(text: str, *, whole: bool = False) -> tuple[str, str, str]:
    """Split a URI into the text before its path, the path, and the text after it.

    With `whole`, query and fragment belong to the path.
    """
    if whole:
        found = _START.match(text)
        end = 0 if found is None else found.end()
        return text[:end], text[end:], ""
    found = _PARTS.match(text)
    assert found is not None  # the pattern matches any text
    return text[: found.start(3)], found[3], text[found.end(3) :]


def _resolved(text: str, *, collapse: bool, whole: bool = False) -> str:
    """Resolve `.` and `..`; with `collapse`, remove empty segments as a file system does."""
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

    For `file:`, these are all possible meanings. A malformed host gives none.
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
    # Other hosts may contain a part of the path, still escaped.
    if _PLAIN_HOST.fullmatch(host):
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
    # Many servers ignore the host of a file, or treat it as the first folder.
    return f"file://{host}{path}{rest}", here, f"file:///{host}{path}{rest}", *kept


def _located_at_host(scheme: str, behind: str) -> tuple[str, ...]:
    """Return the forms of a URI whose scheme always has a host, after any number of slashes."""
    found = _PARTS.match("//" + behind.lstrip("/\\"))
    assert found is not None  # the pattern matches any text
    given, rest = found[2][2:], (found[3] or "/") + (found[4] or "") + (found[5] or "")
    place = given.rpartition("@")[2]
    # Another reading of this text has another host.
    if "\\" in place or _decoded(place) != place:
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
