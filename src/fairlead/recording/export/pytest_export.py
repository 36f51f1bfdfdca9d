"""A tape as a test: the server it was recorded from has to answer the same again."""

import os
import re
from pathlib import Path
from typing import Any

from ..tape.format import TapeInfo, command_of

__all__ = ["text_of_test"]

_TEXT = '''\
"""Made from the tape {name}: its server has to answer as it did."""

import asyncio
from pathlib import Path

from fairlead.recording.replay import replay_tape

TAPE = {tape}
SERVER = {server}
IGNORE: list[str] = []  # paths that may differ, such as "result.content.*.text"


def test_{word}_answers_as_it_did() -> None:
    report = asyncio.run(replay_tape(TAPE, SERVER, ignore=IGNORE))
    assert report.same, str(report)
'''


def text_of_test(info: TapeInfo, tape: Path, folder: Path | None) -> str:
    """The file; it finds its tape from its own folder, if that is known."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", info.name).strip("_").lower() or "tape"
    name = re.sub(r"[^\w .:-]+", "_", info.name)[:100]  # a tape may come from a stranger
    where = f"Path({str(tape)!r})"
    if folder is not None:
        where = f"Path(__file__).parent / {os.path.relpath(tape, folder)!r}"
    return _TEXT.format(name=name, tape=where, server=repr(_server(info)), word=word)


def _server(info: TapeInfo) -> dict[str, Any]:
    command = command_of(info)
    if command:
        return {"command": command[0], "args": command[1:]}
    return {"url": str(info.about.get("url", ""))}
