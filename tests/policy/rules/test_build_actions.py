"""Tests of checks on files that rules name."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fairlead.policy.rules import RulesError, RuleSet
from fairlead.policy.rules.build_actions import find_unwritable
from fairlead.recording.tape import TapeWriter
from tests.support.cli_process import fairlead

RULES = """\
[[rules]]
name = "a"
do = { audit = "nowhere/audit.jsonl" }

[[rules]]
name = "b"
do = [{ record = "rules.toml/x" }, { audit = { payloads = "always", path = "." } }]

[[rules]]
name = "c"
do = { lock = { file = "gone.lock.json" } }

[[rules]]
name = "d"
do = [{ use = "nosuchmodule:Thing" }, { use = { code = "gone.py:Thing" } }]

[[rules]]
name = "e"
do = { blok = "so that there is another mistake" }
"""


@pytest.mark.covers("GTW-09")
def test_actions_with_unusable_files_are_reported_with_their_location(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    done = fairlead("rules", "check", "rules.toml", cwd=tmp_path)
    assert done.returncode == 1
    told = [line.removeprefix("  | rules.toml:") for line in done.stderr.splitlines()[1:]]
    assert told == [
        f"3:8: `audit`: directory {tmp_path}/nowhere does not exist",
        f"7:9: `record`: {tmp_path}/rules.toml is not a directory",
        f"7:69: `audit`: {tmp_path}/. is a directory, not a file",
        f"11:8: `lock`: {tmp_path}/gone.lock.json cannot be read: No such file or directory",
        "15:9: `use`: nosuchmodule cannot be imported: ModuleNotFoundError: "
        "No module named 'nosuchmodule'",
        f"15:41: `use`: file {tmp_path}/gone.py does not exist",
        "19:8: unknown action 'blok': did you mean 'block'?",
    ]
    mistakes = json.loads(fairlead("rules", "check", "--json", "rules.toml", cwd=tmp_path).stdout)
    assert [one["line"] for one in mistakes["mistakes"]] == [3, 7, 7, 11, 15, 15, 19]
    # Loading the rules reports the same mistakes.
    refused = fairlead("proxy", "--rules", "rules.toml", "--", "true", cwd=tmp_path)
    assert refused.returncode == 2
    assert all(line in refused.stderr for line in told)
    assert [one.name for one in tmp_path.iterdir()] == ["rules.toml"], "a check writes no files"


def test_files_that_do_not_exist_yet_are_valid(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text("")
    file = tmp_path / "rules.yaml"
    file.write_text(
        "rules:\n"
        "  - do: [{audit: new.jsonl}, {audit: old.jsonl}, audit, {record: new/folder/tape}]\n"
        "  - {name: held, do: {record: live}}\n"
    )
    with TapeWriter(tmp_path / "live"):  # a tape that is being recorded is valid
        done = fairlead("rules", "check", str(file))
    assert done.returncode == 0, done.stderr
    assert not {"new.jsonl", "new"} & set(os.listdir(tmp_path))


def test_files_that_are_not_writable_are_reported_as_mistakes() -> None:
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        sealed, old = Path(folder, "sealed"), Path(folder, "old.jsonl")
        sealed.mkdir(mode=0o555)
        old.touch(0o444)
        wanted = [{"audit": f"{sealed}/a.jsonl"}, {"audit": str(old)}]
        with as_nobody():
            with pytest.raises(RulesError) as told:
                RuleSet.of_data({"rules": [{"do": wanted}]})
            tape = find_unwritable("record", {"tape": f"{sealed}/a/b"}, "")
    assert f"directory {sealed} is not writable" in str(told.value)
    assert f"{old} is not writable" in str(told.value)
    assert tape == ("tape", f"directory {sealed} is not writable")


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Change the real user id, which `os.access` uses, because root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, -1, -1)
    try:
        yield
    finally:
        os.setresuid(0, -1, -1)


NOBODY = 65534


def test_a_writable_file_in_a_read_only_directory_is_valid() -> None:
    """An administrator may have created the file in a log directory."""
    with TemporaryDirectory() as folder:
        log = Path(folder, "audit.jsonl")
        log.touch()
        log.chmod(0o666)
        os.chmod(folder, 0o555)
        try:
            with as_nobody():
                RuleSet.of_data({"rules": [{"do": {"audit": str(log)}}]}).close()
                with pytest.raises(RulesError, match="directory .* is not writable"):
                    RuleSet.of_data({"rules": [{"do": {"audit": f"{log}.new"}}]})
        finally:
            os.chmod(folder, 0o755)


def test_a_dry_run_does_not_check_files(tmp_path: Path) -> None:
    """A dry run writes no files, so their directories need not exist."""
    (tmp_path / "rules.toml").write_text('[[rules]]\ndo = { audit = "/no/such/folder/a.jsonl" }\n')
    with TapeWriter(tmp_path / "one"):
        pass
    done = fairlead("rules", "test", "rules.toml", "./one", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_already_open_is_not_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    file = tmp_path / "rules.json"
    rule = {"name": "a", "do": [{"audit": "logs/a.jsonl"}]}
    file.write_text(json.dumps({"rules": [rule]}))
    rules = RuleSet.of_file(file)
    try:
        logs.rename(tmp_path / "moved")
        file.write_text(json.dumps({"rules": [{**rule, "name": "b", "timeout": 1}]}))
        rules.reload()
        assert [one.name for one in rules.rules] == ["b"]
        file.write_text(json.dumps({"rules": [{"do": {"audit": "logs/b.jsonl"}}]}))
        with pytest.raises(RulesError, match="directory .* does not exist"):
            rules.reload()
    finally:
        rules.close()
    monkeypatch.chdir(tmp_path)
    # relative to the current directory
    RuleSet.of_data({"rules": [{"do": {"audit": "here.jsonl"}}]}).close()
    assert (tmp_path / "here.jsonl").exists()
