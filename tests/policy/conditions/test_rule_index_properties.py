"""Property tests: for any conditions and messages, the index finds the same rules as evaluating
each rule.
"""

import asyncio
import contextlib
import json
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.policy.conditions.facts import Facts
from fairlead.policy.rules import RuleSet
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.wire import Notification, Request
from tests.support.examples import examples

# A small vocabulary, so that conditions and messages often match.
NAMES = ["a", "B", "a.b", "1", "01", "*", "ß", "é", "e\u0301", "١", "²", ""]
PLAIN: list[Any] = [*(0, 1, 1.0, 2, -1, 1e300, True, False, None), *("1", "a", "A", "ab", "ß", "*")]
values = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
patterns = st.sampled_from(["a", "a*", "*", "?", "[ab]", "", "ß", "1", "tools/*", "A"])
names = st.one_of(patterns, st.lists(patterns, min_size=1, max_size=2))
paths = st.lists(st.sampled_from([*NAMES, "name", "uri"]), min_size=1, max_size=3).map(".".join)
operators = st.one_of(
    st.tuples(st.sampled_from(["equals", "not"]), st.sampled_from(PLAIN)),
    st.tuples(
        st.sampled_from(["in", "not_in"]), st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3)
    ),
    st.tuples(st.sampled_from(["like", "not_like"]), patterns),
    st.tuples(st.sampled_from(["matches", "not_matches"]), st.sampled_from(["a", "^$", "[0-9]"])),
    st.tuples(st.just("contains"), st.sampled_from(["a", 1, "ß"])),
    st.tuples(st.just("exists"), st.booleans()),
    st.tuples(
        st.sampled_from(["greater", "at_least", "less", "at_most"]),
        st.sampled_from([0, 1, 1.5, "a"]),
    ),
)
maps = st.lists(operators, min_size=1, max_size=2).map(dict)
tests = st.one_of(
    maps,
    st.sampled_from([one for one in PLAIN if one is not None]),
    st.lists(st.sampled_from(PLAIN), min_size=1, max_size=2),
)


def leaf(key: str, wanted: "st.SearchStrategy[Any]") -> "st.SearchStrategy[dict[str, Any]]":
    return wanted.map(lambda one: {key: one})


named = st.one_of(names, maps)
about_requests = st.one_of(
    leaf("params", st.dictionaries(paths, tests, min_size=1, max_size=2)),
    leaf(
        "headers",
        st.dictionaries(st.sampled_from(["x-a", "X-A", "X-b"]), named, min_size=1, max_size=2),
    ),
    *(
        leaf(key, named)
        for key in ("method", "tool", "prompt", "resource", "target", "server", "identity")
    ),
    *(leaf(key, named) for key in ("client", "session", "transport", "address", "path")),
    leaf("revision", st.sampled_from(["2025-*", "2026-07-28", "2025-11-25"])),
    leaf("era", st.sampled_from(["handshake", "stateless"])),
    leaf("direction", st.sampled_from(["to_server", "to_client"])),
    leaf("size", maps),
)
kinds = leaf("kind", st.sampled_from(["request", "notification"]))
about_answers = st.one_of(
    about_requests,
    leaf("result", st.dictionaries(paths, tests, min_size=1, max_size=2)),
    leaf(
        "error", st.dictionaries(st.sampled_from(["code", "message", "data.a"]), tests, min_size=1)
    ),
    leaf("kind", st.sampled_from(["response", "error"])),
)


def nested(leaves: "st.SearchStrategy[dict[str, Any]]") -> "st.SearchStrategy[dict[str, Any]]":
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda several: {"all": several}),
            st.lists(inner, min_size=1, max_size=3).map(lambda several: {"any": several}),
            inner.map(lambda one: {"not": one}),
            st.tuples(inner, inner).map(lambda two: {**two[0], **two[1]}),
        ),
        max_leaves=5,
    )


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Generate an object that may have duplicate names and escaped letters."""
    keys = st.sampled_from([*NAMES, "name", "uri", "_meta"])
    pairs = draw(st.lists(st.tuples(keys, values), max_size=5))
    ascii_only = draw(st.booleans())
    said = (
        f"{json.dumps(key, ensure_ascii=ascii_only)}:{json.dumps(one, ensure_ascii=ascii_only)}"
        for key, one in pairs
    )
    return b"{%b}" % ",".join(said).encode()


class Edge:
    log_level = None
    session = SessionContext(state=SessionState.ACTIVE, session_id="a")


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    params = Raw(draw(objects()))
    method = draw(
        st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "a"])
    )
    message: Request | Notification = Request(1, method, params)
    if draw(st.booleans()):
        message = Notification("notifications/resources/updated", params)
    stateless = draw(st.booleans())
    caller = Caller(
        NEWEST if stateless else NEWEST_HANDSHAKE,
        stateless,
        info=draw(st.sampled_from([None, b'{"name":"a"}'])),
        principal=draw(st.sampled_from([ANONYMOUS, "a", "ab"])),
    )
    context = TransportContext(
        transport_type="http",
        headers=draw(st.sampled_from([None, {"X-A": "a"}, {"x-a": "ab", "X-B": "ß"}])),
        path=draw(st.sampled_from([None, "a"])),
        peer_address=draw(st.sampled_from([None, "a"])),
    )
    direction = draw(st.sampled_from(list(Direction)))
    edge: Any = Edge()
    return Exchange(message, caller, read_params_head(params), direction, context, edge)


def rules_of(several: list[dict[str, Any]]) -> RuleSet:
    act = {"do": {"size": {"params": 0}}}
    listed = [{"name": str(n), "when": when, **act} for n, when in enumerate(several)]
    return RuleSet.of_data({"rules": listed}, server_of=lambda exchange: exchange.target)


def noted(exchange: Exchange) -> list[str]:
    return [note.removeprefix("rule: ") for note in exchange.did or ()]


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(nested(st.one_of(about_requests, kinds)), min_size=1, max_size=5),
    st.lists(exchanges(), min_size=1, max_size=5),
)
def test_the_rule_index_finds_every_rule_that_matches_a_request(
    several: list[dict[str, Any]], messages: list[Exchange]
) -> None:
    rules = rules_of(several)

    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    async def judge() -> None:
        for one in [*messages, *messages]:  # the second lookup uses the cache
            exchange = msgspec.structs.replace(one, did=[])
            facts = Facts(exchange, rules.server_of)
            meant = [rule.name for rule in rules.rules if rule.condition.holds(facts)]
            passes = rules.passes(exchange)
            await rules(exchange, proceed)
            assert noted(exchange) == meant
            assert not (passes and meant)

    asyncio.run(judge())


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(nested(about_answers), min_size=1, max_size=5),
    st.lists(exchanges(), min_size=1, max_size=3),
    st.one_of(
        objects(),
        st.sampled_from([b"5", b"null", b"[]", b'"a"']),
        st.sampled_from([RpcError(1, "a"), RpcError(-1, "ab", {"a": 1}), RpcError(2, "", [1])]),
    ),
)
def test_the_rule_index_finds_every_rule_that_matches_a_response(
    several: list[dict[str, Any]], messages: list[Exchange], outcome: bytes | RpcError
) -> None:
    rules = rules_of(several)

    async def proceed(exchange: Exchange) -> Answer:
        if isinstance(outcome, RpcError):
            raise outcome
        return outcome

    async def judge() -> None:
        for one in [*messages, *messages]:
            exchange = msgspec.structs.replace(one, did=[])
            asked = isinstance(exchange.message, Request)
            facts = Facts(exchange, rules.server_of)
            first = {r.name for r in rules.rules if not r.answers and r.condition.holds(facts)}
            refused = isinstance(outcome, RpcError)
            ended = Facts(exchange, rules.server_of).answered(
                None if refused else outcome,  # type: ignore[arg-type]
                outcome if refused else None,  # type: ignore[arg-type]
            )
            then = {r.name for r in rules.rules if r.answers and r.condition.holds(ended)}
            passes = rules.passes(exchange)
            with contextlib.suppress(RpcError):
                await rules(exchange, proceed)
            meant = first | (then if asked else set())
            assert sorted(noted(exchange)) == sorted(meant)
            assert not (passes and meant)

    asyncio.run(judge())


@example(["1", "01"])
@example(["١", "1"])
@given(st.lists(st.sampled_from(["1", "01", "001", "١", "²", "0"]), min_size=2, max_size=4))
def test_all_spellings_of_an_array_index_in_a_path_are_found(steps: list[str]) -> None:
    rules = rules_of([{"params": {f"a.{step}": "x"}} for step in steps])

    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    params = Raw(b'{"a":["x","x"]}')
    edge: Any = Edge()
    exchange = Exchange(
        Request(1, "tools/call", params),
        Caller(NEWEST, True, ANONYMOUS),
        read_params_head(params),
        Direction.CLIENT_TO_SERVER,
        TransportContext(transport_type="memory"),
        edge,
    )
    asyncio.run(_run(rules, exchange, proceed))
    assert noted(exchange) == [str(n) for n, step in enumerate(steps) if step.isdecimal()]


async def _run(rules: RuleSet, exchange: Exchange, proceed: Any) -> None:
    await rules(exchange, proceed)
