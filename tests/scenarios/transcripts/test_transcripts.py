"""Complete dialogues for each revision and for invalid input, over every transport."""

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision, negotiate_revision
from tests.support.transcripts.connections import WIRES, Wire
from tests.support.transcripts.dialogue import Step, pair, read_dialogue

HERE = Path(__file__).parent
SCHEMAS = HERE.parents[1] / "protocol" / "schemas"
DIALOGUES = sorted(path.stem for path in (HERE / "dialogues").glob("*.txt"))
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
LAST = {"jsonrpc": "2.0", "id": "last", "method": "no/such/method"}

RESULTS = {
    "initialize": "InitializeResult",
    "logging/setLevel": "EmptyResult",
    "ping": "EmptyResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "server/discover": "DiscoverResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}


@pytest.mark.covers("DEC-04", "DEC-13", "DEC-15", "DEC-16", "PRO-02", "PRO-03", "PRO-20", "PRO-21")
@pytest.mark.covers("PRO-32", "SRV-16", "SRV-33", "SRV-34", "TRN-18")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", DIALOGUES)
async def test_the_server_sends_exactly_the_messages_in_the_dialogue(
    name: str, wire: str, tmp_path: Path
) -> None:
    steps = read_dialogue(HERE / "dialogues" / f"{name}.txt")
    async with asyncio.timeout(20), WIRES[wire](tmp_path) as connection:
        for step in steps:
            received = await play(connection, step)
            in_order = len(step.requests) == 1
            assert pair(step.expected, received, in_order=in_order) == [], f"line {step.line}"
        # The response to this request must be the next message.
        connection.send(json.dumps(LAST))
        assert json.loads(await connection.receive())["id"] == LAST["id"]


async def play(connection: Wire, step: Step) -> list[Any]:
    for line in step.sent:
        connection.send(line)
    return [json.loads(await connection.receive()) for _ in step.expected]


@pytest.mark.parametrize("name", DIALOGUES)
async def test_messages_from_the_server_are_valid_in_their_revision(
    name: str, tmp_path: Path
) -> None:
    """Validate with the published schemas of the protocol."""
    agreed = NEWEST_HANDSHAKE  # the revision of responses before a handshake
    asked: dict[Any, dict[str, Any]] = {}
    async with asyncio.timeout(20), WIRES["memory"](tmp_path) as connection:
        for step in read_dialogue(HERE / "dialogues" / f"{name}.txt"):
            for request in step.requests:
                if request["method"] == "initialize" and not stateless(request):
                    agreed = negotiate_revision(
                        str(request.get("params", {}).get("protocolVersion"))
                    )
            asked.update((request["id"], request) for request in step.requests)
            for message in await play(connection, step):
                if "method" in message:
                    for revision in {spoken(request, agreed) for request in step.requests}:
                        validator(revision, "ServerNotification").validate(message)
                else:
                    check_answer(message, asked.get(message.get("id")), agreed)


def check_answer(message: dict[str, Any], request: dict[str, Any] | None, agreed: Revision) -> None:
    if message.get("id", 0) is None:
        # The published schemas do not allow this null, but JSON-RPC requires it.
        message = {**message, "id": 0}
    revision = spoken(request, agreed)
    validator(revision, "JSONRPCMessage").validate(message)
    if "result" in message:
        assert request is not None
        validator(revision, RESULTS[request["method"]]).validate(message["result"])


def spoken(request: dict[str, Any] | None, agreed: Revision) -> Revision:
    """Return the revision in which a request is answered."""
    return NEWEST if request is not None and stateless(request) else agreed


def stateless(request: dict[str, Any]) -> bool:
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta


@cache
def validator(revision: Revision, definition: str) -> Any:
    document = json.loads((SCHEMAS / f"{revision}.json").read_text("utf-8"))
    keyword = "$defs" if "$defs" in document else "definitions"
    root = {
        "$schema": document["$schema"],
        keyword: document[keyword],
        "$ref": f"#/{keyword}/{definition}",
    }
    return jsonschema_rs.validator_for(root, retriever=refuse)


def refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")
