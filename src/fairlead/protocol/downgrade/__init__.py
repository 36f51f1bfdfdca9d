"""Results, params and capabilities as a peer of another revision knows them.

An old client reads past an unknown field, but fails on an unknown kind of content, an elicitation
in an unknown form or structured output that is not an object. So those are written in the terms of
its revision, newer fields are left out, and what has no older form is a `DowngradeError`.

All of it works on encoded JSON (`protocol/json_edit.py`). An object is opened as far as something
in it may have to change, and the rest is copied as text: numbers, escapes and unknown fields stay
as they came. A value that needs no change is returned itself; where a revision needs nothing for a
method, the value is not read.
"""
