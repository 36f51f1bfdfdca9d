"""JSON as people write it: comments and trailing commas become spaces, lines stay as they are."""

import re

__all__ = ["plain_json"]

# A library would parse the text too, and then there are no line numbers and a slower parser: this
# is all that JSONC adds to JSON. Strings are matched first, so that nothing inside them is touched.
_TOKEN = re.compile(
    r"""(?s) "(?:[^"\\]++|\\.)*+"?+      # a string, perhaps one that never ends
      | //[^\n]*+
      | /\*.*?(?:\*/|\Z)
      | ,
      | [^\s",/]++                        # anything else
      | /""",
    re.VERBOSE,
)


def plain_json(text: str) -> str:
    """The same text as plain JSON, with every character at the line and column it had.

    What is broken stays broken: the parser that reads the result says so.
    """
    if "//" not in text and "/*" not in text and not _TRAILING.search(text):
        return text
    pieces: list[str] = []
    done = 0
    comma = -1  # where a comma stands that nothing has followed yet
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if token[0].startswith(("//", "/*")):
            pieces += (text[done : token.start()], _blank(token[0]))
            done = token.end()
        elif first == ",":
            comma = len(pieces)
            pieces += (text[done : token.start()], ",")
            done = token.end()
        else:
            if comma >= 0 and first in "]}":
                pieces[comma + 1] = " "
            comma = -1
    pieces.append(text[done:])
    return "".join(pieces)


_TRAILING = re.compile(r",\s*+[\]}]")
_VISIBLE = re.compile(r"[^\r\n]")


def _blank(comment: str) -> str:
    return _VISIBLE.sub(" ", comment)
