"""Damaged, edited and forged tapes: commands report the problem without a traceback."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_user import Person, person

__all__ = ["person"]

UP, DOWN = "client_to_server", "server_to_client"
ABOUT: dict[str, Any] = {
    "version": 1,
    "name": "odd",
    "began": 1.7e9,
    "status": "complete",
    "entries": 5,
    "about": {"command": ["python", "notes.py"]},
}
INFO = {"name": "x", "version": "1"}
VERSION = {"protocolVersion": "2025-11-25", "capabilities": {}}
MESSAGES: list[tuple[str, dict[str, Any]]] = [
    (UP, {"id": 0, "method": "initialize", "params": {**VERSION, "clientInfo": INFO}}),
    (DOWN, {"id": 0, "result": {**VERSION, "serverInfo": INFO}}),
    (UP, {"method": "notifications/initialized"}),
    (UP, {"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}),
    (DOWN, {"id": 1, "result": {"content": [{"type": "text", "text": "3"}]}}),
]


def entries() -> list[dict[str, Any]]:
    return [
        {
            "seq": seq,
            "at": seq / 10,
            "dir": way,
            "session": "s1",
            "message": {"jsonrpc": "2.0", **message},
        }
        for seq, (way, message) in enumerate(json.loads(json.dumps(MESSAGES)), 1)
    ]


def lines(some: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in some)


class Shelf:
    """A tape folder with one valid tape."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.folder = person.ours / "data" / "tapes"
        self.folder.mkdir(parents=True)
        self.put("good", lines(entries()), json.dumps(ABOUT).encode())

    def put(self, name: str, tape: bytes, about: bytes | None) -> None:
        (self.folder / f"{name}.tape.jsonl").write_bytes(tape)
        if about is not None:
            (self.folder / f"{name}.tape.json").write_bytes(about)

    def uses(self, name: str) -> dict[str, tuple[int, str, str]]:
        """Run every tape command with a tape; fail if one prints a traceback."""
        out = str(self.person.project / "out.har")
        commands = {
            "show": ("tape", "show", name),
            "full": ("tape", "show", name, "--full"),
            "json": ("tape", "show", name, "--json"),
            "diff": ("tape", "diff", "good", name),
            "self": ("tape", "diff", name, name, "--json"),
            "trim": ("tape", "trim", name, "-o", "trimmed", "--force"),
            "har": ("tape", "export", name, "--har", "-o", out, "--force"),
            "test": ("tape", "export", name, "--pytest"),
            "list": ("tape", "list"),
        }
        done = {what: self.person.does(*command) for what, command in commands.items()}
        assert all("Traceback" not in one.err for one in done.values())
        if done["har"].code == 0:
            json.loads(Path(out).read_text())
        if done["test"].code == 0:
            compile(done["test"].out, "exported", "exec")
        return {what: (one.code, one.out, one.err) for what, one in done.items()}


@pytest.fixture
def shelf(person: Person) -> Shelf:
    return Shelf(person)


def changed(change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    some = entries()
    change(some)
    return lines(some)


READ = ("show", "full", "json", "diff", "trim", "har")


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize(
    ("tape", "says"),
    [
        (lines(entries()[::-1]), "the sequence numbers decrease in 4 places"),
        (changed(lambda some: some.insert(2, some.pop(3))), "decrease in 1 place"),
        (changed(lambda some: some[1].update(seq=1)), "1 duplicate sequence number"),
        (lines(entries()) * 2, "odd.tape.json lists 5 messages, but the tape has 10"),
        (changed(lambda some: some[3].update(dir="sideways")), "1 line could not be read"),
        (changed(lambda some: some[3].update(seq=2**70)), "decrease in 1 place"),
        (lines(entries())[:-9], "1 line could not be read"),
        (lines(entries()).replace(b'"add"', b'"\xff\xfe"'), "1 line could not be read"),
        (b"\xef\xbb\xbf" + lines(entries()), "1 line could not be read"),
        (b"", "lists 5 messages, but the tape has 0"),
        (b"\0" * 5000 + b"\n", "1 line could not be read"),
    ],
)
def test_damaged_lines_of_a_tape_are_reported(shelf: Shelf, tape: bytes, says: str) -> None:
    shelf.put("odd", tape, json.dumps(ABOUT).encode())
    done = shelf.uses("odd")
    for what in READ:
        assert says in done[what][2], (what, done[what])
    assert done["self"][0] == 0  # `tape diff` of a tape with itself reports no difference


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize(
    ("about", "says"),
    [
        (None, "odd.tape.json is missing"),
        (b"", "odd.tape.json cannot be read"),
        (b"[]", "odd.tape.json cannot be read"),
        (b'{"name":"\xff"}', "odd.tape.json cannot be read"),
        (b'{"about":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, "odd.tape.json cannot be read"),
        ({"version": "2"}, "odd.tape.json cannot be read"),
        ({"entries": "many"}, "odd.tape.json cannot be read"),
        ({"status": "fine"}, "odd.tape.json cannot be read"),
        ({"began": 1e300}, "odd.tape.json cannot be read"),
        ({"parts": 0}, "odd.tape.json cannot be read"),
    ],
)
def test_problems_in_the_companion_file_of_a_tape_are_reported(
    shelf: Shelf, about: Any, says: str
) -> None:
    if isinstance(about, dict):
        about = json.dumps({**ABOUT, **about}).encode()
    shelf.put("odd", lines(entries()), about)
    done = shelf.uses("odd")
    for what in (*READ, "list"):
        assert says in done[what][2], (what, done[what])
    assert done["diff"][0] == 0
    assert len(done["show"][1].splitlines()) == 5


def test_a_companion_file_that_contradicts_its_tape_is_reported(shelf: Shelf) -> None:
    for told, says in (
        ({"entries": 5000}, "odd.tape.json lists 5000 messages, but the tape has 5"),
        ({"parts": 3}, "odd.tape.json lists 3 parts, but odd.3.tape.jsonl is missing"),
    ):
        shelf.put("odd", lines(entries()), json.dumps({**ABOUT, **told}).encode())
        done = shelf.uses("odd")
        for what in READ:
            assert says in done[what][2], (what, done[what])


@pytest.mark.covers("GTW-10")
def test_a_tape_of_a_newer_version_is_rejected(shelf: Shelf) -> None:
    newer = json.dumps({**ABOUT, "version": 2, "status": "later", "entries": {"a": 1}})
    shelf.put("odd", lines(entries()), newer.encode())
    done = shelf.uses("odd")
    for what in (*READ, "self", "test"):
        assert done[what][0] == 1
        assert "has tape version 2; this Fairlead reads 1" in done[what][2]
    assert "skipped: " in done["list"][2]
    refused = shelf.person.runs("replay", "odd")
    assert (refused.code, refused.out) == (1, "")
    assert "version 2" in refused.err


def test_tape_commands_preserve_unknown_members_of_entries(shelf: Shelf) -> None:
    tape = changed(lambda some: [one.update(later={"a": [1.50]}) for one in some])
    shelf.put("odd", tape, json.dumps({**ABOUT, "later": 1}).encode())
    done = shelf.uses("odd")
    assert all(done[what][::2] == (0, "") for what in ("show", "json", "diff", "trim"))
    assert (shelf.folder / "trimmed.tape.jsonl").read_bytes() == tape


def test_responses_without_a_request_are_shown_and_kept_but_omitted_by_filters(
    shelf: Shelf,
) -> None:
    shelf.put("odd", lines(entries()[1:2] + entries()[4:]), None)
    assert len(shelf.uses("odd")["show"][1].splitlines()) == 2
    assert len((shelf.folder / "trimmed.tape.jsonl").read_bytes().splitlines()) == 2
    assert shelf.person.does("tape", "show", "odd", "--method", "tools/*").out == ""
    left = shelf.person.does("tape", "show", "good", "--from", "5").out
    assert left == ""  # the response is omitted because its request was filtered out


@pytest.mark.parametrize(
    "change",
    [
        {"method": 5},
        {"method": ["a"]},
        {"id": [1]},
        {"id": {}},
        {"id": None},
        {"params": [1]},
        {"params": {"name": {"a": 1}, "_meta": {"progressToken": []}}},
        {"params": {"name": "x\n    9      0.900 s1  → made up", "_meta": 5}},
    ],
    ids=repr,
)
def test_invalid_messages_cause_no_traceback_in_tape_commands(
    shelf: Shelf, change: dict[str, Any]
) -> None:
    tape = changed(lambda some: some[3]["message"].update(change))
    shelf.put("odd", tape, json.dumps(ABOUT).encode())
    done = shelf.uses("odd")
    assert len(done["show"][1].splitlines()) == 5


def test_extreme_numbers_names_and_depths_cause_no_traceback_in_tape_commands(shelf: Shelf) -> None:
    deep = lines(entries()).replace(b'"a": 1', b'"a": ' + b"[" * 900 + b"]" * 900)
    for tape, about in (
        (changed(lambda some: some[3].update(at=1e300)), {}),
        (changed(lambda some: [one.update(at=-1e15) for one in some]), {}),
        (changed(lambda some: [one.update(seq=-one["seq"]) for one in some]), {}),
        (changed(lambda some: [one.update(session="\x1b]0;x\x07\n") for one in some]), {}),
        (changed(lambda some: some[0].update(transport={"headers": {"a": 5, "b": [1]}})), {}),
        (deep, {}),
        (deep.replace(b'"text": "3"', b'"text": 1' + b"0" * 400), {}),
        (lines(entries()), {"name": '\\N{bad} """ \n\x1b[31m ²', "tags": ["\x1b[31m\n"]}),
        (lines(entries()), {"about": {"command": [1, None]}}),
    ):
        shelf.put("odd", tape, json.dumps({**ABOUT, **about}).encode())
        done = shelf.uses("odd")
        assert done["test"][0] == 0
        assert "\x1b" not in "".join(done[what][1] for what in ("show", "full", "list", "test"))
    for about in ({"command": "python 'unbalanced"}, {"url": ["x"]}, {}):
        shelf.put("odd", lines(entries()), json.dumps({**ABOUT, "about": about}).encode())
        assert "does not contain the command or URL of its server" in shelf.uses("odd")["test"][2]


def test_folders_and_pipes_are_rejected_as_tapes(shelf: Shelf) -> None:
    (shelf.folder / "good.2.tape.jsonl").mkdir()
    (shelf.folder / "folder.tape.jsonl").mkdir()
    os.mkfifo(shelf.folder / "pipe.tape.jsonl")
    assert shelf.uses("good")["diff"][0] == 0
    for name in ("folder", "pipe"):
        assert all(done[0] == 1 for what, done in shelf.uses(name).items() if what != "list")


@pytest.mark.covers("GTW-11")
def test_a_damaged_tape_is_replayed_unchanged(shelf: Shelf) -> None:
    server = shelf.person.folder / "notes.py"
    server.write_text(
        "import asyncio\n"
        "from fairlead import MCPServer\n"
        "server = MCPServer('notes')\n"
        "@server.tool()\n"
        "async def add(a: str) -> int:\n"
        "    if a == 'wait':\n"
        "        await asyncio.Event().wait()  # until the second handshake cancels this call\n"
        "    return 3\n"
        "server.run()\n"
    )
    calls = (lines(entries()).replace(b'{"a": 1}', b'{"a": "%b"}' % a) for a in (b"wait", b"x"))
    shelf.put("odd", b"".join(calls), None)
    replay = (sys.executable, "-m", "fairlead", "replay", str(shelf.folder / "odd.tape.jsonl"))
    player = shelf.person.runs("call", "add", "a=x", "--", *replay)
    assert (player.code, player.out.strip()) == (0, "3"), player.err
    ignore = ("--ignore", "result.**")
    against = shelf.person.runs(
        *("replay", "odd", "--against", "--timeout", "3", *ignore),
        *("--", sys.executable, str(server)),
    )
    # The second handshake on this tape cancels the previous call, which gets no response.
    assert against.code == 1
    assert against.out.endswith("4 compared, 1 differ\n"), against.out
    for said in ("the sequence numbers decrease in 1 place", "odd.tape.json is missing"):
        assert said in against.err
