"""Messages on tapes: what they are, what they answer, and tests that are written for them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.entries import read_entry
from fairlead.gateway.replay.against import _cut, _short
from fairlead.gateway.replay.cues import read_refusal
from fairlead.gateway.tape.comparing import Namer, same_names
from fairlead.gateway.tape.format import Entry, TapeInfo, about_entry, base_of, command_of
from fairlead.gateway.tape.heading import heading_of, summary_of
from fairlead.gateway.tape.testing import text_of_test
from fairlead.protocol.envelope import Direction

UP, DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


def entry(message: Any, way: Direction = UP, session: str | None = None) -> Entry:
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    return Entry(seq=1, at=0.0, dir=way, message=Raw(raw), session=session)


@pytest.mark.parametrize(
    ("message", "summary"),
    [
        ({"method": "tools/call", "id": 1, "params": {"name": "add"}}, "tools/call add"),
        ({"method": "resources/read", "id": 1, "params": {"uri": "a://b"}}, "resources/read a://b"),
        ({"method": "x", "params": {"name": 5, "uri": "a://b"}}, "x"),
        ({"method": "x", "params": [1]}, "x"),
        ({"method": "x"}, "x"),
        ({"id": 1, "result": {}}, "result"),
        ({"id": 1, "error": {"code": -3, "message": "no"}}, "error -3: no"),
        ({"id": 1, "error": "odd"}, "error None: None"),
        ({"id": 1}, "no message"),
        (b"[1]", "no message"),
    ],
)
def test_a_message_is_summarised_in_a_few_words(message: Any, summary: str) -> None:
    assert summary_of(heading_of(entry(message))) == summary


def test_a_heading_tells_requests_and_ids() -> None:
    request = heading_of(entry({"method": "m", "id": "7", "params": {"a": 1}}))
    assert (request.is_request, request.name, request.read_params()) == (True, "7", {"a": 1})
    note = heading_of(entry({"method": "m", "params": [1]}))
    assert (note.is_request, note.name, note.read_params()) == (False, None, {})
    answer = heading_of(entry({"id": 1.5, "result": {}}))
    assert (answer.is_request, answer.name, answer.read_error()) == (False, None, {})


def test_ids_are_replaced_by_what_they_belong_to() -> None:
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 2}}
    messages = [
        entry({"method": "tools/call", "id": 1, "params": {"name": "add"}}, session="a"),
        entry({"method": "ping", "id": 1}, DOWN, "a"),
        entry({"method": "tools/list", "id": 2}, session="a"),
        entry(cancelled, session="a"),
        entry({"id": 1, "result": {"_meta": {"progressToken": 5}}}, DOWN, "a"),
        entry({"id": 1, "result": {}}, UP, "a"),
        entry({"id": 1, "result": {}}, DOWN, "b"),
        entry({"method": "notifications/cancelled", "params": {"requestId": [1]}}, session="a"),
    ]
    named = [message for _, message in same_names(messages)]
    assert [message.get("id") for message in named] == [
        "its own",
        "its own",
        "its own",
        None,
        "of tools/call add",
        "of ping",
        "of nothing",
        None,
    ]
    assert named[3]["params"] == {"requestId": "of tools/list"}
    assert named[4]["result"] == {"_meta": {"progressToken": "a token"}}
    assert named[7]["params"] == {"requestId": "of nothing"}


def test_messages_that_differ_in_names_only_carry_the_same() -> None:
    def same(one: Any, two: Any) -> bool:
        return Namer.content(entry(one)) == Namer.content(entry(two))

    call = {"method": "tools/call", "id": 1, "params": {"name": "a", "_meta": {"progressToken": 1}}}
    other = {"method": "tools/call", "id": 2, "params": {"_meta": {"progressToken": "x"}}}
    other["params"]["name"] = "a"  # type: ignore[index]
    assert not same(call, other)  # the order of members counts
    again = {**call, "id": 9, "params": {"name": "a", "_meta": {"progressToken": "x"}}}
    assert same(call, again)
    assert not same(call, {**again, "params": {**call["params"], "name": "b"}})  # type: ignore[dict-item]
    cancel = "notifications/cancelled"
    assert same(
        {"method": cancel, "params": {"requestId": 1, "reason": "x"}},
        {"method": cancel, "params": {"requestId": 2, "reason": "x"}},
    )
    assert same({"method": cancel}, {"method": cancel, "id": 5})
    assert not same({"method": cancel, "params": [1]}, {"method": cancel, "params": [2]})
    assert not same({"method": "m", "params": {"requestId": 1}}, {"method": "m", "params": {}})
    assert same({"result": {"a": 1}, "id": 1}, {"result": {"a": 1}, "id": 2})
    assert Namer.content(entry(b"[1]")) == 0
    huge = b'{"method":"m","params":{"progressToken":1,"n":%b}}' % (b"9" * 30)
    assert Namer.content(entry(huge)) == Namer.content(entry(huge))


@pytest.mark.parametrize(
    ("name", "word"),
    [("My Tape: 2", "my_tape_2"), ("___", "tape"), ("ünï", "n"), ("a\n'\"b", "a_b")],
)
def test_a_written_test_is_named_after_its_tape(name: str, word: str, tmp_path: Path) -> None:
    info = TapeInfo(name=name, about={"command": ["python", "s.py"]})
    text = text_of_test(info, tmp_path / "t.tape", None)
    compile(text, "test", "exec")
    assert f"def test_{word}_answers_as_it_did()" in text
    assert f"TAPE = Path({str(tmp_path / 't.tape')!r})" in text
    assert "SERVER = {'command': 'python', 'args': ['s.py']}" in text


def test_a_written_test_finds_its_tape_from_its_own_folder(tmp_path: Path) -> None:
    info = TapeInfo(name="a", about={"url": "http://localhost/mcp"})
    text = text_of_test(info, tmp_path / "tapes" / "a", tmp_path / "tests")
    assert "TAPE = Path(__file__).parent / '../tapes/a'" in text
    assert "SERVER = {'url': 'http://localhost/mcp'}" in text


@pytest.mark.parametrize(
    ("about", "command"),
    [
        ({"command": "python 's 1.py' -x"}, ["python", "s 1.py", "-x"]),
        ({"command": "python 's"}, []),
        ({"command": ["python", 5]}, ["python", "5"]),
        ({"command": 5}, []),
        ({}, []),
    ],
)
def test_the_command_of_a_tape_may_be_a_list_or_a_text(
    about: dict[str, Any], command: list[str]
) -> None:
    assert command_of(TapeInfo(about=about)) == command


@pytest.mark.parametrize(
    ("server", "about"),
    [
        ({"command": "python", "args": ["s.py"]}, {"command": ["python", "s.py"]}),
        ({"type": "http", "url": "http://localhost/mcp"}, {"url": "http://localhost/mcp"}),
    ],
)
def test_a_tape_says_which_server_it_is_of(server: dict[str, Any], about: dict[str, Any]) -> None:
    assert about_entry(read_entry(server)) == about
    assert about_entry(object()) == {}


def test_a_tape_is_named_without_its_ending() -> None:
    assert base_of("x/a.tape.jsonl") == base_of(Path("x/a")) == "x/a"


def test_long_values_are_cut_in_reports() -> None:
    assert _cut("x" * 10_000) == "x" * 10_000
    assert _cut("x" * 10_001) == "x" * 10_000 + "… (10001 characters)"
    assert _cut([1, 2]) == [1, 2]
    assert _cut(["x" * 10_000]) == '["' + "x" * 9_998 + "… (10004 characters)"
    assert _short("x" * 120) == "x" * 120
    assert _short("x" * 121) == "x" * 119 + "…"
    assert _short({"a": 1}) == '{"a":1}'


@pytest.mark.parametrize("raw", [None, Raw(b"5"), Raw(b'{"code":"x","message":"no"}')])
def test_an_error_that_cannot_be_read_is_an_internal_error(raw: Raw | None) -> None:
    assert read_refusal(raw) == (
        -32603,
        "What was answered cannot be read from the tape",
        None,
    )


def test_an_error_on_a_tape_is_read_with_all_its_members() -> None:
    raw = Raw(b'{"code":-5,"message":"no","data":[1]}')
    assert read_refusal(raw) == (-5, "no", raw)
