"""Which era each server was found to speak, so that it is asked only once."""

from collections.abc import Hashable

__all__ = ["Eras", "known_eras"]


class Eras:
    """Verdicts by what identifies a server: its command, folder and environment.

    A verdict is kept only when it came from a probe, and dropped when it fails.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._stateless: dict[Hashable, bool] = {}
        self._limit = limit

    def stateless(self, server: Hashable) -> bool | None:
        """What is remembered of a server; None if nothing is."""
        return self._stateless.get(server)

    def remember(self, server: Hashable, stateless: bool) -> None:
        if len(self._stateless) >= self._limit:
            self._stateless.pop(next(iter(self._stateless)))
        self._stateless[server] = stateless

    def forget(self, server: Hashable) -> None:
        self._stateless.pop(server, None)

    def clear(self) -> None:
        self._stateless.clear()


known_eras = Eras()  # of this process
