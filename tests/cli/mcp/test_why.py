"""Tests of `fairlead mcp why`."""

import json

import pytest

from tests.support.cli_user import Person, person

__all__ = ["person"]


def why(person: Person, name: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads(person.does("mcp", "why", name, "--json").out)
    return facts


def test_why_shows_the_origin_of_a_server_and_shadowed_entries(person: Person) -> None:
    person.has("ours/mcp.json", {"a": {"command": "mine"}})
    theirs = person.has("home/.cursor/mcp.json", {"a": {"command": "theirs"}})
    facts = why(person, "a")
    assert (facts["source"], facts["level"], facts["used"]) == ("Fairlead", "user", True)
    assert (facts["path"], facts["line"]) == (f"{person.ours}/mcp.json", 3)
    assert facts["otherPlaces"] == [
        {
            "source": "Cursor",
            "level": "user",
            "path": f"{theirs}:3",
            "outcome": f"not used: {person.ours}/mcp.json:3 takes precedence",
        }
    ]
    shown = person.does("mcp", "why", "a").out
    assert "a, configured in Fairlead (user)\n" in shown
    assert "other entries with this name\n  Cursor (user), " in shown


def test_why_names_other_entries_for_the_same_server(person: Person) -> None:
    person.has("ours/mcp.json", {"mine": {"command": "x", "args": ["1"]}})
    person.has("home/.cursor/mcp.json", {"theirs": {"command": "x", "args": ["1"]}})
    assert why(person, "mine")["alsoKnownAs"] == ["theirs"]
    facts = why(person, "theirs")
    assert (facts["sameServerAs"], facts["used"]) == ("mine", False)


def test_why_reports_whether_a_server_is_disabled_or_not_approved(person: Person) -> None:
    person.has("ours/mcp.json", {"off": {"command": "x", "enabled": False}})
    person.has("home/.cursor/mcp.json", {"exa": {"command": "y"}})
    file = person.has("project/.cursor/mcp.json", {"p": {"command": "x"}})
    off, exa, p = (why(person, name) for name in ("off", "exa", "p"))
    assert (off["enabled"], off["used"]) == (False, False)
    assert exa["used"] is True  # this command does not replace Exa servers
    assert (p["approved"], p["used"]) == (False, False)
    assert "is not approved; run `fairlead mcp approve p`" in person.does("mcp", "why", "p").out
    person.does("mcp", "approve", "p", "--yes")
    assert (why(person, "p")["approved"], why(person, "p")["used"]) == (True, True)
    file.write_text(file.read_text().replace('"x"', '"z"'))
    assert why(person, "p")["changedSinceApproval"] is True


def test_why_shows_the_requirements_of_an_entry_without_literal_values(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IS_SET", "value-of-it")
    env = {
        "A": "${IS_SET}",
        "B": "${NOT_SET:-other}",
        "C": "!pass show c",
        "D": "written-down",
        "E": "IS_SET",
    }
    args = ["--api-key", "sk-written-down"]
    person.has("ours/mcp.json", {"a": {"command": "run", "args": args, "env": env}})
    facts = why(person, "a")
    assert facts["entry"] == {
        "runs": "run --api-key [REDACTED]",
        "env": {
            "A": "${IS_SET}",
            "B": "${NOT_SET:-other}",
            "C": "!pass show c",
            "D": "[REDACTED]",
            "E": "[REDACTED]",
        },
    }
    assert facts["needs"] == [
        {"kind": "variable", "name": "IS_SET", "in": "env.A", "set": True},
        {"kind": "variable", "name": "NOT_SET", "in": "env.B", "set": False, "default": "other"},
        {"kind": "command", "name": "pass show c", "in": "env.C"},
    ]
    shown = person.does("mcp", "why", "a").out
    assert "the variable NOT_SET for env.B (not set, default 'other')" in shown
    assert "written-down" not in shown
    assert "value-of-it" not in shown


def test_why_shows_required_variables_in_the_syntax_of_the_entrys_program(
    person: Person,
) -> None:
    entry = {
        "type": "http",
        "url": "https://x.example/${env:PLACE}",
        "headers": {"Authorization": "Bearer ${input:key}"},
    }
    asked = [{"id": "key", "type": "promptString", "description": "Your key", "password": True}]
    person.has("project/.vscode/mcp.json", {"web": entry}, inputs=asked)
    facts = why(person, "web")
    assert facts["needs"] == [
        {"kind": "variable", "name": "PLACE", "in": "url", "set": False},
        {"kind": "input", "name": "key", "about": "Your key"},
    ]
    assert "--input key=... (Your key)" in person.does("mcp", "why", "web").out


def test_why_fails_for_an_unknown_name(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {"command": "x"}})
    done = person.does("mcp", "why", "note")
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'notes'? `fairlead list` shows the configured servers" in done.err
