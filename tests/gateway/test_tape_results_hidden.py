"""Secrets that do not stand in a message alone, kept from tapes."""

from pathlib import Path

import pytest
from rawends import scene

from fairlead.gateway.interceptors.recording import Recorder
from fairlead.gateway.tape import TapeWriter
from fairlead.interceptor import After, Exchange, TwoHalves
from fairlead.observe.redactor import Redactor


@pytest.mark.parametrize(
    "redactor", [Redactor(names=["result"]), Redactor(patterns=["^ok.*"]), Redactor(longest=3)]
)
async def test_what_is_hidden_by_the_names_around_it_stays_hidden(
    redactor: Redactor, tmp_path: Path
) -> None:
    with TapeWriter(tmp_path / "tape", redactor=redactor) as writer:
        async with scene(interceptors=[Recorder(writer)]) as place:
            client = await place.session()
            server = await place.server()
            call = client.ask("tools/call", {"name": "x", "arguments": {}})
            server.reply(await server.method("tools/call"), {"said": "ok, so be it"})
            assert (await client.answer_to(call))["result"] == {"said": "ok, so be it"}
        lines = writer.path.read_text()
    assert '"tools/call"' in lines or "too… (10 characters)" in lines
    assert "so be it" not in lines


class Fails(TwoHalves):
    """Says too much about it."""

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.method == "tools/call":
            raise ValueError("no answer with password=hunter22")
        return exchange, None


async def test_what_interceptors_say_is_looked_at_too(tmp_path: Path) -> None:
    with TapeWriter(tmp_path / "tape") as writer:
        async with scene(interceptors=[Recorder(writer), Fails()]) as place:
            client = await place.session()
            await place.server()
            answer = await client.answer_to(client.ask("tools/call", {"name": "x"}))
            assert answer["error"]["message"] == "Internal error"
        lines = writer.path.read_text()
    assert "failed: ValueError" in lines
    assert "hunter22" not in lines
