"""Tests of dry runs of rules on a recording, with the recorded times."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.interceptor import Answer, Exchange, InterceptorBase, Proceed
from fairlead.policy.rules import DryRunResult, RulesError, dry_run, dry_run_tape
from fairlead.protocol.envelope import Direction
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.recording.tape import TapeEntry, TapeReader, TapeWriter
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.raw_relay import ASKED, scene

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def rules(folder: Path, *rules: dict[str, Any]) -> str:
    file = folder / "rules.json"
    file.write_bytes(msgspec.json.encode({"rules": rules}))
    return str(file)


def summary(one: DryRunResult) -> tuple[Any, ...]:
    return one.dir, one.method, one.outcome, one.rules, one.did


@pytest.mark.covers("GTW-09")
async def test_a_dry_run_evaluates_both_directions_of_a_recording(tmp_path: Path) -> None:
    tape = TapeWriter(tmp_path / "talk")
    async with scene(interceptors=[Recorder(tape)]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "find", "arguments": {"n": 7}})
        request = await server.method("tools/call")
        server.tell("notifications/vendor", {"n": 1})
        server.ask("sampling/createMessage", {"messages": [], "maxTokens": 1}, "s")
        client.reply(await client.method("sampling/createMessage"), {"role": "assistant"})
        await server.answer_to("s")
        server.reply(request, {"content": [], "secret": "swordfish"})
        await client.answer_to(call)
        call = client.ask("tools/call", {"name": "find"})
        server.refuse(await server.method("tools/call"), -32001, "no")
        await client.answer_to(call)
    tape.close()
    file = rules(
        tmp_path,
        {"name": "seven", "when": {"params": {"arguments.n": 7}}, "do": {"delay": 9}},
        {"name": "hush", "when": {"result": {"secret": {"exists": True}}}, "do": "redact"},
        {"name": "sorry", "when": {"error": {"code": -32001}}, "do": {"mock": "sorry"}},
        {"name": "ask", "when": {"direction": "to_client", "kind": "request"}, "do": "block"},
        {"name": "news", "when": {"method": "notifications/vendor"}, "do": "block"},
        {"name": "put", "when": {"tool": "find"}, "do": {"inject": {"arguments": {"k": 1}}}},
    )
    judged = await asyncio.to_thread(
        lambda: list(dry_run_tape(file, TapeReader(tmp_path / "talk")))
    )
    found = [summary(one) for one in judged if one.rules]
    dropped, refused = "dropped: Not allowed here", "blocked: Not allowed here"
    assert sorted(found, key=str) == sorted(
        [
            (UP, "tools/call", "changed", ["seven", "put", "hush"], _DID),
            (DOWN, "notifications/vendor", "dropped", ["news"], [dropped]),
            (DOWN, "sampling/createMessage", "blocked", ["ask"], [refused]),
            (UP, "tools/call", "changed", ["put", "sorry"], ["injected: k", "mocked"]),
        ],
        key=str,
    )


# The tape was redacted when it was written, so no secret is left.
_DID = ["would delay (seconds: 9.0)", "injected: k"]


def entry(seq: int, at: float, message: dict[str, Any], dir: Direction = UP) -> TapeEntry:
    raw = msgspec.Raw(msgspec.json.encode({"jsonrpc": "2.0", **message}))
    return TapeEntry(seq=seq, at=at, dir=dir, message=raw, session="r1")


def test_rate_limits_in_a_dry_run_use_the_time_of_the_tape(tmp_path: Path) -> None:
    file = rules(tmp_path, {"name": "rate", "do": {"rate": {"rate": 1, "burst": 1, "per": "all"}}})
    params = {"name": "x", "_meta": META}
    tape = [
        entry(n, at, {"id": n, "method": "tools/call", "params": params})
        for n, at in enumerate((0.0, 0.5, 1.4, 2.5))
    ]
    found = [(one.seq, one.outcome) for one in dry_run_tape(file, tape)]
    assert found == [(0, "passed"), (1, "blocked"), (2, "passed"), (3, "passed")]


def test_a_dry_run_evaluates_both_eras_and_skips_invalid_entries(tmp_path: Path) -> None:
    file = rules(
        tmp_path,
        {"name": "new", "when": {"era": "stateless"}, "do": "block"},
        {"name": "old", "when": {"client": "old-*"}, "do": {"mock": "x"}},
    )
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "old-timer", "version": "1"},
    }
    tape = [
        entry(1, 0, {"id": 1, "method": "initialize", "params": opening}),
        entry(2, 0, {"id": 1, "result": {}}, DOWN),
        entry(3, 0, {"id": 2, "method": "tools/call", "params": {"name": "x"}}),
        entry(4, 0, {"id": 3, "method": "tools/call", "params": {"name": "x", "_meta": META}}),
        TapeEntry(seq=5, at=0, dir=UP, message=msgspec.Raw(b'{"method":7}')),
        entry(6, 0, {"method": "notifications/x", "params": {"_meta": 3}}),
    ]
    found = [(one.seq, one.outcome, one.rules) for one in dry_run_tape(file, tape)]
    assert found == [
        (1, "answered", ["old"]),
        (3, "answered", ["old"]),
        (4, "blocked", ["new"]),
        (6, "dropped", ["old"]),
    ]


def test_dry_run_uses_the_server_of_a_message_and_the_transport_of_its_session(
    tmp_path: Path,
) -> None:
    file = rules(
        tmp_path,
        {"name": "search", "when": {"server": "search"}, "do": "block"},
        {"name": "web", "when": {"transport": "http", "headers": {"X-Team": "red"}}, "do": "allow"},
        {"name": "rest", "do": {"delay": 1}},
    )
    came = {"type": "http", "headers": {"x-team": "red"}}
    call = {"method": "tools/call", "params": {"name": "x"}}
    tape = [entry(n, 0, {"id": n, **call}) for n in range(1, 4)]
    tape[0].transport = came
    tape[1].server = "search"
    tape[2].session = "s9"  # a message of another session
    found = [(one.seq, one.rules, one.outcome) for one in dry_run_tape(file, tape)]
    assert found == [(1, ["web"], "passed"), (2, ["search"], "blocked"), (3, ["rest"], "passed")]


def test_a_dry_run_rejects_a_rule_file_with_mistakes(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="unknown action"):
        list(dry_run_tape(rules(tmp_path, {"do": "nothing"}), []))


@pytest.mark.covers("GTW-09")
async def test_a_dry_run_reads_the_principal_from_the_tape(tmp_path: Path) -> None:
    """A tape contains the principal once per connection, not in each message."""
    tape = TapeWriter(tmp_path / "talk")
    who = iter(["ann", "bob"])
    async with scene(interceptors=[Recorder(tape)], principal=lambda: next(who)) as place:
        for _ in range(2):
            client = await place.session()
            server = await place.server()
            for _ in range(2):
                call = client.ask("tools/call", {"name": "find"})
                server.reply(await server.method("tools/call"), {"content": []})
                await client.answer_to(call)
    tape.close()
    said = [entry.transport for entry in TapeReader(tmp_path / "talk") if entry.transport]
    assert [one.get("principal") for one in said] == ["ann", "bob"]
    file = rules(tmp_path, {"name": "bob", "when": {"identity": "bob"}, "do": "block"})
    judged = await asyncio.to_thread(
        lambda: list(dry_run_tape(file, TapeReader(tmp_path / "talk")))
    )
    calls = [one.outcome for one in judged if one.method == "tools/call"]
    assert calls == ["passed", "passed", "blocked", "blocked"]


def test_a_dry_run_keeps_a_limited_number_of_pending_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rules(tmp_path, {"name": "late", "when": {"result": {"n": 1}}, "do": {"mock": "x"}})
    call = {"method": "tools/call", "params": {"name": "x"}}
    tape = [
        entry(1, 0, {"id": 1, **call}),
        entry(2, 0, {"id": 2, **call}),
        entry(3, 0, {"id": 2, "result": {"n": 1}}, DOWN),
        entry(4, 0, {"id": 1, "result": {"n": 1}}, DOWN),
    ]
    judged = [(1, "changed"), (2, "changed")]
    assert [(one.seq, one.outcome) for one in dry_run_tape(file, tape)] == judged
    monkeypatch.setattr(dry_run, "MAX_WAITING", 1)
    # The first request is evaluated before its response is known.
    assert [(one.seq, one.outcome) for one in dry_run_tape(file, tape)] == [
        (1, "passed"),
        (2, "changed"),
    ]


@pytest.mark.parametrize(("room", "outcome"), [(0, "changed"), (-1, "passed")])
def test_a_dry_run_keeps_pending_requests_of_a_limited_total_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, outcome: str
) -> None:
    file = rules(tmp_path, {"name": "late", "when": {"result": {"n": 1}}, "do": {"mock": "x"}})
    call = {"method": "tools/call", "params": {"name": "x"}}
    done = [
        part
        for n in range(3)
        for part in (
            entry(2 * n, 0, {"id": n, **call}),
            entry(2 * n + 1, 0, {"id": n, "result": {"n": 2}}, DOWN),
        )
    ]
    tape = [
        *done,  # already evaluated, so its size is not counted
        entry(7, 0, {"id": 7, **call}),
        entry(8, 0, {"id": 8, **call}),
        entry(9, 0, {"id": 7, "result": {"n": 1}}, DOWN),
    ]
    size = sum(len(bytes(one.message)) for one in tape[-3:-1])
    monkeypatch.setattr(dry_run, "MAX_BYTES", size + room)
    found = {one.seq: one.outcome for one in dry_run_tape(file, tape)}
    assert found[7] == outcome


class Note(InterceptorBase):
    pure = True

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange.note("rule: not a name")
        return await proceed(exchange)


def test_a_note_that_starts_with_rule_is_not_mistaken_for_a_rule_name(tmp_path: Path) -> None:
    file = rules(tmp_path, {"name": "one", "do": "note"})
    tape = [entry(1, 0, {"method": "tools/call", "params": {"name": "x"}})]
    (found,) = dry_run_tape(file, tape, {"note": Note})
    assert (found.rules, found.did) == (["one"], ["rule: not a name"])


@pytest.mark.parametrize(
    ("do", "message", "answer", "outcome", "reason"),
    [
        ("block", {"id": 1}, {"result": {}}, "blocked", "Not allowed here"),
        ("block", {}, None, "dropped", None),
        ({"mock": "x"}, {"id": 1}, {"result": {}}, "answered", None),
        ({"inject": {"arguments": {"a": 1}}}, {"id": 1}, {"result": {}}, "changed", None),
        ({"delay": 5}, {"id": 1}, {"result": {}}, "passed", None),
        ({"delay": 5}, {"id": 1}, {"error": {"code": 1, "message": "no"}}, "passed", None),
        ({"delay": 5}, {"id": 1}, None, "passed", None),
    ],
)
def test_a_dry_run_reports_the_outcome_of_each_action(
    tmp_path: Path, do: Any, message: Any, answer: Any, outcome: str, reason: str | None
) -> None:
    file = rules(tmp_path, {"name": "one", "do": do})
    call = {"method": "tools/call", "params": {"name": "x"}}
    tape = [entry(1, 0, {**call, **message})]
    if answer is not None:
        tape.append(entry(2, 0, {"id": 1, **answer}, DOWN))
    (found,) = dry_run_tape(file, tape)
    assert (found.outcome, found.reason, found.rules) == (outcome, reason, ["one"])
    assert (found.seq, found.method, found.target) == (1, "tools/call", "x")
    if do == {"delay": 5}:
        assert found.did == ["would delay (seconds: 5.0)"]


def test_a_dry_run_drops_the_oldest_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MAX_SESSIONS", 2)
    several: dict[str, int] = {}
    for name in ("a", "b", "b"):
        assert dry_run._keep(several, name, 1) == 1
    assert list(several) == ["a", "b"]
    dry_run._keep(several, "c", 2)
    assert several == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("said", "kind", "address"),
    [
        ({}, "tape", None),
        ({"type": "stdio"}, "stdio", None),
        ({"transport_type": "http", "peer_address": "10.0.0.1", "other": 1}, "http", "10.0.0.1"),
        ({"transport_type": "http", "peer_address": 5}, "tape", None),
    ],
)
def test_a_dry_run_reads_the_transport_from_the_tape(
    said: Any, kind: str, address: str | None
) -> None:
    found = dry_run._transport(said)
    assert (found.transport_type, found.peer_address) == (kind, address)


async def test_rules_on_access_tokens_apply_to_the_token_claims_on_the_tape(tmp_path: Path) -> None:
    token = TokenPrincipal(
        issuer="https://a.example",
        subject="ann",
        scopes=frozenset({"read"}),
        claims={"email": "ann@a.example"},
        role="staff",
    )
    tape = TapeWriter(tmp_path / "talk")
    async with scene(interceptors=[Recorder(tape)], principal=lambda: token) as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "find"})
        server.reply(await server.method("tools/call"), {"content": []})
        await client.answer_to(call)
    tape.close()
    entries = list(TapeReader(tmp_path / "talk"))
    named = {"scope": "read", "issuer": "https://a.example", "identity": "staff"}
    file = rules(
        tmp_path, {"name": "no", "when": {"tool": "find", **named}, "do": {"block": "never"}}
    )
    results = await asyncio.to_thread(lambda: list(dry_run_tape(file, entries)))
    assert [one.method for one in results if one.outcome == "blocked"] == ["tools/call"]
    assert b"ann@a.example" not in b"".join(one.read_bytes() for one in tmp_path.glob("talk*"))
