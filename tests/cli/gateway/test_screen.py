"""Lines that a gateway prints about its servers."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.cli.gateway.choose_servers import ChosenServers
from fairlead.cli.gateway.screen import Screen
from fairlead.upstream.status_events import StatusEvent


def screen(state: str) -> Screen:
    upstream, settings = SimpleNamespace(state=state, client=None), SimpleNamespace(name="g")
    gateway: Any = SimpleNamespace(upstreams={"notes": upstream}, members={}, settings=settings)
    return Screen(gateway, "http://127.0.0.1:8765/mcp", token=None, json=False)


def test_the_line_of_a_suspended_server_has_the_command_that_connects_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = StatusEvent(kind="failed", names=("notes",), error="suspended after many losses")
    screen("suspended").happened(event)
    screen("failed").happened(event)
    suspended, failed = capsys.readouterr().out.splitlines()
    assert re.search(
        r" notes: failed: suspended after many losses; to connect it: .*"
        r"mcp reconnect notes",
        suspended,
    )
    assert failed.endswith("notes: failed: suspended after many losses")


@pytest.mark.parametrize(("journal", "dated"), [(False, True), (True, False)])
def test_lines_begin_with_the_time_except_in_the_journal_of_systemd(
    journal: bool,
    dated: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    if journal:
        monkeypatch.setenv("JOURNAL_STREAM", "8:12345")
    it = screen("failed")
    it.happened(StatusEvent(kind="failed", names=("notes",), error="why"))
    it.failed("no such key")
    out, err = capsys.readouterr()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} " if dated else ""
    assert re.fullmatch(f"{time}notes: failed: why\n", out)
    assert re.fullmatch(f"{time}warning: the change is ignored: no such key\n", err)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_relative_paths_are_explained_if_the_gateway_file_is_in_another_folder(
    elsewhere: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tools" if elsewhere else tmp_path
    file: Any = SimpleNamespace(path=str(folder / "gateway.toml"))
    it = screen("failed")
    it.opened(ChosenServers(servers={}, file=file))
    capsys.readouterr()
    missing = "python: can't open file 'notes.py': [Errno 2] No such file or directory"
    for name in ("notes", "drafts"):
        it.happened(StatusEvent(kind="failed", names=(name,), error=missing))
    [_, *help_lines, _] = capsys.readouterr().out.splitlines()
    explained = [
        f"help: relative paths apply to the current folder, {tmp_path}; if the servers are",
        f"      in {folder}, start the gateway there, or set `cwd` of the servers",
    ]
    assert help_lines == (explained if elsewhere else [])
