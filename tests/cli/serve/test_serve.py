"""Tests of `fairlead serve` with valid and invalid files and modules."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_process import LIMIT, fairlead, interrupt, server_file, signpost, talk

ADD = """
    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b
"""
CALL_ADD = {
    "id": 1,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1, "b": 2}},
}


def answers(stdout: str) -> dict[int, Any]:
    """Return the results by id; fail if a line of stdout is not a message."""
    messages = [json.loads(line) for line in stdout.splitlines()]
    return {message["id"]: message["result"] for message in messages}


def served(done: subprocess.CompletedProcess[str]) -> str:
    """Return the text of the tool `add` and the name of the server."""
    assert done.returncode == 0, done.stderr
    results = answers(done.stdout)
    assert results[1]["content"][0]["text"] == "3"
    return str(results[0]["serverInfo"]["name"])


def test_the_serve_command_serves_a_server_in_a_file(tmp_path: Path) -> None:
    file = server_file(tmp_path, ADD)
    done = fairlead("serve", str(file), input=talk(CALL_ADD))
    assert served(done) == "test"
    assert done.stderr == ""


def test_the_serve_command_serves_a_named_object_in_a_file(tmp_path: Path) -> None:
    server_file(tmp_path, "other = MCPServer('other')", ADD.replace("@server", "@other"))
    done = fairlead("serve", "server.py:other", input=talk(CALL_ADD), cwd=tmp_path)
    assert served(done) == "other"


def test_a_module_in_the_current_folder_is_served(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    server_file(tmp_path / "package", ADD, name="weather.py")
    done = fairlead("serve", "package.weather", input=talk(CALL_ADD), cwd=tmp_path)
    assert served(done) == "test"
    done = fairlead("serve", "package.weather:server", input=talk(CALL_ADD), cwd=tmp_path)
    assert served(done) == "test"


def test_a_file_can_import_other_files_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("NUMBER = 3\n")
    file = server_file(
        tmp_path,
        """
        from sibling import NUMBER
        @server.tool()
        def add(a: int, b: int) -> int:
            return NUMBER
        """,
        name="my-server.py",
    )
    assert served(fairlead("serve", str(file), input=talk(CALL_ADD))) == "test"


def test_a_file_with_the_name_of_a_loaded_module_is_served(tmp_path: Path) -> None:
    file = server_file(tmp_path, ADD, name="fairlead.py")
    assert served(fairlead("serve", str(file), input=talk(CALL_ADD))) == "test"


def test_output_printed_during_the_import_of_a_server_is_written_to_stderr(tmp_path: Path) -> None:
    body = """
    print("from Python")
    sys.stdout.write("without an end")
    os.system("echo from a child")
    """
    file = server_file(tmp_path, body, ADD)
    done = fairlead("serve", str(file), input=talk(CALL_ADD))
    assert served(done) == "test"
    for words in ("from Python", "without an end", "from a child"):
        assert words in done.stderr


def test_a_file_that_runs_its_server_is_served_once(tmp_path: Path) -> None:
    file = server_file(tmp_path, ADD, "print('before')\nserver.run()\nprint('after')")
    done = fairlead("serve", str(file), input=talk(CALL_ADD))
    assert served(done) == "test"
    assert done.stderr == "before\nafter\n"


@pytest.mark.parametrize("name", ["mcp", "app", "whatever"])
def test_a_server_is_found_by_a_default_name_or_as_the_only_one(tmp_path: Path, name: str) -> None:
    file = server_file(
        tmp_path, f"{name} = alias = server; del server", ADD.replace("server", name)
    )
    assert served(fairlead("serve", str(file), input=talk(CALL_ADD))) == "test"


def test_the_error_for_a_file_with_several_servers_lists_them(tmp_path: Path) -> None:
    file = server_file(tmp_path, "one, two = MCPServer('1'), MCPServer('2'); del server")
    done = fairlead("serve", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Several servers in" in done.stderr
    assert f"fairlead serve {file}:one" in done.stderr


def test_a_file_without_a_server_is_an_error_with_a_hint(tmp_path: Path) -> None:
    file = server_file(tmp_path, "del server")
    done = fairlead("serve", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: No MCPServer in {file}\nhint: ")


def test_serving_an_object_that_is_not_a_server_is_an_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, "number = 5")
    done = fairlead("serve", f"{file}:number")
    assert done.returncode == 2
    assert ":number is not an MCPServer, but of type int" in done.stderr
    done = fairlead("serve", f"{file}:nothing")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: Unknown object 'nothing' in {file}\nhint: expected one of server\n"
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.py", "File not found: missing.py"),
        ("missing.module", "Module not found: 'missing'"),
        ("./folder/missing.py:server", "File not found: ./folder/missing.py"),
        ("not a name", "'not a name' is neither a Python file nor the name of a module"),
        (".", "'.' is neither"),
        ("server.py:2+2", "Invalid server 'server.py:2+2'"),
    ],
)
def test_files_and_modules_that_do_not_exist_are_errors(
    tmp_path: Path, target: str, words: str
) -> None:
    done = fairlead("serve", target, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_traceback_of_a_failing_import_shows_only_frames_of_user_code(tmp_path: Path) -> None:
    (tmp_path / "sibling.py").write_text("def fail():\n    return 1 / 0\n")
    file = server_file(tmp_path, "import sibling\nsibling.fail()")
    done = fairlead("serve", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: Cannot import {file}\n" in done.stderr
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert done.stderr.count('File "') == 2
    assert "importlib" not in done.stderr
    assert "fairlead/" not in done.stderr


def test_an_invalid_tool_is_reported_with_its_line(tmp_path: Path) -> None:
    file = server_file(tmp_path, "@server.tool()\ndef f(x: complex) -> None: ...\n")
    done = fairlead("serve", str(file))
    assert done.returncode == 1
    assert "parameter 'x' has no JSON form" in done.stderr
    assert done.stderr.count('File "') == 1
    assert done.stderr.count("Traceback") == 1


def test_serve_shows_the_line_of_a_syntax_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, "def broken(:")
    done = fairlead("serve", str(file))
    assert done.returncode == 1
    assert "def broken(:" in done.stderr
    assert "SyntaxError" in done.stderr


def test_an_import_error_inside_a_module_names_the_missing_import(tmp_path: Path) -> None:
    server_file(tmp_path, "import no_such_thing", name="weather.py")
    done = fairlead("serve", "weather", cwd=tmp_path)
    assert done.returncode == 1
    assert "No module named 'no_such_thing'" in done.stderr


def test_a_file_that_exits_during_import_is_an_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, "sys.exit('no licence')")
    done = fairlead("serve", str(file))
    assert done.returncode == 1
    assert "called sys.exit() during import (no licence)" in done.stderr


def test_an_unsupported_transport_is_an_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, "server = MCPServer('x', transport='carrier pigeon')")
    done = fairlead("serve", str(file))
    assert (done.returncode, "Cannot import " in done.stderr) == (1, True)
    assert "transport must be 'stdio' or 'http', not 'carrier pigeon'" in done.stderr


def test_an_unsupported_transport_that_is_set_later_is_an_error(tmp_path: Path) -> None:
    file = server_file(tmp_path, "server.config.transport = 'carrier pigeon'")
    done = fairlead("serve", str(file))
    assert done.returncode == 1
    assert "Cannot serve " in done.stderr
    assert "transport 'carrier pigeon'" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_a_server_without_a_traceback(tmp_path: Path) -> None:
    file = server_file(tmp_path, ADD)
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "serve", str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(talk())
    process.stdin.flush()
    assert '"serverInfo"' in process.stdout.readline()  # the server is ready
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT)
    assert (process.returncode, stderr) == (0, "")


def test_ctrl_c_during_the_import_causes_exit_code_130(tmp_path: Path) -> None:
    with signpost(tmp_path / "importing") as post:
        # `with` closes the pipe, because an interrupt in a finalizer would be ignored.
        opened = post.report.partition(".write")[0]
        file = server_file(
            tmp_path,
            f"with {opened} as post: post.write(str(os.getpid()))",
            "import signal\nwhile True: signal.sigtimedwait([], 0.1)",
        )
        assert interrupt(post, "serve", str(file)) == (130, "")


def test_serve_requires_a_target_or_a_module_option() -> None:
    done = fairlead("serve")
    assert done.returncode == 2
    assert "FILE_OR_MODULE or --module is required" in done.stderr


MODULE = """
from fairlead import mcp_tool
print("noise while importing")

@mcp_tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a folder with a module of tools, a broken module, and a server."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "adding.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    server_file(tmp_path, "@server.tool()\ndef own() -> str: return 'own'\n")
    return tmp_path


@pytest.mark.covers("SRV-51", "SRV-52")
def test_tool_modules_are_served_without_a_server_file_and_invalid_ones_are_skipped(
    folder: Path,
) -> None:
    modules = ("--module", "broken", "--module", "package.adding")
    done = fairlead("serve", *modules, input=talk(CALL_ADD), cwd=folder)
    assert served(done) == "fairlead-mcp-server"
    assert "the tool module broken cannot be imported" in done.stderr
    assert "No module named 'no_such_module_at_all'" in done.stderr
    assert "noise while importing" in done.stderr


@pytest.mark.covers("SRV-51")
def test_tool_modules_are_added_to_a_server(folder: Path) -> None:
    done = fairlead("serve", "server.py", "--module", "package.adding", "--list-tools", cwd=folder)
    assert (done.returncode, done.stdout) == (0, "own\nadd  Add two numbers.\n")
    done = fairlead(
        "serve", "server.py", "--module", "package.adding", input=talk(CALL_ADD), cwd=folder
    )
    assert served(done) == "test"


@pytest.mark.covers("SRV-51")
def test_tool_modules_are_found_through_entry_points_of_installed_packages(folder: Path) -> None:
    info = folder / "adding-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: adding\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fairlead.tools]\nadding = package.adding\n")
    env = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = fairlead("serve", "--entry-points", input=talk(CALL_ADD), env=env)
    assert served(done) == "fairlead-mcp-server"


def test_tool_modules_for_a_file_that_runs_its_own_server_are_an_error(folder: Path) -> None:
    file = server_file(folder, "server.run()", name="eager.py")
    done = fairlead("serve", str(file), "--module", "package.adding", input=talk(), cwd=folder)
    assert done.returncode == 1
    assert "ran its server itself" in done.stderr
