"""Tests of the approval of project entries."""

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.config.found_server import FoundServer
from fairlead.config.paths import HostPaths
from fairlead.config.trust import NotApproved, Trust


def found(**more: Any) -> FoundServer:
    fields: dict[str, Any] = {
        "name": "a",
        "host": "cursor",
        "host_title": "Cursor",
        "path": "/p/.cursor/mcp.json",
        "line": 3,
        "level": "project",
        "raw": {"command": "x"},
        "entry": MCPStdioServerConfig(command="x"),
        "dialect": "cursor",
    }
    return FoundServer(**{**fields, **more})


def test_only_files_of_a_project_need_approval(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    assert [trust.trusts(found(level=level)) for level in ("user", "local", "managed")] == [
        True
    ] * 3
    with pytest.raises(NotApproved, match='/p/.cursor/mcp.json:3: Server "a"'):
        trust.require(found())


def test_an_approval_covers_only_the_unchanged_entry(tmp_path: Path) -> None:
    path = tmp_path / "state" / "approvals.json"
    Trust(path).approve(found())
    trust = Trust(path)
    assert trust.trusts(found())
    assert not trust.trusts(found(raw={"command": "y"}))
    assert not trust.trusts(found(name="b"))
    assert not trust.trusts(found(path="/q/.cursor/mcp.json"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["approvals.json"]
    assert trust.approval(found()) == "approved"
    assert trust.approval(found(raw={"command": "y"})) == "changed"
    assert trust.revoke(found(raw={"command": "whatever"}))
    assert not Trust(path).trusts(found())
    assert not trust.revoke(found())


def test_approvals_stored_through_two_objects_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    one, two = Trust(path), Trust(path)
    assert not one.trusts(found())
    two.approve(found(name="b"))
    one.approve(found())
    assert Trust(path).trusts(found())
    assert Trust(path).trusts(found(name="b"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\x00\xff",
        b'{"version": 2}',
        b'{"version": 2, "approved": []}',
        b"[" * 100_000,
    ],
)
def test_a_corrupt_approvals_file_contains_no_approvals(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "approvals.json"
    path.write_bytes(content)
    path.chmod(0o600)
    trust = Trust(path)
    assert not trust.trusts(found())
    assert trust.warnings == [f"{path}: the file is corrupted; all approvals are ignored"]
    trust.approve(found())
    assert Trust(path).trusts(found())


def test_an_approvals_file_that_other_users_can_write_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    Trust(path).approve(found())
    path.chmod(0o666)
    trust = Trust(path)
    assert not trust.trusts(found())
    assert "other users can write" in trust.warnings[0]


def test_the_approvals_file_contains_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    secret = found(raw={"command": "x", "env": {"TOKEN": "s3cret"}})
    Trust(path).approve(secret)
    assert "s3cret" not in path.read_text()
    [kept] = json.loads(path.read_text())["approved"].values()
    assert (kept["name"], kept["path"], kept["runs"]) == ("a", "/p/.cursor/mcp.json", "x")
    assert "s3cret" not in repr(secret) + str(secret) + f"{[secret]}"


def test_the_approvals_file_is_in_the_data_folder() -> None:
    machine = HostPaths(platform="linux", home="/home/ada", env={}, cwd="/")
    assert str(Trust.of(machine).path) == "/home/ada/.local/share/fairlead/approvals.json"
    moved = msgspec.structs.replace(machine, env={"XDG_DATA_HOME": "/s"})
    assert str(Trust.of(moved).path) == "/s/fairlead/approvals.json"
    moved = msgspec.structs.replace(machine, env={"FAIRLEAD_HOME": "/f"})
    assert str(Trust.of(moved).path) == "/f/data/approvals.json"


def test_the_rejection_reason_depends_on_the_approval_state_of_the_entry(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    trust = Trust(path)
    assert trust.rejection_reason(found()) == "is not approved"
    trust.approve(found())
    assert trust.rejection_reason(found()) == "is approved"
    changed = found(raw={"command": "y"})
    assert trust.rejection_reason(changed) == "has changed since it was approved"


@pytest.mark.parametrize("version", [1, 99])
def test_approvals_of_another_version_are_ignored_with_a_warning(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "approvals.json"
    Trust(path).approve(found())
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "version": version}))
    old = Trust(path)
    assert old.approval(found()) == "missing"
    reason = "the file was written by another version of Fairlead; all approvals are ignored"
    assert old.warnings == [f"{path}: {reason}"]
    old.approve(found())
    assert Trust(path).approval(found()) == "approved"
    assert json.loads(path.read_text())["version"] == 2


def test_changes_since_the_approval_of_an_entry_are_listed_by_field(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    assert (trust.last(found()), trust.changes(found())) == (None, None)
    entry = MCPStdioServerConfig(command="x", args=["a"], env={"A": "1", "B": "2"})
    trust.approve(found(entry=entry))
    assert trust.changes(found(entry=entry)) == ["other keys, or their order"]
    other = MCPStdioServerConfig(command="x", args=["b"], env={"A": "1", "C": "2"})
    assert trust.changes(found(entry=other)) == ["args", "env.C", "env.B"]
    trust.approve(found(entry=other))
    last = trust.last(found())
    assert last is not None
    assert last["runs"] == "x b"
    trust.approve(found(entry=entry))
    last = trust.last(found())
    assert last is not None
    assert last["runs"] == "x a", "approving an entry again makes it the last one"


def test_approval_records_without_field_digests_cannot_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    record = {"name": "a", "path": "/p/.cursor/mcp.json"}
    path.write_text(json.dumps({"version": 2, "approved": {"x": record}}))
    path.chmod(0o600)
    trust = Trust(path)
    assert (trust.last(found()), trust.changes(found())) == (record, None)


def test_approval_records_contain_the_url_of_a_remote_server(tmp_path: Path) -> None:
    path = tmp_path / "approvals.json"
    Trust(path).approve(found(entry=MCPHttpServerConfig(url="https://h/mcp")))
    (record,) = json.loads(path.read_text())["approved"].values()
    assert (record["reaches"], "runs" in record) == ("https://h/mcp", False)


def test_the_folder_of_the_approvals_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "approvals.json"
    Trust(path).approve(found())
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Trust(path).trusts(found())
