"""Tests of failure policies for interceptors that raise, hang or return invalid responses."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import ConfigError, RpcError
from fairlead.gateway import Gateway
from fairlead.interceptor import (
    Answer,
    Exchange,
    InterceptorBase,
    Proceed,
    hooks_of,
    overrides,
)
from fairlead.policy.actions import Redact
from fairlead.policy.interceptor_failures import FailurePolicy, with_failure_policy
from fairlead.policy.load_interceptor import load_interceptor
from fairlead.wire import Notification
from tests.support.gateway_servers import BOTH, LIMIT, joining, program
from tests.support.raw_relay import ASKED, Client, Scene, Server, scene
from tests.support.single_exchange import Behind, exchange
from tests.support.virtual_time import VirtualTime

SECRET = "hunter2-hunter2"


class Bad:
    """An interceptor that fails in a given way."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.calls = 0

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Any:
        if exchange.method not in ("tools/call", "vendor/ask", "notifications/vendor"):
            return await proceed(exchange)
        self.calls += 1
        match self.how:
            case "raises":
                raise ZeroDivisionError(f"about {SECRET}")
            case "raises after the response":
                await proceed(exchange)
                raise ZeroDivisionError
            case "was cancelled":
                lost = asyncio.ensure_future(asyncio.Event().wait())
                lost.cancel()
                await lost
            case "is cancelled after the response":
                await proceed(exchange)
                raise asyncio.CancelledError
            case "leaves":
                sys.exit(3)
            case "hangs":
                await asyncio.Event().wait()
            case "hangs after the response":
                await proceed(exchange)
                await asyncio.Event().wait()
            case "returns None":
                return None
            case "returns a dictionary":
                return {"content": []}
            case "returns a JSON array":
                return b"[1]"
            case "returns invalid JSON":
                return b"{"
            case "forwards None":
                return await proceed(None)  # type: ignore[arg-type]
            case "forwards another kind of message":
                note = Notification("notifications/x")
                return await proceed(msgspec.structs.replace(exchange, message=note))
        return await proceed(exchange)


WAYS = [
    *("was cancelled", "is cancelled after the response", "leaves"),
    *(
        "raises",
        "raises after the response",
        "hangs",
        "hangs after the response",
        "returns None",
        "returns a dictionary",
    ),
    *(
        "returns a JSON array",
        "returns invalid JSON",
        "forwards None",
        "forwards another kind of message",
    ),
]


async def opened(place: Scene) -> tuple[Client, Server]:
    client = await place.session(ASKED)
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("policy", ["fail_closed", "fail_open", "skip"])
async def test_the_failure_policy_determines_the_outcome_of_a_failing_interceptor(
    how: str, policy: FailurePolicy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    bad = Bad(how)
    guard = with_failure_policy(bad, policy, timeout=0.1, rest=60, name="bad", clock=lambda: now)
    async with scene(interceptors=[guard]) as place:
        client, server = await opened(place)
        # Test a request from the client and a request from the server.
        for end, other, method in (
            (client, server, "tools/call"),
            (server, client, "vendor/ask"),
        ):
            call = end.ask(method, {"name": "x"})
            if policy == "fail_open" or (policy == "skip") or "after the response" in how:
                other.reply(await other.method(method), {"n": 1})
            answer = await end.answer_to(call)
            if policy == "fail_closed":
                assert answer["error"]["message"] == "Interceptor bad failed"
                assert answer["error"]["data"] == {"source": "proxy"}
            else:
                assert answer["result"] == {"n": 1}
        assert bad.calls == (1 if policy == "skip" else 2)
        if policy == "skip":
            now += 61
            call = client.ask("tools/call", {"name": "x"})
            server.reply(await server.method("tools/call"), {"n": 2})
            assert (await client.answer_to(call))["result"] == {"n": 2}
            assert bad.calls == 2, "the time of the skip is over"
    assert "interceptor bad failed on tools/call" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("policy", ["fail_closed", "fail_open"])
async def test_the_failure_policy_also_applies_to_notifications(policy: FailurePolicy) -> None:
    async with scene(interceptors=[with_failure_policy(Bad("raises"), policy)]) as place:
        client, server = await opened(place)
        for end, other in ((client, server), (server, client)):
            end.tell("notifications/vendor", {"n": 1})
            end.tell("notifications/other", {"n": 2})
            heard = [await other.read() for _ in range(2 if policy == "fail_open" else 1)]
            assert heard[-1]["params"] == {"n": 2}


async def test_an_exception_from_proceed_is_not_a_failure_of_the_interceptor() -> None:
    guard = with_failure_policy(Bad("nothing"), "fail_open", timeout=0.2)
    async with scene(interceptors=[guard]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        server.refuse(await server.method("tools/call"), -32123, "error of the server")
        assert (await client.answer_to(call))["error"]["message"] == "error of the server"
        # The time inside `proceed` does not count towards the time limit.
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        waited = asyncio.Event()
        asyncio.get_running_loop().call_later(0.4, waited.set)
        await waited.wait()
        server.reply(request, {"late": True})
        assert (await client.answer_to(call))["result"] == {"late": True}


async def test_the_cancellation_of_a_call_is_not_a_failure_of_the_interceptor() -> None:
    guard = with_failure_policy(Bad("nothing"), "fail_open", timeout=5, name="good")
    async with scene(interceptors=[guard]) as place:
        client, server = await opened(place)
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        client.tell("notifications/cancelled", {"requestId": call})
        stopped = await server.method("notifications/cancelled")
        assert stopped["params"]["requestId"] == request["id"]
        await client.sync()
        assert all(one.get("id") != call for one in client.skipped), (
            "a cancelled request gets no response"
        )


async def test_an_rpc_error_raised_by_an_interceptor_is_not_a_failure() -> None:
    async def refuse(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            raise RpcError(-32044, "no")
        return await proceed(exchange)

    async with scene(interceptors=[with_failure_policy(refuse, "fail_open")]) as place:
        client, _ = await opened(place)
        answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
        assert answer["error"]["code"] == -32044


# User-defined interceptors

CODE = """
import json

class Shout:
    def __init__(self, mark="!"):
        self.mark = mark

    async def __call__(self, exchange, proceed):
        answer = await proceed(exchange)
        if exchange.method != "tools/call":
            return answer
        return json.dumps({**json.loads(bytes(answer)), "shouted": self.mark}).encode()

async def plain(exchange, proceed):
    return await proceed(exchange)

def made(n):
    return Shout("!" * n)

number = 7
def sync(): return lambda exchange, proceed: None
async def one(exchange): ...
def broken(): raise KeyError("x")
"""


@pytest.mark.parametrize("version", BOTH)
async def test_a_user_defined_interceptor_is_loaded_by_its_path(
    tmp_path: Path, version: str
) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    shout = load_interceptor("mine.py:made", {"n": 3}, folder=str(tmp_path))
    async with asyncio.timeout(LIMIT), Gateway(interceptors=[shout]) as gateway:
        await gateway.connect({"one": program("one")})
        async with joining(gateway, version) as client:
            result = await client.call_tool("one_secret", {})
            assert result["shouted"] == "!!!"
            assert result["content"][0]["text"] == "the secret of one"


async def test_an_interceptor_is_loaded_from_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fl_mine_module.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    plain = load_interceptor("fl_mine_module:plain")
    async with scene(interceptors=[plain]) as place:
        client, _ = await opened(place)
        await client.sync()


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("mine.py", None, "module:attribute or path.py:attribute"),
        ("mine.py:no", None, "mine.py has no attribute no"),
        ("other.py:x", None, "other.py does not exist"),
        ("no_such_module_here:x", None, "cannot be imported: ModuleNotFoundError"),
        ("bad.py:x", None, "bad.py cannot be imported: SyntaxError"),
        ("mine.py:number", None, "is not an interceptor"),
        ("mine.py:sync", None, "is not an interceptor"),
        ("mine.py:one", None, "it must accept `exchange` and `proceed`"),
        ("mine.py:broken", None, "cannot be created: KeyError"),
        ("mine.py:made", {"m": 1}, "cannot be created: TypeError"),
        ("mine.py:plain", {"m": 1}, "takes no options"),
    ],
)
def test_the_error_for_an_interceptor_that_cannot_be_loaded_states_the_reason(
    tmp_path: Path, target: str, options: Any, words: str
) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "bad.py").write_text("def")
    with pytest.raises(ConfigError) as wrong:
        load_interceptor(target, options, folder=str(tmp_path))
    assert words in str(wrong.value)


@pytest.mark.parametrize(("seconds", "fails"), [(29.9, False), (30.1, True)])
async def test_the_default_time_limit_of_an_interceptor_is_thirty_seconds(
    virtual_time: VirtualTime, seconds: float, fails: bool
) -> None:
    async def behind(exchange: Exchange) -> Answer:
        await asyncio.sleep(1000)  # time inside `proceed`
        return b"{}"

    async def slow(exchange: Exchange, proceed: Proceed) -> Answer:
        answer = await proceed(exchange)
        await asyncio.sleep(seconds)
        return answer

    one = exchange("tools/call")
    guarded = with_failure_policy(slow, name="slow")
    if fails:
        with pytest.raises(RpcError, match="Interceptor slow failed"):
            await guarded(one, behind)
        assert one.did == ["slow failed"]
    else:
        assert await guarded(one, behind) == b"{}"


async def test_a_failing_interceptor_is_skipped_for_a_minute(virtual_time: VirtualTime) -> None:
    bad = Bad("raises")
    guarded = with_failure_policy(bad, "skip", clock=virtual_time)
    behind = Behind()
    for seconds, calls in ((0, 1), (59.9, 1), (0.2, 2)):
        virtual_time.now += seconds
        assert await guarded(exchange("tools/call"), behind) == b"{}"
        assert bad.calls == calls
    assert len(behind.seen) == 3


def test_an_interceptor_with_a_failure_policy_keeps_its_hooks() -> None:
    guarded = hooks_of(with_failure_policy(Redact()))
    secret = {"note": Raw(b'"the token is ghp_0123456789abcdefghijABCDEFGHIJ012345"')}
    kept = guarded.extra_members(exchange("tools/call", {"name": "t"}), secret)
    assert b"ghp_" not in bytes(kept["note"])
    assert overrides(guarded, InterceptorBase.extra_members)
    assert not overrides(guarded, InterceptorBase.shown)
