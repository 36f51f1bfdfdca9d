"""Tests of remedies for failures of configured servers."""

import shutil
import sys
from pathlib import Path

import pytest

from fairlead.cli.framework.command_errors import FAILED, NO_CONNECTION
from fairlead.cli.framework.remedies import diagnose
from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import FoundServer, Input
from fairlead.config.variables.variable_syntax import MissingInput
from fairlead.errors import ConfigError
from fairlead.transport.stdio.start_error import StartFailed, StartProblem
from tests.support.certificates import self_signed
from tests.support.cli_user import Person, person
from tests.support.web_page_server import web_server

__all__ = ["person"]


def server(command: str = "notes-server") -> FoundServer:
    return FoundServer(
        name="notes",
        host="fairlead",
        host_title="Fairlead",
        path="/c/mcp.json",
        line=3,
        level="user",
        raw={},
        dialect="fairlead",
        entry=MCPStdioServerConfig(command=command),
        needs_input=(Input("pin", "The PIN"), Input("key", "The API key"), Input("bare")),
    )


@pytest.mark.parametrize(
    ("command", "problem", "hint"),
    [
        (
            "./notes",
            StartProblem.MISSING_INTERPRETER,
            "install it, or set `command` to the program that runs the file",
        ),
        ("notes-server", StartProblem.MISSING_PROGRAM, "install notes-server, or set `command` to"),
        ("npx", StartProblem.MISSING_PROGRAM, "install Node.js"),
        ("./notes", StartProblem.MISSING_PROGRAM, "./notes does not exist"),
        ("~/notes", StartProblem.MISSING_PROGRAM, "set `command` to the full path"),
        ("notes-server", StartProblem.MISSING_FOLDER, "correct `cwd` of the entry"),
        ("./notes", StartProblem.NOT_EXECUTABLE, "run `chmod +x ./notes`"),
    ],
)
def test_the_remedy_depends_on_the_problem_attribute_of_the_error(
    command: str, problem: StartProblem, hint: str
) -> None:
    failed = diagnose(StartFailed("any text", public="", problem=problem), server(command))
    assert (failed.code, failed.sentence) == (NO_CONNECTION, "Any text")
    assert failed.hint.startswith(hint)


def test_an_error_without_a_problem_attribute_has_a_general_remedy() -> None:
    error = StartFailed("there is no program 'x'", public="", problem=None)
    assert diagnose(error, server()).hint == "the server failed: see its own log"


@pytest.mark.parametrize(
    ("input_id", "hint"),
    [
        ("key", "pass it with `--input key=VALUE` (The API key)"),
        ("bare", "pass it with `--input bare=VALUE`"),
        ("unknown", "pass it with `--input unknown=VALUE`"),
    ],
)
def test_the_remedy_names_the_missing_input(input_id: str, hint: str) -> None:
    failed = diagnose(MissingInput(input_id), server())
    assert (failed.code, failed.hint) == (FAILED, hint)


def test_the_remedy_for_an_invalid_entry_names_its_file_and_line() -> None:
    assert diagnose(ConfigError("x"), server()).hint == "correct the entry: /c/mcp.json:3"


def hints_for(person: Person, *command: str, cwd: str | None = None) -> tuple[str, str]:
    """Return the hints for a command on the command line and in an entry."""
    entry = {"command": command[0], "args": command[1:], **({"cwd": cwd} if cwd else {})}
    person.has("ours/mcp.json", {"notes": entry})
    by_command = person.runs("tools", "--", *command).err
    by_name = person.runs("mcp", "test", "notes").err
    return by_command.partition("hint: ")[2], by_name.partition("hint: ")[2]


PYTHON_SCRIPT = (sys.executable, "/no/such/file.py")
NODE_SCRIPT = ("node", "/no/such/file.js")
SHELL_SCRIPT = ("sh", "/no/such/file.sh")


@pytest.mark.parametrize("command", [PYTHON_SCRIPT, NODE_SCRIPT, SHELL_SCRIPT])
def test_the_hint_for_a_script_that_does_not_exist_names_it(
    person: Person, command: tuple[str, ...]
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    by_command, by_name = hints_for(person, *command)
    assert by_command == f"{command[1]} does not exist: check the path\n"
    assert by_name == f"{command[1]} does not exist: correct `args` of the entry\n"


def test_the_hint_for_a_relative_script_names_the_folder_in_which_it_was_searched(
    person: Person,
) -> None:
    by_command, by_name = hints_for(person, sys.executable, "none.py")
    assert by_command == f"{person.project / 'none.py'} does not exist: check the path\n"
    assert by_name == (
        f"{person.project / 'none.py'} does not exist: correct `args` of the entry; use an "
        "absolute path, or set `cwd`: the server was started in this folder\n"
    )
    _, with_cwd = hints_for(person, sys.executable, "none.py", cwd=str(person.folder))
    assert with_cwd == f"{person.folder / 'none.py'} does not exist: correct `args` of the entry\n"


def test_the_hint_for_a_file_that_the_server_cannot_open_names_it(person: Person) -> None:
    by_command, by_name = hints_for(person, sys.executable, "-c", "open('/no/such/settings')")
    assert by_command == "/no/such/settings does not exist: check the path\n"
    assert by_name == "/no/such/settings does not exist: create it, or correct the path\n"


def test_the_hint_for_a_program_that_env_does_not_find_names_the_program(person: Person) -> None:
    script = person.project / "notes"
    script.write_text("#!/usr/bin/env no-such-program\n")
    script.chmod(0o755)
    assert hints_for(person, str(script))[1].startswith("install no-such-program, or set")


def test_the_error_for_a_missing_program_with_a_path_names_the_file(person: Person) -> None:
    person.has("ours/mcp.json", {"notes": {"command": "/no/such/program"}})
    done = person.runs("tools", "notes")
    assert done.code == 3
    assert "the file '/no/such/program' does not exist\n" in done.err
    assert "hint: /no/such/program does not exist: correct `command` of the entry\n" in done.err


@pytest.fixture
def certificate_files(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path)


def hints(person: Person, url: str) -> tuple[str, str]:
    """Return the hints for a server given by its URL and by an entry name."""
    entry = {"type": "ws" if url.startswith("ws") else "http", "url": url}
    person.has("ours/mcp.json", {"web": entry})
    by_url, by_name = person.runs("tools", url).err, person.runs("mcp", "test", "web").err
    return by_url.rpartition("hint: ")[2], by_name.rpartition("hint: ")[2]


def test_the_hint_for_a_self_signed_certificate_names_the_variable_to_set(
    person: Person, certificate_files: tuple[Path, Path]
) -> None:
    with web_server(certificate_files) as address:
        by_url, by_name = hints(person, f"https://{address}/mcp")
    assert by_url.startswith("the certificate is self-signed or its issuer is unknown: set SSL_C")
    assert "--insecure-tls" in by_url
    assert by_name.startswith("the certificate is self-signed")
    assert "--insecure-tls" not in by_name


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_the_hint_for_a_wrong_url_scheme_contains_the_correct_url(
    person: Person, certificate_files: tuple[Path, Path], scheme: str
) -> None:
    with web_server(certificate_files) as address:
        for hint in hints(person, f"{scheme}://{address}/x"):
            assert f"if the server uses TLS, write {scheme}s://{address}/x" in hint
    with web_server() as address:
        for hint in hints(person, f"{scheme}s://{address}/x"):
            assert f"the server does not use TLS: write {scheme}://{address}/x" in hint


def test_the_hint_for_a_web_page_is_to_check_the_path(person: Person) -> None:
    with web_server() as address:
        for hint in hints(person, f"http://{address}/welcome"):
            assert f"http://{address}/welcome is a web page: check the path" in hint


def test_the_hint_for_a_protected_server_mentions_oauth_and_the_token_option(
    person: Person,
) -> None:
    with web_server() as address:
        by_url, by_name = hints(person, f"http://{address}/oauth")
    assert "the server requires OAuth authorization, described at https://auth.example/" in by_url
    assert f"`fairlead login http://{address}/oauth`, or pass an access token" in by_url
    assert "the server requires OAuth authorization, described at https://auth.example/" in by_name
    assert "fairlead login" in by_name


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:8080/mcp", "http://localhost:8080/mcp"),
        ("127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("example.com/mcp", "https://example.com/mcp"),
    ],
)
def test_the_error_for_an_address_without_a_scheme_shows_the_complete_url(
    person: Person, address: str, url: str
) -> None:
    for command in (["tools", address], ["proxy", address], ["mcp", "add", "x", address]):
        done = person.does(*command)
        assert (done.code, f"hint: an address needs its scheme: {url}\n" in done.err) == (2, True)
    assert "scheme" not in person.does("tools", "server.py").err
