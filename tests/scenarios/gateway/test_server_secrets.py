"""Redaction of server secrets in the journal and hold desk of a gateway."""

import asyncio
import sys

import msgspec
import pytest

from fairlead import MCPClient
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.policy.actions.pause import Pause
from fairlead.policy.hold_desk import HoldDesk
from fairlead.recording.journal import Journal
from fairlead.redaction.redact_messages import Redactor
from tests.support.gateway_servers import BOTH, LIMIT, config, until

SECRET = "zebra-quartz-77"
SERVER = """
import os
from fairlead import MCPServer

server = MCPServer("shop")

@server.tool()
def key(text: str) -> str:
    return f"{text} {os.environ['SHOP_API_KEY']}"

server.run()
"""


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("version", BOTH)
async def test_the_journal_and_the_hold_desk_do_not_show_secrets(version: str) -> None:
    redactor = Redactor()
    journal, desk = Journal(redactor=redactor), HoldDesk(redactor=redactor)
    observing = Observability(journal=journal, desk=desk, redactor=redactor)
    entry = {"command": sys.executable, "args": ["-c", SERVER], "env": {"SHOP_API_KEY": SECRET}}
    async with (
        asyncio.timeout(LIMIT),
        Gateway(
            observing=observing,
            interceptors=[Pause(desk, lambda one: one.method == "tools/call")],
        ) as gateway,
    ):
        await gateway.connect({"shop": entry})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_inprocess(gateway, config(version)) as client:
            call = asyncio.ensure_future(client.call("shop_key", {"text": f"key: {SECRET}"}))
            await until(desk.list)
            (held,) = desk.list()
            seen = msgspec.json.encode(held).decode()
            assert "key: [REDACTED]" in seen
            assert SECRET not in seen
            desk.resume(held.id)
            assert (await call).text == f"key: {SECRET} {SECRET}"
    calls = [one for one in journal.records() if one.method == "tools/call"]
    shown = msgspec.json.encode(calls).decode()
    assert "key: [REDACTED] [REDACTED]" in shown
    assert SECRET not in shown
