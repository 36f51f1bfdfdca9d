"""Tests of errors for processes that could not be started."""

import errno
import os

import pytest

from fairlead.errors import LocalResourceError
from fairlead.transport.stdio.start_error import StartFailed, StartProblem, start_error

ENVIRONMENT = {"PATH": os.defpath}


@pytest.mark.parametrize(
    ("program", "cwd", "exc", "problem"),
    [
        ("no-such-program", None, FileNotFoundError(), StartProblem.MISSING_PROGRAM),
        ("/bin/sh", None, FileNotFoundError(), StartProblem.MISSING_INTERPRETER),
        ("/etc/passwd", None, PermissionError(), StartProblem.NOT_EXECUTABLE),
        ("no-such-program", "/no/such/folder", FileNotFoundError(), StartProblem.MISSING_FOLDER),
        ("/bin/sh", None, ValueError("embedded null byte"), None),
    ],
)
def test_a_start_error_has_the_problem_as_an_attribute(
    program: str, cwd: str | None, exc: Exception, problem: StartProblem | None
) -> None:
    error = start_error([program], cwd, ENVIRONMENT, exc)
    assert isinstance(error, StartFailed)
    assert error.problem is problem


def test_an_exhausted_resource_is_not_reported_as_a_problem_with_the_command() -> None:
    exc = OSError(errno.EMFILE, "Too many open files")
    error = start_error(["/bin/sh"], None, ENVIRONMENT, exc)
    assert isinstance(error, LocalResourceError)
    assert error.resource == "file descriptors"
