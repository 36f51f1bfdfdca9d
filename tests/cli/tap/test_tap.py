"""Tests of `fairlead tap`: unchanged behaviour of the command, and recorded messages."""

import asyncio
import contextlib
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.protocol.envelope import Direction
from fairlead.recording.tape import TapeReader, TapeWriter
from tests.support.cli_process import LIMIT, talk
from tests.support.cli_user import Person, person

__all__ = ["person"]

SECRET = "sk-live-4f9a8b7c6d5e"


def script(folder: Path, code: str, name: str = "child.py") -> Path:
    file = folder / name
    file.write_text("import os, sys, signal, json\n" + textwrap.dedent(code))
    return file


def tap(file: Path, *options: str, args: tuple[str, ...] = ()) -> list[str]:
    head = [sys.executable, "-m", "fairlead", "tap", *options]
    return [*head, "--", sys.executable, str(file), *args]


@contextlib.contextmanager
def tapped(
    person: Person, file: Path, *options: str, env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    # Tests that a shell runs in the background ignore Ctrl-C, and a tap inherits that.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            tap(file, *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=person.project,
            env={**os.environ, **person.env, **(env or {})},
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=LIMIT)


def read_until(process: "subprocess.Popen[bytes]", end: bytes) -> bytes:
    assert process.stdout is not None
    said = b""
    while not said.endswith(end):
        assert select.select([process.stdout], [], [], LIMIT)[0], said
        some = os.read(process.stdout.fileno(), 65536)
        assert some, said
        said += some
    return said


def lines_of(tape: Path) -> list[tuple[str, Any]]:
    return [(str(e.dir), json.loads(bytes(e.message))) for e in TapeReader(tape)]


def test_a_tap_forwards_every_byte_unchanged(person: Person) -> None:
    file = script(
        person.folder,
        """
        data = sys.stdin.buffer.read()
        sys.stderr.buffer.write(b"err \\xff\\n")
        sys.stdout.buffer.write(data[::-1])
        sys.stdout.buffer.write(b"no line end \\x00\\xfe")
        """,
    )
    noise = bytes(range(256)) * 5_000 + b'\r\n{"jsonrpc": "2.0",  "id":1}\n\n\n[]' + b"x" * 200_000
    done = subprocess.run(
        tap(file, "--no-tape"),
        input=noise,
        capture_output=True,
        cwd=person.project,
        env={**os.environ, **person.env},
        timeout=LIMIT,
    )
    assert done.returncode == 0
    sent = noise[::-1] + b"no line end \x00\xfe"
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(sent).digest()
    assert done.stderr == b"err \xff\n"


def test_a_large_response_is_forwarded_within_the_time_limit(person: Person) -> None:
    file = script(person.folder, "sys.stdout.buffer.write(b'0123456789' * 10_000_000)")
    done = subprocess.run(
        tap(file, "--tape", str(person.folder / "big")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=person.project,
        env={**os.environ, **person.env},
        timeout=LIMIT,
    )
    assert len(done.stdout) == 100_000_000


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_of_the_command_is_forwarded(person: Person, code: int) -> None:
    done = subprocess.run(
        tap(script(person.folder, f"sys.exit({code})"), "--no-tape"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **person.env},
        timeout=LIMIT,
    )
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_tap_is_ended_by_the_same_signal_as_its_command(person: Person) -> None:
    file = script(person.folder, "os.kill(os.getpid(), signal.SIGKILL)")
    with tapped(person, file, "--no-tape") as process:
        assert process.wait(LIMIT) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_tap_forwards_signals_to_its_command(person: Person, number: signal.Signals) -> None:
    file = script(
        person.folder,
        f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(number)}}})  # blocked until sigwait
        print("ready", flush=True)
        print("heard", int(signal.sigwait({{{int(number)}}})), flush=True)
        sys.exit(7)
        """,
    )
    with tapped(person, file, "--no-tape") as process:
        read_until(process, b"ready\n")
        process.send_signal(number)
        assert read_until(process, b"\n") == b"heard %d\n" % number
        assert process.wait(LIMIT) == 7


def test_signals_in_rapid_succession_are_all_forwarded(person: Person) -> None:
    # Each signal arrives after the previous one was handled and before the tap waits again.
    file = script(
        person.folder,
        """
        mine = {signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_BLOCK, mine)
        print("ready", flush=True)
        while signal.sigwait(mine):
            os.write(1, b"heard\\n")
        """,
    )
    with tapped(person, file, "--no-tape") as process:
        read_until(process, b"ready\n")
        for _ in range(5000):
            process.send_signal(signal.SIGUSR1)
            assert read_until(process, b"\n") == b"heard\n"


def test_a_tap_exits_with_its_command_although_sigchld_is_blocked(person: Person) -> None:
    """Some programs start child processes with SIGCHLD blocked."""
    file = script(person.folder, 'print("ready", flush=True); sys.stdin.readline(); sys.exit(7)')
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        with tapped(person, file, "--no-tape") as process:
            read_until(process, b"ready\n")
            assert process.stdin is not None
            process.stdin.write(b"\n")
            assert process.wait(LIMIT) == 7
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_closing_of_stdin_or_stdout_is_forwarded(person: Person) -> None:
    reads = script(person.folder, "sys.stdin.read(); print('end', flush=True); sys.exit(3)")
    with tapped(person, reads, "--no-tape") as process:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
        assert read_until(process, b"\n") == b"end\n"
        assert process.wait(LIMIT) == 3
    # If the client stops reading, the server must get an error instead of writing forever.
    writes = script(
        person.folder,
        """
        try:
            while True:
                os.write(1, b"x" * 65536)
        except BrokenPipeError:
            sys.exit(9)
        """,
    )
    with tapped(person, writes, "--no-tape") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT) == 9
        process.stdout = None


def test_a_missing_command_is_an_error(person: Person) -> None:
    done = person.runs("tap", "--", "/no/such/command")
    assert (done.code, "No such file" in done.err) == (3, True)
    assert person.runs("tap", "--name", "x").code == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["python", "notes.py"], "-- python notes.py"),
        (["--name", "a", "python", "my notes.py", "-v"], "--name a -- python 'my notes.py' -v"),
        (["npx", "notes", "--", "--dry"], "-- npx notes -- --dry"),
    ],
)
def test_a_tap_command_without_two_dashes_causes_a_hint(
    person: Person, words: list[str], meant: str
) -> None:
    done = person.does("tap", *words)
    assert done.code == 2
    assert "A server command must follow `--`" in done.err
    assert f"hint: `fairlead tap {meant}`\n" in done.err


def test_a_tape_is_found_by_the_name_given_to_its_tap(person: Person) -> None:
    folder = person.ours / "data" / "tapes"
    for name, method in (
        ("my-notes-20260102-101010-7", "old"),
        ("my-notes-20260103-101010-5", "new"),
        ("my-notes-20260103-090909-9", "older"),
        ("my-notes-copy-20260104-101010-5", "other"),
    ):
        with TapeWriter(folder / name) as tape:
            message = json.dumps({"jsonrpc": "2.0", "method": method}).encode()
            tape.write(message, Direction.CLIENT_TO_SERVER)
    # a program with the same name must not be opened as the tape
    (person.project / "my-notes").write_text("#!/bin/sh\n")
    for name, newest in (("my notes", "20260103-101010-5"), ("my-notes-c", "20260104-101010-5")):
        done = person.does("tape", "show", name)
        assert done.code == 0, done.err
        assert newest in done.err
        assert ("new" if name == "my notes" else "other") in done.out.split()
    assert "new" in person.does("tape", "show", "my-notes").out.split()
    done = person.does("tape", "show", "my")
    assert (done.code, done.out) == (1, "")
    assert (
        "hint: did you mean one of my-notes-copy-20260104-101010-5, my-notes-20260103-101010-5"
        in done.err
    )
    done = person.does("tape", "delete", "my-notes")  # deleting requires the exact name
    assert done.code == 1
    assert "hint: did you mean one of my-notes-20260103-101010-5, " in done.err
    assert len(list(folder.glob("*.tape.jsonl"))) == 4
    assert "tape list" in person.does("tape", "show", "yours").err


SERVER = """
    print("Starting up, api_key=%s", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = {"echo": message.get("params"), "env": os.environ.get("MY_TOKEN")}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_a_conversation_is_recorded_without_its_secrets(person: Person) -> None:
    file = script(person.folder, SERVER % SECRET)
    tape = person.folder / "notes"
    said = talk({"id": 1, "method": "tools/call", "params": {"name": "a", "password": SECRET}})
    done = subprocess.run(
        tap(file, "--tape", str(tape), args=("--api-key", SECRET)),
        input=said.encode(),
        capture_output=True,
        env={**os.environ, **person.env, "MY_TOKEN": "env-" + SECRET},
        timeout=LIMIT,
    )
    assert done.stdout.count(SECRET.encode()) == 4  # the conversation itself is unchanged
    entries = lines_of(tape)
    up = [message for way, message in entries if way == "client_to_server"]
    down = [message for way, message in entries if way == "server_to_client"]
    assert [one["method"] for one in up] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    assert "stray" in down[0]
    assert [one["id"] for one in down[1:]] == [0, 1]
    for place in (tape.with_name("notes.tape.jsonl"), tape.with_name("notes.tape.json")):
        assert SECRET not in place.read_text()
    assert TapeReader(tape).info.status == "complete"


def test_a_tap_records_each_message_of_a_batch(person: Person) -> None:
    file = script(
        person.folder,
        """
        for line in sys.stdin:
            asked = json.loads(line)
            replies = [{"jsonrpc": "2.0", "id": one["id"], "result": {}} for one in asked]
            print(json.dumps(replies), flush=True)
        """,
    )
    asked = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)]
    tape = person.folder / "batch"
    done = subprocess.run(
        tap(file, "--tape", str(tape)),
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, **person.env},
        timeout=LIMIT,
    )
    assert len(json.loads(done.stdout)) == 2
    wait_for_file(tape.with_name("batch.tape.json"), "complete")
    assert [said for _, said in lines_of(tape)] == [*asked, *json.loads(done.stdout)]
    assert {str(entry.did) for entry in TapeReader(tape)} == {"['in a batch']"}


def test_messages_lost_on_a_full_disk_are_reported(person: Person) -> None:
    file = script(person.folder, "sys.stdout.write(sys.stdin.read())")
    note = json.dumps({"jsonrpc": "2.0", "method": "note", "params": {"pad": "x" * 200}}) + "\n"
    tape = person.folder / "full"
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *tap(file, "--tape", str(tape))],
        input=note * 100,
        capture_output=True,
        text=True,
        env={**os.environ, **person.env},
        timeout=LIMIT,
    )
    assert done.stdout == note * 100
    wait_for_file(tape.with_name("full.tape.json"), "complete")
    lost = TapeReader(tape).info.lost
    assert lost > 100
    assert f"warning: {lost} of 200 messages were not recorded" in done.stderr


def test_only_the_newest_automatically_named_tapes_are_kept(person: Person) -> None:
    folder = person.ours / "data" / "tapes"
    folder.mkdir(parents=True)
    for number in range(30):
        for ending in ("json", "jsonl"):
            old = folder / f"notes-20200101-000000-{number}.tape.{ending}"
            old.write_text("{}")
            os.utime(old, (number + 1, number + 1))
    (folder / "notes-mine.tape.json").write_text("{}")
    file = script(person.folder, "sys.stdin.read()")
    assert person.runs(*tap(file, "--name", "notes")[3:]).code == 0
    left = sorted(one.name for one in folder.glob("*.tape.json"))
    assert len(left) == 21
    assert "notes-mine.tape.json" in left
    assert "notes-20200101-000000-29.tape.json" in left
    assert "notes-20200101-000000-0.tape.json" not in left
    assert not (folder / "notes-20200101-000000-0.tape.jsonl").exists()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "auto"])
async def test_a_client_gets_the_same_results_through_a_tap(person: Person, version: str) -> None:
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    demo = [sys.executable, "-m", "fairlead.demo"]
    tape = person.folder / "demo"
    wrapped = [sys.executable, "-m", "fairlead", "tap", "--tape", str(tape), "--", *demo]
    found = []
    for command in (demo, wrapped):
        async with (
            asyncio.timeout(LIMIT),
            MCPClient.connect_stdio(command, config, env=person.env) as client,
        ):
            rolled = await client.call("roll_dice", {"seed": 7, "times": 3})
            found.append((client.protocol_version, await client.list_tools(), rolled))
    assert found[0] == found[1]
    wait_for_file(tape.with_name("demo.tape.json"), "complete")
    up = [said.get("method") for way, said in lines_of(tape) if way == "client_to_server"]
    assert "tools/call" in up
    assert "tools/list" in up


def test_a_killed_tap_leaves_a_readable_tape_and_no_child(person: Person) -> None:
    file = script(
        person.folder,
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(json.dumps({"jsonrpc": "2.0", "method": "pid", "params": {"pid": os.getpid()}}),
              flush=True)
        for line in sys.stdin: pass
        while True: signal.pause()
        """,
    )
    tape = person.folder / "killed"
    with tapped(person, file, "--tape", str(tape)) as process:
        told = json.loads(read_until(process, b"\n"))
        child = os.pidfd_open(told["params"]["pid"])
        try:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT)
            assert select.select([child], [], [], 10)[0], "the child is still running"
        finally:
            os.close(child)
    # The listener completes the tape and exits by itself.
    wait_for_file(tape.with_name("killed.tape.json"), "complete")
    assert [message["method"] for _, message in lines_of(tape)] == ["pid"]


def wait_for_file(path: Path, words: str) -> None:
    for _ in range(1000):
        if path.exists() and words in path.read_text():
            return
        select.select([], [], [], 0.01)
    raise AssertionError(f"{path} has no {words!r}")


def test_a_tap_continues_forwarding_if_its_recorder_fails(person: Person) -> None:
    blocked = person.folder / "file"
    blocked.write_text("not a folder")
    file = script(person.folder, "print('hello'); sys.exit(4)")
    done = subprocess.run(
        tap(file, "--tape", str(blocked / "x")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **person.env, "FAIRLEAD_HOME": str(blocked)},
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout) == (4, b"hello\n")
    assert b"cannot record" in done.stderr
    assert b"Traceback" not in done.stderr
