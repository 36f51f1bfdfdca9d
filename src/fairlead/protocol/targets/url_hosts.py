"""Host and port of a URL, in the forms that servers resolve to the same address.

A host has several spellings: `127.1` and `2130706433` are IPv4 addresses, an IPv6 address may be
written in full, a name may be in Unicode or in ASCII (`xn--`). No name is looked up in the DNS.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

__all__ = ["host_forms", "place_forms", "plain_port", "without_final_dot"]

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
_LABEL: Final = 63  # maximum number of characters of a label in the DNS
_HOST: Final = 253
_HIGHEST_PORT: Final = 65535


def place_forms(place: str, default_port: str) -> tuple[str, ...] | None:
    """Return the forms of a host with a port, the usual one first; None if it is malformed."""
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
    """Return a host without the dot of a full name; two dots may mean a parent folder."""
    return host[:-1] if host.endswith(".") and not host.endswith("..") else host


def host_forms(host: str) -> tuple[str, ...] | None:
    """Return the forms of a host in lower case, the usual one first; None if it is malformed."""
    if host.startswith("[") and host.endswith("]"):
        return _ipv6_forms(host[1:-1])
    if len(host) > _HOST:
        return None
    labels = without_final_dot(host.translate(_DOTS)).split(".")
    several = [_label_forms(label) for label in labels]
    found: dict[str, None] = {}
    # The first form of each label, then the second, and so on: the product of all may be large.
    for number in range(max(map(len, several))):
        name = ".".join(forms[min(number, len(forms) - 1)] for forms in several if forms)
        found.update(dict.fromkeys(_named(name)))
    if not all(several) or not found:
        return None
    return tuple(found) if all(name and not _FORBIDDEN.search(name) for name in found) else None


def _named(name: str) -> Iterator[str]:
    """Yield a name, or the addresses that it means as a number; an empty text if malformed."""
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
    """Return the IPv4 address of one to four numbers, read like `inet_aton`; empty if malformed."""
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
    """Return a label in ASCII and Unicode, by IDNA 2003 first; empty if malformed."""
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
