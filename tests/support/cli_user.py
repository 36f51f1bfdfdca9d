"""A user with a home folder and a project, isolated from the machine that runs the tests."""

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from fairlead.cli.main import main
from tests.support.cli_process import LIMIT, fairlead, server_file

__all__ = ["TOOLS", "Done", "Person", "person"]

TOOLS = """
    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def variable(name: str) -> str:
        return os.environ.get(name, "not set")

    @server.resource("memo://today", name="today")
    def today() -> str:
        return "Buy bread."

    @server.resource("https://example.com/page", name="page")
    def page() -> str:
        return "A page."

    @server.prompt()
    def greet(name: str) -> str:
        return f"Say hello to {name}."

    @server.completion("greet", "name")
    def names(beginning: str) -> list[str]:
        return ["Ada"]
"""

_OTHERS = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


class Done(NamedTuple):
    """Exit code and output of a finished command."""

    code: int
    out: str
    err: str


class Person:
    """A user whose home folder belongs to the test, and who runs commands in a project."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.home, self.project, self.ours = folder / "home", folder / "project", folder / "ours"
        self.home.mkdir()
        self.project.mkdir()
        self.env = {
            "HOME": str(self.home),
            "FAIRLEAD_HOME": str(self.ours),
            **dict.fromkeys(_OTHERS, ""),
        }
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.project)

    def does(self, *args: str) -> Done:
        """Run a command in this process, which is possible if it starts no other process."""
        out, err = io.StringIO(), io.StringIO()
        script = Path(sys.executable).with_name("fairlead")
        path = f"{script.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        with (
            patch.object(sys, "orig_argv", [sys.executable, str(script), *args]),
            patch.dict(os.environ, PATH=path),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(args)
        return Done(code, out.getvalue(), err.getvalue())

    def runs(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        """Run a command as a process."""
        done = fairlead(*args, cwd=self.project, env={**self.env, **(env or {})})
        return Done(done.returncode, done.stdout, done.stderr)

    def begins(self, *args: str) -> subprocess.Popen[str]:
        """Start a process without waiting for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "fairlead", *args],
            cwd=self.project,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_terminal(self, *args: str, replies: Mapping[str, str]) -> Done:
        """Run a command at a terminal; `replies` maps the end of each prompt to its reply."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.project,
            env={**os.environ, **self.env, "TERM": "dumb"},
            start_new_session=True,  # detached from the terminal in which the tests run
        )
        os.close(theirs)
        shown = b""
        try:
            while select.select([ours], [], [], LIMIT)[0]:
                shown += os.read(ours, 65536)
                for prompt, reply in replies.items():
                    if shown.endswith(prompt.encode()):
                        os.write(ours, f"{reply}\n".encode())
        except OSError:
            pass  # Linux raises EIO when the last writer has closed the terminal
        finally:
            os.close(ours)
        return Done(process.wait(LIMIT), shown.decode().replace("\r\n", "\n"), "")

    def server(self, *parts: str, name: str = "server.py") -> dict[str, Any]:
        """Write a server program and return its configuration entry."""
        file = server_file(self.folder, *(parts or (TOOLS,)), name=name)
        return {"command": sys.executable, "args": [str(file)]}

    def has(self, path: str, servers: Mapping[str, Any], **more: Any) -> Path:
        """Write a configuration file with these servers below the test's folder."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        key = "servers" if ".vscode" in path else "mcpServers"
        file.write_text(json.dumps({key: servers, **more}, indent=1))
        return file

    def read(self, path: str) -> Any:
        return json.loads((self.folder / path).read_text())


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Person:
    return Person(tmp_path, monkeypatch)
