"""Export of a tape to a pytest test that replays the tape and compares the responses."""

import os
import re
from pathlib import Path
from typing import Any

from ..tape.format import TapeInfo, command_of

__all__ = ["text_of_test"]

_TEXT = '''\
"""Test generated from the tape {name}: its server must return the recorded responses."""

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
    """Return the source code of the test.

    If `folder` is given, the tape's path is relative to it.
    """
    word = re.sub(r"[^A-Za-z0-9]+", "_", info.name).strip("_").lower() or "tape"
    # The name is inserted into source code, and tapes may come from untrusted sources.
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
