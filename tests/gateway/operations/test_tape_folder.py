"""The folder of a gateway's tapes: names, existing tapes, and deletion."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.operations import tape_control
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.protocol.envelope import Direction
from tests.support.single_exchange import Behind, exchange

UP = Direction.CLIENT_TO_SERVER


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("a", True),
        ("A_b-c.9", True),
        ("_a", True),
        ("x" * 100, True),
        ("x" * 101, False),
        ("", False),
        (".a", False),
        ("-a", False),
        ("../a", False),
        ("a/b", False),
        ("a b", False),
        ("a.tape.json", False),
        ("a.tape.jsonl", False),
    ],
)
def test_an_invalid_tape_name_is_refused(tmp_path: Path, name: str, good: bool) -> None:
    tapes = TapeControl(tmp_path)
    if good:
        assert tapes.place_of(name) == tmp_path / name
    else:
        with pytest.raises(ConfigError, match="^invalid tape name .*: expected up to 100 letters"):
            tapes.place_of(name)


def test_the_error_for_an_invalid_tape_name_truncates_a_long_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        TapeControl(tmp_path).place_of("x" * 121)
    assert str(refused.value).startswith(f"invalid tape name '{'x' * 120}': expected")


def test_only_one_tape_is_recorded_at_a_time(tmp_path: Path) -> None:
    tapes = TapeControl(tmp_path, about={"command": "x"})
    assert (tapes.recording, tapes.last, tapes.stop()) == (None, None, None)
    tape = tapes.start("one", tags=["t"])
    assert (tapes.recording, tapes.last) == (tape, tape)
    assert (tape.info.tags, tape.info.about, tape.info.redacted) == (["t"], {"command": "x"}, True)
    with pytest.raises(ConfigError, match="tape 'one' is being recorded: stop the recording first"):
        tapes.start("two")
    with pytest.raises(
        ConfigError, match="^tape 'one' is being recorded: stop the recording first$"
    ):
        tapes.delete("one")
    info = tapes.stop()
    assert info is not None
    assert (info.status, tapes.recording, tapes.last) == ("complete", None, tape)
    with pytest.raises(ConfigError, match="tape 'one' already exists"):
        tapes.start("one")
    assert tapes.start("one", overwrite=True, redact=False).info.redacted is False
    tapes.stop()
    tapes.delete("one")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="tape .* does not exist"):
        tapes.delete("one")


def test_a_tape_without_a_name_is_named_after_its_start_time(tmp_path: Path) -> None:
    tapes = TapeControl(tmp_path)
    assert tapes.start().info.name.startswith("gateway-2")
    tapes.stop()
    elsewhere = tapes.start(place=tmp_path / "deep" / "x")
    assert elsewhere.path == tmp_path / "deep" / "x.tape.jsonl"
    tapes.stop()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tapes = TapeControl(tmp_path / "file")
    with pytest.raises(
        ConfigError, match=r"cannot record tape .*file/one: (Not a dir|File exists)"
    ):
        tapes.start("one")
    assert tapes.recording is None


def test_a_tape_that_cannot_be_read_or_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tapes = TapeControl(tmp_path)
    tapes.start("one")
    tapes.stop()

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(ConfigError, match="^cannot delete tape 'one': Permission denied$"):
            tapes.delete("one")
    monkeypatch.setattr(tape_control, "TapeReader", refuse)
    with pytest.raises(ConfigError, match="^cannot read tape 'one': Permission denied$"):
        tapes.open("one")


def test_tapes_are_listed_with_their_name_status_size_and_number_of_entries(tmp_path: Path) -> None:
    tapes = TapeControl(tmp_path)
    tape = tapes.start("one")
    tape.write(b'{"method":"x"}', UP, "s1")
    (listed,) = tapes.list()
    assert (listed["name"], listed["status"], listed["entries"]) == ("one", "recording", None)
    tapes.stop()
    (listed,) = tapes.list()
    assert (listed["status"], listed["entries"], listed["lost"]) == ("complete", 1, 0)
    assert (listed["parts"], listed["tags"], listed["size"] > 10) == (1, [], True)
    (tmp_path / "odd.tape.jsonl").touch()
    (tmp_path / "odd.tape.json").write_text(json.dumps({"version": 99}))
    assert [one["name"] for one in tapes.list()] == ["one"]


async def test_messages_are_recorded_only_during_a_recording(tmp_path: Path) -> None:
    tapes, behind = TapeControl(tmp_path, secrets=["hunter2-hunter2"]), Behind()
    await tapes(exchange("x", {"n": 1}), behind)
    tape = tapes.start("one")
    await tapes(exchange("x", {"n": 2, "text": "hunter2-hunter2"}), behind)
    tapes.stop()
    await tapes(exchange("x", {"n": 3}), behind)
    text = tape.path.read_text()
    found: list[Any] = [json.loads(line)["message"] for line in text.splitlines()]
    assert [one["params"]["n"] for one in found if "params" in one] == [2]
    assert "hunter2" not in text
    assert len(behind.seen) == 3
