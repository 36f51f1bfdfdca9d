"""Tests of the metadata and the names of tapes."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import read_entry
from fairlead.recording.tape.format import TapeInfo, about_entry, base_of, command_of


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
def test_the_command_of_a_tape_may_be_a_list_or_a_string(
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
def test_the_metadata_of_a_tape_contains_the_command_or_url_of_the_server(
    server: dict[str, Any], about: dict[str, Any]
) -> None:
    assert about_entry(read_entry(server)) == about
    assert about_entry(None) == {}


def test_the_name_of_a_tape_excludes_its_suffix() -> None:
    assert base_of("x/a.tape.jsonl") == base_of(Path("x/a")) == "x/a"
