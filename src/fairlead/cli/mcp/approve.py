"""`fairlead mcp approve` and `revoke`: whether a server of a project's file may run."""

import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ...config.entry_preview import preview
from ...config.found_server import FoundServer
from ...config.trust import Trust
from ..framework.command_errors import FAILED, CommandError, UsageError
from ..framework.describe_entry import needs_of
from ..framework.output import as_json, ask, can_ask, pretty, visible, write
from ..framework.parser import NAME, Parser, flag
from ..framework.server_lookup import every_server, places_of
from ..framework.suggested_commands import suggest

__all__ = ["run_approve", "run_revoke"]


def run_approve(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp approve",
        "Let a server run that a file of the project configures. Shows what it would run or reach, "
        "where each value comes from and what has changed since the last approval, and asks. When "
        "the entry changes, or an input or a file that it refers to, it has to be approved again.",
        NAME,
        flag("--yes", help="do not ask"),
        flag("--json", help="print JSON, for programs; approves nothing without --yes"),
        examples="  fairlead mcp approve notes\n  fairlead mcp approve notes --json",
    ).parse_args(argv)
    found, trust = _find(options.name), Trust()
    about = _about(found, trust)
    if not options.json and about["approved"]:
        where = "is approved" if found.level == "project" else "is not of a project's file"
        write(f"{visible(found.name)} {where}: it may run")
        return 0
    if not options.json:
        _show(about)
    if not about["approved"]:
        if not options.yes and (options.json or not _agrees()):
            write(pretty(about) if options.json else "not approved")
            return FAILED
        try:
            trust.approve(found)
        except OSError as exc:
            raise _unwritable(trust, exc) from exc
    if not as_json(options, {**about, "approved": True, "approval": "approved"}):
        written = visible(str(trust.path))
        write(f"{visible(found.name)} is approved, as it stands; written to {written}")
    return 0


def run_revoke(argv: Sequence[str]) -> int:
    about = "Take back that a server of a project's file may run."
    parser = Parser("mcp revoke", about, NAME, examples="  fairlead mcp revoke notes")
    options = parser.parse_args(argv)
    found, trust = _find(options.name), Trust()
    if found.level != "project":
        raise CommandError(
            f"{visible(found.name)} is not of a project's file: it needs no approval",
            hint=f"{suggest('mcp', 'disable', operands=[options.name])} hides it",
        )
    try:
        gone = trust.revoke(found)
    except OSError as exc:
        raise _unwritable(trust, exc) from exc
    state = "is no longer approved" if gone else "was not approved"
    write(f"{visible(found.name)} {state}")
    return 0


def _find(name: str) -> FoundServer:
    """The place of that name that counts, whether it is switched on or not."""
    return places_of(name, every_server())[0][0]


def _about(found: FoundServer, trust: Trust) -> dict[str, Any]:
    """Everything that a person has to know before approving an entry."""
    approval = trust.approval(found)
    before = trust.last(found) if approval == "changed" else None
    about: dict[str, Any] = {
        "name": found.name,
        "path": found.path,
        "line": found.line,
        "level": found.level,
        "approved": approval == "approved",
        "approval": approval,
        "reason": None if approval == "approved" else trust.rejection_reason(found),
        "values": [value.plain() for value in preview(found)],
        "needs": needs_of(found),
        "changed": trust.changes(found) if before is not None else None,
        "before": before and {key: before[key] for key in ("runs", "reaches") if key in before},
    }
    return {key: value for key, value in about.items() if value is not None}


def _show(about: dict[str, Any]) -> None:
    """Show it as lines in which nothing can hide; a value without `from` stands in the entry."""
    lines = [f"{about['name']}, in {about['path']}:{about['line']}"]
    values = {value["field"]: value for value in about["values"]}
    words = [value["value"] for field, value in values.items() if _is_word(field)]
    if words:
        lines.append(f"  runs      {shlex.join(words)}")
    for field, value in values.items():
        kind, _, name = field.partition(".")
        kind = _KINDS.get(kind) or kind
        text = f"{name}={value['value']}" if name else value["value"]
        origins = [one for one in value["from"] if one != "entry"]
        if _is_word(field) and not origins:
            continue
        if _is_word(field):
            text = f"{field}: {text}"
            kind = ""
        lines.append(f"  {kind.ljust(9)} {text}")
        lines += [f"      from: {origin}" for origin in origins]  # a line that no value can imitate
    lines += [f"  asks you  {_asked(need)}" for need in about["needs"] if need["kind"] == "input"]
    if about["approval"] == "outdated":
        lines.append(f"It {about['reason']}.")
    elif about["approval"] == "changed":
        lines.append("It was approved before, and has changed since:")
        lines += [f"  changed   {name}" for name in about.get("changed", ())]
        before = about.get("before") or {}
        lines += [f"  before    it {what} {text}" for what, text in before.items()]
    for line in lines:
        write(visible(line))
    sys.stdout.flush()


_KINDS = {"cwd": "in", "url": "reaches"}


def _is_word(field: str) -> bool:
    """Whether a field is a word of the command line."""
    return field == "command" or field.startswith("args[")


def _asked(need: dict[str, Any]) -> str:
    return f"{need['name']} ({need['about']})" if need.get("about") else str(need["name"])


def _agrees() -> bool:
    if not can_ask():
        raise UsageError(
            "Nobody is there to be asked", hint="read what it would run; then --yes approves it"
        )
    try:
        return ask("let it run? [y/N] ").lower() in ("y", "yes")
    except EOFError:
        return False


def _unwritable(trust: Trust, exc: OSError) -> CommandError:
    return CommandError(f"{visible(str(trust.path))} cannot be changed: {exc.strerror or exc}")
