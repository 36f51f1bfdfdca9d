"""Interceptor that finds the rules that apply to a message and runs their actions in order."""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, Self

import msgspec
from msgspec import UNSET, UnsetType

from ...config.files.config_reader import FileStamp, stamp_of
from ...config.files.formats import Document
from ...errors import RpcError
from ...interceptor import (
    Answer,
    Exchange,
    ExtraMembers,
    InterceptorBase,
    MalformedFrame,
    Proceed,
    chain,
    extra_members_hook,
    hooks_of,
    malformed_frame_hook,
)
from ...protocol.envelope import Direction
from ...protocol.identity.token_principal import TokenPrincipal
from ...protocol.targets.targets import Target, head_determines_targets
from ...redaction.redact_messages import Redactor
from ...wire import Notification, Request
from ..actions import ACTIONS, Factory
from ..actions.rename import Rename
from ..conditions.conditions import ALWAYS
from ..conditions.facts import ANY, Facts, MessageKey, ServerOf, key_of
from ..conditions.rule_index import RuleIndex
from ..conditions.rules_error import RulesError
from .build_actions import Action, ActionContext
from .load_rules import KeptActions, Rule, actions_of, close_unused, read_rules, rules_of

__all__ = ["RuleSet"]

# minimum number of seconds between two checks of the file, which messages trigger
LOOK_AGAIN: Final = 0.5
MAX_KEYS: Final = 4096  # maximum number of method and target combinations whose rules are cached
# maximum length of a method with its targets whose rules are cached, in characters
LONGEST: Final = 512

log = logging.getLogger("fairlead.gateway.rules")

# A rule, and the value of its condition; None if it depends on more than the message's key.
Candidate = tuple[Rule, bool | None]
# Cache key of a message: method, direction, kind, name and URI, or all targets if the name and the
# URI do not identify them.
_Place = tuple[
    str,
    Direction,
    type[Request | Notification],
    str | UnsetType | tuple[Target, ...],
    str | UnsetType,
]


class RuleHost(Protocol):
    """The methods of a gateway or relay that rules use."""

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server that sends or receives a message; None if there are none or several."""

    @property
    def wait_until_known(self) -> Callable[[Exchange], Awaitable[None]] | None:
        """A function that waits until a message's server is known; None if it is always known.

        Without waiting, rules about a server would not match calls to it while it is starting.
        """


class RuleSet(InterceptorBase):
    """Interceptor that applies the rules of a file.

        relay = Relay(entry, interceptors=[RuleSet.of_file("rules.toml")])

    The file may change while it is used. Rules whose actions are unchanged keep their state. If the
    file has mistakes, they are logged and the previous rules stay active.
    """

    _unmade: frozenset[str] = frozenset()

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        path: str | os.PathLike[str] | None = None,
        actions: Mapping[str, Factory] | None = None,
        clock: Callable[[], float] | None = None,
        server_of: ServerOf = lambda exchange: None,
        interval: float = LOOK_AGAIN,
        known: Redactor | None = None,
    ) -> None:
        """Set additional `actions` that rules may name, and a `clock` for actions that measure
        time.

        If there are several servers, `server_of` returns the server that sends or receives a
        message. `known` is a redactor with registered secrets, which actions redact and never
        write.
        """
        self.path = None if path is None else os.fspath(path)
        self.server_of = server_of
        # Function that waits until a message's server is known.
        self._known: Callable[[Exchange], Awaitable[None]] | None = None
        self._making = ActionContext(
            clock=clock,
            actions={**ACTIONS, **(actions or {})},
            unmade=self._unmade,
            # A dry run may happen on another machine, where the folders do not exist.
            looks=not self._unmade,
            known=known,
        )
        self._interval = interval
        self._look_at = float("-inf") if path is None else time.monotonic() + interval
        self._read: FileStamp | None = None
        self._use(rules)

    @classmethod
    def of_file(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Read a file (TOML, YAML or JSON, by its extension) and reload it when it changes.

        Raises:
            RulesError: The file is missing or has mistakes; all of them are listed.
        """
        made = cls(path=path, **options)
        made.reload()
        return made

    @classmethod
    def of_data(cls, data: dict[str, Any], **options: Any) -> Self:
        """Compile the parsed data of a file; see `of_file`."""
        text = msgspec.json.format(msgspec.json.encode(data)).decode()
        made = cls(**options)
        made._use(rules_of(Document("rules", data, text, "json"), made._making))
        return made

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in the order in which they apply."""
        return self._rules

    def reload(self) -> None:
        """Read the file again.

        Raises:
            RulesError: The file has mistakes; the rules stay unchanged.
        """
        assert self.path is not None
        stamp = stamp_of(self.path)
        kept: KeptActions = {rule.key: list(rule.actions) for rule in self._rules}
        # Set before reading, so that a file with mistakes is reported once, not with every message.
        self._read = stamp
        rules = read_rules(self.path, self._making, kept)
        before, used = self._rules, {id(action) for action in actions_of(rules)}
        self._use(rules)
        # Closed after the new rules are in use.
        close_unused(actions_of(before), used)

    def attach_to(self, host: RuleHost) -> None:
        """Use this gateway's or relay's servers in conditions."""
        self.server_of = host.server_of
        self._known = host.wait_until_known

    def close(self) -> None:
        """Close the files that actions write."""
        close_unused(actions_of(self._rules), ())

    def views_changed(self) -> None:
        """Notify actions, such as `cache`, that a gateway's views have changed."""
        for action in actions_of(self._rules):
            action.hooks.views_changed()

    def access_refused(self, principal: TokenPrincipal) -> None:
        """Pass a refused token to the actions of rules without conditions,
        because those always match.
        """
        for rule in self._rules:
            if rule.condition is ALWAYS and not rule.answers:
                for action in rule.actions:
                    action.hooks.access_refused(principal)

    def passes(self, exchange: Exchange) -> bool:
        """Return True if no rule can apply to this message or its response."""
        if self.path is not None and time.monotonic() >= self._look_at:
            self._look()
        found = self._found_for(exchange)
        if not found.all:
            return True
        if found.unasked or (self._known is not None and found.about_server):
            return False
        return not found.index.candidates(self._facts(exchange, found))

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if self.path is not None and time.monotonic() >= self._look_at:
            self._look()
        found = self._found_for(exchange)
        if not found.all:
            return await proceed(exchange)
        if found.needs_server and self._known is not None:
            await self._known(exchange)
            found = self._found_for(exchange)
        facts = self._facts(exchange, found)
        candidates = found.meant_for(facts)
        if not candidates:
            return await proceed(exchange)
        return await self._act(candidates, 0, facts, proceed)

    def on_malformed(self, offence: MalformedFrame) -> None:
        """Pass a malformed frame to the actions of rules without conditions."""
        for rule in self._rules:
            if rule.condition is ALWAYS and not rule.answers:
                tell = malformed_frame_hook(action.hooks for action in rule.actions)
                if tell is not None:
                    tell(offence)

    def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        """Apply rule actions to unknown members of a response.

        The conditions of rules about responses are not evaluated, because the response is no longer
        available.
        """
        found = self._found_for(exchange)
        facts = self._facts(exchange, found)
        for rule, known in found.all:
            change = extra_members_hook(action.hooks for action in rule.actions)
            if change is not None and (known or rule.answers or rule.condition.holds(facts)):
                members = change(exchange, members)
        return members

    # Acting

    async def _act(
        self, candidates: Sequence[Candidate], start: int, facts: Facts, proceed: Proceed
    ) -> Answer:
        exchange = facts.exchange
        for place in range(start, len(candidates)):
            rule, known = candidates[place]
            if rule.answers:
                return await self._act_on_answer(candidates, place, facts, proceed)
            applies = rule.condition.holds(facts) if known is None else known
            actions = rule.actions if applies else _watching(rule, exchange.method)
            if not actions:
                continue
            inner: Proceed = proceed
            if not (applies and rule.stop and (rule.strict is None or rule.strict.holds(facts))):
                inner = self._rest(candidates, place, facts, proceed)
            return await self._run(rule if applies else None, actions, exchange, inner)
        return await proceed(exchange)

    def _rest(
        self, candidates: Sequence[Candidate], place: int, facts: Facts, proceed: Proceed
    ) -> Callable[[Exchange], Awaitable[Answer]]:
        """Return the continuation that runs the later rules; a changed message is matched again."""
        order = candidates[place][0].order
        exchange, message = facts.exchange, facts.exchange.message
        instant = order in self._instant

        def go_on(now: Exchange) -> Awaitable[Answer]:
            if instant and now is exchange and now.message is message:
                return self._act(candidates, place + 1, facts, proceed)
            return self._act_on_changed(now, order, proceed)

        return go_on

    async def _act_on_changed(self, exchange: Exchange, order: int, proceed: Proceed) -> Answer:
        """Match a message again after an action has changed it, and run the later rules."""
        found = self._found_for(exchange)
        if found.needs_server and self._known is not None:
            await self._known(exchange)
            found = self._found_for(exchange)
        facts = self._facts(exchange, found)
        rest = [one for one in found.meant_for(facts) if one[0].order > order]
        return await self._act(rest, 0, facts, proceed)

    async def _act_on_answer(
        self, candidates: Sequence[Candidate], place: int, facts: Facts, proceed: Proceed
    ) -> Answer:
        """Run a group of consecutive rules about responses, starting with the last rule."""
        behind = place
        while behind < len(candidates) and candidates[behind][0].answers:
            behind += 1
        answer, error = await _outcome(self._act(candidates, behind, facts, proceed))
        if facts.key.asked:
            exchange = facts.exchange
            found = self._found_for(exchange)
            left_out = found.not_answered_by(facts.answered(answer, error))
            for rule, _ in reversed(candidates[place:behind]):
                if rule.order in left_out or not rule.condition.holds(facts):
                    continue
                proceed = _given(facts.answer, error)
                acting = self._run(rule, rule.actions, exchange, proceed)
                answer, error = await _outcome(acting)
                left_out = found.not_answered_by(facts.answered(answer, error))
            answer = facts.answer  # computing the facts may have removed duplicate members
        if error is not None:
            raise error
        return answer

    def _run(
        self, rule: Rule | None, actions: Sequence[Action], exchange: Exchange, inner: Proceed
    ) -> Awaitable[Answer]:
        """Run a rule's actions.

        `rule` is None if its condition does not hold; `actions` are then those that only watch.
        """
        if rule is not None:
            exchange.note(f"rule: {rule.name}")
        return chain([action.interceptor for action in actions], inner)(exchange)

    # Finding the rules for a message

    def _use(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        # The `order` of rules whose actions never wait, so they cannot be replaced while running.
        self._instant = frozenset(
            rule.order
            for rule in self._rules
            if not any(hooks_of(action.interceptor).waits for action in rule.actions)
        )
        bare = [action.bare for action in actions_of(self._rules)]
        self._renames = [one for one in bare if isinstance(one, Rename)]
        self._found: dict[_Place, _Found] = {}
        # rules that may apply to some target, by the key without its targets
        self._about: dict[MessageKey, Sequence[Rule]] = {}

    def _found_for(self, exchange: Exchange) -> "_Found":
        """Return the rules that may apply to a message; most messages have none."""
        message, head = exchange.message, exchange.head
        place: _Place
        # Without a resolver, a replaced name and `rename` actions, the name and URI may suffice.
        plain = exchange.resolver is None and exchange.displayed is None and not self._renames
        if plain and head_determines_targets(message.method, head):
            place = message.method, exchange.direction, type(message), head.name, head.uri
            return self._found.get(place) or self._find(place, key_of(exchange))
        targets = self._targets(exchange)
        place = message.method, exchange.direction, type(message), targets, UNSET
        return self._found.get(place) or self._find(place, key_of(exchange, targets))

    def _targets(self, exchange: Exchange) -> tuple[Target, ...]:
        """Return a message's targets, with the names that they have after a `rename` action.

        Rules before the `rename` action must also match the server's own name.
        """
        targets = exchange.targets
        for rename in self._renames if targets and exchange.server is None else ():
            before, _ = rename.original(exchange)
            if before is not exchange:
                exchange = before
                targets = tuple(
                    msgspec.structs.replace(
                        now, server=now.server or then.server, also=(*now.also, *then.names)
                    )
                    for now, then in zip(targets, before.targets, strict=False)
                )
        return targets

    def _facts(self, exchange: Exchange, found: "_Found") -> Facts:
        return Facts(exchange, self.server_of, _key=found.key)

    def _find(self, place: "_Place", key: MessageKey) -> "_Found":
        several: list[Candidate] = []
        for rule in self._about_any(key):
            known = rule.condition.known(key)
            if known is not False or _watching(rule, key.method):
                several.append((rule, known))
        found = _Found(several, key)
        # Names come from clients, so both the number and the length of the keys are limited.
        if len(self._found) >= MAX_KEYS:
            self._found.clear()
        if len(place[0]) + sum(len(one.own) for one in key.targets) <= LONGEST:
            self._found[place] = found
        return found

    def _about_any(self, key: MessageKey) -> Sequence[Rule]:
        """Return the rules that may apply to a message with this key and any target."""
        wide = msgspec.structs.replace(key, targets=ANY)
        rules = self._about.get(wide)
        if rules is None:
            rules = [
                rule
                for rule in self._rules
                if (rule.condition.known(wide) is not False and (key.asked or not rule.answers))
                or _watching(rule, key.method)
            ]
            if len(self._about) >= MAX_KEYS:
                self._about.clear()
            if len(key.method) <= LONGEST:
                self._about[wide] = rules
        return rules

    # Reloading the file

    def _look(self) -> None:
        assert self.path is not None
        self._look_at = time.monotonic() + self._interval
        if stamp_of(self.path) == self._read:
            return
        try:
            self.reload()
            log.info("%s: loaded %d rules", self.path, len(self._rules))
        except RulesError as exc:
            log.error("the rules were not reloaded: %s", exc)


class _Found:
    """The rules that may apply to messages with a given key, and an index of their hooks."""

    def __init__(self, several: Sequence[Candidate], key: MessageKey) -> None:
        self.all = several
        self.key = key
        self.about_server = any(rule.about_server for rule, _ in several)
        # While a server is starting, its items are unknown, so a target may have no server yet.
        unknown = any(one.server is None for one in key.targets)
        self.needs_server = bool(several) and (self.about_server or unknown)
        self.index, self._late = RuleIndex(), RuleIndex()
        self._always: set[int] = set()  # positions of rules that must be evaluated for each message
        self._hooked: set[int] = set()  # `order` of each rule about responses that has hooks
        for place, (rule, known) in enumerate(several):
            hooks = None if known else rule.condition.index_hooks(key)
            if hooks is None or _watching(rule, key.method):
                self._always.add(place)
            elif rule.answers:
                self._late.add(hooks, rule.order)
                self._hooked.add(rule.order)
                self._always.add(place)
            else:
                self.index.add(hooks, place)
        self.unasked = [several[place] for place in sorted(self._always)]

    def meant_for(self, facts: Facts) -> Sequence[Candidate]:
        """Return the rules that must be evaluated for this message."""
        caught = self.index.candidates(facts)
        if not caught:
            return self.unasked
        return [self.all[place] for place in sorted(self._always | caught)]

    def not_answered_by(self, facts: Facts) -> set[int]:
        """Return the `order` of each rule that cannot match this response."""
        return self._hooked - self._late.candidates(facts) if self._hooked else self._hooked


async def _outcome(acting: Awaitable[Answer]) -> tuple[Answer, RpcError | None]:
    try:
        return await acting, None
    except RpcError as exc:
        return None, exc


def _watching(rule: Rule, method: str) -> tuple[Action, ...]:
    if method not in rule.also:
        return ()
    return tuple(action for action in rule.actions if method in action.hooks.also)


def _given(answer: Answer, error: RpcError | None) -> Proceed:
    """Return a `proceed` that returns the given answer or raises the given error."""

    async def proceed(exchange: Exchange) -> Answer:
        if error is not None:
            raise error
        return answer

    return proceed
