"""A gateway as a reverse proxy for many servers, with tokens, rules, limits and an audit log."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.errors import HttpError, RpcError
from fairlead.gateway import Gateway
from fairlead.policy.actions import Audit, RateLimit
from fairlead.policy.rules.ruleset import RuleSet
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    config,
    names,
    program,
    serving,
    until,
)

TOKENS = {"a": "alice", "b": "bob"}


@contextlib.asynccontextmanager
async def gateway_of(*interceptors: Any, **servers: Any) -> AsyncIterator[tuple[Gateway, str]]:
    async with asyncio.timeout(LIMIT * 2), Gateway(interceptors=interceptors) as gateway:
        await gateway.connect(servers or {"one": program("one")})
        async with serving(gateway, verify_token=TOKENS.get) as url:
            await until(lambda: gateway.is_ready)
            yield gateway, url


def client_of(url: str, token: str, version: str = HANDSHAKE) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return MCPClient.connect_http(url, config(version), headers=headers)


async def pid_of(client: MCPClient, tool: str) -> str:
    return str((await client.call_tool(tool))["content"][0]["text"]).split()[1]


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", BOTH)
async def test_tokens_rules_replicas_and_the_audit_log_work_in_one_gateway(
    tmp_path: Path, version: str
) -> None:
    audit = tmp_path / "audit.jsonl"
    rules = RuleSet.of_data(
        {"rules": [{"when": {"tool": "*_secret", "identity": "bob"}, "do": {"block": "not you"}}]}
    )
    servers = {"one": program("one"), "pool": [program("pool"), program("pool")]}
    async with gateway_of(Audit(str(audit)), rules, **servers) as (gateway, url):
        await until(lambda: len(gateway.upstreams.connected()) == 3)
        with pytest.raises(HttpError) as refused:
            async with client_of(url, "wrong", version):
                pass
        assert refused.value.status == 401
        async with client_of(url, "a", version) as alice, client_of(url, "b", version) as bob:
            assert {"one_who", "pool_who"} <= set(await names(alice))
            with pytest.raises(RpcError, match="not you"):
                await bob.call_tool("one_secret")
            assert (await alice.call_tool("one_secret"))["content"]
            pids = {await pid_of(alice, "pool_who") for _ in range(4)}
            # a session always uses the same process of the pool
            assert len(pids) == (2 if version != HANDSHAKE else 1)
            with pytest.raises(RpcError):
                # The request reached the process before the process exited, so it is not retried.
                await alice.call_tool("pool_die")
            assert await pid_of(alice, "pool_who")  # served by the second process of the pool
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        calls = [line for line in lines if line["method"] == "tools/call"]
        decided = {(line.get("identity"), line["target"], line["decision"]) for line in calls}
        assert ("bob", "one_secret", "refused") in decided
        assert ("alice", "one_secret", "passed") in decided


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize(
    ("per", "limited"),
    [
        ("client", [True, True, True, True]),  # all clients of this test have the same address
        ("identity", [True, False, True, True]),
        ("tool", [False, True, True, True]),
        ("session", [True, False, False, True]),
        (["identity", "tool"], [False, False, True, False]),
    ],
)
async def test_rate_limits_count_calls_per_client_identity_tool_or_session(
    per: Any, limited: list[bool]
) -> None:
    async with (
        gateway_of(RateLimit(0.001, 1, per=per)) as (_, url),
        client_of(url, "a") as alice,
        client_of(url, "b") as bob,
        client_of(url, "a") as alice_again,
    ):
        await alice.call_tool("one_who")
        outcome = []
        for client, tool in (
            (alice, "one_secret"),
            (bob, "one_who"),
            (alice_again, "one_who"),
            (bob, "one_secret"),
        ):
            try:
                await client.call_tool(tool)
                outcome.append(False)
            except RpcError as exc:
                outcome.append(exc.data["retryAfter"] > 0)
        assert outcome == limited
