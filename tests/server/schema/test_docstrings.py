"""Tests of parameter descriptions in docstrings of three styles."""

import pytest

from fairlead.server.schema.docstrings import parameter_texts

GOOGLE = """Do it.

Args:
    a: The first
        on two lines.
    b (int): The second.

    *rest: The remainder.
    empty:

Returns:
    x: nothing.
"""
NUMPY = """Do it.

Parameters
----------
a : int
    The first
    on two lines.
**b
    The second.

Returns
-------
c : int
    Nothing.
"""
REST = """Do it.

:param a: The first
    on two lines.
:param int b: The second.
:param c:

    not about c
:returns: x
"""


@pytest.mark.parametrize(
    ("doc", "texts"),
    [
        ("", {}),
        ("Do it: now.", {}),
        (GOOGLE, {"a": "The first on two lines.", "b": "The second.", "rest": "The remainder."}),
        (NUMPY, {"a": "The first on two lines.", "b": "The second."}),
        (REST, {"a": "The first on two lines.", "b": "The second."}),
        ("Arguments:\n  a: x\nb: y", {"a": "x"}),
        ("Parameters\na : int\n    x", {}),
        ("Parameters\n---\na\n    x", {"a": "x"}),
        ("Parameters\n---\nReturns\n---\nx : int\n    y", {}),
        ("Parameters\n---\na\n    x\nReturns\n---\nb : int\n    y", {"a": "x"}),
        ("Args:\n\n    a: x\n  \n    b: y\n", {"a": "x", "b": "y"}),
        ("  Params:\n    a: x\n  b: y", {"a": "x"}),
        (":param a: x\n\n  y", {"a": "x"}),
    ],
)
def test_parameter_descriptions_are_found_in_docstrings_of_each_style(
    doc: str, texts: dict[str, str]
) -> None:
    assert parameter_texts(doc) == texts
