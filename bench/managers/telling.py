"""Common part of the managers under test, which do one task and print one line."""

import json
import sys
import time

__all__ = ["Clock", "configured", "tell"]


def configured(path: str) -> dict[str, dict[str, object]]:
    """Return the servers of a configuration file by name."""
    with open(path) as file:
        servers: dict[str, dict[str, object]] = json.load(file)["mcpServers"]
    return servers


class Clock:
    """Wall time and CPU time of this process since the clock was created."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def read(self) -> dict[str, float]:
        """Return the milliseconds of both."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"ms": wall * 1000, "cpu_ms": cpu * 1000}


def tell(**facts: object) -> None:
    """Print the result; later work is not measured."""
    print(json.dumps(facts))
    sys.stdout.flush()
