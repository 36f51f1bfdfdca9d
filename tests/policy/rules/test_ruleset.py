"""Rules between real peers, in a relay and a gateway, and changes of the rules file."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.hold_desk import HoldDesk
from fairlead.policy.rules import RulesError, RuleSet
from fairlead.policy.rules.gateway_actions import gateway_actions
from fairlead.recording.tape import read_tape
from tests.support.gateway_servers import BOTH, HANDSHAKE, LIMIT, config, program, serving
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene


async def opened(place: Scene) -> tuple[Client, Server]:
    client = await place.session(ASKED)
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


@contextlib.asynccontextmanager
async def ruled(*rules: dict[str, Any], **more: Any) -> AsyncIterator[tuple[Client, Server]]:
    """Connect two peers through interceptors with the given rules."""
    made = RuleSet.of_data({"rules": list(rules)})
    async with scene(interceptors=[made], **more) as place:
        made.attach_to(place.relay)
        yield await opened(place)


async def blocked(client: Client, server: Server, method: str, params: Any) -> bool:
    """Return True if a request is blocked; otherwise answer it at the server."""
    call = client.ask(method, params)
    marker = client.ask("vendor/marker")
    refused = False
    while True:
        request = await server.until(lambda m: "id" in m)
        if request["method"] == "vendor/marker":
            answers = [m for m in client.skipped if m.get("id") == call]
            refused = "error" in (answers[0] if answers else await client.answer_to(call))
            server.reply(request, {})
            await client.answer_to(marker)
            return refused
        server.reply(request, {"content": []})


CALL = {"name": "fs_read", "arguments": {"path": "/etc/passwd", "n": 3, "tags": ["a", "b"]}}


@pytest.mark.covers("GTW-09")
@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"method": "tools/call"}, True),
        ({"method": "tools/*"}, True),
        ({"method": ["prompts/get", "resources/*"]}, False),
        ({"tool": "fs_*"}, True),
        ({"tool": "net_*"}, False),
        ({"target": "fs_read"}, True),
        ({"prompt": "fs_*"}, False),
        ({"resource": "*"}, False),
        ({"kind": "request"}, True),
        ({"kind": ["notification"]}, False),
        ({"direction": "to_server"}, True),
        ({"direction": "server_to_client"}, False),
        ({"server": "raw"}, True),
        ({"server": "other"}, False),
        ({"identity": "ann"}, True),
        ({"identity": {"not": "ann"}}, False),
        ({"identity": {"exists": False}}, False),
        ({"client": "raw"}, True),
        ({"transport": "unix"}, True),
        ({"transport": "http"}, False),
        ({"era": "handshake"}, True),
        ({"era": "stateless"}, False),
        ({"revision": "2025-*"}, True),
        ({"session": {"exists": True}}, False),
        ({"headers": {"x-team": "*"}}, False),
        ({"size": {"greater": 50}}, True),
        ({"size": {"greater": 5000}}, False),
        ({"params": {"arguments.path": "/etc/passwd"}}, True),
        ({"params": {"arguments": {"path": {"matches": "^/etc/"}}}}, True),
        ({"params": {"arguments.path": {"like": "/home/*"}}}, False),
        ({"params": {"arguments.n": 3}}, True),
        ({"params": {"arguments.n": "3"}}, False),
        ({"params": {"arguments.n": True}}, False),
        ({"params": {"arguments.n": [1, 2, 3]}}, True),
        ({"params": {"arguments.n": {"in": [1, 2]}}}, False),
        ({"params": {"arguments.n": {"not_in": [1, 2]}}}, True),
        ({"params": {"arguments.n": {"greater": 2, "less": 4}}}, True),
        ({"params": {"arguments.n": {"at_least": 3, "at_most": 3}}}, True),
        ({"params": {"arguments.n": {"greater": 3}}}, False),
        ({"params": {"arguments.n": {"greater": "2"}}}, False),
        ({"params": {"arguments.m": {"exists": False}}}, True),
        ({"params": {"arguments.m": {"not": 1}}}, True),
        ({"params": {"arguments.tags.0": "a"}}, True),
        ({"params": {"arguments.tags.*": "b"}}, True),
        ({"params": {"arguments.tags.9": "b"}}, False),
        ({"params": {"arguments.tags": {"contains": "b"}}}, True),
        ({"params": {"arguments.path": {"contains": "passwd"}}}, True),
        ({"params": {"arguments.*": 3}}, True),
        ({"params": {"name": {"not_like": "fs_*"}}}, False),
        ({"params": {"name": {"not_matches": "^net"}}}, True),
        ({"tool": "fs_*", "identity": "bob"}, False),
        ({"all": [{"tool": "fs_*"}, {"identity": "ann"}]}, True),
        ({"any": [{"tool": "net_*"}, {"identity": "ann"}]}, True),
        ({"any": [{"tool": "net_*"}, {"identity": "bob"}]}, False),
        ({"not": {"tool": "net_*"}}, True),
        ({"not": {"any": [{"tool": "fs_*"}, {"identity": "bob"}]}}, False),
        ({"not": {"all": [{"tool": "fs_*"}, {"identity": "bob"}]}}, True),
        ([{"tool": "fs_*"}, {"not": {"identity": "bob"}}], True),
    ],
)
async def test_a_rule_applies_only_to_messages_that_match_its_condition(
    when: Any, holds: bool
) -> None:
    rule = {"when": {"all": [{"method": "tools/call"}, when]}, "do": "block"}
    async with ruled(rule, principal=lambda: "ann") as (client, server):
        assert await blocked(client, server, "tools/call", CALL) is holds
        assert not await blocked(client, server, "tools/list", {})


async def test_conditions_on_headers_apply_over_http() -> None:
    rules = RuleSet.of_data(
        {
            "rules": [
                {
                    "when": {"method": "tools/call", "headers": {"X-Team": ["core", "a*"]}},
                    "do": {"mock": "hello, team"},
                }
            ]
        }
    )
    relay = Relay(program("one"), interceptors=[rules])
    async with asyncio.timeout(LIMIT), serving(relay) as url:
        for team, text in (("core", "hello, team"), ("beta", "the secret of one")):
            for version in BOTH:
                headers = {"X-Team": team}
                made = MCPClient.connect_http(url, config(version), headers=headers)
                async with made as client:
                    result = await client.call_tool("secret", {})
                    assert result["content"][0]["text"] == text


async def test_conditions_on_sessions_and_transports_match() -> None:
    session = {"when": {"tool": "*", "session": {"exists": True}}, "do": {"mock": "a session"}}
    http = {"when": {"tool": "*", "transport": "http"}, "do": {"mock": "http"}}
    relay = Relay(program("one"), interceptors=[RuleSet.of_data({"rules": [session, http]})])
    async with asyncio.timeout(LIMIT), serving(relay) as url:
        for version, text in ((HANDSHAKE, "a session"), ("auto", "http")):
            async with MCPClient.connect_http(url, config(version)) as client:
                result = await client.call_tool("secret", {})
                assert result["content"][0]["text"] == text


async def test_rules_apply_to_both_directions_and_notifications() -> None:
    down = {"when": {"direction": "to_client", "method": "vendor/ask"}, "do": "block"}
    drop = {"when": {"kind": "notification", "params": {"n": {"less": 2}}}, "do": "block"}
    async with ruled(down, drop) as (client, server):
        server.ask("vendor/ask", None, "s1")
        assert "Not allowed" in (await server.answer_to("s1"))["error"]["message"]
        for end, other in ((client, server), (server, client)):
            end.tell("notifications/vendor", {"n": 1})
            end.tell("notifications/vendor", {"n": 2})
            assert (await other.read())["params"] == {"n": 2}


@pytest.mark.covers("GTW-09")
async def test_priority_and_stop_determine_which_rules_apply() -> None:
    async with ruled(
        {"name": "all", "when": {"tool": "*"}, "do": "block"},
        {"name": "but", "priority": 1, "when": {"tool": "fs_*"}, "do": "allow"},
        {"name": "never", "priority": 2, "when": {"tool": "fs_delete"}, "do": "block"},
    ) as (client, server):
        assert await blocked(client, server, "tools/call", {"name": "net"})
        assert not await blocked(client, server, "tools/call", {"name": "fs_read"})
        assert await blocked(client, server, "tools/call", {"name": "fs_delete"})


async def test_a_rule_gets_the_message_as_changed_by_earlier_rules() -> None:
    async with ruled(
        {"priority": 3, "do": {"rename": {"names": {"old": "new"}}}},
        {"priority": 2, "when": {"tool": "old"}, "do": {"inject": {"arguments": {"n": 7}}}},
        {"priority": 1, "when": {"params": {"arguments.n": 7}}, "do": {"mock": "seven"}},
    ) as (client, _):
        answer = await client.answer_to(client.ask("tools/call", {"name": "new"}))
        assert answer["result"]["content"][0]["text"] == "seven"


async def test_rules_about_responses_change_or_block_responses() -> None:
    async with ruled(
        {
            "when": {"method": "tools/call", "result": {"content.*.text": {"matches": "bomb"}}},
            "do": {"block": "not this answer"},
        },
        {"when": {"kind": "error", "error": {"code": -32001}}, "do": {"mock": "never mind"}},
        {"when": {"kind": "response", "tool": "quiet"}, "do": {"mock": {"result": {"n": 0}}}},
    ) as (client, server):

        async def call(name: str, text: str | None) -> Any:
            asked = client.ask("tools/call", {"name": name})
            request = await server.method("tools/call")
            if text is None:
                server.refuse(request, -32001, "no")
            else:
                server.reply(request, {"content": [{"type": "text", "text": text}]})
            return await client.answer_to(asked)

        assert (await call("x", "a bomb"))["error"]["message"] == "not this answer"
        assert (await call("x", "a flower"))["result"]["content"][0]["text"] == "a flower"
        assert (await call("x", None))["result"]["content"][0]["text"] == "never mind"
        assert (await call("quiet", "a flower"))["result"] == {"n": 0}


async def test_a_schema_check_in_a_rule_for_a_tool_also_receives_tool_lists() -> None:
    schema = {"type": "object", "required": ["n"]}
    async with ruled({"when": {"tool": "x"}, "do": "check"}) as (client, server):
        assert not await blocked(client, server, "tools/call", {"name": "x"})
        listing = client.ask("tools/list")
        tools = [{"name": name, "inputSchema": schema} for name in "xy"]
        server.reply(await server.method("tools/list"), {"tools": tools})
        await client.answer_to(listing)
        assert await blocked(client, server, "tools/call", {"name": "x"})
        assert not await blocked(client, server, "tools/call", {"name": "y"}), (
            "the rule applies only to tool x"
        )


@pytest.mark.covers("GTW-06", "GTW-09")
@pytest.mark.parametrize("version", BOTH)
async def test_rules_of_a_gateway_distinguish_servers_over_http(version: str) -> None:
    rules = RuleSet.of_data(
        {
            "rules": [
                {"when": {"server": "one", "method": "tools/call"}, "do": {"block": "not one"}},
                {"when": {"server": "two", "method": "resources/read"}, "do": {"block": "nor two"}},
                {
                    "when": {"server": "two", "method": "notifications/message"},
                    "do": {"redact": {"patterns": ["swordfish"]}},
                },
            ]
        }
    )
    heard: asyncio.Queue[str] = asyncio.Queue()

    def log(level: str, data: Any, logger: str | None) -> None:
        heard.put_nowait(str(data))

    gateway = Gateway(interceptors=[rules])
    rules.attach_to(gateway)
    async with asyncio.timeout(LIMIT), gateway, serving(gateway) as url:
        await gateway.connect({"one": program("one"), "two": program("two")})
        async with MCPClient.connect_http(url, config(version), on_log=log) as client:
            with pytest.raises(RpcError, match="not one"):
                await client.call_tool("one_secret", {})
            result = await client.call_tool("two_secret", {})
            assert result["content"][0]["text"] == "the secret of two"
            assert await client.read_resource("one://fixed")
            with pytest.raises(RpcError, match="nor two"):
                await client.read_resource("two://fixed")
            if version == HANDSHAKE:  # the stateless era sends logs only if they are requested
                await client.set_log_level("info")
                await client.call_tool("two_speak", {"text": "swordfish!"})
                assert await heard.get() == "[REDACTED]!"
        async with MCPClient.connect_http(f"{url}/one", config(version)) as client:
            with pytest.raises(RpcError, match="not one"):
                await client.call_tool("secret", {})


async def test_user_defined_actions_can_be_used_in_rules() -> None:
    class Holding:
        def __init__(self, desk: list[str], seconds: float = 1.0) -> None:
            self._desk, self._seconds = desk, seconds

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            self._desk.append(f"{exchange.target} {self._seconds}")
            return await proceed(exchange)

    desk: list[str] = []

    def hold(seconds: float = 1.0) -> Interceptor:
        return Holding(desk, seconds)

    data = {"rules": [{"when": {"tool": "x"}, "do": {"pause": 3}}]}
    rules = RuleSet.of_data(data, actions={"pause": hold})
    async with scene(interceptors=[rules]) as place:
        client, server = await opened(place)
        assert not await blocked(client, server, "tools/call", {"name": "x"})
    assert desk == ["x 3.0"]


async def test_rules_can_hold_messages_at_a_desk_and_record_them(tmp_path: Path) -> None:
    desk = HoldDesk()
    data = {
        "rules": [
            {"when": {"tool": "x"}, "do": {"record": str(tmp_path / "some"), "pause": True}},
            {"when": {"method": "tools/call"}, "do": "allow"},
        ]
    }
    rules = RuleSet.of_data(data, actions=gateway_actions(desk))
    async with scene(interceptors=[rules]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        async with asyncio.timeout(LIMIT):
            held = await desk.wait()
        assert (held.method, held.target) == ("tools/call", "x")
        desk.block(held.id, "better not")
        assert (await client.answer_to(call))["error"]["message"] == "better not"
        assert not await blocked(client, server, "tools/call", {"name": "y"})
    rules.close()
    taped = [json.loads(bytes(entry.message)) for entry in read_tape(tmp_path / "some")]
    assert [message.get("method", "answer") for message in taped] == ["tools/call", "answer"]
    with pytest.raises(RulesError, match="messages can be held only in a gateway"):
        RuleSet.of_data({"rules": [{"do": "pause"}]}, actions=gateway_actions())


async def test_a_failing_action_is_handled_by_the_policy_of_its_rule(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("async def bad(exchange, proceed):\n    raise KeyError\n")
    code = {"use": str(tmp_path / "bad.py") + ":bad"}
    async with ruled(
        {"when": {"tool": "open"}, "do": code, "on_failure": "fail_open"},
        {"when": {"tool": "closed"}, "do": code},
    ) as (client, server):
        assert not await blocked(client, server, "tools/call", {"name": "open"})
        assert await blocked(client, server, "tools/call", {"name": "closed"})


async def test_a_delay_times_out_only_if_its_rule_has_a_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.policy.rules.build_actions.LIMIT", 0.01)
    slow = {"when": {"tool": "x"}, "do": {"delay": 0.1}, "on_failure": "fail_closed"}
    short = {"when": {"tool": "y"}, "do": {"delay": 5}, "timeout": 0.05}
    async with ruled(slow, short) as (client, server):
        call = client.ask("tools/call", {"name": "x"})
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(call)
        answer = await client.answer_to(client.ask("tools/call", {"name": "y"}))
        assert answer["error"]["message"] == "Interceptor Delay failed"


# Changes of the rules file

RATE = (
    '[[rules]]\nname = "rate"\nwhen = { tool = "*" }\ndo = { rate = { rate = 0.001, burst = 2 } }\n'
)
BLOCK = '[[rules]]\nname = "block"\npriority = 9\nwhen = { tool = "x" }\ndo = "block"\n'


def replace(file: Path, text: str) -> None:
    """Replace a file as editors do, with a new modification time."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, file)


@pytest.mark.covers("GTW-09")
async def test_a_changed_rule_file_applies_to_the_next_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RATE)
    rules = RuleSet.of_file(file, interval=0)
    async with scene(interceptors=[rules]) as place:
        client, server = await opened(place)
        assert not await blocked(client, server, "tools/call", {"name": "y"})
        replace(file, BLOCK + RATE)
        assert await blocked(client, server, "tools/call", {"name": "x"})
        assert not await blocked(client, server, "tools/call", {"name": "y"}), "the second token"
        replace(file, "[[rules]\n")
        assert await blocked(client, server, "tools/call", {"name": "x"}), "mistakes change nothing"
        assert "the rules were not reloaded" in caplog.text
        assert f"{file}:1:8" in caplog.text
        os.remove(file)
        assert await blocked(client, server, "tools/call", {"name": "x"})
        replace(file, RATE.replace('tool = "*"', 'tool = "y"'))
        assert not await blocked(client, server, "tools/call", {"name": "x"})
        assert await blocked(client, server, "tools/call", {"name": "y"}), "no token was restored"
        replace(file, RATE.replace("burst = 2", "burst = 3"))
        assert not await blocked(client, server, "tools/call", {"name": "y"}), "another limit"


async def test_removing_a_rule_closes_its_audit_file(tmp_path: Path) -> None:
    file, audit = tmp_path / "rules.toml", tmp_path / "audit.jsonl"
    file.write_text('[[rules]]\nname = "a"\ndo = { audit = "audit.jsonl" }\n')
    rules = RuleSet.of_file(file)
    bare: Any = rules.rules[0].actions[0].bare
    assert audit.exists()
    replace(file, "")
    rules.reload()
    assert rules.rules == ()
    assert bare._file is None
    audit.unlink()
    replace(file, '[[rules]]\ndo = { audit = "audit.jsonl", nothing-like-this = 1 }\n')
    with pytest.raises(RulesError, match="unknown action"):
        rules.reload()
    assert not audit.exists(), "a file with mistakes has no effect"


def test_two_hundred_rules_without_a_match_take_at_most_20_microseconds() -> None:
    """The limit of the assertion includes a margin for a busy machine."""
    import time

    kinds: list[dict[str, Any]] = [
        {"tool": "other_{n}"},
        {"tool": "other_{n}_*", "identity": "ann"},
        {"method": "resources/read", "params": {"uri": {"matches": "^file:///{n}"}}},
        {"prompt": "p{n}", "any": [{"identity": "ann"}, {"headers": {"x-a": "b"}}]},
        {"method": "tools/list", "direction": "to_client"},
    ]
    data = {
        "rules": [
            {"when": json.loads(json.dumps(kinds[n % 5]).replace("{n}", str(n))), "do": "block"}
            for n in range(200)
        ]
    }
    rules = RuleSet.of_data(data)
    best = asyncio.run(_time(rules, time.perf_counter))
    assert best < 20e-6, f"{best * 1e6:.1f} µs"


async def _time(rules: RuleSet, clock: Any) -> float:
    """Return the seconds that rules add to one message, the minimum of several runs."""
    kept: list[Exchange] = []

    async def keep(exchange: Exchange, proceed: Proceed) -> Answer:
        kept.append(exchange)
        return await proceed(exchange)

    async with scene(interceptors=[keep]) as place:
        client, server = await opened(place)
        await blocked(client, server, "tools/call", CALL)
    exchange = next(one for one in kept if one.method == "tools/call")

    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    bare, ruled = [], []
    for _ in range(20):
        for found, call in ((bare, None), (ruled, rules)):
            began = clock()
            for _ in range(200):
                await (proceed(exchange) if call is None else call(exchange, proceed))
            found.append((clock() - began) / 200)
    return float(min(ruled) - min(bare))


def test_a_rule_set_has_no_rules_by_default() -> None:
    assert RuleSet().rules == ()
