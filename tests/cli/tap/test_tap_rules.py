"""Tests of `fairlead tap --rules`."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fairlead.recording.tape import TapeReader, decode_entry
from tests.support.cli_process import LIMIT, fairlead, server_file, talk
from tests.support.cli_user import Person, person

__all__ = ["person"]

BLOCKED = """
[[rules]]
name = "no-erasing"
when = { tool = "erase" }
do = "block"
"""
TOOLS = """
    @server.tool()
    def die(code: int) -> str:
        os._exit(code)

    @server.tool()
    async def wait() -> str:
        await asyncio.Event().wait()

    @server.tool()
    def erase(title: str) -> str:
        print("about to erase", file=sys.stderr, flush=True)
        return f"{title} is gone"
"""


class Tapped:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._held = b""

    def ask(self, number: int, method: str, **params: Any) -> Any:
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.say(json.dumps(asked) + "\n")
        while (answer := self.hear()).get("id") != number:
            pass
        return answer

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    def hear(self) -> Any:
        assert self.process.stdout is not None
        while b"\n" not in self._held:
            assert select.select([self.process.stdout], [], [], LIMIT)[0], "no output"
            some = os.read(self.process.stdout.fileno(), 65536)
            assert some, "the process ended"
            self._held += some
        line, _, self._held = self._held.partition(b"\n")
        return json.loads(line)


@contextmanager
def tapped(person: Person, *options: str) -> Iterator[Tapped]:
    file = server_file(person.folder, TOOLS)
    with subprocess.Popen(
        [sys.executable, "-m", "fairlead", "tap", *options, "--", sys.executable, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        cwd=person.project,
        env={**os.environ, **person.env},
        start_new_session=True,
    ) as process:
        try:
            yield Tapped(process)
        finally:
            if process.poll() is None:
                process.kill()


def test_a_tap_applies_rules_and_changes_of_the_rules_file(person: Person) -> None:
    rules = person.project / "rules.toml"
    rules.write_text(BLOCKED)
    tape = person.folder / "one"
    with tapped(person, "--rules", "rules.toml", "--tape", str(tape), "--name", "notes") as it:
        it.say(talk())
        assert it.hear()["result"]["serverInfo"]["name"] == "test"
        refused = it.ask(1, "tools/call", name="erase", arguments={"title": "old"})
        assert "Not allowed here" in refused["error"]["message"]
        rules.write_text("rules = []\n")
        limit, number, answer = time.monotonic() + LIMIT, 2, refused
        while (
            "error" in answer and time.monotonic() < limit
        ):  # wait until the rules file is checked again
            answer = it.ask(number, "tools/call", name="erase", arguments={"title": "old"})
            number += 1
        assert answer["result"]["content"][0]["text"] == "old is gone"
        rules.write_text("[[rules]]\nwhen = 3\n")  # an invalid rules file is ignored
        again = it.ask(number, "tools/call", name="erase", arguments={"title": "new"})
        assert again["result"]["content"][0]["text"] == "new is gone"
        assert it.process.stdin is not None
        it.process.stdin.close()
        assert it.process.wait(LIMIT) == 0
        assert it.process.stderr is not None
        assert b"about to erase" in it.process.stderr.read()
    entries = list(TapeReader(tape))
    assert TapeReader(tape).info.status == "complete"
    stopped = [e for e in entries if e.did]
    assert decode_entry(stopped[0])["error"]["message"].endswith("Not allowed here")
    assert stopped[0].did is not None
    assert stopped[0].did[0] == "rule: no-erasing"


def test_a_tap_with_rules_flags_a_request_that_hangs(person: Person) -> None:
    (person.project / "rules.toml").write_text(BLOCKED)
    options = ("--rules", "rules.toml", "--no-tape", "--hangs-after", "0.05")
    with tapped(person, *options) as it:
        it.say(talk({"id": 1, "method": "tools/call", "params": {"name": "wait"}}))
        assert it.hear()["result"]["serverInfo"]["name"] == "test"
        with person.begins("watch") as watching:
            assert watching.stdout is not None
            said = next((line for line in watching.stdout if "hangs" in line), "")
            watching.kill()
        assert "tools/call wait" in said


@pytest.mark.parametrize(
    ("text", "said"), [("[[rules]]\nwhen = 3\n", "rules.toml"), (BLOCKED, "Program not found")]
)
def test_a_tap_with_invalid_rules_or_a_missing_command_fails(
    person: Person, text: str, said: str
) -> None:
    (person.project / "rules.toml").write_text(text)
    done = person.runs("tap", "--rules", "rules.toml", "--", "/nowhere/at-all")
    assert done.code != 0
    if said == "rules.toml":
        done = person.runs("tap", "--rules", "rules.toml", "--", sys.executable, "-c", "pass")
        assert done.code == 2
    assert said in done.err


def test_a_tap_with_rules_exits_with_the_exit_code_of_a_crashed_server(person: Person) -> None:
    (person.project / "rules.toml").write_text(BLOCKED)
    with tapped(person, "--rules", "rules.toml", "--no-tape") as it:
        it.say(talk())
        assert it.hear()["result"]["serverInfo"]["name"] == "test"
        call = {"name": "die", "arguments": {"code": 9}}
        asked = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": call}
        it.say(json.dumps(asked) + "\n")
        assert it.process.wait(LIMIT) == 9  # while stdin is still open


def test_a_tap_with_rules_forwards_the_exit_code_of_the_command(person: Person) -> None:
    (person.project / "rules.toml").write_text(BLOCKED)
    file = server_file(person.folder, "")
    program = "import atexit, os, runpy; atexit.register(lambda: os._exit(7)); "
    program += f"runpy.run_path({str(file)!r}, run_name='__main__')"
    command = ("--", sys.executable, "-c", program)
    done = fairlead(
        *("tap", "--rules", "rules.toml", "--no-tape", *command),
        input=talk(),
        cwd=person.project,
        env=person.env,
    )
    assert done.returncode == 7
    assert "serverInfo" in done.stdout
