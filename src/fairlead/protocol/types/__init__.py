"""Structs for server and client features, one module per feature.

One struct serves all revisions whose forms agree: a member that only some revisions have is `UNSET`
in the others. A layer that reads only a few members of params has a small struct of its own. Import
the module you need; this package imports none, because each struct costs start-up time.
"""
