"""Base class of all exceptions of Fairlead."""

__all__ = ["FairleadError"]


class FairleadError(Exception):
    """Base class: `except FairleadError` catches every failure of a call."""

    summary: str = ""  # the message without the lines of stderr that `str()` appends
