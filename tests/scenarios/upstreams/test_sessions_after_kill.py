"""Sessions in a file after `kill -9` of the gateway, for servers of every era."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_user import Person, person
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import ENDPOINTS, raw_session, running_file, write_file

__all__ = ["person"]

REVISIONS = ("2025-11-25", "2025-06-18")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize("kind", ["two-eras", "handshake-only"])
async def test_a_session_continues_after_the_gateway_was_killed(
    tmp_path: Path, person: Person, endpoint: str, version: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.two_eras("notes") if kind == "two-eras" else log.entry("notes")
    file = write_file(tmp_path, {"notes": entry})
    options: dict[str, Any] = {"endpoint": endpoint, "version": version}
    session, pids = None, []
    for _ in range(2):
        with running_file(person, file, "--sessions", str(tmp_path / "sessions.db")) as gateway:
            async with (
                asyncio.timeout(LIMIT),
                raw_session(
                    gateway.url, "notes", {"elicitation": {}}, session=session, **options
                ) as client,
            ):
                pids.append(await client.pid())
                assert session in (None, client.id)
                session = client.id
                [opening] = log.received("initialize", pid=pids[-1])
                assert opening.params["protocolVersion"] == version
                assert set(opening.params["capabilities"]) == {"elicitation"}
            gateway.process.kill()
            gateway.process.wait(LIMIT)
    assert len(set(pids)) == 2
