"""Base class of all Fairlead exceptions."""

__all__ = ["FairleadError"]


class FairleadError(Exception):
    """Base class: `except FairleadError` catches every failure of a call."""

    # The message without the server's output that `str()` appends; may be empty.
    summary: str = ""
