"""Base class of all Fairlead exceptions."""

__all__ = ["FairleadError"]


class FairleadError(Exception):
    """Base class: `except FairleadError` catches every failure of a call."""

    summary: str = ""  # the message without the stderr lines that `str()` appends
