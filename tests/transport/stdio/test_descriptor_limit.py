"""The limit on open files: raised in Fairlead's processes, unchanged in the servers they start."""

import resource
import subprocess
import sys
from textwrap import dedent

import pytest

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs prlimit")
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
RAISED = 65_536 if HARD == resource.RLIM_INFINITY else min(HARD, 65_536)


def run(source: str) -> str:
    """Run a program that starts with a soft limit of 64 and return its output."""
    prelude = """
    import asyncio, resource
    from fairlead.transport.stdio import descriptor_limit
    from fairlead.transport.stdio.child_process import spawn
    LIMIT = resource.RLIMIT_NOFILE
    resource.setrlimit(LIMIT, (64, resource.getrlimit(LIMIT)[1]))
    """
    command = [sys.executable, "-c", dedent(prelude) + dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@LINUX
def test_the_descriptor_limit_is_raised_and_servers_get_the_original_limit() -> None:
    output = run(
        """
        async def main():
            descriptor_limit.raise_descriptor_limit()
            server = await spawn(["cat"])
            print(resource.getrlimit(LIMIT), resource.prlimit(server.context.process_id, LIMIT))
            await server.close()
        asyncio.run(main())
        """
    )
    assert output == f"({RAISED}, {HARD}) (64, {HARD})\n"


@LINUX
def test_a_server_that_sets_its_own_descriptor_limit_keeps_it() -> None:
    output = run(
        """
        import subprocess
        descriptor_limit.raise_descriptor_limit()
        server = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        resource.prlimit(server.pid, LIMIT, (99, 99))
        descriptor_limit.restore_descriptor_limit(server.pid)
        print(resource.prlimit(server.pid, LIMIT))
        server.communicate()
        """
    )
    assert output == "(99, 99)\n"


def test_servers_that_exceed_the_original_limit_can_be_started() -> None:
    output = run(
        """
        async def main():
            descriptor_limit.raise_descriptor_limit()
            servers = await asyncio.gather(*(spawn(["cat"]) for _ in range(20)))
            print(len(servers))
            await asyncio.gather(*(server.close() for server in servers))
        asyncio.run(main())
        """
    )
    assert output == "20\n"


def test_the_descriptor_limit_of_programs_that_only_import_fairlead_is_unchanged() -> None:
    output = run("print(resource.getrlimit(LIMIT)[0])")
    assert output == "64\n"
