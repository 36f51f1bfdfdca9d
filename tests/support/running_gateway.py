"""`fairlead gateway` and `fairlead up` as processes."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from fairlead import MCPClient, MCPClientConfig
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person

__all__ = ["Running", "connected", "exchange", "get", "names_of", "post", "running", "text_of"]


class Running:
    """A gateway process whose output is kept."""

    def __init__(self, person: Person, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=person.project,
            env={**os.environ, **person.env, **(env or {})},
            start_new_session=True,
            # A shell that runs the tests in the background makes them ignore SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads
        )
        self.said = ""

    def wait_for(self, words: str) -> str:
        """Return the first line that contains `words`."""
        while not (found := [line for line in self.said.splitlines() if words in line]):
            self._hear(f"the gateway did not print {words!r}")
        return found[0]

    def report(self) -> dict[str, Any]:
        """Return the JSON object that the gateway prints when it is ready."""
        while True:
            with contextlib.suppress(ValueError):
                found: dict[str, Any] = json.loads(self.said)
                return found
            self._hear("the gateway did not print JSON")

    def _hear(self, trouble: str) -> None:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], LIMIT)[0], f"{trouble}: {self.said}"
        some = os.read(self.process.stdout.fileno(), 65536)
        assert some, f"the gateway ended; {trouble}: {self.said}"
        self.said += some.decode()

    @property
    def url(self) -> str:
        return self.wait_for("gateway: ").split(" at ")[1]

    def ends(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, check that no process of the gateway is left, and return its exit code."""
        group = self.process.pid
        self.process.send_signal(number)
        self.process.wait(LIMIT)
        assert _gone(group), "a process is left behind"
        return self.process.returncode


def _gone(group: int) -> bool:
    """Wait until no process of a session exists; return False after five seconds."""
    limit = time.monotonic() + 5
    while time.monotonic() < limit:
        if not any(_session(entry) == group for entry in os.listdir("/proc") if entry.isdigit()):
            return True
        select.select([], [], [], 0.02)
    return False


def _session(process: str) -> int | None:
    try:
        with open(f"/proc/{process}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[3])


@contextlib.contextmanager
def running(person: Person, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    it = Running(person, *args, env=env)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.terminate()
            try:
                it.process.wait(LIMIT)
            finally:
                it.process.kill()
        it.process.communicate(timeout=LIMIT)


@contextlib.asynccontextmanager
async def connected(
    url: str, version: str = "auto", token: str | None = None, **callbacks: Any
) -> AsyncIterator[MCPClient]:
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_http(url, config, headers=headers, **callbacks) as client,
    ):
        yield client


async def names_of(client: MCPClient) -> set[str]:
    return {tool["name"] for tool in await client.list_tools()}


def text_of(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


def get(url: str, path: str, **headers: str) -> tuple[int, str]:
    """Send a GET to a path at the origin of `url`; return status and body."""
    return exchange("GET", url, None, path, **headers)[:2]


def post(url: str, body: object, **headers: str) -> tuple[int, str]:
    """Send a POST with a JSON body; return status and body."""
    return exchange("POST", url, body, **headers)[:2]


def exchange(
    method: str, url: str, body: object = None, path: str | None = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Send a request; return status, body and headers, whose names are in lower case."""
    typed = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sent = {**({} if body is None else typed), **headers}
    connection = HTTPConnection(urlsplit(url).netloc, timeout=LIMIT)
    try:
        connection.request(
            method,
            path or urlsplit(url).path,
            None if body is None else json.dumps(body),
            {key.replace("_", "-"): value for key, value in sent.items()},
        )
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, answer.read().decode(), found
    finally:
        connection.close()
