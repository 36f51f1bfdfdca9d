"""`fairlead mcp approve` and `revoke`: manage approvals of servers in project files."""

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
from .edit_commands import report_edit_errors

__all__ = ["run_approve", "run_revoke"]


def run_approve(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp approve",
        "Approve a server in a project file. Shows what it would run or connect to, the origin of "
        "each value and the changes since the last approval, and asks for confirmation. Any change "
        "to the entry, its inputs or a file it refers to requires a new approval.",
        NAME,
        flag("--yes", help="approve without confirmation"),
        flag("--json", help="print JSON; approves only with --yes"),
        examples="  fairlead mcp approve notes\n  fairlead mcp approve notes --json",
    ).parse_args(argv)
    found, trust = _find(options.name), Trust()
    about = _about(found, trust)
    if not options.json and about["approved"]:
        where = "is already approved" if found.level == "project" else "needs no approval"
        write(f"{visible(found.name)} {where}")
        return 0
    if not options.json:
        _show(about)
    if not about["approved"]:
        if not options.yes and (options.json or not _agrees()):
            write(pretty(about) if options.json else "not approved")
            return FAILED
        with report_edit_errors(trust.path):
            trust.approve(found)
    if not as_json(options, {**about, "approved": True, "approval": "approved"}):
        written = visible(str(trust.path))
        write(f"{visible(found.name)} is approved; written to {written}")
    return 0


def run_revoke(argv: Sequence[str]) -> int:
    about = "Revoke the approval of a server in a project file."
    parser = Parser("mcp revoke", about, NAME, examples="  fairlead mcp revoke notes")
    options = parser.parse_args(argv)
    found, trust = _find(options.name), Trust()
    if found.level != "project":
        raise CommandError(
            f"{visible(found.name)} is not in a project file and needs no approval",
            hint=f"{suggest('mcp', 'disable', operands=[options.name])} disables it",
        )
    with report_edit_errors(trust.path):
        gone = trust.revoke(found)
    state = "is no longer approved" if gone else "was not approved"
    write(f"{visible(found.name)} {state}")
    return 0


def _find(name: str) -> FoundServer:
    """Return the entry with this name that has the highest precedence, enabled or not."""
    return places_of(name, every_server())[0][0]


def _about(found: FoundServer, trust: Trust) -> dict[str, Any]:
    """Return the facts to display before an approval."""
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
    """Print the facts as lines; a value without `from` is literal text in the entry.

    Each line is escaped, so that a value cannot imitate further lines.
    """
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
        # Values are escaped, so that no value can imitate this line with a line break.
        lines += [f"      from: {origin}" for origin in origins]
    lines += [f"  input     {_asked(need)}" for need in about["needs"] if need["kind"] == "input"]
    if about["approval"] == "changed":
        lines.append("The entry has changed since its approval:")
        lines += [f"  changed   {name}" for name in about.get("changed", ())]
        before = about.get("before") or {}
        lines += [f"  before    {what} {text}" for what, text in before.items()]
    for line in lines:
        write(visible(line))
    sys.stdout.flush()


_KINDS = {"cwd": "in", "url": "connects"}


def _is_word(field: str) -> bool:
    """Return True if a field is a word of the command line."""
    return field == "command" or field.startswith("args[")


def _asked(need: dict[str, Any]) -> str:
    return f"{need['name']} ({need['about']})" if need.get("about") else str(need["name"])


def _agrees() -> bool:
    if not can_ask():
        raise UsageError(
            "Cannot ask for confirmation without a terminal",
            hint="review the entry above, then approve it with --yes",
        )
    try:
        return ask("approve? [y/N] ").lower() in ("y", "yes")
    except EOFError:
        return False
