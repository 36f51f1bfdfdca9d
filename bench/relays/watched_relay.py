"""Fairlead's relay with interceptors, whose cost is measured.

watched_relay.py HOW FOLDER [--http PORT] COMMAND...: between stdin and stdout, or between HTTP and
the command. `HOW` is one of those below; recordings are written to the directory.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairlead.gateway import Relay
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.policy.actions import Allow, RateLimit, Redact
from fairlead.policy.rules import RuleSet
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.tape import TapeWriter
from fairlead.recording.tape.tape_interceptor import Recorder
from fairlead.server.run_program import run_program

RULES = 200

# One of two hundred rules by its number; none of them matches the calls of the load generator.
WHEN: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "method": lambda n: {"method": f"custom/{n}*"},
    "tool": lambda n: {"tool": f"tool-{n}*"},
    "params": lambda n: {"params": {"arguments.text": f"text {n}"}},
    "patterns": lambda n: {"params": {"arguments.text": {"like": f"text {n}*"}}},
    "paths": lambda n: {"params": {f"arguments.a{n}": {"matches": f"text {n}"}}},
    "headers": lambda n: {"headers": {f"x-team-{n}": "*"}},
    "identity": lambda n: {"identity": f"user-{n}"},
    "nested": lambda n: {
        "any": [
            {"all": [{"method": "tools/call"}, {"params": {"arguments.text": f"text {n}"}}]},
            {"all": [{"identity": f"user-{n}*"}, {"not": {"tool": f"tool-{n}"}}]},
        ]
    },
}


async def passing(exchange: Exchange, proceed: Proceed) -> Answer:
    """An interceptor that does nothing."""
    return await proceed(exchange)


def guarding() -> list[Interceptor]:
    """Return interceptors for access, rate limit, redaction and a journal."""
    return [
        Journaling(Journal()),
        Allow(allow=("echo", "list_*"), deny=("rm_*",)),
        RateLimit(1e6, per=["identity", "tool"]),
        Redact(to="both"),
    ]


def interceptors(how: str, folder: Path) -> list[Interceptor]:
    """Return the interceptors for `HOW`."""
    if how == "empty":
        return []
    if how == "passing":
        return [passing]
    if how == "guarded":
        return guarding()
    if how == "recorded":
        return [Recorder(TapeWriter(folder / "tape")), *guarding()]
    when = WHEN[how]
    return [
        RuleSet.of_data(
            {"rules": [{"name": str(n), "when": when(n), "do": "block"} for n in range(RULES)]}
        )
    ]


def main() -> None:
    how, folder, *words = sys.argv[1:]
    port = None
    if words[0] == "--http":
        port, words = int(words[1]), words[2:]
    options: dict[str, Any] = {}
    if how != "bare":
        options["interceptors"] = interceptors(how, Path(folder))
    relay = Relay({"command": words[0], "args": words[1:]}, **options)
    if port is None:
        run_program(relay.run_stdio)
    else:
        run_program(lambda: relay.run_http(port=port))


if __name__ == "__main__":
    main()
