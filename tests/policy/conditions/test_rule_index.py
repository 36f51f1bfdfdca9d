"""Tests that the rule index finds the same rules as evaluating each rule."""

import asyncio
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.interceptor import Answer, Exchange
from fairlead.policy.rules import RuleSet
from fairlead.protocol.caller import ANONYMOUS, Caller, read_params_head
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.wire import Notification, Request
from tests.support.examples import examples

LEAVES: list[dict[str, Any]] = [
    *({"method": one} for one in ("tools/call", "tools/*", "*")),
    *({"tool": one} for one in ("a", "a*", "b", "*")),
    *({"resource": one} for one in ("x:*", "x:1")),
    *({"target": one} for one in ("a", "x:1")),
    *({"kind": one} for one in ("request", "notification")),
    *({"direction": one} for one in ("to_server", "to_client")),
    *({"identity": one} for one in ("ann", "bob")),
    *({"params": {"n": one}} for one in (1, 2)),
]
conditions = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda several: {"all": several}),
        st.lists(inner, min_size=1, max_size=3).map(lambda several: {"any": several}),
        inner.map(lambda one: {"not": one}),
        st.tuples(inner, inner).map(lambda two: {**two[0], **two[1]}),
    ),
    max_leaves=6,
)


class Nobody:
    log_level = None
    session = SessionContext(state=SessionState.ACTIVE)


def exchanges() -> list[Exchange]:
    found = []
    messages: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": "a", "n": 1}),
        ("tools/call", {"name": "ab"}),
        ("tools/call", {}),
        ("tools/list", {"n": 2}),
        ("resources/read", {"uri": "x:1", "n": 2}),
        ("resources/read", {"uri": "y:1"}),
        ("notifications/x", {"name": "a", "n": 1}),
    ]
    for method, params in messages:
        raw = msgspec.Raw(msgspec.json.encode(params))
        message: Any = (
            Notification(method, raw)
            if method.startswith("notifications/")
            else Request(1, method, raw)
        )
        for direction in (Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT):
            for principal in ("ann", ANONYMOUS):
                caller = Caller(NEWEST_HANDSHAKE, False, principal=principal)
                context = TransportContext(transport_type="memory")
                edge: Any = Nobody()
                found.append(
                    Exchange(message, caller, read_params_head(raw), direction, context, edge)
                )
    return found


EXCHANGES = exchanges()


def holds(raw: dict[str, Any], exchange: Exchange) -> bool:
    """Evaluate a condition without the index."""
    return all(one(key, wanted, exchange) for key, wanted in raw.items())


def one(key: str, wanted: Any, exchange: Exchange) -> bool:
    target, method = exchange.target, exchange.method
    params = msgspec.json.decode(exchange.message.params)  # type: ignore[arg-type]
    match key:
        case "all":
            return all(holds(part, exchange) for part in wanted)
        case "any":
            return any(holds(part, exchange) for part in wanted)
        case "not":
            return not holds(wanted, exchange)
        case "method":
            return fnmatchcase(method, wanted)
        case "tool" | "resource" | "target":
            meant = {"tool": "tools/call", "resource": "resources/read", "target": method}[key]
            return method == meant and target is not None and fnmatchcase(target, wanted)
        case "kind":
            return isinstance(exchange.message, Request) == (wanted == "request")
        case "direction":
            up = exchange.direction is Direction.CLIENT_TO_SERVER
            return up == (wanted == "to_server")
        case "identity":
            return exchange.caller.principal == wanted
    return bool(params.get("n") == wanted["n"])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(conditions, min_size=1, max_size=4))
def test_the_rule_index_finds_exactly_the_matching_rules(several: list[dict[str, Any]]) -> None:
    rules = RuleSet.of_data(
        {
            "rules": [
                {"name": str(n), "when": when, "do": {"size": {"params": 0}}}
                for n, when in enumerate(several)
            ]
        }
    )

    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    async def judge() -> None:
        for given_one in [*EXCHANGES, *EXCHANGES]:  # the second lookup uses the cache
            exchange = msgspec.structs.replace(given_one, did=[])
            await rules(exchange, proceed)
            acted = [note.removeprefix("rule: ") for note in exchange.did or ()]
            expected = [str(n) for n, when in enumerate(several) if holds(when, exchange)]
            assert acted == expected

    asyncio.run(judge())
