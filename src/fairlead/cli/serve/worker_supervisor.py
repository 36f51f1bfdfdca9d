"""Supervisor of worker processes that share one socket: several at once, or one that is reloaded.

The supervisor holds the listening socket, so that no connection is refused while a process is
replaced: new connections wait in the socket's queue. The supervisor never imports the served
code. Each worker is a new process that gets the socket and one end of a socket pair. Over the pair
it reports that its code is loaded, waits until it may start, and detects when the parent exits. A
new version of the code therefore serves only after a successful import, two lifespans never
overlap, and no worker outlives a killed parent. The keys that seal the state between rounds are
created once here and shared by all workers.
"""

import asyncio
import base64
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Sequence, Set
from contextlib import suppress

from ...protocol.sealed_state import KEYS_VARIABLE
from ...transport.background_tasks import BackgroundTasks
from ...transport.http.server.http_settings import HttpSettings
from ..framework.command_errors import FAILED, USAGE, CommandError, print_message
from ..framework.listen_address import ClientNeeds, ListenAddress
from .file_watcher import CodeFiles
from .worker import BEGIN, READY, VARIABLE, worker_variable

__all__ = ["supervise"]

# Seconds before remaining workers are killed; workers normally exit within 4.5 seconds.
STOP_LIMIT = 4.7
BACKOFF = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds before a worker is restarted
STEADY = 10.0  # seconds of running after which the restart delay is reset


def supervise(argv: Sequence[str], endpoint: ListenAddress, code: CodeFiles | None = None) -> int:
    """Serve until a signal arrives; with `code`, reload the server when its files change.

    Raises:
        CommandError: The address cannot be used.
    """
    if sys.platform == "win32":
        raise CommandError(
            "--workers and --reload are not supported on Windows: child processes cannot inherit "
            "sockets"
        )
    endpoint.tls()  # check the certificate once, not in each worker
    listening = endpoint.listen()
    try:
        with asyncio.Runner() as runner:
            return runner.run(_until_signal(_Supervisor(argv, endpoint, listening, code)))
    finally:
        endpoint.clean_up(listening)


async def _until_signal(supervisor: "_Supervisor") -> int:
    loop = asyncio.get_running_loop()
    work = loop.create_task(supervisor.run())
    stopped = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            # The workers stop sooner after Ctrl-C than after SIGTERM.
            supervisor.stop_signal = number
            work.cancel()
        else:  # it must not interrupt the shutdown, but ends the time in which requests finish
            supervisor.repeat_signal()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, stop, signal.SIGTERM)
    try:
        return await work
    except asyncio.CancelledError:
        if not stopped:
            raise
        return 0
    finally:
        await supervisor.end()


class _Process:
    """A worker process, as seen by its parent."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.name = ""  # name of the server; known once its code is loaded
        self.access = ClientNeeds()
        self.began = time.monotonic()
        self._reader = reader
        self._writer = writer

    async def load(self) -> bool:
        """Wait until the code is loaded; return False if the worker exited (it printed why)."""
        line = await self._hear()
        if line:
            self.name, access = json.loads(line)
            self.access = ClientNeeds(*access)
        return bool(line)

    async def begin(self) -> bool:
        """Allow the worker to serve; return False if it exited instead."""
        self._writer.write(BEGIN)
        return await self._hear() == READY

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def hang_up(self) -> None:
        self._writer.close()

    async def _hear(self) -> bytes:
        try:
            line = await self._reader.readline()
        except OSError:
            return b""
        return line if line.endswith(b"\n") else b""


class _Supervisor:
    def __init__(
        self,
        argv: Sequence[str],
        endpoint: ListenAddress,
        listening: socket.socket,
        code: CodeFiles | None,
    ) -> None:
        self._command = [sys.executable, "-P", "-m", "fairlead", "serve", *_without_token(argv)]
        self._endpoint = endpoint
        self._listening = listening
        self._code = code
        # One key ring for all workers, also for later versions of the code: a call that waits for
        # input can continue in another process.
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        self._environment = {KEYS_VARIABLE: f"run:{key}", **os.environ}
        self._processes: set[_Process] = set()
        self._keepers = BackgroundTasks()
        self._announced = False
        self.stop_signal = signal.SIGTERM  # the signal that stops the workers at the end

    async def run(self) -> int:
        """Serve until cancelled. Returns an exit code only if the server cannot start."""
        if self._code is None:
            return await self._serve_many()
        return await self._serve_changing(self._code)

    async def end(self) -> None:
        """Stop all workers."""
        for keeper in self._keepers:
            keeper.cancel()
        await self._dismiss(set(self._processes), self.stop_signal)

    def repeat_signal(self) -> None:
        """Send the workers that are stopping another signal."""
        for process in self._processes:
            process.send(signal.SIGTERM)

    # Several workers

    async def _serve_many(self) -> int:
        first = await self._start()
        if not (await first.load() and await first.begin()):
            return max(await first.process.wait(), FAILED)  # the other workers would fail as well
        self._announce(first)
        self._keep(first)
        for _ in range(self._endpoint.workers - 1):
            self._keep(None)
        await asyncio.Event().wait()
        raise AssertionError

    def _keep(self, process: _Process | None) -> "asyncio.Task[None]":
        return self._keepers.start(self._keep_one(process))

    async def _keep_one(self, process: _Process | None) -> None:
        """Keep one worker running, with a longer delay after each failure."""
        failures = 0
        while True:
            if process is None:
                try:
                    process = await self._start()
                except OSError as exc:  # out of memory or descriptors, perhaps temporarily
                    print_message("worker", f"cannot start a process: {exc.strerror}", "31")
                    await asyncio.sleep(BACKOFF[-1])
                    continue
                _ = await process.load() and await process.begin()
            code = await process.process.wait()
            self._forget(process)
            if time.monotonic() - process.began > STEADY:
                failures = 0
            delay = BACKOFF[min(failures, len(BACKOFF) - 1)]
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            print_message(
                "worker", f"{process.process.pid} ended {how}; restarting in {delay:g} s", "33"
            )
            failures += 1
            process = None
            await asyncio.sleep(delay)

    # Reloading of a single worker

    async def _serve_changing(self, code: CodeFiles) -> int:
        keeper: asyncio.Task[None] | None = None
        current: _Process | None = None
        while True:
            fresh = await self._start()
            if await fresh.load():
                # The previous version keeps serving until the new version is loaded.
                if keeper is not None:
                    keeper.cancel()
                await self._dismiss(self._processes - {fresh})
                current = fresh if await fresh.begin() else None
                if current is not None:
                    keeper = self._keep(current)
                    self._announce(current)
            if current is not fresh:
                exit_code = await fresh.process.wait()
                self._forget(fresh)
                if exit_code == USAGE and not self._announced:
                    return exit_code
                still = "the previous version keeps serving" if current else "connections wait"
                print_message("reload", f"waiting for the next change; {still}", "33")
            name = await code.changed()
            print_message("reload", f"{_shown(name)} has changed", "36")

    # Worker processes

    async def _start(self) -> _Process:
        ours, theirs = socket.socketpair()
        with theirs:
            handed = worker_variable(
                self._listening, theirs, self._endpoint.token, changing=self._code is not None
            )
            reader, writer = await asyncio.open_connection(sock=ours)
            try:
                child = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    env={**self._environment, VARIABLE: handed},
                    pass_fds=(self._listening.fileno(), theirs.fileno()),
                    process_group=0,  # Ctrl-C reaches only the supervisor, which stops the workers
                )
            except BaseException:
                writer.close()  # also ends a worker that is just starting
                raise
        process = _Process(child, reader, writer)
        self._processes.add(process)
        return process

    def _forget(self, process: _Process) -> None:
        process.hang_up()
        self._processes.discard(process)

    async def _dismiss(
        self, processes: Set[_Process], number: signal.Signals = signal.SIGTERM
    ) -> None:
        if not processes:
            return
        for process in processes:
            process.send(number)
        ends = [asyncio.ensure_future(process.process.wait()) for process in processes]
        await asyncio.wait(ends, timeout=self._endpoint.stop_limit or STOP_LIMIT)
        for process in processes:
            if process.process.returncode is None:
                process.send(signal.SIGKILL)
        await asyncio.wait(ends)
        for process in processes:
            self._forget(process)

    def _announce(self, process: _Process) -> None:
        if self._announced:
            print_message("reload", f"serving the new version of {process.name}", "32")
            return
        self._announced = True
        self._endpoint.announce(process.name, self._listening, HttpSettings(), process.access)
        if self._code is not None:
            folders = ", ".join(map(_shown, self._code.folders))
            print_message("reload", f"watching the Python files in {folders}", "36")
        if (count := self._endpoint.workers) > 1:
            print_message(
                "workers",
                f"{count} processes share the address. Clients of the handshake era have no "
                "session and cannot receive input requests, HTTP+SSE is not served, and rate "
                "limits and state are per process",
                "36",
            )


def _shown(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)


def _without_token(argv: Sequence[str]) -> list[str]:
    """Remove the token from the arguments, which all users can see; the environment contains it."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--token":
            next(words, None)
        elif not word.startswith("--token="):
            kept.append(word)
    return kept
