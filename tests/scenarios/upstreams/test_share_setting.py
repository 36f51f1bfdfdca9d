"""The setting `share` of a gateway ("all", "alike", "session") and of one server."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    HANDSHAKE,
    STATELESS,
    connect,
    running_file,
    write_file,
)

__all__ = ["person"]

places = pytest.mark.parametrize("place", ["file", "server"])


def shared_file(
    folder: Path, log: ServerLog, place: str, share: str, notes: dict[str, Any] | None = None
) -> Path:
    """Write a file with the servers `notes` and `plain`; `share` is set for all or for `notes`."""
    setting = {"share": share}
    entry = notes or log.entry("notes")
    return write_file(
        folder,
        {
            "notes": {**entry, **(setting if place == "server" else {})},
            "plain": log.entry("plain"),
        },
        clients=["alice", "bob"],
        **(setting if place == "file" else {}),
    )


# Clients with different capabilities, revisions and tokens.
KINDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((), HANDSHAKE, "alice"),
    (("elicitation",), HANDSHAKE, "alice"),
    (("elicitation",), HANDSHAKE, "bob"),
    (("sampling", "roots"), HANDSHAKE, "bob"),
    ((), STATELESS, "alice"),
    (("elicitation",), STATELESS, "bob"),
)


@places
@pytest.mark.parametrize("eras", ["handshake", "stateless", "both"])
async def test_the_setting_share_all_uses_one_process_for_all_clients_eras_and_principals(
    tmp_path: Path, person: Person, place: str, eras: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.two_eras("notes") if eras == "both" else log.entry("notes", eras=[eras])
    file = shared_file(tmp_path, log, place, "all", entry)
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(
                    connect(gateway.url, "notes", *declares, version=version, token=token)
                )
                for declares, version, token in KINDS
            ]
            pids = [await client.pid() for client in clients]
            pids += await asyncio.gather(*(client.pid() for client in clients))
            await log.quiet()
            assert set(pids) == set(log.started("notes"))
            assert len(log.started("notes")) == 1


@places
async def test_the_setting_share_alike_uses_one_process_for_equal_capabilities_and_principals(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    with running_file(person, shared_file(tmp_path, log, place, "alike")) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:

            async def pid_of(*declares: str, token: str) -> int:
                client = await stack.enter_async_context(
                    connect(gateway.url, "notes", *declares, token=token)
                )
                return await client.pid()

            alice = [await pid_of("elicitation", token="alice") for _ in range(3)]
            bob = [await pid_of("elicitation", token="bob") for _ in range(3)]
            other = [await pid_of("sampling", token="alice") for _ in range(3)]
            assert [len(set(pids)) for pids in (alice, bob, other)] == [1, 1, 1]
            assert len({*alice, *bob, *other}) == 3


@places
async def test_the_setting_share_session_uses_one_process_for_each_session(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    with running_file(person, shared_file(tmp_path, log, place, "session")) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:

            async def pid_of(server: str, *declares: str) -> int:
                client = await stack.enter_async_context(
                    connect(gateway.url, server, *declares, token="alice")
                )
                return await client.pid()

            declared = ((), (), ("elicitation",), ("elicitation",))
            assert len({await pid_of("notes", *declares) for declares in declared}) == 4
            plain = [await pid_of("plain") for _ in range(2)]
            assert len(set(plain)) == (2 if place == "file" else 1)


async def test_the_process_of_a_session_ends_with_the_session(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    with running_file(person, shared_file(tmp_path, log, "file", "session")) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT):
            async with connect(gateway.url, "notes", "elicitation", token="alice") as client:
                pid = await client.pid()
                assert pid in log.running("notes")
            await until(lambda: pid not in log.running("notes"))


async def test_the_default_of_the_share_setting_is_alike(tmp_path: Path, person: Person) -> None:
    log = ServerLog(tmp_path)
    file = write_file(tmp_path, {"notes": log.entry("notes")}, clients=["alice", "bob"])
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        async with (
            asyncio.timeout(LIMIT),
            connect(gateway.url, "notes", "elicitation", token="alice") as one,
            connect(gateway.url, "notes", "elicitation", token="alice") as two,
            connect(gateway.url, "notes", "elicitation", token="bob") as bob,
        ):
            assert await one.pid() == await two.pid() != await bob.pid()


async def test_with_share_all_an_elicitation_is_sent_to_the_client_whose_call_is_in_progress(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    entry = {**log.entry("notes"), "share": "all", "capabilities": ["elicitation"]}
    file = write_file(tmp_path, {"notes": entry}, clients=["alice", "bob"])
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        async with (
            asyncio.timeout(LIMIT),
            connect(gateway.url, "notes", "elicitation", token="alice") as alice,
            connect(gateway.url, "notes", token="bob") as bob,
        ):
            assert '"value": "yes"' in await alice.call("ask")
            # refused, because Bob's client does not support elicitation
            assert '"code"' in await bob.call("ask")
            [opening] = log.received("initialize", server="notes")
            assert set(opening.params["capabilities"]) == {"elicitation"}


@pytest.mark.parametrize("place", ["file", "server"])
def test_the_error_for_an_unknown_share_setting_names_the_valid_values(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    with running_file(person, shared_file(tmp_path, log, place, "everyone")) as gateway:
        line = gateway.wait_for("share")
        assert all(choice in line for choice in ('"all"', '"alike"', '"session"'))
        assert gateway.process.wait(LIMIT) == 2


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("upstream", "shared", 'share = "alike"'),
        ("upstream", "per-session", 'share = "session"'),
        ("linger", 100, "idle_close"),
        ("max_channels", 7, "max_connections"),
    ],
)
async def test_the_former_name_of_a_setting_is_accepted_with_a_warning(
    tmp_path: Path, person: Person, old: str, value: Any, new: str
) -> None:
    log = ServerLog(tmp_path)
    file = write_file(tmp_path, {"notes": log.entry("notes")}, **{old: value})
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        assert [line for line in gateway.said.splitlines() if old in line and new in line]
        async with (
            asyncio.timeout(LIMIT),
            connect(gateway.url, "notes", "elicitation") as one,
            connect(gateway.url, "notes", "elicitation") as two,
        ):
            shares = await one.pid() == await two.pid()
            assert shares == (value != "per-session")
