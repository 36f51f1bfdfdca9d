"""Errors for server processes that could not be started."""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from enum import StrEnum

from ...errors import ConnectFailed
from ..local_resources import connect_error, exhausted_resource

__all__ = ["StartFailed", "StartProblem", "start_error"]


class StartProblem(StrEnum):
    """Reasons for a failed process start that users can fix in the server's configuration."""

    MISSING_PROGRAM = "missing program"
    MISSING_INTERPRETER = "missing interpreter"
    NOT_EXECUTABLE = "not executable"
    MISSING_FOLDER = "missing folder"


class StartFailed(ConnectFailed):
    """A process that could not be started; `problem` is the reason, None if it is unknown."""

    def __init__(self, message: str, *, public: str, problem: StartProblem | None) -> None:
        super().__init__(message, public=public)
        self.problem = problem


_FIRST_LINE = 256  # bytes that Linux reads of the first line of a script
_WHY = {
    StartProblem.MISSING_PROGRAM: "program {0!r} was not found: check its spelling and the PATH",
    StartProblem.MISSING_INTERPRETER: "the interpreter {2!r} in its first line does not exist",
    StartProblem.NOT_EXECUTABLE: "{0!r} is not executable",
    StartProblem.MISSING_FOLDER: "the working directory {1} does not exist",
}
_PUBLIC = {
    StartProblem.MISSING_PROGRAM: "its program does not exist",
    StartProblem.MISSING_INTERPRETER: "the interpreter of its program does not exist",
    StartProblem.NOT_EXECUTABLE: "its program is not executable",
    StartProblem.MISSING_FOLDER: "its working directory does not exist",
}


def start_error(
    command: Sequence[str], cwd: str | None, env: Mapping[str, str], exc: Exception
) -> ConnectFailed:
    """Return the error for a command that raised `exc` when it was started."""
    text, public = f"Could not start `{shlex.join(command)}`", "could not be started"
    if exhausted_resource(exc, spawning=True) is not None:
        return connect_error(f"{text}: {exc}", exc, public=public, spawning=True)
    problem = _problem(command, cwd, env, exc)
    if problem is None:
        return StartFailed(f"{text}: {exc}", public=public, problem=None)
    if problem is StartProblem.MISSING_PROGRAM and os.path.dirname(command[0]):
        why = f"the file {os.path.join(cwd or '', command[0])!r} does not exist"
    else:
        why = _WHY[problem].format(command[0], cwd, _interpreter(command[0], cwd, env))
    return StartFailed(f"{text}: {why}", public=f"{public}: {_PUBLIC[problem]}", problem=problem)


def _interpreter(program: str, cwd: str | None, env: Mapping[str, str]) -> str:
    """Return the program in the first line of a script; an empty string if there is none."""
    if os.path.dirname(program):
        path: str | None = os.path.join(cwd or "", program)
    else:
        path = shutil.which(program, path=env.get("PATH"))
    try:
        with open(path or "", "rb") as file:
            first = file.readline(_FIRST_LINE).decode("utf-8", "replace")
    except OSError:
        return ""
    return first.removeprefix("#!").split()[0] if first[2:].strip() else ""


def _problem(
    command: Sequence[str], cwd: str | None, env: Mapping[str, str], exc: Exception
) -> StartProblem | None:
    # `Popen` raises the same exception for a missing directory and a missing program.
    if cwd is not None and not os.path.isdir(cwd):
        return StartProblem.MISSING_FOLDER
    if isinstance(exc, FileNotFoundError):
        found = shutil.which(command[0], path=env.get("PATH"))
        return StartProblem.MISSING_PROGRAM if found is None else StartProblem.MISSING_INTERPRETER
    return StartProblem.NOT_EXECUTABLE if isinstance(exc, PermissionError) else None
