"""What a journal keeps of calls that pass: nothing longer than it was told, nothing hidden."""

import pytest
from msgspec import UNSET
from rawends import scene

from fairlead.gateway.interceptors.journaling import Journaling
from fairlead.gateway.journal import Journal, Overheard, Record
from fairlead.protocol.envelope import Direction


async def passed(journal: Journal, method: str, params: dict[str, object]) -> Record:
    """The record of one request."""
    async with scene(interceptors=[Journaling(journal)]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask(method, params)
        server.reply(await server.method(method), {"said": "x" * 50})
        await client.answer_to(call)
    (record,) = [one for one in journal.records() if one.method == method]
    return record


@pytest.mark.parametrize("longest", [0, 30, 1000])
async def test_what_is_longer_than_it_may_be_is_not_kept(longest: int) -> None:
    journal = Journal(longest=longest)
    record = await passed(journal, "tools/call", {"name": "x", "arguments": {"text": "y" * 100}})
    kept = longest == 1000
    assert (record.params is not UNSET, record.result is not UNSET) == (kept, kept)
    assert record.size > 150
    assert record.target == "x"


async def test_a_name_beside_its_uri_does_not_hide_a_resource() -> None:
    params: dict[str, object] = {"uri": "file:///secret", "name": "harmless"}
    assert (await passed(Journal(), "resources/read", params)).target == "file:///secret"
    journal = Journal()
    line = b'{"id":1,"method":"resources/read","params":{"uri":"file:///x","name":"y"}}'
    Overheard(journal).hear(line, Direction.CLIENT_TO_SERVER)
    assert journal.records()[0].target == "file:///x"
