"""Challenges in `WWW-Authenticate` headers (RFC 9110, section 11.6.1): parsing and building."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

__all__ = ["Challenge", "format_challenge", "parse_challenges", "pick_challenge"]

MAX_HEADER = 16 << 10  # maximum number of characters that are parsed; a longer value is cut off
MAX_CHALLENGES = 16  # maximum number of challenges read from one response

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PARAM = re.compile(rf"({_TOKEN})[ \t]*=[ \t]*(?:{_QUOTED}|'([^']*)'|([^\s,]*))")
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t,]|$)")
# A value without `=`, as in `Negotiate TlRMTVNTUAAB` (token68).
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*(?=[ \t]*(?:,|$))")
_HANDLED = {"use_dpop_nonce": 0, "insufficient_scope": 1}
_ESCAPE = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """One challenge: a scheme in lower case, and its parameters in the order of the header.

    A parameter may occur twice. RFC 9110 forbids repeated parameters, but some servers send them,
    and the first value may be the wrong one.
    """

    scheme: str
    params: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> list[str]:
        """Return all values of a parameter, whose name is given in lower case."""
        return [value for key, value in self.params if key == name]

    def get(self, name: str) -> str | None:
        """Return the first value of a parameter, or None."""
        return next(iter(self.values(name)), None)

    @property
    def error(self) -> str | None:
        return self.get("error")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of the challenge, in order and without repetitions."""
        return tuple(dict.fromkeys((self.get("scope") or "").split()))


def parse_challenges(value: str | None) -> list[Challenge]:
    """Return the challenges of a header value; several headers are joined with commas.

    Text that is not a challenge is skipped, so that one malformed challenge does not hide the
    others.
    """
    text = (value or "")[:MAX_HEADER]
    found: list[Challenge] = []
    position = 0
    while position < len(text) and len(found) < MAX_CHALLENGES:
        if text[position] in " \t,":
            position += 1
        elif (scheme := _SCHEME.match(text, position)) is not None:
            params, position = _parameters(text, scheme.end())
            found.append(Challenge(scheme[1].lower(), tuple(params)))
        else:
            position = _next_comma(text, position)
    return found


def _parameters(text: str, position: int) -> tuple[list[tuple[str, str]], int]:
    """Return the parameters that start at a position, and the position after them."""
    params: list[tuple[str, str]] = []
    while True:
        start = position
        while start < len(text) and text[start] in " \t,":
            start += 1
        if (found := _PARAM.match(text, start)) is not None:
            quoted, single, plain = found[2], found[3], found[4]
            value = _ESCAPE.sub(r"\1", quoted) if quoted is not None else single or plain or ""
            params.append((found[1].lower(), value))
            position = found.end()
        # Only directly after the scheme, because a later word is the next scheme.
        elif not params and "," not in text[position:start] and _TOKEN68.match(text, start):
            return params, _next_comma(text, start)
        else:
            return params, position if params else start


def _next_comma(text: str, position: int) -> int:
    comma = text.find(",", position)
    return len(text) if comma < 0 else comma + 1


def pick_challenge(challenges: Iterable[Challenge]) -> Challenge | None:
    """Return one challenge that an OAuth client answers, or None if it can answer none.

    It has the parameters of all `DPoP` and `Bearer` challenges, because a server may send several.
    The scheme is `DPoP` if the server offers it.
    """
    found = [challenge for challenge in challenges if challenge.scheme in ("dpop", "bearer")]
    if not found:
        return None
    found.sort(key=lambda challenge: challenge.scheme != "dpop")
    scheme = found[0].scheme
    # Errors that a client handles specially come first: their challenge also has their scopes.
    found.sort(key=lambda challenge: _HANDLED.get(challenge.error or "", len(_HANDLED)))
    return Challenge(scheme, tuple(param for challenge in found for param in challenge.params))


def format_challenge(scheme: str, params: Mapping[str, str]) -> str:
    """Return the value of a `WWW-Authenticate` header with quoted parameters."""
    parts = [f'{name}="{_quoted(value)}"' for name, value in params.items()]
    return f"{scheme} {', '.join(parts)}" if parts else scheme


def _quoted(value: str) -> str:
    # Control characters would end the header, and are not allowed in a quoted string.
    plain = "".join(char if char.isprintable() else " " for char in value)
    return plain.replace("\\", "\\\\").replace('"', '\\"')
