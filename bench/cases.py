"""Rows of the benchmark and their targets."""

from __future__ import annotations

from dataclasses import dataclass

from .calls import LARGE, Describe, Echo, Order
from .gateways import GatewayCalls
from .managing import Cold, Naming, Resting, Warm
from .measures import (
    TEXT_ONLY,
    Calling,
    FirstListing,
    Importing,
    Listing,
    Measure,
    Remembering,
    Serving,
    Starting,
    Structuring,
)
from .posting import TEN, Crowding, Cycling, Idling, Posting
from .relaying import COPYING, SAME_ERA, Blob, Bridging, Churning, Relaying, Waiting
from .requests import Era
from .rounds import Row, Target
from .watching import GUARDED, RULES, WITHOUT, Adding, Watching

__all__ = ["CASES", "PLANS", "Plan"]


@dataclass(frozen=True)
class Plan:
    """A planned row: its name, its measure and its targets. A row without targets is context."""

    case: str
    label: str
    measure: Measure
    targets: tuple[Target, ...] = ()
    unit: str = "calls/s"

    def row(self) -> Row:
        """Return the empty row."""
        return Row(self.case, self.label, self.unit, self.targets)


def _faster(peer: str, times: float) -> Target:
    return Target(f"≥ {times:g}×", peer, least=times)


def _within(peer: str, times: float) -> Target:
    return Target(f"within {times:g}×", peer, least=1 / times)


def _watching(label: str, *, http: bool = False, window: int = 1) -> tuple[Plan, ...]:
    """Return the rows for guarded and recorded calls.

    The targets are for one call at a time; many in flight are context.
    """
    guarded = Watching(how="guarded", http=http, window=window)
    recorded = Watching(how="recorded", others=(GUARDED,), http=http, window=window)
    promised = window == 1
    return (
        Plan("watching", f"guarded, {label}", guarded, (_within(WITHOUT, 1.5),) * promised),
        Plan("watching", f"recorded, {label}", recorded, (_within(GUARDED, 1.5),) * promised),
    )


PLANS = (
    Plan(
        "stdio-server-1",
        "50 B, one at a time",
        Serving(one_cpu=True),
        (_faster("mcp", 12), _faster("typescript", 2)),
    ),
    Plan("stdio-server-1", "peers tuned", Serving(one_cpu=True, tuned=True)),
    Plan("stdio-server-1", "our rate limit on", Serving(one_cpu=True, limited=True)),
    Plan("stdio-server-1", "on any CPUs", Serving()),
    Plan("stdio-server-1", "in 2026-07-28", Serving(era=Era.STATELESS, one_cpu=True)),
    Plan(
        "stdio-server-64",
        "50 B, 64 in flight",
        Serving(window=64),
        (_faster("mcp", 35), _faster("typescript", 3), _within("bare", 3.5)),
    ),
    Plan("stdio-server-64", "peers tuned", Serving(window=64, tuned=True)),
    Plan("stdio-server-64", "on one CPU", Serving(window=64, one_cpu=True)),
    Plan("stdio-server-64", "in 2026-07-28", Serving(window=64, era=Era.STATELESS)),
    Plan(
        "stdio-server-64k",
        "64 KiB, one at a time",
        Serving(work=Echo(LARGE), one_cpu=True),
        (_faster("mcp", 2.2), _within("bare", 1.5)),
    ),
    Plan(
        "stdio-server-64k",
        "64 KiB, 8 in flight",
        Serving(work=Echo(LARGE), window=8),
        (_faster("mcp", 2.2), _within("bare", 1.5)),
    ),
    Plan(
        "stdio-nested",
        "10 items, one at a time",
        Serving(work=Order(), one_cpu=True),
        (_faster("mcp", 10),),
    ),
    Plan("stdio-nested", "10 items, 64 in flight", Serving(work=Order(), window=64)),
    Plan("stdio-structured", "an object, one at a time", Serving(work=Describe(), one_cpu=True)),
    Plan("stdio-structured", "an object, 64 in flight", Serving(work=Describe(), window=64)),
    Plan(
        "stdio-structured",
        "50 B, one at a time",
        Structuring(one_cpu=True),
        (Target("≥ 0.9 of it", TEXT_ONLY, least=0.9),),
    ),
    Plan("stdio-structured", "50 B, 64 in flight", Structuring(window=64)),
    Plan(
        "stdio-list",
        "1,000 tools, all pages",
        Listing(one_cpu=True),
        (_faster("mcp", 10),),
    ),
    Plan("stdio-list", "in one page", Listing(one_page=True, one_cpu=True)),
    Plan("stdio-list", "the first time", FirstListing(), unit="ms"),
    Plan("stdio-client-1", "50 B, one at a time", Calling(one_cpu=True)),
    Plan("stdio-client-1", "on any CPUs", Calling()),
    Plan(
        "stdio-client-1",
        "tuned: all on uvloop",
        Calling(loop="uvloop", one_cpu=True),
        (_faster("mcp", 4),),
    ),
    Plan("stdio-client-64", "50 B, 64 in flight", Calling(window=64)),
    Plan(
        "stdio-client-64",
        "tuned: all on uvloop",
        Calling(window=64, loop="uvloop"),
        (_faster("mcp", 12), _faster("typescript", 2)),
    ),
    Plan(
        "http-server-1",
        "50 B, one at a time",
        Posting(one_cpu=True),
        (_faster("mcp", 6), _faster("typescript", 3)),
    ),
    Plan("http-server-1", "peers tuned", Posting(one_cpu=True, tuned=True)),
    Plan("http-server-1", "on any CPUs", Posting()),
    Plan("http-server-1", "64 KiB, one at a time", Posting(work=Echo(LARGE), one_cpu=True)),
    Plan(
        "http-server-64",
        "50 B, 64 in flight",
        Posting(window=64),
        (_faster("mcp", 8), _faster("typescript", 4), _within("bare", 1.5)),
    ),
    Plan("http-server-64", "peers tuned", Posting(window=64, tuned=True)),
    Plan("http-server-64", "on one CPU", Posting(window=64, one_cpu=True)),
    Plan(
        "http-session",
        "JSON, one at a time",
        Posting(answers="json", one_cpu=True),
        (_faster("mcp", 5),),
    ),
    Plan("http-session", "JSON, 64 in flight", Posting(answers="json", window=64)),
    Plan(
        "http-session",
        "SSE, one at a time",
        Posting(answers="sse", one_cpu=True),
        (_faster("mcp", 8),),
    ),
    Plan("http-session", "SSE, 64 in flight", Posting(answers="sse", window=64)),
    Plan(
        "http-thousand",
        "1,000 tools, one at a time",
        Crowding(one_cpu=True),
        (Target("≥ 0.9 of it", TEN, least=0.9),),
    ),
    Plan(
        "http-memory",
        "an idle session",
        Idling(),
        (Target("≤ 1/3", "mcp", least=3),),
        "KiB",
    ),
    Plan(
        "http-memory",
        "an ended session",
        Cycling(),
        (Target("< 100 B", ceiling=100),),
        "B",
    ),
    Plan("http-client-1", "50 B, one at a time", Calling(http=True, one_cpu=True)),
    Plan("http-client-1", "on any CPUs", Calling(http=True)),
    Plan(
        "http-client-1",
        "tuned: all on uvloop",
        Calling(loop="uvloop", http=True, one_cpu=True),
        (_faster("mcp", 4),),
    ),
    Plan("http-client-64", "50 B, 64 in flight", Calling(window=64, http=True)),
    Plan(
        "http-client-64",
        "tuned: all on uvloop",
        Calling(window=64, loop="uvloop", http=True),
        (_faster("mcp", 8),),
    ),
    Plan(
        "import",
        "less the interpreter",
        Importing(),
        (Target("≤ 1/6", "mcp", least=6),),
        "ms",
    ),
    Plan(
        "memory",
        "ten tools, 100 calls",
        Remembering(),
        (Target("< 40 MB", ceiling=40), Target("< 0.6 of it", "mcp", least=1 / 0.6)),
        "MB",
    ),
    Plan(
        "startup",
        "ten tools, to tools/list",
        Starting(),
        (Target("≤ 1/5", "mcp", least=5),),
        "ms",
    ),
    Plan(
        "manager",
        "20 servers, cached",
        Warm(every=True),
        (Target("< 400 ms", ceiling=400),),
        "ms",
    ),
    Plan(
        "manager",
        "18 of 20 cached",
        Warm(every=False),
        (Target("< 400 ms", ceiling=400),),
        "ms",
    ),
    Plan("manager", "20 servers, cold", Cold(), (_within("bare", 1.3),), "ms"),
    Plan("manager", "of Fairlead, cold", Cold(server="fairlead_server.py"), unit="ms"),
    Plan(
        "manager",
        "10,000 tools, names",
        Naming(what="names"),
        (Target("< 50 ms", ceiling=50),),
        "ms",
    ),
    Plan("manager", "and from the cache", Naming(what="cached"), unit="ms"),
    Plan(
        "manager",
        "20 servers, idle",
        Resting(),
        (Target("< 0.2 %", ceiling=0.2),),
        "%",
    ),
    Plan(
        "relay",
        "stdio to stdio, one at a time",
        Relaying(route="stdio-stdio", one_cpu=True),
        (_faster("fastmcp", 15), _within("bare", 2)),
    ),
    Plan("relay", "stdio to stdio, on any CPUs", Relaying(route="stdio-stdio")),
    Plan("relay", "stdio to stdio, 64 in flight", Relaying(route="stdio-stdio", window=64)),
    Plan(
        "relay",
        "stdio to stdio, 64 on one CPU",
        Relaying(route="stdio-stdio", window=64, one_cpu=True),
    ),
    Plan(
        "relay",
        "HTTP to stdio, one at a time",
        Relaying(route="http-stdio", one_cpu=True),
        (_faster("fastmcp", 8), _faster("mcp-proxy", 8), _faster("supergateway", 2.5)),
    ),
    Plan("relay", "HTTP to stdio, on any CPUs", Relaying(route="http-stdio")),
    Plan(
        "relay",
        "HTTP to stdio, 64 in flight",
        Relaying(route="http-stdio", window=64),
        (_faster("fastmcp", 20), _faster("supergateway", 3)),
    ),
    Plan(
        "relay",
        "HTTP to stdio, 64 on one CPU",
        Relaying(route="http-stdio", window=64, one_cpu=True),
    ),
    Plan(
        "relay",
        "HTTP to stdio, peers tuned",
        Relaying(route="http-stdio", one_cpu=True, tuned=True),
    ),
    Plan(
        "relay",
        "and we in 2026-07-28",
        Relaying(route="http-stdio", window=64, era=Era.STATELESS),
        (_faster("supergateway", 6),),
    ),
    Plan(
        "relay",
        "stdio to HTTP, 64 in flight",
        Relaying(route="stdio-http", window=64),
        (_faster("mcp-proxy", 15),),
    ),
    Plan(
        "relay",
        "results of 1 MiB",
        Relaying(route="stdio-stdio", work=Blob(), one_cpu=True),
        (_faster("fastmcp", 3), _within(COPYING, 4)),
    ),
    Plan(
        "relay",
        "from era to era",
        Bridging(one_cpu=True),
        (Target("≤ 1.3× its cost", SAME_ERA, least=1 / 1.3),),
    ),
    Plan(
        "relay",
        "list of 50 × 40 tools",
        Naming(what="lists"),
        (Target("< 5 ms", ceiling=5),),
        "ms",
    ),
    Plan("relay", "an ended session", Churning(), (Target("< 10 B", ceiling=10),), "B"),
    Plan("relay", "idle", Waiting(), (Target("< 0.1 %", ceiling=0.1),), "%"),
    Plan("gateway", "session, one at a time", GatewayCalls(one_cpu=True)),
    Plan("gateway", "session, on any CPUs", GatewayCalls()),
    Plan("gateway", "session, 64 in flight", GatewayCalls(window=64)),
    Plan("gateway", "session, 64 on one CPU", GatewayCalls(window=64, one_cpu=True)),
    Plan("gateway", "2026-07-28, one at a time", GatewayCalls(era=Era.STATELESS, one_cpu=True)),
    Plan("gateway", "2026-07-28, 64 in flight", GatewayCalls(era=Era.STATELESS, window=64)),
    Plan("gateway", "one server's path, one at a time", GatewayCalls(alone=True, one_cpu=True)),
    Plan("gateway", "guarded, one at a time", GatewayCalls(guarded=True, one_cpu=True)),
    Plan("gateway", "guarded, on any CPUs", GatewayCalls(guarded=True)),
    Plan("gateway", "guarded, 64 in flight", GatewayCalls(guarded=True, window=64)),
    Plan(
        "gateway",
        "guarded, 2026-07-28, one at a time",
        GatewayCalls(guarded=True, era=Era.STATELESS, one_cpu=True),
    ),
    *_watching("stdio, one at a time"),
    *_watching("stdio, 64 in flight", window=64),
    *_watching("HTTP, one at a time", http=True),
    *(
        Plan(
            "watching",
            f"200 rules by {name}",
            Adding(how=how),
            (Target("< 20 µs more", ceiling=20),),
            "µs",
        )
        for how, name in RULES.items()
    ),
    Plan(
        "watching",
        "no interceptors",
        Watching(how="empty", others=(WITHOUT,)),
        (Target("nothing more", WITHOUT, least=0.95),),
    ),
)

CASES = tuple(dict.fromkeys(plan.case for plan in PLANS))
