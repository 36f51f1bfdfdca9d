"""Actions that need a `HoldDesk`, a tape or a lock file in addition to their options."""

import os
from typing import TYPE_CHECKING, Literal, Protocol

from ...errors import ConfigError
from ...interceptor import Exchange, Interceptor
from ...redaction.redact_messages import Redactor
from ..actions import Factory
from ..hold_desk import HoldDesk, HoldOutcome

if TYPE_CHECKING:
    from ..actions.tool_lock import ToolOrigin

__all__ = ["ToolLookup", "gateway_actions"]


class ToolLookup(Protocol):
    """Finds the server of a tool, for endpoints with several servers."""

    def find_tool(self, exchange: Exchange, name: str) -> "ToolOrigin | None": ...

    async def until_found(self, exchange: Exchange, name: str) -> None: ...


def gateway_actions(
    desk: HoldDesk | None = None, finding: ToolLookup | None = None
) -> dict[str, Factory]:
    """Return the actions `pause`, `lock` and `record` for rules.

    `desk` is required for `pause`, and for `lock` with the policy `ask`. `finding` looks up tools
    in a gateway; without it, all tools belong to one server.
    """

    def pause(
        when: Literal["request", "answer", "both"] | None = None,
        limit: float | None = None,
        otherwise: HoldOutcome | None = None,
        reason: str | None = None,
        *,
        answers: bool = False,
    ) -> Interceptor:
        # Imported on first use, because most rule files do not use this action.
        from ..actions.pause import Pause

        if answers and when not in (None, "answer"):
            raise ValueError('`when` must be "answer" in a rule about responses')
        then = when or ("answer" if answers else "request")
        return Pause(_needed(desk), when=then, limit=limit, otherwise=otherwise, reason=reason)

    def lock(
        file: str,
        policy: Literal["refuse", "warn", "ask"] = "refuse",
        server: str | None = None,
        new: Literal["allow", "refuse"] = "allow",
        *,
        folder: str = "",
    ) -> Interceptor:
        from ..actions.tool_lock import ToolLock
        from ..tool_lock.lock_file import LockFileWatcher

        held = LockFileWatcher(os.path.join(folder, file))
        at = _needed(desk) if policy == "ask" else None
        if finding is None:
            return ToolLock(held, policy, server=server, desk=at, new=new)
        if server is not None and server not in held.lock.servers:
            raise ValueError(f"the lock has no server {server!r}")
        find, wait = finding.find_tool, finding.until_found
        return ToolLock(held, policy, server=server, find=find, wait=wait, desk=at, new=new)

    return {"pause": pause, "lock": lock, "record": _record}


def _record(tape: str, *, folder: str = "", known: Redactor | None = None) -> Interceptor:
    from ...recording.tape import TapeWriter
    from ...recording.tape.tape_interceptor import Recorder

    class Recording(Recorder):
        """A recorder that closes its tape when its rule is removed."""

        def close(self) -> None:
            self.tape.close()

    redactor = None if known is None else Redactor().follow(known)
    return Recording(TapeWriter(os.path.join(folder, tape), redactor=redactor))


def _needed(desk: HoldDesk | None) -> HoldDesk:
    if desk is None:
        raise ConfigError("messages can be held only in a gateway")
    return desk
