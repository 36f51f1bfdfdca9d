"""Results, params and capabilities in the form of another revision.

An old client ignores an unknown field, but fails on an unknown type of content, an elicitation in
an unknown form or structured output that is not an object. These are converted to forms of its
revision, newer fields are removed, and a value without an older form raises `DowngradeError`.

The functions work on encoded JSON (`protocol/json_edit.py`). An object is decoded only as far as it
may have to change, and the rest is copied as text, so numbers, escapes and unknown fields are
preserved. A value that needs no change is returned as the same object, and a method that needs no
change in a revision is not decoded.
"""
