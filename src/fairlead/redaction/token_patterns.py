"""Credentials recognised by their form: tokens of known services, JWTs, private keys."""

import re
from functools import cache
from typing import Final

from .linear_regex import LinearPattern

__all__ = [
    "may_hold_token",
    "replace_basic",
    "replace_logins",
    "replace_private_keys",
    "replace_tokens",
]

# A token begins at a word boundary. An escaped line break and a percent-encoded character end with
# a letter or a digit, but they are boundaries too.
_START: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
# Each pattern is a prefix and a minimum number of characters from one class. The search therefore
# rejects a text after at most that many characters, and skips a token as soon as it has matched.
_NO_MORE: Final = r"(?![0-9A-Za-z])"
# Number of possible token starts above which one search with an automaton is faster.
_MANY: Final = 500
# A new pattern also needs its prefix in one of the tables below, or `may_hold_token` skips it.
_TOKENS: Final = (
    r"gh[pousr]_[A-Za-z0-9]{20,}+",  # GitHub
    r"github_pat_[A-Za-z0-9_]{20,}+",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|oas)-[\w-]{16,}+",  # GitLab
    r"sk-[A-Za-z0-9]{20,}+",  # OpenAI and compatible services
    r"sk-(?:ant|proj|svcacct|admin|or|lf|None)-[\w-]{16,}+",
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+",  # Stripe
    r"xox[a-z]-[A-Za-z0-9-]{10,}+",  # Slack
    r"xapp-[0-9]-[A-Za-z0-9-]{10,}+",
    rf"A(?:KIA|SIA)[0-9A-Z]{{16}}{_NO_MORE}",  # AWS
    r"AIza[\w-]{30,}+",  # Google
    r"npm_[A-Za-z0-9]{30,}+",
    r"pypi-AgE[\w-]{12,}+",  # PyPI tokens are macaroons of version 2, which start like this
    r"hf_[A-Za-z0-9]{30,}+",  # Hugging Face
    r"sbp_[a-f0-9]{40}",  # Supabase
    r"sntry[su]_[\w+/=-]{20,}+",  # Sentry
    r"figd_[\w-]{20,}+",  # Figma
    r"ntn_[A-Za-z0-9]{30,}+",  # Notion
    r"lin_api_[A-Za-z0-9]{20,}+",  # Linear
    r"dop_v1_[a-f0-9]{40,}+",  # DigitalOcean
    r"tvly-[\w-]{16,}+",  # Tavily
    r"eyJ[\w-]{5,}+\.[\w-]*+\.[\w-]++(?:\.[\w-]++){0,2}",  # JWS and JWE
)
# Text before the first `_`, `-` or `J` of a token, keyed by its last two bytes. The value is its
# length, from which the start of the token is computed.
_BEFORE_UNDERSCORE: Final = {
    word[-2:]: len(word)
    for word in (
        *b"ghp gho ghu ghs ghr github sk rk npm hf sbp".split(),
        *b"sntrys sntryu figd ntn lin dop".split(),
    )
}
_BEFORE_HYPHEN: Final = {
    word[-2:]: len(word)
    for word in (
        *b"sk glpat gldt glrt glcbt glptt glft gloas pypi tvly xapp --".split(),
        *(b"xox%c" % letter for letter in range(ord("a"), ord("z") + 1)),
    )
}
_BEFORE_J: Final = {b"ey": 2}
_CAPITAL: Final = (b"AKIA", b"ASIA", b"AIza")
_UNDERSCORE, _HYPHEN, _J, _A = b"_-JA"

_PRIVATE_KEY: Final = r"-----BEGIN[A-Z0-9 %+]{0,40}PRIVATE(?: |%20|\+)KEY[A-Z0-9 %+]{0,20}-----"
_END: Final = r"-----END[A-Z0-9 %+]{0,80}(?:-----)?"
_BASIC: Final = r"(?ai)(?<![a-z])(basic\s{1,8})([a-z0-9+/_-]{4,}+={0,2})"
# Patterns for `user:password@host:5432` and `user:password@host/database` without a scheme,
# searched for from the `@`, and words before a colon that are not user names.
_HOST: Final = r"(?a)@[a-z0-9A-Z.-]{1,253}+(?::\d{2,5}+(?!\w)|/)"
_USER: Final = r"(?<![\w.@-])[\w.-]{1,64}+\Z"
_PASSWORD: Final = r"""[^\s:@/"'<>\\]{4,128}+"""
_NO_LOGIN: Final = (
    r"(?i)mailto|e?mail|from|to|b?cc|author|sips?|xmpp|acct|npm|jsr|pkg|git|ssh|workspace"
)

# Compiled on first use: few texts contain candidates.
_compiled = cache(re.compile)


@cache
def _token_bytes() -> re.Pattern[bytes]:
    return re.compile(f"{_START}(?:{'|'.join(_TOKENS)})|{_PRIVATE_KEY}".encode())


def may_hold_token(raw: bytes) -> bool:
    """Return False if a text or encoded JSON certainly contains no token and no private key.

    Finding a single byte is a hundred times faster than matching a pattern, so each token format is
    located by a byte that is rare in other texts; most messages need only a few such searches.
    """
    if len(raw) > _MANY and (  # a shorter text cannot contain more possible starts
        raw.count(b"_") + raw.count(b"-") + raw.count(b"J") + raw.count(b"A") > _MANY
    ):
        # This takes 0.1 ms for 60 KB of hyphens; testing the text before each hyphen takes 13 ms.
        return _token_dfa().matches_bytes(raw)
    return (
        (_UNDERSCORE in raw and _begins_before(raw, b"_", _BEFORE_UNDERSCORE))
        or (_HYPHEN in raw and _begins_before(raw, b"-", _BEFORE_HYPHEN))
        or (_J in raw and _begins_before(raw, b"J", _BEFORE_J))
        or (_A in raw and _begins_with_capital(raw))
    )


@cache
def _token_dfa() -> LinearPattern:
    """Return an automaton that matches all tokens.

    RE2 has no look-behind, so a token in the middle of a word matches as well.
    """
    tokens = "|".join(_TOKENS).replace(_NO_MORE, "").replace(r"\w", "A-Za-z0-9_")
    # Ten characters suffice for a candidate and keep the automaton small.
    tokens = re.sub(r"\{[1-9]\d(,)?\}", "{10}", tokens.replace("}+", "}"))
    tokens = tokens.replace("*+", "*").replace("++", "+")
    return LinearPattern(f"(?:{tokens})|{_PRIVATE_KEY}")


def _begins_before(raw: bytes, rare: bytes, lengths: dict[bytes, int]) -> bool:
    """Return True if the text contains a token with this byte in its prefix."""
    find, length_of = raw.find, lengths.get
    at = find(rare)
    while at >= 0:
        length = length_of(raw[at - 2 : at])
        if length is not None and at >= length and _token_bytes().match(raw, at - length):
            return True
        at = find(rare, at + 1)
    return False


def _begins_with_capital(raw: bytes) -> bool:
    at = raw.find(b"A")
    while at >= 0:
        if raw[at : at + 4] in _CAPITAL and _token_bytes().match(raw, at):
            return True
        at = raw.find(b"A", at + 1)
    return False


def replace_tokens(text: str, by: str) -> str:
    """Mask each token of a known service and each JWT."""
    return _compiled(f"(?a){_START}(?:{'|'.join(_TOKENS)})").sub(by, text)


def replace_private_keys(text: str, by: str) -> str:
    """Mask each private key in PEM form.

    A truncated key extends to the end of the text. Line breaks may be escaped or percent-encoded.
    """
    pieces: list[str] = []
    done = 0
    while begin := _compiled(_PRIVATE_KEY).search(text, done):
        end = _compiled(_END).search(text, begin.end())
        pieces += (text[done : begin.start()], by)
        done = len(text) if end is None else end.end()
    return "".join((*pieces, text[done:])) if pieces else text


def replace_basic(text: str, by: str) -> str:
    """Mask the text after `Basic` if it is a user name and password in base64."""

    def replace(match: re.Match[str]) -> str:
        return f"{match[1]}{by}" if _is_name_and_password(match[2]) else match[0]

    return _compiled(_BASIC).sub(replace, text)


def replace_logins(text: str, by: str) -> str:
    """Mask the password in `user:password@host` if a port or path follows."""
    pieces: list[str] = []
    done, at = 0, text.find("@")
    while at >= 0:
        start = _password_before(text, at) if _compiled(_HOST).match(text, at) else None
        if start is not None and start > done:
            pieces += (text[done:start], by)
            done = at
        at = text.find("@", at + 1)
    return "".join((*pieces, text[done:])) if pieces else text


def _password_before(text: str, at: int) -> int | None:
    """Return the start of a password that ends at `at`; None if no user name precedes it."""
    # The search is limited to the longest password, so that many `@` in a row do not slow it down.
    colon = text.rfind(":", max(at - 129, 0), at)
    if colon < 0 or not _compiled(_PASSWORD).fullmatch(text, colon + 1, at):
        return None
    user = _compiled(_USER).search(text[max(colon - 66, 0) : colon])
    return None if user is None or _compiled(_NO_LOGIN).fullmatch(user[0]) else colon + 1


def _is_name_and_password(encoded: str) -> bool:
    # Imported here: the import costs a millisecond, and few texts need it.
    from base64 import b64decode

    bare = encoded.rstrip("=")
    try:
        plain = b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_" if "-" in bare else None)
        return ":" in plain.decode() and plain.decode().isprintable()
    except ValueError:  # not base64, or not UTF-8
        return False
