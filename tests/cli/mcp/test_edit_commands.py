"""Tests of `fairlead mcp add`, `remove`, `enable` and `disable`."""

import json

import pytest

from tests.support.cli_user import Person, person

__all__ = ["person"]


@pytest.mark.covers("CMD-03")
def test_a_command_is_added_to_the_configuration_file_of_the_user(person: Person) -> None:
    options = ("--env", "A=1", "--env", "B=${B}=", "--cwd", "/tmp", "--timeout", "5000", "--lazy")
    done = person.does("mcp", "add", "files", *options, "--", "uvx", "files", "--", "-x")
    assert (done.code, done.out) == (0, f"added files to {person.ours}/mcp.json\n")
    assert "fairlead mcp test files" in done.err
    assert person.read("ours/mcp.json")["mcpServers"]["files"] == {
        "command": "uvx",
        "args": ["files", "--", "-x"],
        "env": {"A": "1", "B": "${B}="},
        "cwd": "/tmp",
        "timeout": 5000,
        "lazy": True,
    }


def test_a_relative_working_directory_is_stored_as_an_absolute_path(person: Person) -> None:
    (person.project / "sub").mkdir()
    for name, given, stored in (
        ("here", ".", str(person.project)),
        ("below", "sub", str(person.project / "sub")),
        ("variable", "${WORK}", "${WORK}"),
    ):
        assert person.runs("mcp", "add", name, "--cwd", given, "--", "python", "s.py").code == 0
        assert person.read("ours/mcp.json")["mcpServers"][name]["cwd"] == stored


def test_add_warns_about_a_script_path_relative_to_the_current_folder(person: Person) -> None:
    (person.project / "server.py").write_text("")
    run = ("--", "python", "server.py")
    warned = person.runs("mcp", "add", "here", *run)
    assert warned.code == 0
    assert f"`--cwd {person.project} --force`" in warned.err
    for sure in (
        ("there", "--cwd", str(person.project), *run),
        ("whole", "--", "python", str(person.project / "server.py")),
        ("theirs", "--project", *run),
        ("tool", "--", "uvx", "files"),
    ):
        assert "--cwd" not in person.runs("mcp", "add", *sure).err
    (person.project / "server.py").unlink()  # simulate another working directory
    lost = person.runs("mcp", "test", "here")
    assert lost.code == 3
    assert "; use an absolute path, or set `cwd`: the server was started in" in lost.err


def test_a_url_is_added_with_its_headers(person: Person) -> None:
    header = ("--header", "Authorization: Bearer ${TOKEN}")
    assert person.does("mcp", "add", "web", *header, "https://x.example/mcp").code == 0
    assert person.does("mcp", "add", "old", "--type", "sse", "https://x.example/sse").code == 0
    assert person.does("mcp", "add", "ws", "wss://x.example/ws").code == 0
    assert person.read("ours/mcp.json")["mcpServers"] == {
        "web": {
            "type": "http",
            "url": "https://x.example/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"},
        },
        "old": {"type": "sse", "url": "https://x.example/sse"},
        "ws": {"type": "ws", "url": "wss://x.example/ws"},
    }


def test_an_existing_entry_is_replaced_only_with_force(person: Person) -> None:
    assert person.does("mcp", "add", "a", "--", "one").code == 0
    refused = person.does("mcp", "add", "a", "--", "two")
    assert (refused.code, refused.out) == (1, "")
    assert "--force" in refused.err
    assert person.read("ours/mcp.json")["mcpServers"]["a"]["command"] == "one"
    assert person.does("mcp", "add", "a", "--force", "--", "two").code == 0
    assert person.read("ours/mcp.json")["mcpServers"]["a"] == {"command": "two"}


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("a",), 2, "both are missing"),
        (("a", "http://x", "--", "y"), 2, "both are given"),
        (("a", "server.py"), 2, "fairlead mcp add a -- server.py"),
        (("a b", "--", "x"), 1, "a name must have 1 to 100"),
        (("a", "--env", "nothing", "--", "x"), 2, "Invalid --env: expected NAME=VALUE"),
        (("a", "--header", "X: 1", "--", "x"), 2, "--header only applies to a server with a URL"),
        (("a", "--env", "X=1", "http://x"), 2, "--env only applies to a command"),
        (("a", "--timeout", "-5", "--", "x"), 2, "is not a number of milliseconds greater than 0"),
        (("a", "--timeout", "nan", "--", "x"), 2, "is not a number of milliseconds greater than 0"),
        (("a", "--timeout", "inf", "--", "x"), 2, "is not a number of milliseconds greater than 0"),
        (("a", "http://"), 2, "Invalid URL"),
        (("a", "http://exa mple/mcp"), 2, "expected a URL like https://"),
        (("a", "http://x:99999/mcp"), 2, "Invalid URL"),
    ],
)
def test_add_rejects_invalid_entries_without_writing_them(
    person: Person, args: tuple[str, ...], code: int, words: str
) -> None:
    done = person.does("mcp", "add", *args)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert not (person.ours / "mcp.json").exists()


def test_the_project_option_selects_the_nearest_project_file(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person.project / ".git").mkdir()
    done = person.does("mcp", "add", "--project", "p", "--", "x")
    assert done.out == f"added p to {person.project}/.fairlead/mcp.json\n"
    assert "fairlead mcp approve p" in done.err
    (person.project / "sub").mkdir()
    monkeypatch.chdir(person.project / "sub")
    assert person.does("mcp", "add", "--project", "q", "--", "x").code == 0
    assert sorted(person.read("project/.fairlead/mcp.json")["mcpServers"]) == ["p", "q"]
    assert not (person.ours / "mcp.json").exists()
    assert person.does("mcp", "remove", "--project", "q").code == 0
    assert sorted(person.read("project/.fairlead/mcp.json")["mcpServers"]) == ["p"]


def test_add_mentions_an_entry_of_another_program_with_the_same_name(person: Person) -> None:
    theirs = person.has("home/.cursor/mcp.json", {"a": {"command": "theirs"}})
    done = person.does("mcp", "add", "a", "--", "mine")
    assert f"takes precedence over the entry in {theirs}:" in done.err


@pytest.mark.covers("CMD-03")
def test_remove_deletes_only_entries_in_fairlead_files(person: Person) -> None:
    theirs = person.has("home/.cursor/mcp.json", {"their": {"command": "x"}})
    before = theirs.read_bytes()
    done = person.does("mcp", "remove", "their")
    assert done.code == 1
    assert f"their is not in {person.ours}/mcp.json, but in {theirs}:3 (Cursor)" in done.err
    assert "`fairlead mcp disable their` disables it" in done.err
    assert theirs.read_bytes() == before
    near = person.does("mcp", "remove", "thier")
    assert near.code == 2
    assert "did you mean 'their'?" in near.err
    person.does("mcp", "add", "--project", "p", "--", "x")
    assert "`fairlead mcp remove --project p`" in person.does("mcp", "remove", "p").err


@pytest.mark.covers("CMD-03")
def test_disabling_a_server_of_another_program_changes_only_the_fairlead_file(
    person: Person,
) -> None:
    theirs = person.has("home/.cursor/mcp.json", {"their": {"command": "x"}})
    before = theirs.read_bytes()
    done = person.does("mcp", "disable", "their")
    assert done.code == 0
    assert f"the entry in {theirs}:3 (Cursor) is not changed" in done.err
    assert person.read("ours/mcp.json")["disabledServers"] == ["their"]
    rows = json.loads(person.does("list", "--no-connect", "--json").out)["servers"]
    assert [(row["name"], row["status"]) for row in rows] == [("their", "disabled")]
    assert "disabled: listed in `disabledServers`" in person.does("ping", "their").err
    assert person.does("mcp", "enable", "their").code == 0
    rows = json.loads(person.does("list", "--no-connect", "--json").out)["servers"]
    assert [(row["name"], row["status"]) for row in rows] == [("their", "configured")]
    assert theirs.read_bytes() == before


def test_disabling_an_entry_in_a_fairlead_file_sets_its_enabled_field(person: Person) -> None:
    person.does("mcp", "add", "mine", "--", "x")
    person.does("mcp", "disable", "mine")
    assert person.read("ours/mcp.json")["mcpServers"]["mine"] == {"command": "x", "enabled": False}
    assert person.does("mcp", "enable", "mine").err == ""
    assert person.read("ours/mcp.json")["mcpServers"]["mine"] == {"command": "x"}


def test_enable_and_disable_report_that_they_have_no_effect(person: Person) -> None:
    person.has("project/.fairlead/mcp.json", {"a": {"command": "x"}})
    person.has("ours/mcp.json", {"a": {"command": "y"}})
    assert "still used" in person.does("mcp", "disable", "a").err
    person.has("home/.cursor/mcp.json", {"b": {"command": "x", "disabled": True}})
    refused = person.does("mcp", "enable", "--project", "b")
    assert refused.code == 2
    assert "a project file cannot enable" in refused.err


def test_add_refuses_to_change_a_file_with_comments(person: Person) -> None:
    person.ours.mkdir()
    (person.ours / "mcp.json").write_text('{"mcpServers": {}, // mine\n}')
    done = person.does("mcp", "add", "a", "--", "x")
    assert done.code == 1
    assert "comments or trailing commas would be lost" in done.err
    assert "Traceback" not in done.err


def test_servers_added_concurrently_are_all_kept(person: Person) -> None:
    adding = [person.begins("mcp", "add", f"s{n}", "--", "x") for n in range(4)]
    assert [process.wait(30) for process in adding] == [0] * 4
    for process in adding:
        process.communicate()
    assert sorted(person.read("ours/mcp.json")["mcpServers"]) == ["s0", "s1", "s2", "s3"]


def test_an_unknown_subcommand_suggests_a_similar_one(person: Person) -> None:
    done = person.does("mcp", "ad")
    assert (done.code, done.out) == (2, "")
    assert "did you mean `fairlead mcp add`?" in done.err
    assert "expected one of list, add, " in person.does("mcp", "xyzzy").err


def test_each_mcp_subcommand_has_a_help_text(person: Person) -> None:
    names = "list add remove enable disable test why import export approve revoke resources prompts"
    shown = person.does("mcp").out
    for name in names.split():
        assert f"\n  {name} " in shown
        done = person.does("mcp", name, "--help")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("usage: fairlead ")
        assert name in done.out.splitlines()[0]


def test_add_stores_the_era_of_a_server(person: Person) -> None:
    entry = person.server()
    done = person.does(
        "mcp", "add", "notes", "--era", "handshake", "--", entry["command"], *entry["args"]
    )
    assert done.code == 0
    assert person.read("ours/mcp.json")["mcpServers"]["notes"]["era"] == "handshake"
    assert json.loads(person.runs("ping", "notes", "--json").out)["protocolVersion"] == "2025-11-25"
    again = person.runs("ping", "notes", "--era", "stateless", "--json").out
    assert json.loads(again)["protocolVersion"] == "2026-07-28"
