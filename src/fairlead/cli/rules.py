"""`fairlead rules ...`: see whether a file of rules is right, and what it would have done."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from .failed import FAILED, USAGE, Failed, styled
from .output import pretty, safe, visible, write
from .usage import Parser

if TYPE_CHECKING:
    from ..gateway.interceptors.registry import Factory
    from ..gateway.rules import Rehearsed, RulesError
    from ..gateway.rules.actions import Making

__all__ = ["run"]

_COMMANDS = ("check", "test")


def run(argv: Sequence[str]) -> int:
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    if name == "check":
        return _check(rest)
    if name == "test":
        return _test(rest)
    if name in ("-h", "--help"):
        return _help()
    raise Failed(
        f"There is no command 'rules {name}'",
        hint=f"there are {' and '.join(_COMMANDS)}",
        code=USAGE,
    )


# Whether it is right


def _check(argv: Sequence[str]) -> int:
    from ..gateway.pausing import Desk
    from ..gateway.rules import RulesError, read_rules
    from ..gateway.rules.wired import wired_actions

    parser = Parser(
        "rules check",
        "Read a file of rules, and say what it means, or everything that is wrong with it. Code "
        "that it names is imported, files that it names are looked for; nothing is written.",
        usage="[--json] FILE",
        examples="  fairlead rules check rules.toml",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options = parser.parse_args(argv)
    try:
        rules = read_rules(options.file, _making(wired_actions(Desk(), _Nobody())))
    except RulesError as exc:
        return _wrong(exc, as_json=options.json)
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
    if options.json:
        write(pretty({"rules": facts, "mistakes": []}))
        return 0
    for rule in rules:
        write(visible(f"{rule.name}  {', '.join(map(str, rule.actions))}"))
    write(f"{len(facts)} rule{'' if len(facts) == 1 else 's'}, no mistakes")
    return 0


def _wrong(exc: "RulesError", *, as_json: bool) -> int:
    if as_json:
        mistakes = [msgspec.to_builtins(one) for one in exc.mistakes]
        write(pretty({"rules": [], "mistakes": mistakes}))
        return FAILED
    count = len(exc.mistakes)
    raise Failed(
        f"There {'is 1 mistake' if count == 1 else f'are {count} mistakes'}",
        details=[safe(str(one)) for one in exc.mistakes],
    )


# What it would have done


def _test(argv: Sequence[str]) -> int:
    from ..errors import ConfigError
    from ..gateway.rules import RulesError

    parser = Parser(
        "rules test",
        "Show what a file of rules would have done to the messages on a tape. Nothing is sent, "
        "waited for or written; what would do so is only named.",
        usage="[--all] [--json] FILE TAPE",
        examples="  fairlead rules test rules.toml monday\n"
        "  fairlead rules test rules.yaml monday.tape.jsonl --json",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("tape", metavar="TAPE", help="its name, or its path")
    parser.add_argument("--all", action="store_true", help="also messages that no rule concerns")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object for each message, for programs"
    )
    options = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    try:
        for one in _rehearsed(options.file, options.tape):
            counts[one.outcome] += 1
            counts["acted"] += bool(one.rules)
            if options.all or one.rules:
                _show(one, as_json=options.json)
    except RulesError as exc:
        return _wrong(exc, as_json=options.json)
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc
    if not options.json:
        acted = counts.pop("acted", 0)
        parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        write(f"{sum(counts.values())} messages, rules for {acted} of them: {parts or 'none'}")
    return 0


def _rehearsed(file: str, tape: str) -> "Iterator[Rehearsed]":
    from ..gateway.pausing import Desk
    from ..gateway.rules import rehearse
    from ..gateway.rules.wired import wired_actions
    from .tape_places import open_tape

    yield from rehearse(file, open_tape(tape), wired_actions(Desk(), _Nobody()))


def _show(one: "Rehearsed", *, as_json: bool) -> None:
    if as_json:
        write(msgspec.json.encode(one).decode())
        return
    import sys

    arrow = "→" if one.dir == "client_to_server" else "←"
    what = one.method if one.target is None else f"{one.method} {one.target}"
    colour = {"passed": "32", "blocked": "31", "dropped": "31"}.get(one.outcome, "33")
    outcome = styled(one.outcome, colour, sys.stdout)
    write(f"{one.seq:>5} {arrow} {visible(what)}: {outcome}{_why(one)}")


def _why(one: "Rehearsed") -> str:
    by = f" by {', '.join(one.rules)}" if one.rules else ""
    did = f" ({'; '.join(one.did)})" if one.did else ""
    return visible(by + did)


class _Nobody:
    """Has no tools: which are there, the gateway will know that uses the rules."""

    def find_tool(self, exchange: object, name: str) -> None:
        return None

    async def until_found(self, exchange: object, name: str) -> None:
        pass


def _making(more: "Mapping[str, Factory]") -> "Making":
    """All actions, but for files that they would write."""
    from ..gateway.interceptors.registry import ACTIONS
    from ..gateway.rules.actions import WRITING, Making

    return Making(actions={**ACTIONS, **more}, unmade=WRITING)


def _help() -> int:
    write(
        "usage: fairlead rules (check FILE | test FILE TAPE)\n\n"
        "Rules say what happens to messages that pass: `fairlead proxy --rules FILE`,\n"
        '`fairlead tap --rules FILE`, or `rules = "FILE"` in the file of a gateway.\n\n'
        "commands:\n"
        "  check  say what a file of rules means, or what is wrong with it\n"
        "  test   show what it would have done to the messages on a tape\n\n"
        "`fairlead rules COMMAND --help` says more."
    )
    return 0
