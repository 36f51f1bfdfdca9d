"""Structs of what servers offer and clients read as a whole, one module per feature.

One struct serves every revision where the shapes agree: a member that only some revisions have is
`UNSET` in the others. A layer that reads a few members of some params has a small struct of its
own. Import the module you need; nothing is imported here, because each struct costs start-up time.
"""
