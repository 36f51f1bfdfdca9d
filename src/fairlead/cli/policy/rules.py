"""`fairlead rules`: checks rules files, and tests them with a tape."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..command_group import run_one
from ..framework.command_errors import FAILED, CommandError, print_message, styled
from ..framework.output import as_json, pluralize, safe, visible, write
from ..framework.parser import JSON, TAPE, Parser, flag, option

if TYPE_CHECKING:
    from ...policy.actions import Factory
    from ...policy.rules import DryRunResult, RulesError

__all__ = ["run", "run_check", "run_test"]

_FILE = option("file", metavar="FILE")

_COMMANDS = {
    "check": ("show the rules in a file, or all errors in it", "policy.rules"),
    "test": ("show the effect of rules on the messages of a tape", "policy.rules"),
}

_ABOUT = """\
Rules block, change, delay or log messages. They are used by `fairlead proxy --rules FILE`,
`fairlead tap --rules FILE`, or `rules = "FILE"` in a gateway file."""


def run(argv: Sequence[str]) -> int:
    return run_one("rules", _COMMANDS, _ABOUT, argv)


# `rules check`


def run_check(argv: Sequence[str]) -> int:
    from ...policy.actions import ACTIONS
    from ...policy.rules import RulesError, read_rules
    from ...policy.rules.build_actions import WRITING, ActionContext

    options = Parser(
        "rules check",
        "Read a rules file, and show its rules or all errors in it. Code that it refers to is "
        "imported, and files that it refers to must exist; nothing is written.",
        _FILE,
        JSON,
        examples="  fairlead rules check rules.toml",
    ).parse_args(argv)
    try:
        # Checking a file must not write anything, so actions that write do not open their files.
        making = ActionContext(actions={**ACTIONS, **_actions()}, unmade=WRITING)
        rules = read_rules(options.file, making)
        only_gateways = _mistakes_of_proxy(options.file)
    except RulesError as exc:
        return _wrong(exc, options)
    facts = [
        {
            "name": rule.name,
            "line": rule.line,
            "priority": rule.priority,
            "about": "answers" if rule.answers else "messages",
            "do": [str(action) for action in rule.actions],
            "stop": rule.stop,
        }
        for rule in rules
    ]
    outcome = {"rules": facts, "mistakes": [], "onlyGateways": only_gateways}
    if as_json(options, outcome):
        return 0
    for rule in rules:
        write(visible(f"{rule.name}  {', '.join(map(str, rule.actions))}"))
    write(f"{pluralize(len(facts), 'rule')}, no errors")
    for mistake in only_gateways:
        print_message("note", f"`fairlead proxy` and `fairlead tap` reject this file: {mistake}")
    return 0


def _mistakes_of_proxy(path: str) -> list[str]:
    """Return the errors in a file that is valid for a gateway but not for a proxy."""
    from ...policy.actions import ACTIONS
    from ...policy.rules import RulesError, read_rules
    from ...policy.rules.build_actions import WRITING, ActionContext
    from ...policy.rules.gateway_actions import gateway_actions

    try:
        read_rules(path, ActionContext(actions={**ACTIONS, **gateway_actions()}, unmade=WRITING))
    except RulesError as exc:
        return [safe(str(mistake)) for mistake in exc.mistakes]
    return []


def _wrong(exc: "RulesError", options: Namespace) -> int:
    if as_json(options, {"rules": [], "mistakes": msgspec.to_builtins(exc.mistakes)}):
        return FAILED
    count = len(exc.mistakes)
    raise CommandError(
        f"{'1 error' if count == 1 else f'{count} errors'} in {options.file}",
        details=[safe(str(one)) for one in exc.mistakes],
    )


# `rules test`


def run_test(argv: Sequence[str]) -> int:
    from ...policy.rules import RulesError, dry_run_tape
    from ..recording.places import open_tape

    options = Parser(
        "rules test",
        "Show the effect of a rules file on the messages of a tape. Actions that would send, wait "
        "or write are listed but not run.",
        _FILE,
        TAPE,
        flag("--all", help="also show messages that match no rule"),
        flag("--json", help="print one JSON object for each message"),
        examples="  fairlead rules test rules.toml monday\n"
        "  fairlead rules test rules.yaml monday.tape.jsonl --json",
    ).parse_args(argv)
    counts: Counter[str] = Counter()
    try:
        for one in dry_run_tape(options.file, open_tape(options.tape), _actions()):
            counts[one.outcome] += 1
            counts["acted"] += bool(one.rules)
            if options.all or one.rules:
                _show(one, as_json=options.json)
    except RulesError as exc:
        return _wrong(exc, options)
    if not options.json:
        acted = counts.pop("acted", 0)
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        write(f"{sum(counts.values())} messages, {acted} matched by rules: {parts or 'none'}")
    return 0


def _show(one: "DryRunResult", *, as_json: bool) -> None:
    if as_json:
        write(msgspec.json.encode(one).decode())
        return
    arrow = "→" if one.dir == "client_to_server" else "←"
    what = one.method if one.target is None else f"{one.method} {one.target}"
    colour = {"passed": "32", "blocked": "31", "dropped": "31"}.get(one.outcome, "33")
    outcome = styled(one.outcome, colour, sys.stdout)
    by = f" by {', '.join(one.rules)}" if one.rules else ""
    did = f" ({'; '.join(one.did)})" if one.did else ""
    write(f"{one.seq:>5} {arrow} {visible(what)}: {outcome}{visible(by + did)}")


class _Nobody:
    """A substitute for a gateway's tools, because a rules test has no servers that list them."""

    def find_tool(self, exchange: object, name: str) -> None:
        return None

    async def until_found(self, exchange: object, name: str) -> None:
        pass


def _actions() -> "Mapping[str, Factory]":
    from ...policy.hold_desk import HoldDesk
    from ...policy.rules.gateway_actions import gateway_actions

    return gateway_actions(HoldDesk(), _Nobody())
