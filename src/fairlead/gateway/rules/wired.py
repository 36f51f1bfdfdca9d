"""Actions that need more than options: a desk to hold messages at, a tape, a lock."""

import os
from typing import Literal

from ...errors import ConfigError
from ...interceptor import Interceptor
from ..interceptors.registry import Factory
from ..pausing import Desk, Outcome

__all__ = ["wired_actions"]


def wired_actions(desk: Desk | None = None) -> dict[str, Factory]:
    """What rules may name besides; without a desk nothing can be held."""

    def pause(
        when: Literal["request", "answer", "both"] = "request",
        limit: float | None = None,
        otherwise: Outcome | None = None,
        reason: str | None = None,
    ) -> Interceptor:
        from ..interceptors.pausing import Pause

        return Pause(_needed(desk), when=when, limit=limit, otherwise=otherwise, reason=reason)

    def lock(
        file: str,
        policy: Literal["refuse", "warn", "ask"] = "refuse",
        server: str | None = None,
        new: Literal["allow", "refuse"] = "allow",
        *,
        folder: str = "",
    ) -> Interceptor:
        from ..interceptors.toollock import ToolLock
        from ..locking import LockFile

        held = LockFile(os.path.join(folder, file))
        at = _needed(desk) if policy == "ask" else None
        return ToolLock(held, policy, server=server, desk=at, new=new)

    return {"pause": pause, "lock": lock, "record": _record}


def _record(tape: str, *, folder: str = "") -> Interceptor:
    from ..interceptors.recording import Recorder
    from ..tape import TapeWriter

    class Recording(Recorder):
        """Ends its tape when its rule goes."""

        def close(self) -> None:
            self.tape.close()

    return Recording(TapeWriter(os.path.join(folder, tape)))


def _needed(desk: Desk | None) -> Desk:
    if desk is None:
        raise ConfigError("nobody could let it go on here: only a gateway holds messages")
    return desk
