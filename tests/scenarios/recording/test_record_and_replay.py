"""Tapes that are replayed and recorded again, which must be equal except for times."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.gateway import Relay
from fairlead.protocol.revisions import Revision
from fairlead.recording.compare.compare_tapes import iter_differences
from fairlead.recording.replay import TapeServer, replay_tape
from fairlead.recording.tape import TapeReader, TapeWriter, read_tape
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.examples import examples

LIMIT = 20.0
META = "io.modelcontextprotocol/"
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "x", "version": "1"},
}
WHO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"sampling": {}, "roots": {}},
    "clientInfo": {"name": "y", "version": "1"},
}

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts.filter(lambda name: name not in ("_meta", "task")), values)
steps = st.lists(
    st.tuples(st.just("progress"), st.integers(0, 100))
    | st.tuples(st.just("vendor"), objects)
    | st.tuples(st.just("ask"), objects),
    max_size=4,
)
calls = st.lists(st.tuples(texts, objects, steps, st.booleans(), objects), max_size=4)


class Tape:
    """The lines of a tape, as a recorder would write them."""

    def __init__(self, *, stateless: bool) -> None:
        self.lines: list[bytes] = []
        self.stateless = stateless

    def add(self, way: str, related: Any = None, **message: Any) -> None:
        entry = {
            "seq": len(self.lines) + 1,
            "at": len(self.lines) * 10,
            "dir": way,
            "session": "s1",
            "message": {"jsonrpc": "2.0", **message},
        }
        self.lines.append(
            msgspec.json.encode(entry if related is None else {**entry, "related": related})
        )

    def call(self, number: int, call: Any) -> None:
        name, arguments, happens, fails, result = call
        up, down = "client_to_server", "server_to_client"
        meta: dict[str, Any] = {"progressToken": f"t{number}"}
        if self.stateless:
            meta |= {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
            result = {"resultType": "complete", **result}
        params = {"name": f"{number} {name}", "arguments": arguments, "_meta": meta}
        self.add(up, id=number, method="tools/call", params=params)
        for n, (kind, held) in enumerate(happens):
            if kind == "progress":
                told = {"progressToken": f"t{number}", "progress": held}
                self.add(down, number, method="notifications/progress", params=told)
            elif kind == "vendor":
                self.add(down, number, method="notifications/vendor", params=held)
            elif not self.stateless:
                asked = {"id": n + 100 * number, "method": "sampling/createMessage"}
                self.add(down, number, **asked, params=held)
                self.add(up, number, id=asked["id"], result={"role": "x", "n": n})
        if fails:
            self.add(down, id=number, error={"code": -32000, "message": name, "data": result})
        else:
            self.add(down, id=number, result=result)

    def write(self, path: Path) -> None:
        path.write_bytes(b"".join(line + b"\n" for line in self.lines))


def made(path: Path, conversation: Any, *, stateless: bool) -> None:
    tape = Tape(stateless=stateless)
    if not stateless:
        tape.add("client_to_server", id=0, method="initialize", params=WHO)
        tape.add("server_to_client", id=0, result=OPENING)
        tape.add("client_to_server", method="notifications/initialized")
    else:
        meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {}}
        # A relay adds the revisions that it can bridge.
        found = {"supportedVersions": [r.value for r in reversed(Revision)], "capabilities": {}}
        tape.add("client_to_server", id=0, method="server/discover", params={"_meta": meta})
        tape.add("server_to_client", id=0, result={"resultType": "complete", **found})
    for number, call in enumerate(conversation, 1):
        tape.call(number, call)
    tape.write(path)


async def again(old: Path, new: Path) -> None:
    """Replay a tape against itself, through a relay that records it."""
    with TapeWriter(new, redact=False) as tape:
        relay = Relay(TapeServer(old, matching="strict"), interceptors=[Recorder(tape)])
        async with asyncio.timeout(LIMIT), relay.running():
            report = await replay_tape(old, relay, timeout=LIMIT)
    assert report.same, str(report)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(calls, st.booleans())
def test_recording_a_replay_produces_the_same_tape(conversation: Any, stateless: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, two, three = (Path(folder) / f"{n}.tape.jsonl" for n in "123")
        made(one, conversation, stateless=stateless)
        asyncio.run(again(one, two))
        asyncio.run(again(two, three))
        assert list(iter_differences(TapeReader(one), TapeReader(two))) == []
        assert list(iter_differences(TapeReader(two), TapeReader(three))) == []
        ids = [[(e.seq, e.related, e.session) for e in read_tape(path)] for path in (two, three)]
        assert ids[0] == ids[1]
