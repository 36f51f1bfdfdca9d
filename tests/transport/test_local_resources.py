"""Tests that exhausted local resources are distinguished from failures of a server."""

import errno
import resource
import socket
import sys
from pathlib import Path

import pytest

from fairlead.errors import ConnectFailed, LocalResourceError
from fairlead.protocol.public_reason import public_reason
from fairlead.transport.local_resources import connect_error, exhausted_resource
from fairlead.transport.stdio.child_process import spawn


@pytest.mark.parametrize(
    ("cause", "spawning", "missing"),
    [
        (OSError(errno.EMFILE, "Too many open files"), False, "file descriptors"),
        (OSError(errno.ENFILE, "Too many open files in system"), True, "file descriptors"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True, "memory"),
        (OSError(errno.ENOBUFS, "No buffer space available"), False, "memory"),
        (MemoryError(), True, "memory"),
        (OSError(errno.ENOSPC, "No space left on device"), True, "disk space"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"), False, "local ports"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), True, "processes"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), False, None),
        (RuntimeError("can't start new thread"), True, "threads"),
        (RuntimeError("Event loop is closed"), True, None),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False, None),
        (OSError("Multiple exceptions"), False, None),
        (socket.gaierror(-2, "Name or service not known"), False, None),
        (ValueError("embedded null byte"), True, None),
    ],
)
def test_exhausted_local_resources_are_distinguished_from_other_failures(
    cause: BaseException, spawning: bool, missing: str | None
) -> None:
    assert exhausted_resource(cause, spawning=spawning) == missing
    error = connect_error("Could not connect", cause, public="is away", spawning=spawning)
    assert isinstance(error, ConnectFailed)
    assert isinstance(error, LocalResourceError) == (missing is not None)
    if isinstance(error, LocalResourceError):
        assert error.resource == missing
        assert public_reason(error) == f"could not be reached: the gateway is out of {missing}"
        assert not error.delivered
    else:
        assert error.public == "is away"


async def test_a_start_without_free_descriptors_is_reported_as_a_local_failure(
    tmp_path: Path,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 256), before[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(open(tmp_path / "held", "w"))  # noqa: SIM115
        with pytest.raises(LocalResourceError, match="out of file descriptors"):
            await spawn([sys.executable, "-c", "pass"])
        name_error = socket.gaierror(-2, "Name or service not known")
        assert exhausted_resource(name_error) == "file descriptors"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in held:
            file.close()
