"""Tests of the export of tapes to pytest tests."""

from pathlib import Path

import pytest

from fairlead.recording.export.pytest_export import text_of_test
from fairlead.recording.tape.format import TapeInfo


@pytest.mark.parametrize(
    ("name", "word"),
    [("My Tape: 2", "my_tape_2"), ("___", "tape"), ("ünï", "n"), ("a\n'\"b", "a_b")],
)
def test_a_generated_test_is_named_after_its_tape(name: str, word: str, tmp_path: Path) -> None:
    info = TapeInfo(name=name, about={"command": ["python", "s.py"]})
    text = text_of_test(info, tmp_path / "t.tape", None)
    compile(text, "test", "exec")
    assert f"def test_{word}_gives_the_recorded_responses()" in text
    assert f"TAPE = Path({str(tmp_path / 't.tape')!r})" in text
    assert "SERVER = {'command': 'python', 'args': ['s.py']}" in text


def test_a_generated_test_refers_to_its_tape_by_a_relative_path(tmp_path: Path) -> None:
    info = TapeInfo(name="a", about={"url": "http://localhost/mcp"})
    text = text_of_test(info, tmp_path / "tapes" / "a", tmp_path / "tests")
    assert "TAPE = Path(__file__).parent / '../tapes/a'" in text
    assert "SERVER = {'url': 'http://localhost/mcp'}" in text
