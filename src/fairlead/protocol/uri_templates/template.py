"""URI templates (RFC 6570, levels 1 to 3), which extract the values of variables from a URI."""

import re
from functools import lru_cache

from msgspec import Struct

from ...limits import TEMPLATE_TEXT, TEMPLATE_VARIABLES, URI_TEXT
from ...wire.quote_text import quoted
from .template_matcher import OptionalVariable, TemplateStep, TemplateVariable, match_steps

__all__ = ["UriTemplate"]

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})+(?:\.(?:\w|%[0-9A-Fa-f]{2})+)*")
_ENDS = "/?#"  # Delimiters: the value of a simple variable contains them only as escapes.
_JOINTS = 3  # A template with this many variables of ambiguous length is refused.
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")
_NOT_IN_URIS = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")


class _Operator(Struct, frozen=True):
    """Meaning of the first character of an expression (RFC 6570, appendix A)."""

    first: str
    separator: str
    named: bool = False
    reserved: bool = False  # reserved characters are not escaped


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
    """Parsed URI template.

    Raises (when created):
        ValueError: The text is not a template, needs level 4, or exceeds a limit, or its variables
            are not separated by delimiters.
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
            raise ValueError(f"{text!r} must not name a variable twice")
        self.variables = tuple(names)
        self.optional = frozenset(
            name
            for part in self._parts
            if not isinstance(part, str) and part[0].named
            for name in part[1]
        )
        self._query_names = {_normalized(name): name for name in self.optional}
        literals = [part for part in self._parts if isinstance(part, str)]
        # True if a URI can spell the literals with different escapes. Otherwise, as for most
        # templates, URIs are not normalized before they are matched.
        self._has_spellings = any(
            "%" in text or _NOT_IN_URIS.search(text) for text in (*literals, *self.optional)
        )
        literal = sum(len(part) for part in self._parts if isinstance(part, str))
        wild = sum(part[0].reserved for part in self._parts if not isinstance(part, str))
        # The largest tuple wins, because a template with more literal text is more specific.
        self.specificity = (literal, -wild, -len(names))
        if self._joints() >= _JOINTS:
            raise ValueError(f"{text!r} must separate its variables by delimiters")
        self._steps = [step for at, part in enumerate(self._parts) for step in _steps(at, part)]
        first, last = (self._steps[0], self._steps[-1]) if self._steps else ("", "")
        self._start = first if isinstance(first, str) else ""
        self._end = last if isinstance(last, str) else ""

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in this URI, or None if it does not match.

        Query parameters may be in any order and may be missing. Template characters that a URI
        cannot contain, such as `ü`, match both unescaped and escaped.
        """
        if self._has_spellings:
            if not _fits(uri):
                return None
            uri = _normalized_uri(uri)
        # A cheap check that rejects most URIs.
        if not (uri.startswith(self._start) and uri.endswith(self._end)):
            return None
        if not self._has_spellings and not _fits(uri):
            return None
        found = match_steps(self._steps, uri)
        if found is None:
            return None
        # Imported here: the module is slow to load, and servers without templates do not need it.
        from urllib.parse import unquote

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
            raise ValueError(f"{self.text!r} has an unmatched brace")
        if text:
            self._parts.append(text)

    def _joints(self) -> int:
        """Return the number of variables whose end is ambiguous because no delimiter follows
        them.
        """
        joints = 0
        for part, following in zip(self._parts, [*self._parts[1:], ""], strict=True):
            if isinstance(part, str) or part[0].named:
                continue
            joints += (len(part[1]) - 1) * part[0].reserved
            first = following[:1] if isinstance(following, str) else following[0].first or "x"
            joints += bool(first) and (part[0].reserved or first not in _ENDS)
        return joints


def _steps(index: int, part: str | tuple[_Operator, tuple[str, ...]]) -> list[TemplateStep]:
    """Return the matching steps for one part of a template."""
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
    """Escape the characters that a URI cannot contain, and write all escapes in upper case.

    Other escapes are not decoded: `%2F` is not the same as `/` (RFC 3986, section 6.2.2).
    """
    if "%" in text:
        text = _ESCAPED.sub(lambda escape: escape[0].upper(), text)
    if not _NOT_IN_URIS.search(text):
        return text
    from urllib.parse import quote

    return _NOT_IN_URIS.sub(lambda run: quote(run[0], safe="", errors="surrogatepass"), text)


# Cached, because one URI is compared with many templates.
_normalized_uri = lru_cache(maxsize=4)(_normalized)


def _query(index: int) -> str:
    """Return the query key of a template part, in a form that cannot be a variable's name."""
    return f"{{{index}}}"


def _parse(text: str, expression: str) -> tuple[_Operator, tuple[str, ...]]:
    symbol = expression[:1] if expression[:1] in _OPERATORS else ""
    names = expression[len(symbol) :].split(",")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{text!r}: {{{expression}}} is not an expression of RFC 6570{_remedy(name)}"
            )
    return _OPERATORS[symbol], tuple(names)


def _remedy(name: str) -> str:
    """Return what to write instead of forms that other libraries use for several segments."""
    plain = _NAME.match(name)
    if plain is None or name[plain.end() :][:1] not in ("*", ":"):
        return ""
    return (
        f" (prefixes and explode are not supported): use {{{plain[0]}}} for one segment, or "
        f"{{+{plain[0]}}}, which also matches slashes"
    )


def _pairs(text: str, separator: str) -> dict[str, str]:
    from urllib.parse import unquote

    parts = [pair.partition("=") for pair in text.split(separator) if pair]
    return {name: unquote(value) for name, _, value in parts}
