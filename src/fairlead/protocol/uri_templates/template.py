"""URI templates (RFC 6570, levels 1 to 3): read the values of the variables out of a URI."""

import re
from functools import lru_cache

from msgspec import Struct

from ...limits import TEMPLATE_TEXT, TEMPLATE_VARIABLES, URI_TEXT
from ...wire.quote_text import quoted
from .template_matcher import OptionalVariable, TemplateStep, TemplateVariable, match_steps

__all__ = ["UriTemplate"]

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*")
_ENDS = "/?#"  # never in the value of a simple variable: those are escaped
_JOINTS = 3  # variables without a delimiter behind them: too many to have one meaning
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_IN_URIS = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")


class _Operator(Struct, frozen=True):
    """What the first character of an expression means (RFC 6570, appendix A)."""

    first: str
    separator: str
    named: bool = False
    reserved: bool = False  # reserved characters stay as they are


_OPERATORS = {
    "": _Operator("", ","),
    "+": _Operator("", ",", reserved=True),
    "#": _Operator("#", ",", reserved=True),
    ".": _Operator(".", "."),
    "/": _Operator("/", "/"),
    ";": _Operator(";", ";", named=True),
    "?": _Operator("?", "&", named=True),
    "&": _Operator("&", "&", named=True),
}


class UriTemplate:
    """One template.

    Raises:
        ValueError: when built, for a template that is none, or that needs level 4.
    """

    def __init__(self, text: str) -> None:
        if len(text) > TEMPLATE_TEXT.value:
            TEMPLATE_TEXT.hit()
            raise ValueError(f"{quoted(text)} is longer than {TEMPLATE_TEXT.value} characters")
        self.text = text
        self._parts: list[str | tuple[_Operator, tuple[str, ...]]] = []
        end = 0
        for found in _EXPRESSION.finditer(text):
            self._add_literal(text[end : found.start()])
            self._parts.append(_parse(text, found[1]))
            end = found.end()
        self._add_literal(text[end:])
        names = [name for part in self._parts if not isinstance(part, str) for name in part[1]]
        if len(names) > TEMPLATE_VARIABLES.value:
            TEMPLATE_VARIABLES.hit()
            raise ValueError(f"{quoted(text)} has more than {TEMPLATE_VARIABLES.value} variables")
        if len(set(names)) != len(names):
            raise ValueError(f"{text!r} names a variable twice; it could not be read back")
        self.variables = tuple(names)
        self.optional = frozenset(
            name
            for part in self._parts
            if not isinstance(part, str) and part[0].named
            for name in part[1]
        )
        self._query_names = {_normalized(name): name for name in self.optional}
        literals = [part for part in self._parts if isinstance(part, str)]
        # Most templates have only one spelling, and URIs are compared with them as they are.
        self._has_spellings = any(
            "%" in text or _NOT_IN_URIS.search(text) for text in (*literals, *self.optional)
        )
        literal = sum(len(part) for part in self._parts if isinstance(part, str))
        wild = sum(part[0].reserved for part in self._parts if not isinstance(part, str))
        # The more a template says itself, the more specific it is; compare as it stands.
        self.specificity = (literal, -wild, -len(names))
        if self._joints() >= _JOINTS:
            raise ValueError(f"{text!r} leaves open where its variables end")
        self._steps = [step for at, part in enumerate(self._parts) for step in _steps(at, part)]
        first, last = (self._steps[0], self._steps[-1]) if self._steps else ("", "")
        self._start = first if isinstance(first, str) else ""
        self._end = last if isinstance(last, str) else ""

    def match(self, uri: str) -> dict[str, str] | None:
        """The values from which the template makes this URI, or None if there are none.

        Parameters of a query may come in any order, and be missing. Characters of the template that
        a URI cannot have, such as `ü`, match as they are and as escapes.
        """
        if self._has_spellings:
            if not _fits(uri):
                return None
            uri = _normalized_uri(uri)
        if not (uri.startswith(self._start) and uri.endswith(self._end)):
            return None
        if not self._has_spellings and not _fits(uri):
            return None
        found = match_steps(self._steps, uri)
        if found is None:
            return None
        from urllib.parse import unquote  # slow to load, and servers without templates need none

        values = {name: unquote(found[name]) for name in self.variables if name in found}
        for index, part in enumerate(self._parts):
            if not isinstance(part, str) and part[0].named and (text := found[_query(index)]):
                pairs = _pairs(text[1:], part[0].separator)
                if not pairs.keys() <= self._query_names.keys():
                    return None
                named = {self._query_names[name]: value for name, value in pairs.items()}
                if named.keys() & values.keys():
                    return None
                values.update(named)
        return values

    def _add_literal(self, text: str) -> None:
        if "{" in text or "}" in text:
            raise ValueError(f"{self.text!r} has a brace without its partner")
        if text:
            self._parts.append(text)

    def _joints(self) -> int:
        """Return how many variables have no delimiter behind them: where they end is ambiguous."""
        joints = 0
        for part, following in zip(self._parts, [*self._parts[1:], ""], strict=True):
            if isinstance(part, str) or part[0].named:
                continue
            joints += (len(part[1]) - 1) * part[0].reserved
            first = following[:1] if isinstance(following, str) else following[0].first or "x"
            joints += bool(first) and (part[0].reserved or first not in _ENDS)
        return joints


def _steps(index: int, part: str | tuple[_Operator, tuple[str, ...]]) -> list[TemplateStep]:
    """Return how one part of a template is matched."""
    if isinstance(part, str):
        return [_normalized(part)]
    operator, names = part
    if operator.named:
        without = _ENDS if operator.first == ";" else "#"
        return [OptionalVariable(_query(index), operator.first, without)]
    without = "" if operator.reserved else _ENDS + operator.separator * (len(names) > 1)
    steps: list[TemplateStep] = [operator.first]
    for name in names:
        steps += [TemplateVariable(name, without), operator.separator]
    return [step for step in steps[:-1] if step]


def _fits(uri: str) -> bool:
    if len(uri) <= URI_TEXT.value:
        return True
    URI_TEXT.hit()
    return False


def _normalized(text: str) -> str:
    """Return the spelling of a text that has only characters of URIs, with escapes in capitals.

    Escapes of such characters stay: `%2F` is not the same as `/` (RFC 3986, section 6.2.2).
    """
    if "%" in text:
        text = _ESCAPED.sub(lambda escape: escape[0].upper(), text)
    if not _NOT_IN_URIS.search(text):
        return text
    from urllib.parse import quote

    return _NOT_IN_URIS.sub(lambda run: quote(run[0], safe="", errors="surrogatepass"), text)


_normalized_uri = lru_cache(maxsize=4)(_normalized)  # one URI is compared with many templates


def _query(index: int) -> str:
    """Return what the pairs of a part are called; no variable has such a name."""
    return f"{{{index}}}"


def _parse(text: str, expression: str) -> tuple[_Operator, tuple[str, ...]]:
    symbol = expression[:1] if expression[:1] in _OPERATORS else ""
    names = expression[len(symbol) :].split(",")
    for name in names:
        if not _NAME.fullmatch(name):
            hint = " (prefixes and explode are not supported)" if name[-1:] == "*" else ""
            raise ValueError(f"{text!r}: {{{expression}}} is no expression of RFC 6570{hint}")
    return _OPERATORS[symbol], tuple(names)


def _pairs(text: str, separator: str) -> dict[str, str]:
    from urllib.parse import unquote

    parts = [pair.partition("=") for pair in text.split(separator) if pair]
    return {name: unquote(value) for name, _, value in parts}
