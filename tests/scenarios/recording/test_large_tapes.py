"""Memory use of commands that read large tapes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.cli_process import LIMIT, talk

CALLS, SIZE = 96, 1_000_000
# KiB for the interpreter, the package and some messages; less than the tape
MOST = 70 << 10
TEXT = "rope and tide, " * (SIZE // 15)

SERVER = f"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "big", "version": "1"}}}}
    elif "id" in asked:
        n = asked["params"]["arguments"]["n"]
        text = f"{{n}} " + "rope and tide, " * ({SIZE} // 15)
        result = {{"content": [{{"type": "text", "text": "other" if n == 7 else text}}]}}
    else:
        continue
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""
RULES = """
[[rules]]
name = "not-seven"
when = { tool = "fetch", params = { "arguments.n" = 7 } }
do = "block"
"""


class Done(NamedTuple):
    code: int
    out: str
    peak: int  # KiB


def write_tape(base: Path, *, changed: int = 0, token: int = 0) -> None:
    """Write a tape of a server with long responses, as `fairlead record` would."""
    opening = talk().splitlines()
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    hello = {**about, "serverInfo": {"name": "big", "version": "1"}}
    said = [
        ("client", opening[0]),
        ("server", json.dumps({"jsonrpc": "2.0", "id": 0, "result": hello})),
        ("client", opening[1]),
    ]
    with Path(f"{base}.tape.jsonl").open("w") as file:

        def write(who: str, message: str) -> None:
            write.count += 1  # type: ignore[attr-defined]
            way = "client_to_server" if who == "client" else "server_to_client"
            head = f'{{"seq":{write.count},"at":0.1,"dir":"{way}","session":"s1"'  # type: ignore[attr-defined]
            file.write(f'{head},"message":{message}}}\n')

        write.count = 0  # type: ignore[attr-defined]
        for who, message in said:
            write(who, message)
        for n in range(1, CALLS + 1):
            params = {"name": "fetch", "arguments": {"n": n}, "_meta": {"progressToken": n + token}}
            asked = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}
            write("client", json.dumps(asked))
            text = f"{n} {TEXT}" if n != changed else "changed"
            result = {"content": [{"type": "text", "text": text}]}
            write("server", json.dumps({"jsonrpc": "2.0", "id": n, "result": result}))
    info = {"version": 1, "name": base.name, "status": "complete", "entries": 2 * CALLS + 3}
    Path(f"{base}.tape.json").write_text(json.dumps(info))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("large")
    write_tape(place / "one")
    write_tape(place / "two", changed=50, token=1000)
    (place / "server.py").write_text(SERVER)
    (place / "rules.toml").write_text(RULES)
    yield place
    for file in place.glob("*.tape.jsonl"):
        file.unlink()


# A forked process counts its parent's memory until it executes a program.
# Therefore, a small process starts the command.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
open("peak", "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


def run(folder: Path, *args: str, input: str = "") -> Done:
    """Run a command, and measure its peak memory."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, sys.executable, "-m", "fairlead", *args],
        input=input.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        timeout=LIMIT,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), int((folder / "peak").read_text()))


COMMANDS = {
    "list": (("tape", "list", "."), 0, "195 messages"),
    "show": (("tape", "show", "./one"), 0, "tools/call fetch #96"),
    "show some": (("tape", "show", "./one", "--from", "190", "--limit", "2"), 0, "  190 "),
    "show all of one": (("tape", "show", "./one", "--to", "5", "--full"), 0, "rope and tide"),
    "trim": (
        ("tape", "trim", "./one", "--from", "100", "-o", "./short"),
        0,
        "99 messages on short.tape.jsonl",
    ),
    "har": (("tape", "export", "./one", "--har", "-o", "one.har"), 0, "written"),
    "pytest": (("tape", "export", "./two", "--pytest"), 1, "does not contain the command"),
    "the same": (("tape", "diff", "./one", "./one"), 0, "no differences, except for times and ids"),
    "diff": (("tape", "diff", "./one", "./two"), 1, "~ 103 result"),
    "rules": (("rules", "test", "rules.toml", "./one"), 0, "blocked by not-seven"),
    "against": (
        ("replay", "./one", "--against", "--", sys.executable, "server.py"),
        1,
        "97 compared, 1 differ",
    ),
}


@pytest.mark.covers("GTW-10", "GTW-11")
@pytest.mark.parametrize("name", COMMANDS)
def test_reading_a_large_tape_needs_less_memory_than_its_size(folder: Path, name: str) -> None:
    args, code, said = COMMANDS[name]
    done = run(folder, *args)
    assert (done.code, said in done.out) == (code, True), done.out[-2000:]
    assert done.peak < MOST
    assert (folder / "one.tape.jsonl").stat().st_size > CALLS * SIZE * 0.99


@pytest.mark.covers("GTW-11")
@pytest.mark.parametrize("matching", ["tolerant", "strict"])
def test_serving_a_large_tape_needs_less_memory_than_its_size(folder: Path, matching: str) -> None:
    order = range(1, CALLS + 1) if matching == "strict" else range(CALLS, 0, -3)
    command = (sys.executable, "-m", "fairlead", "replay", "./one", "--match", matching)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", MEASURE, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(talk().encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 0
        for n in order:
            params = {"name": "fetch", "arguments": {"n": n}}
            asked = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert answer["result"]["content"][0]["text"] == f"{n} {TEXT}"
        process.stdin.close()
        assert process.wait(LIMIT) == 0
    assert int((folder / "peak").read_text()) < MOST


def test_a_tape_with_too_many_messages_is_rejected_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead.errors import ConfigError
    from fairlead.recording.replay import script as cues

    line = talk().splitlines()[1]
    head = '"at":0.1,"dir":"client_to_server","session":"s1"'
    place = tmp_path / "many.tape.jsonl"
    place.write_text("".join(f'{{"seq":{n},{head},"message":{line}}}\n' for n in range(11)))
    monkeypatch.setattr(cues, "MOST", 11)
    assert len(cues.load_script(place)) == 11
    monkeypatch.setattr(cues, "MOST", 10)
    with pytest.raises(ConfigError, match="more than 10 messages.*`fairlead tape trim`"):
        cues.load_script(place)


def test_a_tape_that_is_overwritten_during_a_replay_is_detected(tmp_path: Path) -> None:
    from fairlead.errors import ConfigError
    from fairlead.recording.replay import load_script

    write = tmp_path / "one.tape.jsonl"
    line = talk().splitlines()[0]
    write.write_text(f'{{"seq":1,"at":0,"dir":"client_to_server","message":{line}}}\n')
    [cue] = load_script(write)
    assert cue.params["protocolVersion"] == "2025-11-25"
    os.truncate(write, 20)
    with pytest.raises(ConfigError, match="was overwritten while it was read"):
        cue.read()


def test_progress_of_a_tape_command_is_shown_on_a_terminal_and_erased(folder: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "tape", "show", "./one"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "FAIRLEAD_HOME": str(folder)},
    )
    os.close(theirs)
    shown = b""
    try:
        while some := os.read(ours, 65536):
            shown += some
    except OSError:
        pass  # the last writer has closed the terminal
    finally:
        os.close(ours)
    assert process.wait(LIMIT) == 0
    # No progress is shown on a fast machine; otherwise it must be erased.
    assert not shown or (b"% of 96." in shown and shown.endswith(b"\r\x1b[K"))
