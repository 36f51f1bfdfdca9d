"""Tests of client commands that get the name of a configured server."""

import json
import sys

import pytest

from tests.support.cli_user import TOOLS, Person, person

__all__ = ["person"]


@pytest.mark.covers("CMD-02")
def test_every_client_command_accepts_the_name_of_a_server(person: Person) -> None:
    person.has("home/.cursor/mcp.json", {"notes": person.server()})
    assert person.runs("call", "notes", "add", "a=1", "b:=2").out == "3\n"
    assert person.runs("call", "--json", "notes", "add", "--args", '{"a": 1, "b": 2}').code == 0
    tools = json.loads(person.runs("tools", "notes", "--json").out)
    assert [tool["name"] for tool in tools] == ["add", "variable"]
    assert person.runs("resources", "notes").out.startswith("memo://today")
    assert person.runs("read", "notes", "memo://today").out == "Buy bread.\n"
    assert person.runs("prompts", "notes").out.startswith("greet")
    assert person.runs("prompt", "notes", "greet", "name=Ada").out == "user: Say hello to Ada.\n"
    assert person.runs("complete", "notes", "greet", "name", "A").out == "Ada\n"
    assert person.runs("ping", "notes").out.startswith("test responded in ")
    assert person.runs("mcp", "prompts", "notes").out.startswith("greet")


def test_read_uses_a_url_after_a_server_name_as_the_resource(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": person.server()})
    assert person.runs("read", "notes", "https://example.com/page").out == "A page.\n"


@pytest.mark.covers("CMD-02")
def test_server_commands_and_server_names_are_distinguished(person: Person) -> None:
    entry = person.server()
    person.has("ours/mcp.json", {"add": entry})
    command = ("--", entry["command"], *entry["args"])
    assert person.runs("call", "add", "a=1", "b=2", *command).out == "3\n"
    assert person.runs("call", "add", "add", "a=1", "b=2").out == "3\n"
    alone = person.does("call", "add", "a=1", "b=2")
    assert alone.code == 2
    assert "Missing server: pass a configured name, a URL, or a command after `--`" in alone.err


def test_the_error_for_an_unknown_name_suggests_similar_names(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {"command": "x"}})
    done = person.does("call", "note", "add")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: Unknown server 'note': it is not in any configuration file\n"
        "hint: did you mean 'notes'? `fairlead list` shows the configured servers; "
        "to start any other server, put its command after `--`\n"
    )
    assert "`fairlead tools -- python server.py`" in person.does("tools", "python", "server.py").err


def test_the_error_for_a_tool_name_before_its_server_name_shows_the_right_order(
    person: Person,
) -> None:
    """A URL follows the tool, and a name comes first."""
    person.has("ours/mcp.json", {"notes": {"command": "x"}})
    assert person.does("call", "add", "notes", "a=1") == (
        2,
        "",
        "error: Unknown server 'add': the name of the server comes first\n"
        "hint: `fairlead call notes add` calls the tool of this server\n",
    )


@pytest.mark.parametrize(
    "path", ["x.py", "x.JS", "./x", "/no/such/program", "folder/x.txt", "~/x.py"]
)
@pytest.mark.parametrize("command", [("call", "{}", "add"), ("call", "{}"), ("tools", "{}")])
def test_the_error_for_a_missing_file_names_it_and_the_expected_forms(
    person: Person, path: str, command: tuple[str, ...]
) -> None:
    done = person.does(*(word.format(path) for word in command))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: File not found: {path}\nhint: ")
    assert done.err.endswith(
        "expected the path of a script (.py, .js, .mjs, .cjs), a name that `fairlead list` shows, "
        "a URL, or a command after `--`\n"
    )
    assert ("the shell expands ~ only without quotes" in done.err) is path.startswith("~")


def test_the_error_for_a_file_that_is_not_a_script_shows_the_expected_forms(
    person: Person,
) -> None:
    person.project.joinpath("notes").write_text("text")
    done = person.does("tools", "./notes")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: ./notes is not a script\nhint: expected the path of a script"
    )


def test_a_configured_name_may_look_like_a_file(person: Person) -> None:
    person.has("ours/mcp.json", {"notes.py": person.server()})
    assert person.runs("call", "notes.py", "add", "a=1", "b=2").out == "3\n"


def test_a_call_of_a_script_without_a_tool_name_causes_a_hint(person: Person) -> None:
    person.project.joinpath("notes.py").write_text("")
    done = person.does("call", "notes.py")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: Missing tool name for server notes.py\nhint: `fairlead tools notes.py` lists"
    )


def test_the_error_for_an_unknown_name_mentions_unreadable_files(person: Person) -> None:
    file = person.has("ours/mcp.json", {})
    file.write_text('{"mcpServers": {')
    for command in (("call", "notes", "add"), ("mcp", "why", "notes"), ("mcp", "disable", "notes")):
        done = person.does(*command)
        assert done.code == 2
        assert f"  | {file}:1: not valid JSON" in done.err


def test_a_call_without_a_tool_name_causes_a_hint(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {"command": "x"}})
    done = person.does("call", "notes")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: Missing tool name for server notes\nhint: `fairlead tools notes`"
    )
    assert (
        "Missing server: pass a configured name, a URL, or a command after `--`"
        in person.does("call", "add").err
    )


def test_url_options_are_rejected_for_a_configured_server(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {"command": "x"}})
    done = person.does("ping", "notes", "--token", "t")
    assert done.code == 2
    assert "configure this in the entry of the server" in done.err
    assert (
        "--input only applies to a configured server"
        in person.does("ping", "--input", "a=b", "--", "x").err
    )


def test_a_project_server_is_not_started_before_approval(person: Person) -> None:
    witness = person.folder / "witness"
    code = f"open({str(witness)!r}, 'w')"
    person.has("project/.mcp.json", {"p": {"command": sys.executable, "args": ["-c", code]}})
    for command in (("tools", "p"), ("call", "p", "x"), ("mcp", "test", "p"), ("doctor", "p")):
        done = person.runs(*command)
        assert done.code == 1
        assert "`fairlead mcp approve p`" in done.out + done.err
    assert not witness.exists()


def test_variables_are_resolved_and_their_values_are_redacted_in_errors(person: Person) -> None:
    entry = {**person.server(), "env": {"TOKEN": "${FROM_OUTSIDE}", "ASKED": "!echo asked"}}
    person.has("ours/mcp.json", {"notes": entry})
    env = {"FROM_OUTSIDE": "very-secret"}
    filled = person.runs("call", "notes", "variable", "name=TOKEN", env=env)
    assert filled.out == "very-secret\n"
    assert person.runs("call", "notes", "variable", "name=ASKED", env=env).out == "asked\n"
    broken = {"command": sys.executable, "args": ["-c", "import os; exit(os.environ['TOKEN'])"]}
    person.has("ours/mcp.json", {"broken": {**broken, "env": entry["env"]}})
    done = person.runs("ping", "broken", env=env)
    assert done.code == 3
    assert "| [REDACTED]" in done.err
    assert "very-secret" not in done.err
    unset = person.runs("ping", "broken")
    assert "the entry uses variables that are not set: FROM_OUTSIDE" in unset.err


def test_inputs_can_be_passed_with_an_option(person: Person) -> None:
    entry = {"type": "stdio", **person.server(TOOLS), "env": {"WHO": "${input:who}"}}
    file = person.home / ".config/Code/User/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"servers": {"v": entry}}))
    missing = person.runs("call", "v", "variable", "name=WHO")
    assert missing.code == 1
    assert "`--input who=VALUE`" in missing.err
    given = person.runs("call", "v", "variable", "name=WHO", "--input", "who=Ada")
    assert given.out == "Ada\n"


def test_the_user_is_prompted_for_inputs_on_a_terminal(person: Person) -> None:
    entry = {**person.server(TOOLS), "env": {"WHO": "${input:who}-${input:key}"}}
    asked = [
        {"id": "who", "description": "Your name", "default": "Ada"},
        {"id": "key", "description": "Your key", "password": True},
    ]
    file = person.home / ".config/Code/User/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"servers": {"v": entry}, "inputs": asked}))
    replies = {"Your name [Ada]: ": "", "Your key: ": "sesame"}
    done = person.at_terminal("call", "v", "variable", "name=WHO", replies=replies)
    assert done.code == 0
    assert done.out.endswith("\nAda-sesame\n")
    assert done.out.count("sesame") == 1  # the input is not echoed


def test_a_server_configured_with_two_names_is_found_by_both(person: Person) -> None:
    entry = person.server()
    person.has("ours/mcp.json", {"mine": entry})
    person.has("home/.cursor/mcp.json", {"theirs": entry})
    assert person.runs("call", "theirs", "add", "a=1", "b=2").out == "3\n"
