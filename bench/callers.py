"""A client under test: a process of its own that makes bursts of calls when told to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec

from .child import Child, Failed, deadline

__all__ = ["Caller"]

_PATIENCE = 30


class Caller:
    """Speaks the little command language of `clients/drive.py`."""

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
        """Calls per second over one burst, by the client's own clock.

        Raises: Failed, when the client dies, is silent for long, or got a wrong answer.
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
    """What a client tells: that it is ready, or how long a burst took."""

    ready: bool = False
    seconds: float = 0
