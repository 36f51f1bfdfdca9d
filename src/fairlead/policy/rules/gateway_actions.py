"""Actions that need more than options: a desk to hold messages at, a tape, a lock."""

import os
from typing import TYPE_CHECKING, Literal, Protocol

from ...errors import ConfigError
from ...interceptor import Exchange, Interceptor
from ...redaction.redact_messages import Redactor
from ..actions.action_registry import Factory
from ..hold_desk import HoldDesk, HoldOutcome

if TYPE_CHECKING:
    from ..actions.tool_lock import ToolOrigin

__all__ = ["ToolLookup", "gateway_actions"]


class ToolLookup(Protocol):
    """Knows whose tool something is, where several servers are behind one endpoint."""

    def find_tool(self, exchange: Exchange, name: str) -> "ToolOrigin | None": ...

    async def until_found(self, exchange: Exchange, name: str) -> None: ...


def gateway_actions(
    desk: HoldDesk | None = None, finding: ToolLookup | None = None
) -> dict[str, Factory]:
    """What rules may name besides; without a desk nothing can be held.

    `finding` is for a gateway: without it, tools are taken for those of one server.
    """

    def pause(
        when: Literal["request", "answer", "both"] | None = None,
        limit: float | None = None,
        otherwise: HoldOutcome | None = None,
        reason: str | None = None,
        *,
        answers: bool = False,
    ) -> Interceptor:
        from ..actions.pause import Pause

        if answers and when not in (None, "answer"):
            raise ValueError('a rule about answers has nothing else to hold: `when` is "answer"')
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
        from ..tool_lock import LockFileWatcher

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
        """Ends its tape when its rule goes."""

        def close(self) -> None:
            self.tape.close()

    redactor = Redactor() if known is None else Redactor().follow(known)
    return Recording(TapeWriter(os.path.join(folder, tape), redactor=redactor))


def _needed(desk: HoldDesk | None) -> HoldDesk:
    if desk is None:
        raise ConfigError("nobody could let it go on here: only a gateway holds messages")
    return desk
