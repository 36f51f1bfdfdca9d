"""Floods of messages, log lines and output, which must be limited in queues and storage."""

import asyncio
import contextlib
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPServer
from fairlead.client.mcp_transport.notification_queue import NotificationQueue
from fairlead.errors import ChannelClosed
from fairlead.gateway import Gateway
from fairlead.gateway.search.search_index import ToolSearchIndex
from fairlead.limits import (
    LOG_LINES,
    LOG_SEARCHED,
    LOG_SECRETS,
    LOG_TEXT,
    QUEUED_NOTIFICATION_BYTES,
    STDERR_LINES,
    WRITE_QUEUE,
    all_limits,
)
from fairlead.manager import MCPManager
from fairlead.observe.log_filter import ABOUT, redacted_logger
from fairlead.observe.metrics import Metrics
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.transport.memory import memory_pair
from fairlead.transport.stdio.child_process import spawn
from fairlead.upstream.connection.notification_outbox import PeerOutbox
from fairlead.wire import Notification, to_json
from tests.support.gateway_servers import LIMIT, until
from tests.support.scripted_stdio_server import heard, program

QUICK = 0.25  # seconds of processor time


def large(count: int, size: int) -> list[Notification]:
    return [Notification("x" * size) for _ in range(count)]


def test_queued_notifications_are_limited_in_bytes_including_method_names() -> None:
    mailbox = NotificationQueue()
    for note in large(90, 1 << 20):
        mailbox.put(note)
    assert mailbox.bytes <= QUEUED_NOTIFICATION_BYTES.value
    assert mailbox.dropped == 90 - len(mailbox.items)


async def test_unread_notifications_are_limited_in_bytes() -> None:
    left, right = memory_pair()
    left.pause_writing()
    outbox = PeerOutbox(Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)))
    for note in large(90, 1 << 20):
        outbox.put(note)
    await asyncio.sleep(0)
    assert outbox.bytes <= QUEUED_NOTIFICATION_BYTES.value
    outbox.close()
    await left.close()
    await right.close()


async def test_a_server_pauses_reading_requests_within_a_chunk_if_responses_are_unread() -> None:
    """All requests may arrive in one chunk, and responses may be a thousand times longer."""
    server = MCPServer("s", page_size=1000)
    for n in range(200):
        server.tool(name=f"tool_{n}", description="d" * 1000)(lambda: "x")
    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    frames = [{"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}]
    frames.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
    frames += [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(1, 1001)]
    hits = WRITE_QUEUE.hits
    left.write(b"".join(to_json(frame) + b"\n" for frame in frames))
    await until(lambda: WRITE_QUEUE.hits > hits)
    held = right._held
    assert held
    answers: list[Any] = []
    reading = asyncio.create_task(left.run(answers.append))
    await until(lambda: len(answers) == 1001)
    await peer.close()
    await left.close()
    await reading


async def test_only_part_of_a_flood_of_stderr_lines_is_forwarded() -> None:
    lines: list[str] = []
    source = "import sys\nfor n in range(20000): print('line', n, file=sys.stderr)"
    async with asyncio.timeout(LIMIT):
        channel = await spawn([sys.executable, "-c", source], on_stderr=lines.append)
        with contextlib.suppress(ChannelClosed):
            await channel.run(lambda _: None)
        await until(lambda: channel.stderr and channel.stderr[-1] == "line 19999")
        await channel.close()
    assert STDERR_LINES.value <= len(lines) <= 20 * STDERR_LINES.value
    assert lines[0] == "line 0"


STORM = """
CAPABILITIES = {"tools": {"listChanged": True}}
import threading

def storm():
    while True:
        tell("notifications/tools/list_changed", {})
        time.sleep(0.001)

threading.Thread(target=storm, daemon=True).start()
for request in requests():
    if request["method"] == "tools/list":
        complete(request, tools=[{"name": "one", "inputSchema": {"type": "object"}}])
    elif request["method"] == "tools/call":
        complete(request, content=text("called"))
    elif "id" in request:
        refuse(request)
"""


@pytest.mark.parametrize("kind", ["manager", "gateway"])
async def test_constant_change_notifications_cause_a_limited_number_of_list_requests(
    tmp_path: Path, kind: str
) -> None:
    command, *arguments = program(tmp_path, STORM, stateless=False)
    entry = {"s": {"command": command, "args": arguments}}
    async with asyncio.timeout(LIMIT):
        made: Any = MCPManager() if kind == "manager" else Gateway()
        async with made:
            await (made.connect_servers if kind == "manager" else made.connect)(entry)
            # `Gateway.connect` does not wait for the server
            await until((tmp_path / "log").exists)
            began = time.monotonic()
            await until(lambda: len(heard(tmp_path, "tools/list")) >= 4)
            await until(lambda: time.monotonic() - began > 2.0)
            assert len(heard(tmp_path, "tools/list")) < 40


def test_a_tool_search_for_many_unknown_words_is_fast() -> None:
    tools = [
        (f"tool_{n}", Raw(to_json({"name": "t", "description": f"word{n:x} " * 50})))
        for n in range(5000)
    ]
    search = ToolSearchIndex(lambda: tools, lambda: 1)
    search.search("warm up")
    query = " ".join(f"q{n:x}z" for n in range(600))
    began = time.process_time()
    search.search(query)
    assert time.process_time() - began < QUICK
    assert [found.name for found in search.search("word13")][:1] == ["tool_19"]


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.INFO)
    found = redacted_logger("fairlead.floods")
    for one in list(found.filters):
        found.removeFilter(one)
    return redacted_logger("fairlead.floods")


def test_long_log_lines_are_truncated(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logger.warning("said %s", "x" * 1_000_000)
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError:
        logger.exception("failed")
    assert all(len(line) < 6 * LOG_TEXT.value for line in caplog.text.splitlines())
    assert "(1000005 characters)" in caplog.text


def test_repeated_similar_log_lines_are_counted_instead_of_written(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    hits = LOG_LINES.hits
    for n in range(5000):
        logger.warning("refused %d", n)
    logger.warning("another kind")
    assert LOG_LINES.value <= len(caplog.records) <= 2 * LOG_LINES.value
    assert caplog.records[-1].getMessage() == "another kind"
    assert LOG_LINES.hits - hits >= 5000 - 2 * LOG_LINES.value


def test_a_log_line_about_a_request_with_many_secrets_is_withheld(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    few = to_json({"token": ["secret-one"]})
    many = to_json({"token": [f"secret-{n}" for n in range(LOG_SECRETS.value + 1)]})
    logger.warning("value: secret-one", extra={ABOUT: Raw(few)})
    logger.warning("value: secret-7", extra={ABOUT: Raw(many)})
    assert [record.getMessage() for record in caplog.records] == [
        "value: [REDACTED]",
        "(withheld: the request has too many values or too long secrets to search for)",
    ]


def test_a_log_line_about_a_request_with_many_values_is_withheld(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    hits = LOG_SEARCHED.hits
    for about in (list(range(LOG_SEARCHED.value + 1)), [[{"a": n}] for n in range(500)]):
        logger.warning("value: values", extra={ABOUT: Raw(to_json({"arguments": about}))})
    logger.warning("value: few", extra={ABOUT: Raw(to_json({"arguments": [1, 2]}))})
    told = [record.getMessage() for record in caplog.records]
    assert [text.startswith("(withheld") for text in told] == [True, True, False]
    assert LOG_SEARCHED.hits == hits + 2


def test_metrics_truncate_long_names_and_report_the_hits_of_limits() -> None:
    metrics = Metrics()
    for n in range(50):
        metrics.ended(metrics.began("up", "tools/call", str(n) + "x" * 1_000_000), 0.1)
    assert sum(len(key[2]) for key in metrics._known) < 1_000_000
    text = metrics.prometheus()
    assert len(text) < 200_000
    for limit in all_limits():
        assert f'fairlead_limit_hits_total{{limit="{limit.name}"}} {limit.hits}' in text
    assert metrics.snapshot()["limits"].keys() <= {limit.name for limit in all_limits()}


async def test_dropping_a_cached_result_releases_the_size_of_its_request() -> None:
    from fairlead.policy.actions import Cache

    cache = Cache(max_entries=1000, max_bytes=10_000)
    cache._kept["resources/read", b"x" * 9_000, None] = 0.0, b"{}"
    cache._size += 9_002
    cache._drop(("resources/read", b"x" * 9_000, None))
    assert cache._size == 0


async def test_huge_notifications_do_not_close_the_connection(tmp_path: Path) -> None:
    source = """
    for n in range(30):
        tell("x" * 1_000_000, {})
    for request in requests():
        if "id" in request:
            complete(request, tools=[])
    """
    command = program(tmp_path, source, stateless=False)
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command) as client:
        assert await client.list_tools() == []
