"""The servers of a gateway by name, each with its own endpoint."""

from collections.abc import Iterable

from ..catalog.views import View
from ..server_endpoint import SingleServerEndpoint
from .backend import Member

__all__ = ["BackendRegistry"]


class BackendRegistry:
    """Members of a gateway and their endpoints. `BackendConnector` adds and removes them."""

    def __init__(self) -> None:
        # ordered, because the first member that lists a URI owns it
        self.members: dict[str, Member] = {}
        self.endpoints: dict[str, SingleServerEndpoint] = {}
        self._owners: dict[str, Member] = {}  # members by the names of their upstreams

    @property
    def is_ready(self) -> bool:
        """True once every server has listed its items or is known to be unavailable."""
        return all(member.listed.is_set() for member in self.members.values())

    def owner(self, server: str) -> Member | None:
        """Return the member to which an upstream belongs."""
        return self._owners.get(server)

    def within(self, view: View) -> list[Member]:
        """Return the members that a view includes."""
        return [member for member in self.members.values() if view.includes(member.name)]

    def add(self, member: Member, endpoint: SingleServerEndpoint) -> None:
        """Register a member and its endpoint."""
        self.members[member.name] = member
        self.endpoints[member.name] = endpoint
        self._owners.update((name, member) for name in member.names)

    def remove(self, name: str) -> tuple[Member, SingleServerEndpoint] | None:
        """Remove a member and its endpoint, and return both; None if the name is unknown."""
        member = self.members.pop(name, None)
        if member is None:
            return None
        for own in member.names:
            self._owners.pop(own, None)
        return member, self.endpoints.pop(name)

    def arrange(self, names: Iterable[str]) -> None:
        """Sort the members in the order of `names`. Members that are not in `names` follow."""
        place = {name: number for number, name in enumerate(names)}
        in_order = sorted(self.members.items(), key=lambda one: place.get(one[0], len(place)))
        # Changed in place, because other objects hold references to this dictionary.
        self.members.clear()
        self.members.update(in_order)

    def clear(self) -> None:
        """Remove all members."""
        for known in (self.members, self.endpoints, self._owners):
            known.clear()
