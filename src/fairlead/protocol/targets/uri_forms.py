"""Different spellings of a URI that servers may treat as equal.

A server may decode `%65tc`, resolve `x/../etc`, fold Unicode forms, or do none of this, in any
order. Each result is a form of the URI.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from ...limits import TARGET_FORMS
from .name_forms import UnclearError, fold, is_short

__all__ = ["is_plain_uri", "normalize_uri", "uri_forms"]

_PORT: Final = re.compile(r"(.*?)(?::([0-9]*))?", re.DOTALL)
# characters that the WHATWG URL Standard forbids in a host
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f#%/:<>?@\[\\\]^|]")
# ideographic, full-width and half-width dots
_DOTS: Final = str.maketrans("\u3002\uff0e\uff61", "...")
# private characters that replace the wildcards of a pattern
_WILDCARD: Final = re.compile("[\U00100000-\U0010ffff]")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# IDNA 2003 maps these two letters (sharp s, final sigma) to others; IDNA 2008 keeps them
_DEVIATING: Final = re.compile("[\xdf\u03c2]")
_LABEL: Final = 63  # maximum length of a DNS label, in characters
_HOST: Final = 253  # maximum number of characters of a host name
_HIGHEST_PORT: Final = 65535  # highest port number


def place_forms(place: str, default_port: str) -> tuple[str, ...] | None:
    """Return the forms of a host with a port, most common first; None if it is malformed."""
    place = place.lower()
    found = _PORT.fullmatch(place)
    assert found is not None  # the pattern matches any text
    if _WILDCARD.search(place):
        return (without_final_dot(found[1]) + plain_port(found[2], default_port),)
    port = plain_port(found[2], default_port)
    # The length is checked first, because `int` raises for thousands of digits.
    if len(port) > len(":65535") or int(port[1:] or "0") > _HIGHEST_PORT:
        return None
    hosts = host_forms(found[1])
    return None if hosts is None else tuple(host + port for host in hosts)


def plain_port(digits: str | None, default: str = "") -> str:
    """Return a port with its colon and without leading zeros; empty for the default port."""
    number = digits and (digits.lstrip("0") or "0")
    return f":{number}" if number and number != default else ""


def without_final_dot(host: str) -> str:
    """Return a host without the trailing dot of a full name; two dots may mean a parent folder."""
    return host[:-1] if host.endswith(".") and not host.endswith("..") else host


def host_forms(host: str) -> tuple[str, ...] | None:
    """Return the forms of a host in lower case, most common first; None if it is malformed."""
    if host.startswith("[") and host.endswith("]"):
        return _ipv6_forms(host[1:-1])
    if len(host) > _HOST:
        return None
    labels = without_final_dot(host.translate(_DOTS)).split(".")
    several = [_label_forms(label) for label in labels]
    found: dict[str, None] = {}
    # The first forms of all labels, then the second forms: all combinations may be too many.
    for number in range(max(map(len, several))):
        name = ".".join(forms[min(number, len(forms) - 1)] for forms in several if forms)
        found.update(dict.fromkeys(_named(name)))
    if not all(several) or not found:
        return None
    return tuple(found) if all(name and not _FORBIDDEN.search(name) for name in found) else None


def _named(name: str) -> Iterator[str]:
    """Yield a host name, or the IPv4 addresses that a numeric host means;
    an empty string if malformed.
    """
    name = without_final_dot(name)
    if not _NUMBER.fullmatch(name.rpartition(".")[2]):
        yield name
        return
    parts = name.split(".")
    # For some servers a leading zero makes a number octal; others ignore it.
    for octal in (True, False) if any(part.startswith("0") for part in parts) else (True,):
        address = _ipv4(parts, octal=octal)
        if address or octal:
            yield address


def _ipv4(parts: list[str], *, octal: bool) -> str:
    """Return the IPv4 address written as one to four numbers, as `inet_aton` does;
    empty if malformed.
    """
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) and len(part) <= 64 for part in parts):
        return ""
    try:
        numbers = [_number(part, octal=octal) for part in parts]
    except ValueError:
        return ""
    *firsts, last = numbers
    room = 4 - len(firsts)
    if any(number > 255 for number in firsts) or last >= 256**room:
        return ""
    return ".".join(map(str, [*firsts, *last.to_bytes(room, "big")]))


def _number(text: str, *, octal: bool) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if octal and text.startswith("0") else 10)


def _ipv6_forms(text: str) -> tuple[str, ...] | None:
    # Imported here, because few URIs need it.
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped
    if mapped is None:
        return (f"[{address.compressed}]",)
    high, low = divmod(int(mapped), 1 << 16)
    return str(mapped), f"[::ffff:{high:x}:{low:x}]", f"[::ffff:{mapped}]"


def _label_forms(label: str) -> tuple[str, ...]:
    """Return a label in ASCII and Unicode, with IDNA 2003 first; empty if malformed."""
    if label.isascii() and not label.startswith("xn--"):
        return (label,)
    if len(label) > _LABEL:
        return ()
    try:
        if label.isascii():
            shown = label[4:].encode("ascii").decode("punycode").lower()
            return label, shown, label, shown
        old = new = label.encode("idna").decode("ascii").lower()
        shown = label
        if old.startswith("xn--"):
            shown = old[4:].encode("ascii").decode("punycode")
        if _DEVIATING.search(label):
            normal = unicodedata.normalize("NFKC", label).lower()
            new = "xn--" + normal.encode("punycode").decode("ascii")
    except (UnicodeError, ValueError):
        return ()
    return old, label, new, shown


_ROUNDS: Final = 8  # maximum number of decoding rounds; a text that needs more is unclear
_CACHED: Final = 256  # maximum length of a URI whose forms are cached, in characters

_PARTS: Final = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*:)?(//[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL
)
_START: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?")
_SEGMENT: Final = r"""[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+(?:\.+[\w~!$&'()*+,;=:@{}|^"<>`\[\]-]+)*"""
_FILE_SEGMENT: Final = _SEGMENT.replace("$", "").replace("|", "")
# A URI with a single form: it does not change by decoding, resolving or changes of case.
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
    are folded as in `normalize_name`. Query and fragment are kept. A URI that is too long,
    is escaped too often or has a malformed host is returned unchanged.
    """
    if len(uri) <= _CACHED:
        return _normal_uri(uri)
    return _normalized(uri) or uri


def uri_forms(uri: str) -> tuple[str, ...] | None:
    """Return the forms of a URI, starting with the URI as sent; None if it is unclear.

    A URI is unclear if it is too long, has too many forms or has a malformed host.
    """
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
    # Decoding can reveal further escapes and segments, so the steps repeat until nothing changes.
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
        # Each form counts as at least `_CACHED` characters, which limits many short forms too.
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
    """Yield the results of single interpretation steps, each of which only some servers perform."""
    # Scheme and host in their normal forms.
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
        # A server written in C ends the text at the first NUL.
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
    """Decode escapes; unless `once` is set, also escapes that result from decoding."""
    # Imported here: the module is slow to load, and most servers do not need it.
    from urllib.parse import unquote

    if "%" not in text:
        return text
    return unquote(text if once else _NESTED_PERCENT.sub("%", text))


def _visible(text: str) -> str:
    return text.strip() if text.isascii() and text.isprintable() else fold(text)


def _folded(text: str) -> str:
    """Fold characters, and remove dots and spaces at the end of a name as Windows does."""
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
    """Return a file URI without Windows-specific variations in the spelling of its path."""
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
    """Return the variants of a URI whose scheme and host are in normal form, most common first.

    For `file:`, these are all possible meanings of its host. The list is empty if the host is
    malformed.
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
    # Other hosts may contain an escaped part of the path.
    if _PLAIN_HOST.fullmatch(host):
        host = _host(host.lower())
    # The user name may contain part of the path.
    kept = (f"{scheme}//{given}{path}{rest}",) if _may_hide_a_path(given) else ()
    if scheme != "file:":
        return f"{scheme}//{host}{path}{rest}", *kept
    rooted = path if path.startswith("/") or not path else f"/{path}"
    here = f"file://{rooted or '/'}{rest}"
    if host.partition(":")[0] in _LOCAL or host in _LOCAL:
        return here, *kept
    if _DRIVE_HOST.fullmatch(given):
        kept = (f"file:///{given[0]}:{path}{rest}",)
    # Many servers ignore the host of a file URI, or treat it as the first folder.
    return f"file://{host}{path}{rest}", here, f"file:///{host}{path}{rest}", *kept


def _located_at_host(scheme: str, behind: str) -> tuple[str, ...]:
    """Return the forms of a URI whose scheme requires a host, after any number of slashes."""
    found = _PARTS.match("//" + behind.lstrip("/\\"))
    assert found is not None  # the pattern matches any text
    given, rest = found[2][2:], (found[3] or "/") + (found[4] or "") + (found[5] or "")
    place = given.rpartition("@")[2]
    # Under another interpretation this text has a different host.
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
    """Return the host of any scheme without an empty port and without the trailing dot of a full
    name.
    """
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
