"""The error for messages that have no form in the revision of a peer."""

from ..json_edit import Edit, RawMembers

__all__ = ["DowngradeError", "refuse"]


class DowngradeError(ValueError):
    """The peer's revision has no form for this. The text says which and why."""


def refuse(reason: str) -> Edit:
    """Raise `DowngradeError` for every object."""

    def edit(members: RawMembers) -> bool:
        raise DowngradeError(reason)

    return edit
