"""Error for messages that cannot be expressed in the peer's revision."""

from ..json_edit import Edit, RawMembers

__all__ = ["DowngradeError", "refuse"]


class DowngradeError(ValueError):
    """A message that cannot be expressed in the peer's revision. The text names both."""


def refuse(reason: str) -> Edit:
    """Build an edit that raises `DowngradeError` for every object."""

    def edit(members: RawMembers) -> bool:
        raise DowngradeError(reason)

    return edit
