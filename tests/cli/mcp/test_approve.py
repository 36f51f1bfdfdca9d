"""Tests of `fairlead mcp approve` and `revoke`."""

import json
import stat

import pytest

from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person

__all__ = ["person"]


def test_approve_shows_the_entry_and_asks_for_confirmation(person: Person) -> None:
    entry = {**person.server(), "env": {"A": "in-the-open", "B": "!echo b", "C": "${HOME}"}}
    file = person.has("project/.fairlead/mcp.json", {"p": entry})
    code, shown, _ = person.at_terminal("mcp", "approve", "p", replies={"[y/N] ": "n"})
    assert code == 1
    assert f"p, in {file}:3" in shown
    assert f"  runs      {entry['command']} {entry['args'][0]}\n" in shown
    assert "  env       A=in-the-open\n" in shown
    assert (
        "  env       B=(known after connecting)\n      from: printed by the command echo b\n"
        in shown
    )
    assert f"  env       C={person.home}\n      from: your variable HOME\n" in shown
    assert shown.endswith("not approved\n")
    refused = person.runs("call", "p", "add", "a=1", "b=2")
    assert (refused.code, refused.out) == (1, "")
    assert "`fairlead mcp approve p`" in refused.err
    assert person.at_terminal("mcp", "approve", "p", replies={"[y/N] ": "y"}).code == 0
    assert person.runs("call", "p", "add", "a=1", "b=2").out == "3\n"


def test_approval_without_a_terminal_requires_the_yes_option(person: Person) -> None:
    person.has("project/.mcp.json", {"p": {"command": "x"}})
    done = person.does("mcp", "approve", "p")
    assert done.code == 2
    assert "--yes" in done.err
    assert not (person.ours / "data").exists()
    assert person.does("mcp", "approve", "p", "--yes").code == 0
    assert "p is already approved" in person.does("mcp", "approve", "p").out


def test_approve_escapes_control_characters_in_an_entry(person: Person) -> None:
    args = ["safe\n  runs      /bin/true", "\x1b[2K", "\u202egnp.exe"]
    person.has("project/.mcp.json", {"p": {"command": "evil", "args": args}})
    shown = person.does("mcp", "approve", "p", "--yes").out
    assert [line for line in shown.splitlines() if line.startswith("  runs ")] == [
        r"  runs      evil 'safe\n  runs      /bin/true' '\x1b[2K' '\u202egnp.exe'"
    ]


def test_a_changed_entry_must_be_approved_again(person: Person) -> None:
    file = person.has("project/.mcp.json", {"p": {"command": "x"}})
    person.does("mcp", "approve", "p", "--yes")
    file.write_text(file.read_text().replace('"x"', '"y"'))
    assert "changed since" in person.does("mcp", "why", "p").out
    assert "The entry has changed since its approval:" in person.does("mcp", "approve", "p").out


def test_revoke_removes_the_approval_of_an_entry(person: Person) -> None:
    person.has("project/.mcp.json", {"p": {"command": "x"}})
    assert "was not approved" in person.does("mcp", "revoke", "p").out
    person.does("mcp", "approve", "p", "--yes")
    assert person.does("mcp", "revoke", "p").out == "p is no longer approved\n"
    assert "is not approved" in person.does("mcp", "why", "p").out
    person.has("ours/mcp.json", {"mine": {"command": "x"}})
    assert "needs no approval" in person.does("mcp", "revoke", "mine").err
    assert "needs no approval" in person.does("mcp", "approve", "mine").out


@pytest.mark.covers("CFG-13")
def test_approvals_are_stored_in_a_private_file_and_survive_concurrent_changes(
    person: Person,
) -> None:
    names = [f"s{n}" for n in range(6)]
    person.has("project/.mcp.json", {name: {"command": name} for name in names})
    approving = [person.begins("mcp", "approve", name, "--yes") for name in names]
    outcomes = [process.communicate(timeout=LIMIT) for process in approving]
    assert [process.returncode for process in approving] == [0] * 6, outcomes
    file = person.ours / "data" / "approvals.json"
    approved = json.loads(file.read_text())["approved"]
    assert sorted(what["name"] for what in approved.values()) == names
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == ["approvals.json"]
