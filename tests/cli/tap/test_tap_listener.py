"""Tests of recorded times when the listener of a tap is delayed."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from fairlead.recording.tape import TapeReader
from tests.cli.tap.test_tap import read_until, script, tapped
from tests.cli.tap.test_watch import remembered
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person

__all__ = ["person"]

TAKES = 0.2  # seconds per response
SLOW = f"""
    import select
    for line in sys.stdin:
        select.select([], [], [], {TAKES})
        answer = {{"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {{}}}}
        print(json.dumps(answer), flush=True)
"""
NEAR = 0.05  # seconds by which the system may adjust the wall clock during the test


def listener_of(process: "subprocess.Popen[bytes]") -> int:
    """Return the process id of the listener of a tap."""
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                if b"tap_listener" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
    raise AssertionError("no listener found")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs to find a child process")
def test_a_delayed_listener_records_the_times_at_which_messages_were_forwarded(
    person: Person,
) -> None:
    tape = person.folder / "slow"
    # time of the request, time of the response, duration
    calls: list[tuple[float, float, float]] = []
    file = script(person.folder, SLOW)
    with tapped(person, file, "--tape", str(tape), "--name", "notes") as process:
        assert process.stdin is not None
        listener = listener_of(process)
        os.kill(listener, signal.SIGSTOP)
        try:
            for number in (1, 2, 3):
                asked, since = time.time(), time.monotonic()
                line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"})
                process.stdin.write(line.encode() + b"\n")
                read_until(process, b"\n")
                calls.append((asked, time.time(), time.monotonic() - since))
        finally:
            os.kill(listener, signal.SIGCONT)
        records = remembered(person, 3)[-3:]
        process.stdin.close()
        process.stdin = None
        assert process.wait(LIMIT) == 0
    reader = TapeReader(tape)
    entries = list(reader)
    assert len(entries) == 2 * len(calls) == 2 * len(records)
    moments = [entry.at for entry in entries]
    assert moments == sorted(moments)
    assert moments[0] >= 0
    for place, (asked, answered, took) in enumerate(calls):
        question, answer = moments[2 * place : 2 * place + 2]
        assert TAKES <= answer - question + 1e-5 <= took + 1e-4
        assert TAKES <= records[place]["duration"] + 1e-5 <= took + 1e-4
        for told in (reader.info.began + question, records[place]["at"]):
            assert asked - NEAR <= told <= answered - TAKES + NEAR
