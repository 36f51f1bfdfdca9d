"""Error for messages that have no form in the revision of a peer."""

from ..json_edit import Edit, RawMembers

__all__ = ["DowngradeError", "refuse"]


class DowngradeError(ValueError):
    """Message without a form in the revision of the peer. The text names both."""


def refuse(reason: str) -> Edit:
    """Build an edit that raises `DowngradeError` for every object."""

    def edit(members: RawMembers) -> bool:
        raise DowngradeError(reason)

    return edit
