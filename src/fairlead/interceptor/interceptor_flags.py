"""What an interceptor says of itself, such as that it never waits: about what it does, and no more.

Whoever takes one of ours and calls it in another way has inherited what it says, but that is not
about the new way.
"""

__all__ = ["declares"]


def declares(interceptor: object, name: str, *acts: str) -> bool:
    """Whether it says this of what it does: of how it is called, and of its other `acts`."""
    if name in getattr(interceptor, "__dict__", ()):
        return True
    for kind in type(interceptor).__mro__:
        said = vars(kind)
        if name in said:
            return True
        if "__call__" in said or any(act in said for act in acts):
            return False
    return False
