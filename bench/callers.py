"""Client under test: a process that makes bursts of calls on command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec

from .child import Child, Failed, deadline

__all__ = ["Caller"]

_PATIENCE = 30


class Caller:
    """A client process with the command language of `clients/drive.py`."""

    def __init__(self, command: Sequence[str], server: Sequence[str]) -> None:
        self._child = Child([*command, *server])
        try:
            self._hear()
        except BaseException:
            self._child.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def burst(self, calls: int, *, window: int) -> float:
        """Return the calls per second of one burst, by the client's own clock.

        Raises:
            Failed: The client exits, does not respond, or got a wrong response.
        """
        self._child.say(b"%d %d\n" % (calls, window))
        return calls / self._hear().seconds

    def _hear(self) -> _Fact:
        with deadline(_PATIENCE):
            line = self._child.hear()
        try:
            return msgspec.json.decode(line, type=_Fact)
        except msgspec.MsgspecError:
            raise Failed(f"the client said {line[:300]!r}") from None


class _Fact(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a client: it is ready, or the time of a burst."""

    ready: bool = False
    seconds: float = 0
