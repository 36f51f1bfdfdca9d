"""Dry run of rules on recorded traffic."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Interceptor, Proceed, ReplyPathBase, chain
from ...protocol.caller import Caller, Principal, principal_from, read_params_head, stateless_caller
from ...protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from ...protocol.identity.token_principal import TokenPrincipal
from ...protocol.revisions import NEWEST_HANDSHAKE, find_revision
from ...protocol.targets.targets import Target, targets_of
from ...protocol.targets.unique_names import full_name
from ...recording.tape.format import TapeEntry
from ...recording.tape.message_summary import MessageHeading, message_heading
from ...wire import Notification, Request
from ...wire.error_codes import INTERNAL_ERROR
from ...wire.json import read_json
from ..actions import Factory
from .build_actions import WRITING, Action
from .load_rules import Rule
from .ruleset import RuleSet

__all__ = ["DryRunResult", "dry_run_tape"]

# maximum number of messages that wait for the response to the oldest one
MAX_WAITING: Final = 10_000
MAX_BYTES: Final = 32 << 20  # maximum number of bytes in all waiting messages
MAX_SESSIONS: Final = 10_000  # maximum number of sessions whose client and transport are remembered

K = TypeVar("K")
V = TypeVar("V")


class DryRunResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The effect that the rules would have had on a message."""

    seq: int
    dir: Direction
    method: str
    target: str | None = None
    rules: list[str] = []  # names of the rules that would have applied, in order
    did: list[str] = []  # notes added by the actions of these rules
    outcome: str  # passed, blocked, dropped, answered or changed
    reason: str | None = None  # error message of a blocked request


def dry_run_tape(
    path: str, tape: Iterable[TapeEntry], actions: Mapping[str, Factory] | None = None
) -> Iterator[DryRunResult]:
    """Yield the outcome that a file's rules have for each request and notification on a tape.

    No messages are sent. Actions that wait or write are named in the outcome, but not run. Actions
    that measure time use the recorded times. This function runs its own event loop; if a loop is
    already running, call it in a thread.

    Raises:
        RulesError: The file has mistakes.
    """
    clock = _Clock()
    rules = _Dry.of_file(
        # An infinite interval disables reloading, so that the rules stay the same.
        path,
        actions=actions,
        clock=clock,
        server_of=lambda exchange: clock.server,
        interval=float("inf"),
    )
    known = _Known()
    # messages whose responses are not read yet, because rules may depend on the responses
    waiting: deque[_Turn] = deque()
    open_turns: dict[object, _Turn] = {}
    held = 0  # total bytes of the waiting messages
    with asyncio.Runner() as runner:

        def due(most: int) -> Iterator[DryRunResult]:
            nonlocal held
            while waiting and (waiting[0].over or len(waiting) > most or held > MAX_BYTES):
                turn = waiting.popleft()
                held -= turn.size
                turn.past = True
                clock.now, clock.server = turn.entry.at, turn.entry.server
                yield runner.run(_rehearse(rules, turn))

        for entry in tape:
            line, size = message_heading(entry), len(bytes(entry.message))
            if not isinstance(line.method, str):
                turn = open_turns.pop((entry.session, entry.dir.reverse(), line.name), None)
                if turn is not None and not turn.past:
                    turn.answer, turn.over = _answer(line), True
                    turn.size += size
                    held += size
            else:
                exchange = _exchange(entry, line, known)
                held += size
                waiting.append(_Turn(entry, exchange, over=line.name is None, size=size))
                if line.name is not None:
                    open_turns[(entry.session, entry.dir, line.name)] = waiting[-1]
            yield from due(MAX_WAITING)
        yield from due(0)


class _Turn(Struct):
    """A recorded message that waits for its response."""

    entry: TapeEntry
    exchange: Exchange
    answer: Raw | RpcError | None = None
    over: bool = False
    past: bool = False
    size: int = 0


async def _rehearse(rules: "_Dry", turn: _Turn) -> DryRunResult:
    entry, exchange, answer = turn.entry, turn.exchange, turn.answer
    passed: list[Exchange] = []
    asked = isinstance(exchange.message, Request)

    async def recorded(now: Exchange) -> Answer:
        passed.append(now)
        if isinstance(answer, RpcError):
            raise answer
        return answer if answer is not None or not asked else Raw(b"{}")

    outcome, reason = "passed", None
    exchange.did, rules.applied = [], []
    try:
        result = await rules(exchange, recorded)
        if not passed:
            outcome = "answered" if asked else "dropped"
        elif passed[-1].message != exchange.message or (
            asked and answer is not None and result != answer
        ):
            outcome = "changed"
    except RpcError as exc:
        if exc is not answer:
            outcome, reason = ("blocked" if asked else "dropped"), exc.message
    return DryRunResult(
        seq=entry.seq,
        dir=entry.dir,
        method=exchange.method,
        target=exchange.target,
        rules=rules.applied,
        did=exchange.did,
        outcome=outcome,
        reason=reason,
    )


class _Dry(RuleSet):
    """Rules that run only actions without side effects; other actions are only named."""

    _unmade = WRITING
    applied: list[str]  # names of the rules that applied to the current message

    def _run(
        self, rule: Rule | None, actions: Sequence[Action], exchange: Exchange, inner: Proceed
    ) -> Awaitable[Answer]:
        if rule is not None:
            self.applied.append(rule.name)
        return chain([_without_effects(action) for action in actions], inner)(exchange)


def _without_effects(action: Action) -> Interceptor:
    if action.hooks.pure:
        return action.interceptor

    async def name_it(exchange: Exchange, proceed: Proceed) -> Answer:
        exchange.note(f"would {action}")
        return await proceed(exchange)

    return name_it


class _Clock:
    """The position on the tape: the current message's time and server."""

    now = 0.0
    server: str | None = None

    def __call__(self) -> float:
        return self.now


class _RecordedReplyPath(ReplyPathBase):
    """Reply path that provides the recorded session and cannot send messages."""

    log_level: str | None = None

    def __init__(self, session: str | None) -> None:
        self.session = SessionContext(state=SessionState.ACTIVE, session_id=session)

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        pass

    async def request_caller(
        self,
        exchange: Exchange,
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
    ) -> Raw:
        raise RpcError(-32601, "a recorded client cannot receive requests")


def _answer(line: MessageHeading) -> Raw | RpcError | None:
    if not isinstance(line.result, UnsetType):
        return line.result
    if isinstance(line.error, UnsetType):
        return None
    said = line.read_error()
    code = said.get("code")
    code = code if isinstance(code, int) else INTERNAL_ERROR
    return RpcError(code, str(said.get("message", "")), raw=bytes(line.error))


class _Opening(Struct, rename="camel"):
    protocol_version: str = ""
    client_info: Raw = Raw(b"{}")
    capabilities: Raw = Raw(b"{}")


class _Known:
    """Clients, sessions and transports from earlier entries, which later entries do not repeat."""

    def __init__(self) -> None:
        self.callers: dict[str | None, Caller] = {}
        self.edges: dict[str | None, _RecordedReplyPath] = {}
        self._transports: dict[tuple[Direction, str | None], dict[str, Any]] = {}

    def transport(self, entry: TapeEntry) -> dict[str, Any]:
        """Return an entry's transport, which a tape records only once per connection."""
        to_server = entry.dir is Direction.CLIENT_TO_SERVER
        whose = entry.dir, entry.session if to_server else entry.server
        if entry.transport is not None:
            _keep(self._transports, whose, entry.transport)
        return self._transports.get(whose, {})

    def edge(self, session: str | None) -> _RecordedReplyPath:
        return self.edges.get(session) or _keep(self.edges, session, _RecordedReplyPath(session))


def _keep(several: dict[K, V], key: K, value: V) -> V:
    """Store a value, and evict the oldest value if the limit is exceeded."""
    if key not in several and len(several) >= MAX_SESSIONS:
        del several[next(iter(several))]
    several[key] = value
    return value


def _exchange(entry: TapeEntry, line: MessageHeading, known: _Known) -> Exchange:
    """Rebuild the exchange of a recorded message."""
    message: Request | Notification = (
        Notification(line.method, line.params)
        if line.name is None
        else Request(line.name, line.method, line.params)
    )
    head = read_params_head(line.params)
    transport = known.transport(entry)
    principal = _principal(transport)
    caller = known.callers.get(entry.session)
    if line.method == "initialize":
        caller = _keep(known.callers, entry.session, _introduced(line.params, principal))
    elif not isinstance(head.meta, UnsetType):
        try:
            caller = stateless_caller(head.meta, principal)
        except RpcError:
            pass  # `_meta` of the handshake era
    return Exchange(
        message,
        caller or Caller(NEWEST_HANDSHAKE, False, principal),
        head,
        entry.dir,
        _transport(transport),
        known.edge(entry.session),
        resolver=None if entry.server is None else partial(_targets, entry.server),
    )


def _principal(transport: Mapping[str, Any]) -> Principal:
    if isinstance(token := transport.get("oauth"), Mapping):
        return TokenPrincipal.from_facts(token)
    named = transport.get("principal")  # a tape omits anonymous principals
    return principal_from(None if named is None else str(named))


def _targets(server: str, exchange: Exchange) -> tuple[Target, ...]:
    """Return the targets of a message; a tape does not resolve shortened or changed names."""
    message = exchange.message
    found = targets_of(message.method, exchange.head, message.params)
    return tuple(_target(one, server) for one in found)


def _target(given: Target, server: str) -> Target:
    own = given.own
    if given.kind in ("tool", "prompt"):
        own = own.removeprefix(full_name(server, "")) or own
    return msgspec.structs.replace(given, own=own, server=server, merged=given.own)


def _introduced(params: Raw | UnsetType, principal: Principal) -> Caller:
    said = read_json(params, _Opening, _Opening())
    revision = find_revision(said.protocol_version) or NEWEST_HANDSHAKE
    info, capabilities = bytes(said.client_info), bytes(said.capabilities)
    return Caller(revision, revision.stateless, principal, capabilities, info)


def _transport(said: dict[str, Any]) -> TransportContext:
    named = {"transport_type": str(said.get("type", "tape")), **said}
    try:
        return msgspec.convert(named, TransportContext)
    except msgspec.ValidationError:
        return TransportContext(transport_type="tape")
