"""Action that compares tools with their approved definitions."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...limits import LOCKED_TOOLS
from ...protocol.envelope import Direction
from ...protocol.own_errors import own_error
from ...wire import to_json
from ...wire.error_codes import INTERNAL_ERROR, INVALID_REQUEST
from ..hold_desk import HoldDesk
from ..tool_lock.lock_file import LockedTool, LockFileWatcher, ToolLockData, digest_of
from ..tool_lock.suspicious_text import find_suspicious_text
from ..tool_lock.tool_diff import ToolDifference, difference_of

__all__ = ["FindTool", "ToolLock", "ToolLockPolicy", "ToolOrigin", "WaitForTool"]

MAX_KNOWN: Final = LOCKED_TOOLS.value

log = logging.getLogger("fairlead.gateway.lock")

ToolLockPolicy: TypeAlias = Literal["refuse", "warn", "ask"]


class ToolOrigin(Struct, frozen=True):
    """A tool's server and original name, for endpoints that merge several servers."""

    server: str
    name: str  # the server's own name for the tool
    definition: Raw | None = None  # current definition of the tool, if known
    # True if the request only shows the tool's definition and does not call it
    described: bool = False


FindTool: TypeAlias = Callable[[Exchange, str], ToolOrigin | None]
WaitForTool: TypeAlias = Callable[[Exchange, str], Awaitable[None]]


class _Known(Struct):
    """The last definition of a tool that was seen in a list or call."""

    raw: bytes
    digest: str  # independent of the name that the list uses for the tool
    difference: ToolDifference | None


class _Tools(Struct):
    tools: list[Raw]


class ToolLock(InterceptorBase):
    """Action that compares tools in lists and calls with a lock.

    The policy applies to tools that changed since they were approved. `refuse` hides them from
    lists and refuses calls. `ask` lists the approved definition and holds calls at the desk;
    resuming a call approves the current definition until the gateway stops. `warn` only logs the
    change. Tools that the lock does not contain are allowed or refused according to `new`.
    """

    also: ClassVar = frozenset({"tools/list"})

    def __init__(
        self,
        lock: ToolLockData | LockFileWatcher,
        policy: ToolLockPolicy = "refuse",
        *,
        server: str | None = None,
        find: FindTool | None = None,
        wait: WaitForTool | None = None,
        desk: HoldDesk | None = None,
        new: Literal["allow", "refuse"] = "allow",
    ) -> None:
        """Set the lock and the policy.

        For a relay, `server` is the name of its server; None means the only server in the lock. For
        an endpoint with several servers, `find` returns a tool's origin, `wait` waits until the
        origin is known, and `server` restricts the check to one server. A `LockFileWatcher` is
        reloaded when its file changes.

        Raises:
            ValueError: The policy is `ask` without a desk, or the server is ambiguous.
        """
        if policy == "ask" and desk is None:
            raise ValueError("policy 'ask' requires a desk")
        file = lock if isinstance(lock, LockFileWatcher) else None
        lock = lock.lock if isinstance(lock, LockFileWatcher) else lock
        if find is None and server is None:
            if len(lock.servers) != 1:
                raise ValueError(
                    f"the lock must have exactly one server, not {len(lock.servers)}: "
                    "pass `server` to select one"
                )
            server = next(iter(lock.servers))
        self._lock, self._policy, self._desk, self._file = lock, policy, desk, file
        self._server, self._find, self._wait = server, find, wait
        self._new = new
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        # server, name and digest of each definition approved by an operator
        self._approved: set[tuple[str, str, str]] = set()
        self._asking: dict[tuple[str, str], asyncio.Lock] = {}
        self._strangers: set[str] = set()  # servers that the lock does not contain

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.direction is not Direction.CLIENT_TO_SERVER:
            return await proceed(exchange)
        if self._file is not None and self._file.reload_if_changed():
            self._lock = self._file.lock
            self._known.clear()  # the stored differences refer to the previous lock
            self._strangers.clear()
        if exchange.method == "tools/call" and exchange.target is not None:
            await self._check_call(exchange, exchange.target)
            return await proceed(exchange)
        answer = await proceed(exchange)
        if exchange.method == "tools/list" and answer is not None:
            return self._check_list(exchange, answer)
        return answer

    # Lists

    def _check_list(self, exchange: Exchange, answer: bytes | Raw) -> Answer:
        try:
            members = msgspec.json.decode(answer, type=dict[str, Raw])
            tools = msgspec.json.decode(answer, type=_Tools).tools
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answer  # The result is not a tool list; the client reports the error.
        except RecursionError:
            raise own_error(
                INTERNAL_ERROR, "The tools are nested too deeply to be checked"
            ) from None
        shown = [one for raw in tools if (one := self.shown(exchange, raw)) is not None]
        if len(shown) == len(tools) and all(a is b for a, b in zip(shown, tools, strict=True)):
            return answer
        return to_json({**members, "tools": shown})

    def shown(self, exchange: Exchange, raw: Raw) -> Raw | None:
        """Return the definition under which a tool may be listed; None hides the tool."""
        try:
            tool: Mapping[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw
        except RecursionError:  # hidden, because a client may be able to decode it
            return None
        whose = self._whose(exchange, str(tool.get("name")))
        if whose is None:
            return raw
        place = whose.server, whose.name
        approved = self._lock.tool(*place)
        if approved is None:
            return self._shown_new(exchange, place, raw, tool)
        known = self._learn(exchange, place, approved, bytes(raw), tool)
        if known.difference is None or self._is_approved(place, known) or self._policy == "warn":
            return raw
        if self._policy == "refuse":
            return None
        as_approved = {**approved.definition, "name": tool.get("name")}
        return Raw(to_json({k: v for k, v in as_approved.items() if k in tool or k in _ALWAYS}))

    def _shown_new(
        self, exchange: Exchange, place: tuple[str, str], raw: Raw, tool: Mapping[str, Any]
    ) -> Raw | None:
        if place[0] not in self._lock.servers:
            if place[0] not in self._strangers:
                self._strangers.add(place[0])
                log.warning(
                    "server %s is not in the tool lock: its tools are not compared", place[0]
                )
            return raw
        if (known := self._known.get(place)) is None or known.raw != bytes(raw):
            now = _Known(bytes(raw), _digest(tool, place), None)
            self._remember(place, now)
            if known is None or known.digest != now.digest:
                log.warning("%s: tool %s is not in the tool lock%s", *place, _odd(tool))
                exchange.note(f"tool lock: {place[1]} is new")
        return raw if self._new == "allow" else None

    def _learn(
        self,
        exchange: Exchange,
        place: tuple[str, str],
        approved: LockedTool,
        raw: bytes,
        tool: Mapping[str, Any],
    ) -> _Known:
        before = self._known.get(place)
        if before is not None and before.raw == raw:
            return before
        known = _Known(raw, _digest(tool, place), difference_of(approved, tool))
        self._remember(place, known)
        is_told = before is not None and before.digest == known.digest
        if known.difference is not None and not is_told:
            exchange.note(f"tool lock: {place[1]} has changed")
            changed = known.difference.text
            log.warning(
                "%s: %s has changed since it was approved%s\n%s", *place, _odd(tool), changed
            )
        return known

    def _remember(self, place: tuple[str, str], known: _Known) -> None:
        self._known[place] = known
        self._known.move_to_end(place)
        if len(self._known) > MAX_KNOWN:
            LOCKED_TOOLS.hit()
            self._known.popitem(last=False)

    # Calls

    async def _check_call(self, exchange: Exchange, name: str) -> None:
        # Waits here, because routing, which also waits for the tool, runs after this check.
        if self._wait is not None:
            await self._wait(exchange, name)
        whose = self._whose(exchange, name)
        if whose is None:
            return
        place = whose.server, self._lock.listed_as(whose.server, whose.name)
        approved = self._lock.tool(*place)
        if approved is None:
            if self._new == "refuse" and place[0] in self._lock.servers:
                raise self._refusal(exchange, f"{name} is not among the approved tools")
            return
        # The definition in use may be newer than the last list that a client requested.
        if whose.definition is not None:
            raw = bytes(whose.definition)
            tool = msgspec.json.decode(raw, type=dict[str, Any])
            self._learn(exchange, place, approved, raw, tool)
        known = self._known.get(place)
        if known is None or known.difference is None or self._is_approved(place, known):
            return
        text = f"{name} has changed since it was approved"
        if self._policy == "warn":
            exchange.note(f"tool lock: {text}")
        elif self._policy == "refuse":
            raise self._refusal(exchange, text, known.difference)
        elif not whose.described:
            await self._ask(exchange, place, known, text)
            # The tool may have changed again while the call was held.
            await self._check_call(exchange, name)

    async def _ask(
        self, exchange: Exchange, place: tuple[str, str], known: _Known, text: str
    ) -> None:
        assert self._desk is not None
        assert known.difference is not None
        # The operator is asked once per tool, however many calls wait for the decision.
        async with self._asking.setdefault(place, asyncio.Lock()):
            if self._is_approved(place, known):
                return
            verdict = await self._desk.hold(
                "request",
                exchange,
                exchange.message.params,
                reason=f"{text}:\n{known.difference.text}",
                otherwise="block",
                question=True,
            )
            exchange.note(f"tool lock: asked, {verdict.action}")
            if verdict.action == "block":
                raise self._refusal(exchange, f"{text}: {verdict.reason}", known.difference)
            self._approved.add((*place, known.digest))

    def _is_approved(self, place: tuple[str, str], known: _Known) -> bool:
        return (*place, known.digest) in self._approved

    def _refusal(
        self, exchange: Exchange, text: str, difference: ToolDifference | None = None
    ) -> Exception:
        exchange.note(f"tool lock: refused: {text}")
        data = {} if difference is None else {"difference": list(difference.lines)}
        return own_error(INVALID_REQUEST, text, tool=exchange.target, **data)

    def _whose(self, exchange: Exchange, name: str) -> ToolOrigin | None:
        if self._find is not None:
            found = self._find(exchange, name)
            if found is None or self._server not in (None, found.server):
                return None
            return found
        assert self._server is not None
        return ToolOrigin(self._server, name)


_ALWAYS: Final = ("name", "description", "inputSchema")


def _digest(tool: Mapping[str, Any], place: tuple[str, str]) -> str:
    """Return the digest computed with the server's own name,
    so that it is the same at every endpoint.
    """
    return digest_of({**tool, "name": place[1]})


def _odd(tool: Mapping[str, Any]) -> str:
    found = find_suspicious_text(tool)
    return f"; suspicious text: {'; '.join(found[:5])}" if found else ""
