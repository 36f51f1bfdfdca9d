"""`fairlead mcp why`: shows the origin of a server, whether it is used, and what it needs."""

from collections.abc import Sequence
from typing import Any

from ...config.discovery import USED, DiscoveredServers
from ...config.trust import Trust
from ..framework.describe_entry import describe, needs_of, source_of
from ..framework.output import as_json, visible, write
from ..framework.parser import JSON, NAME, Parser
from ..framework.server_lookup import every_server, places_of
from ..framework.suggested_commands import suggest

__all__ = ["run_why"]


def run_why(argv: Sequence[str]) -> int:
    options = Parser(
        "mcp why",
        "Show where a server is configured, other entries with the same name, whether it is used, "
        "and what it needs. Nothing is run, and literal values are not shown.",
        NAME,
        JSON,
        examples="  fairlead mcp why notes",
    ).parse_args(argv)
    facts = _facts(options.name, every_server())
    if not as_json(options, facts):
        _show(facts)
    return 0


def _facts(name: str, loaded: DiscoveredServers) -> dict[str, Any]:
    places = places_of(name, loaded)
    found, what = places[0]
    trust = Trust()
    same = [other for other, whose in loaded.duplicates.items() if whose == name]
    approved = None if found.level != "project" else trust.trusts(found)
    facts: dict[str, Any] = {
        "name": name,
        "used": name in loaded.found and approved is not False,
        "outcome": what,
        "source": found.host_title,
        "level": found.level,
        "path": found.path,
        "line": found.line,
        "enabled": name not in loaded.disabled,
        "approved": approved,
        "notApproved": trust.rejection_reason(found) if approved is False else None,
        "changedSinceApproval": trust.approval(found) == "changed" or None,
        "sameServerAs": loaded.duplicates.get(name),
        "alsoKnownAs": same,
        "entry": describe(found),
        "needs": needs_of(found),
        "notes": list(found.notes),
        "otherPlaces": [
            {"source": one.host_title, "level": one.level, "path": one.place, "outcome": why}
            for one, why in places[1:]
        ],
    }
    return {key: value for key, value in facts.items() if value not in (None, [])}


def _show(facts: dict[str, Any]) -> None:
    lines = [
        f"{facts['name']}, configured in {source_of(facts['source'], facts['level'])}",
        f"  file      {facts['path']}:{facts['line']}",
        f"  status    {_status(facts)}",
    ]
    for key, value in facts["entry"].items():
        if isinstance(value, dict):
            lines += [f"  {key.ljust(9)} {name}={item}" for name, item in value.items()]
        else:
            lines.append(f"  {key.ljust(9)} {value}")
    lines += [f"  needs     {_need(need)}" for need in facts.get("needs", ())]
    lines += [f"  note      {note}" for note in facts.get("notes", ())]
    lines += [f"  also      {name} (the same server)" for name in facts.get("alsoKnownAs", ())]
    if others := facts.get("otherPlaces"):
        lines.append("other entries with this name")
        lines += [
            f"  {source_of(one['source'], one['level'])}, {one['path']}: {one['outcome']}"
            for one in others
        ]
    for line in lines:
        write(visible(line))


def _status(facts: dict[str, Any]) -> str:
    name = facts["name"]
    if facts["outcome"] != USED:
        return str(facts["outcome"])
    if facts.get("approved") is False:
        approve = suggest("mcp", "approve", operands=[name])
        return f"{facts['notApproved']}; run {approve}"
    return "used (approved)" if facts.get("approved") else "used"


def _need(need: dict[str, Any]) -> str:
    match need["kind"]:
        case "variable":
            default = f", default {need['default']!r}" if "default" in need else ""
            state = "set" if need["set"] else f"not set{default}"
            return f"the variable {need['name']} for {need['in']} ({state})"
        case "input":
            about = f" ({need['about']})" if need.get("about") else ""
            return f"an input: --input {need['name']}=...{about}"
        case "command":
            return f"the output of `{need['name']}` for {need['in']}"
    return f"the {need['kind']} {need['name']} for {need['in']}"
