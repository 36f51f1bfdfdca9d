"""`fairlead rules ...`: see whether a file of rules is right, and what it would have done."""

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ..command_group import run_one
from ..framework.command_errors import FAILED, CommandError, styled
from ..framework.output import as_json, pluralize, safe, visible, write
from ..framework.parser import JSON, TAPE, Parser, flag, option

if TYPE_CHECKING:
    from ...policy.actions.action_registry import Factory
    from ...policy.rules import DryRunResult, RulesError

__all__ = ["run", "run_check", "run_test"]

_FILE = option("file", metavar="FILE")

_COMMANDS = {
    "check": ("say what a file of rules means, or what is wrong with it", "policy.rules"),
    "test": ("show what it would have done to the messages on a tape", "policy.rules"),
}

_ABOUT = """\
Rules say what happens to messages that pass: `fairlead proxy --rules FILE`,
`fairlead tap --rules FILE`, or `rules = "FILE"` in the file of a gateway."""


def run(argv: Sequence[str]) -> int:
    return run_one("rules", _COMMANDS, _ABOUT, argv)


# Whether it is right


def run_check(argv: Sequence[str]) -> int:
    from ...policy.actions.action_registry import ACTIONS
    from ...policy.rules import RulesError, read_rules
    from ...policy.rules.build_actions import WRITING, ActionContext

    options = Parser(
        "rules check",
        "Read a file of rules, and say what it means, or everything that is wrong with it. Code "
        "that it names is imported, files that it names are looked for; nothing is written.",
        _FILE,
        JSON,
        examples="  fairlead rules check rules.toml",
    ).parse_args(argv)
    try:
        # All actions, but for files that they would write.
        making = ActionContext(actions={**ACTIONS, **_actions()}, unmade=WRITING)
        rules = read_rules(options.file, making)
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
    if as_json(options, {"rules": facts, "mistakes": []}):
        return 0
    for rule in rules:
        write(visible(f"{rule.name}  {', '.join(map(str, rule.actions))}"))
    write(f"{pluralize(len(facts), 'rule')}, no mistakes")
    return 0


def _wrong(exc: "RulesError", options: Namespace) -> int:
    if as_json(options, {"rules": [], "mistakes": msgspec.to_builtins(exc.mistakes)}):
        return FAILED
    count = len(exc.mistakes)
    raise CommandError(
        f"There {'is 1 mistake' if count == 1 else f'are {count} mistakes'}",
        details=[safe(str(one)) for one in exc.mistakes],
    )


# What it would have done


def run_test(argv: Sequence[str]) -> int:
    from ...policy.rules import RulesError, dry_run_tape
    from ..recording.places import open_tape

    options = Parser(
        "rules test",
        "Show what a file of rules would have done to the messages on a tape. Nothing is sent, "
        "waited for or written; what would do so is only named.",
        _FILE,
        TAPE,
        flag("--all", help="also messages that no rule concerns"),
        flag("--json", help="print one JSON object for each message, for programs"),
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
        write(f"{sum(counts.values())} messages, rules for {acted} of them: {parts or 'none'}")
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
    """Has no tools: which are there, the gateway will know that uses the rules."""

    def find_tool(self, exchange: object, name: str) -> None:
        return None

    async def until_found(self, exchange: object, name: str) -> None:
        pass


def _actions() -> "Mapping[str, Factory]":
    from ...policy.hold_desk import HoldDesk
    from ...policy.rules.gateway_actions import gateway_actions

    return gateway_actions(HoldDesk(), _Nobody())
