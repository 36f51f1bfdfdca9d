"""The shapes that requests, results and notifications carry, one module per feature.

One struct serves every revision where the shapes agree: a member that only some revisions have is
`UNSET` in the others. Import the module you need; nothing is imported here, because each struct
costs start-up time.
"""
