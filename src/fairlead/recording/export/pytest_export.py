"""Export of a tape to a test that the recorded server still gives the same responses."""

import os
import re
from pathlib import Path
from typing import Any

from ..tape.format import TapeInfo, command_of

__all__ = ["text_of_test"]

_TEXT = '''\
"""Test generated from the tape {name}: its server must give the recorded responses."""

import asyncio
from pathlib import Path

from fairlead.recording.replay import replay_tape

TAPE = {tape}
SERVER = {server}
IGNORE: list[str] = []  # paths that may differ, such as "result.content.*.text"


def test_{word}_gives_the_recorded_responses() -> None:
    report = asyncio.run(replay_tape(TAPE, SERVER, ignore=IGNORE))
    assert report.same, str(report)
'''


def text_of_test(info: TapeInfo, tape: Path, folder: Path | None) -> str:
    """Return the source of the test; with `folder`, the path of the tape is relative to it."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", info.name).strip("_").lower() or "tape"
    # A tape may come from another person, and its name is inserted into source code.
    name = re.sub(r"[^\w .:-]+", "_", info.name)[:100]
    where = f"Path({str(tape)!r})"
    if folder is not None:
        where = f"Path(__file__).parent / {os.path.relpath(tape, folder)!r}"
    return _TEXT.format(name=name, tape=where, server=repr(_server(info)), word=word)


def _server(info: TapeInfo) -> dict[str, Any]:
    command = command_of(info)
    if command:
        return {"command": command[0], "args": command[1:]}
    return {"url": str(info.about.get("url", ""))}
