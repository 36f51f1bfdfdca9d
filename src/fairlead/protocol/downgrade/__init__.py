"""Conversion of results, params and capabilities to the form of another revision.

An old client ignores an unknown field, but fails on an unknown content type, an elicitation in an
unknown mode or structured output that is not an object. Such values are converted to the forms of
the client's revision, and newer fields are removed. A value that has no older form raises
`DowngradeError`.

The functions work on encoded JSON (`protocol/json_edit.py`). Only members that may have to change
are decoded; all others are copied as text, so numbers, escapes and unknown fields are preserved. A
value that needs no change is returned as the same object, and messages whose method needs no change
are not decoded.
"""
