"""Tests of tapes whose client tried both eras, and of tapes without a recorded handshake."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.protocol.caller import CAPABILITIES_KEY, CLIENT_INFO_KEY, SERVER_INFO_KEY, VERSION_KEY
from fairlead.protocol.envelope import Direction
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.recording.replay import load_script
from fairlead.recording.replay.synthetic_introduction import synthetic_discover_result
from fairlead.recording.tape import TapeWriter

ABOUT = {"capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
META = {
    VERSION_KEY: NEWEST.value,
    CLIENT_INFO_KEY: {"name": "test", "version": "1"},
    CAPABILITIES_KEY: {},
}
ADD = {"name": "add", "arguments": {}}
OPENING = {
    "protocolVersion": NEWEST_HANDSHAKE.value,
    "capabilities": {},
    "clientInfo": META[CLIENT_INFO_KEY],
}


def write_tape(path: Path, *, stateless: bool) -> None:
    """Write a tape on which a client tries both eras and continues in one of them."""
    asked = {"name": "add", "arguments": {"a": 1}}
    more = {"resultType": "complete"} if stateless else {}
    discovered = {
        "supportedVersions": [NEWEST.value],
        **ABOUT,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "public",
    }
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "server/discover", "params": {"_meta": META}},
        {"id": 2, "method": "initialize", "params": OPENING},
        {"id": 1, "result": discovered},
        {"id": 2, "result": {"protocolVersion": NEWEST_HANDSHAKE.value, **ABOUT}},
        {"id": 3, "method": "tools/call", "params": asked | ({"_meta": META} if stateless else {})},
        {"id": 3, "result": {"content": [{"type": "text", "text": "one more"}], **more}},
    ]
    write(path, said)


def write(path: Path, said: list[dict[str, Any]]) -> None:
    with TapeWriter(path) as tape:
        for message in said:
            way = Direction.CLIENT_TO_SERVER if "method" in message else Direction.SERVER_TO_CLIENT
            tape.write(json.dumps({"jsonrpc": "2.0", **message}).encode(), way, "s1")


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("recorded", [True, False], ids=["stateless tape", "handshake tape"])
@pytest.mark.parametrize("version", [NEWEST.value, NEWEST_HANDSHAKE.value])
async def test_a_tape_whose_client_tried_both_eras_is_served_to_clients_of_both(
    tmp_path: Path, recorded: bool, version: str
) -> None:
    write_tape(tmp_path / "tried", stateless=recorded)
    command = [sys.executable, "-m", "fairlead", "replay", str(tmp_path / "tried.tape.jsonl")]
    config = MCPClientConfig(protocol_version=version)
    async with asyncio.timeout(20), MCPClient.connect_stdio(command, config) as client:
        assert (await client.call("add", {"a": 1})).text == "one more"


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("matching", ["tolerant", "strict"])
async def test_a_client_can_use_a_tape_that_has_no_recorded_discover_request(
    tmp_path: Path, matching: str
) -> None:
    server = {SERVER_INFO_KEY: {"name": "notes", "version": "1"}}
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://1"]}
    said: list[dict[str, Any]] = [
        {"id": 1, "method": "tools/call", "params": {**ADD, "_meta": META}},
        {"id": 1, "result": {"content": [], "resultType": "complete", "_meta": server}},
        {
            "id": 2,
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": META},
        },
    ]
    write(tmp_path / "without", said)
    command = [sys.executable, "-m", "fairlead", "replay", str(tmp_path / "without.tape.jsonl")]
    command += ["--match", matching]
    config = MCPClientConfig(protocol_version=NEWEST.value)
    async with asyncio.timeout(20), MCPClient.connect_stdio(command, config) as client:
        assert client.server["serverInfo"]["name"] == "notes"
        assert client.server["capabilities"] == {
            "tools": {"listChanged": True},
            "resources": {"subscribe": True},
        }
        assert (await client.call("add")).content == []


def meta(version: object = NEWEST.value) -> dict[str, Any]:
    return {"_meta": {VERSION_KEY: version}}


def introduction(path: Path, *said: dict[str, Any]) -> dict[str, Any] | None:
    write(path / "one", list(said))
    result = synthetic_discover_result(load_script(path / "one.tape.jsonl"))
    return None if result is None else dict(json.loads(bytes(result)))


@pytest.mark.parametrize(
    ("method", "more", "capabilities"),
    [
        ("tools/call", {}, {"tools": {}}),
        ("prompts/list", {}, {"prompts": {}}),
        ("completion/complete", {}, {"completions": {}}),
        ("vendor/x", {"notifications": {"toolsListChanged": True}}, {}),
        ("subscriptions/listen", {"notifications": 5}, {}),
        (
            "subscriptions/listen",
            {"notifications": {"promptsListChanged": True, "toolsListChanged": False, "x": True}},
            {"prompts": {"listChanged": True}},
        ),
        (
            "subscriptions/listen",
            {"notifications": {"resourcesListChanged": True, "resourceSubscriptions": ["a"]}},
            {"resources": {"listChanged": True, "subscribe": True}},
        ),
    ],
)
def test_synthetic_capabilities_are_derived_from_the_recorded_requests(
    tmp_path: Path, method: str, more: dict[str, Any], capabilities: dict[str, Any]
) -> None:
    found = introduction(tmp_path, {"id": 1, "method": method, "params": {**meta(), **more}})
    assert found is not None
    assert found["capabilities"] == capabilities
    assert found["supportedVersions"] == [NEWEST.value]
    assert found["_meta"][SERVER_INFO_KEY] == {"name": "tape", "version": "0"}


def test_synthetic_versions_come_from_requests_and_server_info_from_responses(
    tmp_path: Path,
) -> None:
    server = {SERVER_INFO_KEY: {"name": "notes", "version": "1"}}
    found = introduction(
        tmp_path,
        {"id": 1, "method": "vendor/x", "params": meta()},
        {"id": 1, "result": {}},
        {"id": 2, "method": "vendor/y", "params": meta("later")},
        {"id": 2, "result": {"_meta": server}},
    )
    assert found is not None
    assert found["supportedVersions"] == [NEWEST.value, "later"]
    assert found["_meta"] == server


@pytest.mark.parametrize(
    "said",
    [
        {"id": 1, "method": "tools/call", "params": ADD},
        {"id": 1, "method": "tools/call", "params": meta(5)},
        {"method": "notifications/x", "params": meta()},
    ],
    ids=["handshake", "no version", "notification"],
)
def test_a_tape_of_the_handshake_era_has_no_synthetic_introduction(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    assert introduction(tmp_path, said) is None
