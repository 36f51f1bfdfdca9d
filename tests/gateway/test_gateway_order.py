"""What several servers have belongs to the one that is configured first, whoever comes first."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from fleet import BOTH, joining, program, until

from fairlead.gateway import Gateway
from fairlead.gateway.catalog import Kind

NOTE = "shared://note"


async def text(client: Any) -> str:
    return str((await client.read_resource(NOTE, cache=False))["contents"][0]["text"])


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", ["red", "blue"])
async def test_the_order_of_configuration_decides_whose_a_resource_is(
    version: str, first: str
) -> None:
    second = "blue" if first == "red" else "red"
    async with Gateway() as gateway, joining(gateway, version) as client:
        for name in (second, first):
            await gateway.connect({name: program(name)})
            await until(lambda: gateway.is_ready)
        gateway.arrange([first, second])
        assert await text(client) == f"note of {first}"
        assert list(gateway.members) == [first, second]
        await gateway.disconnect(first)
        assert await text(client) == f"note of {second}"
        await gateway.connect({first: program(first)})
        await until(lambda: gateway.is_ready)
        assert await text(client) == f"note of {first}"


@pytest.mark.parametrize("slow", ["red", "blue"])
async def test_who_starts_slowly_does_not_lose_what_is_its_own(tmp_path: Path, slow: str) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    entry = program(slow)
    wait = f'read line < {gate}; exec "$0" "$@"'
    gated = {"command": "sh", "args": ["-c", wait, entry["command"], *entry["args"]]}
    entries = {name: gated if name == slow else program(name) for name in ("red", "blue")}
    async with Gateway(deadline=20.0) as gateway, joining(gateway) as client:
        await gateway.connect(entries)
        await until(lambda: any(member.listed.is_set() for member in gateway.members.values()))
        reading = asyncio.ensure_future(text(client))
        await asyncio.to_thread(gate.write_text, "go\n")
        async with asyncio.timeout(20):
            assert await reading == "note of red"  # which is the first of the two


async def test_an_order_that_is_the_same_changes_nothing() -> None:
    async with Gateway() as gateway:
        await gateway.connect({"red": program("red"), "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        before = [gateway.catalog.version(kind) for kind in Kind]
        gateway.arrange(["red", "blue"])
        gateway.arrange(["red", "others", "blue"])
        assert [gateway.catalog.version(kind) for kind in Kind] == before
