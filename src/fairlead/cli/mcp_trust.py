"""`fairlead mcp approve` and `revoke`: whether a server of a project's file may run."""

import sys
from collections.abc import Sequence

from ..manager.found import Found
from ..manager.trust import Trust
from .described import describe, needs_of
from .failed import FAILED, USAGE, Failed
from .named import every_server, unknown
from .output import safe, visible, write
from .usage import Parser

__all__ = ["run_approve", "run_revoke"]


def run_approve(argv: Sequence[str]) -> int:
    parser = Parser(
        "mcp approve",
        "Let a server run that a file of the project configures. Shows exactly what it would run "
        "or reach, and asks; when the entry changes, it has to be approved again.",
        usage="NAME [--yes]",
        examples="  fairlead mcp approve notes",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args(argv)
    found, trust = _find(options.name), Trust()
    if trust.trusts(found):
        where = "is approved" if found.level == "project" else "is not of a project's file"
        write(f"{safe(found.name)} {where}: it may run")
        return 0
    _show(found, changed=trust.trusted_before(found))
    if not options.yes and not _agrees():
        write("not approved")
        return FAILED
    try:
        trust.approve(found)
    except OSError as exc:
        raise _unwritable(trust, exc) from exc
    write(f"{safe(found.name)} is approved, as it stands; written to {trust.path}")
    return 0


def run_revoke(argv: Sequence[str]) -> int:
    parser = Parser(
        "mcp revoke",
        "Take back that a server of a project's file may run.",
        usage="NAME",
        examples="  fairlead mcp revoke notes",
    )
    parser.add_argument("name", metavar="NAME")
    options = parser.parse_args(argv)
    found, trust = _find(options.name), Trust()
    if found.level != "project":
        raise Failed(
            f"{safe(found.name)} is not of a project's file: it needs no approval",
            hint=f"`fairlead mcp disable {options.name}` hides it",
        )
    try:
        gone = trust.revoke(found)
    except OSError as exc:
        raise _unwritable(trust, exc) from exc
    state = "is no longer approved" if gone else "was not approved"
    write(f"{safe(found.name)} {state}")
    return 0


def _find(name: str) -> Found:
    """The place of that name that counts, whether it is switched on or not."""
    loaded = every_server()
    if name not in loaded.places:
        raise unknown(name, loaded)
    return loaded.places[name][0][0]


def _show(found: Found, *, changed: bool) -> None:
    if changed:
        write("It was approved before, and has changed since.")
    write(visible(f"{found.name}, in {found.place}"))
    for key, value in describe(found, exactly=True).items():
        if isinstance(value, dict):
            for name, item in value.items():
                write(visible(f"  {key.ljust(9)} {name}={item}"))
        else:
            write(visible(f"  {key.ljust(9)} {value}"))
    for need in needs_of(found):
        if need["kind"] == "command":
            write(visible(f"  and runs  {need['name']}"))
        elif need["kind"] == "variable":
            write(visible(f"  and gets  your variable {need['name']}"))
    sys.stdout.flush()


def _agrees() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failed(
            "Nobody is there to be asked",
            hint="read what it would run; then --yes approves it",
            code=USAGE,
        )
    sys.stderr.write("let it run? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _unwritable(trust: Trust, exc: OSError) -> Failed:
    return Failed(f"{trust.path} cannot be changed: {exc.strerror or exc}")
