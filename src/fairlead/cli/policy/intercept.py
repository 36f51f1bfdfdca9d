"""`fairlead intercept`: what a gateway holds, and what shall become of it."""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from ..framework.admin_client import ADMIN_TOKEN, URL, ask_admin
from ..framework.errors import USAGE, CommandError, print_message
from ..framework.output import as_json, pretty, safe, visible
from ..framework.parser import JSON, Parser, option

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "intercept",
        "Show what a gateway holds at a breakpoint, and decide about it: let it go as it is, let\n"
        "it go with other params (or answer it yourself), or refuse it.",
        option("action", choices=("list", "resume", "change", "block"), metavar="ACTION"),
        option("number", metavar="ID", nargs="?", type=int, help="as `list` shows it"),
        option("--params", metavar="JSON", help="all params of the request, anew"),
        option("--result", metavar="JSON", help="what the asker gets instead"),
        option("--reason", metavar="TEXT", help="what the asker is told"),
        JSON,
        URL,
        ADMIN_TOKEN,
        usage="(list | resume ID | change ID | block ID) [options]",
        examples="  fairlead intercept list\n"
        "  fairlead intercept resume 3\n"
        '  fairlead intercept change 3 --params \'{"name": "add", "arguments": {"a": 1}}\'\n'
        "  fairlead intercept change 3 --result - < result.json\n"
        "  fairlead intercept block 3 --reason 'not on a Friday'",
    ).parse_args(argv)
    if options.action == "list":
        return _list(options)
    if options.number is None:
        raise CommandError(
            f"Which one? `fairlead intercept {options.action} ID`",
            hint="`fairlead intercept list` shows what is held",
            code=USAGE,
        )
    body = _body(options)
    answer = ask_admin(options, "POST", f"/admin/paused/{options.number}/{options.action}", body)
    if not as_json(options, answer):
        (what, number), *_ = answer.items()
        print_message(what, str(number), "32")
    return 0


def _body(options: Namespace) -> dict[str, Any] | None:
    if options.action == "block":
        return {"reason": options.reason or ""}
    if options.action != "change":
        return None
    given = {"params": options.params, "result": options.result}
    wanted = {key: text for key, text in given.items() if text is not None}
    if len(wanted) != 1:
        raise CommandError(
            "To change one, give --params or --result", hint="JSON, or - for stdin", code=USAGE
        )
    [(key, text)] = wanted.items()
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as exc:
        raise CommandError(f"--{key} is no JSON: {exc}", code=USAGE) from exc
    if not isinstance(value, dict):
        raise CommandError(f"--{key} is a JSON object", code=USAGE)
    return {key: value}


def _list(options: Namespace) -> int:
    held = ask_admin(options, "GET", "/admin/paused")
    if as_json(options, held):
        return 0
    for one in held:
        left = max(one["until"] - time.time(), 0)
        way = "→" if one["dir"] == "client_to_server" else "←"
        target = f" {visible(one['target'])}" if one.get("target") else ""
        whom = f" of {visible(one['principal'])}" if one.get("principal") else ""
        print(
            f"#{one['id']} {way} {visible(one['method'])}{target}: the {one['phase']}{whom}; "
            f"{one['otherwise']} in {left:.0f} s"
        )
        for text in (one.get("reason"), _shown(one)):
            if text:
                print("".join(f"    {line}\n" for line in safe(text).splitlines()), end="")
    if not held:
        print_message("note", "nothing is held")
    return 0


def _shown(one: dict[str, Any]) -> str:
    if "message" in one:
        return pretty(one["message"])
    size = one.get("size", 0)
    return f"({size} bytes, too many to be shown)" if size else ""
