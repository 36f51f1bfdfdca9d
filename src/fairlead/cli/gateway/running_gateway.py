"""Commands that ask a gateway that runs, over its admin API.

`fairlead session` and `intercept`; `fairlead mcp reload`, `reconnect`, `resources`, `prompts` and
`notifications`.
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ..client import simple_commands
from ..framework.admin_client import ADMIN_TOKEN, URL, ask_admin
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.output import as_json, pluralize, pretty, safe, visible, write
from ..framework.parser import JSON, Option, Parser, option

__all__ = [
    "run_intercept",
    "run_notifications",
    "run_prompts",
    "run_reconnect",
    "run_reload",
    "run_resources",
    "run_session",
]

_LIVE = {"--url", "--admin-token", "-h", "--help"}


def _options(
    command: str,
    about: str,
    argv: Sequence[str],
    *words: Option,
    usage: str | None = None,
    examples: str = "",
) -> Namespace:
    """Parse the options of such a command; without `examples` there are two of it as it is."""
    named = " notes" if words else ""
    plain = f"  fairlead {command}{named}"
    shown = examples or f"{plain}\n{plain} --url http://127.0.0.1:9000 --json"
    parser = Parser(command, about, *words, JSON, URL, ADMIN_TOKEN, usage=usage, examples=shown)
    return parser.parse_args(argv)


# Sessions


def run_session(argv: Sequence[str]) -> int:
    """`fairlead session`: who is connected to a gateway, and an end of it."""
    options = _options(
        "session",
        "Show which clients are connected to a gateway, and end sessions. A client may come back,\n"
        "with a new one.",
        argv,
        option("action", choices=("list", "end"), metavar="ACTION", help="what to do"),
        option("numbers", metavar="ID", nargs="*", type=int, help="as `list` shows them"),
        usage="(list | end ID ...) [options]",
        examples="  fairlead session list\n"
        "  fairlead session end 3\n"
        "  fairlead session list --url http://127.0.0.1:9000 --json",
    )
    if options.action == "end":
        if not options.numbers:
            raise _which("session", "end", "them")
        ended = [ask_admin(options, "DELETE", f"/admin/sessions/{n}") for n in options.numbers]
        for one in () if as_json(options, ended) else ended:
            print_message("ended", str(one["ended"]), "32")
        return 0
    found = ask_admin(options, "GET", "/admin/sessions")
    if as_json(options, found):
        return 0
    for one in found:
        client = visible(one["client"] or "somebody")
        whom = f" as {visible(one['principal'])}" if one.get("principal") else ""
        watched = len(one["subscriptions"])
        watches = f", watches {pluralize(watched, 'resource')}" if watched else ""
        write(
            f"#{one['id']} {client}{whom}: {one['protocol_version'] or 'no handshake'} over "
            f"{one['transport']}{watches}"
        )
    if not found:
        print_message("note", "nobody is connected; requests that stand alone are no sessions")
    return 0


def _which(command: str, action: str, what: str) -> CommandError:
    return UsageError(
        f"Which one? `fairlead {command} {action} ID`",
        hint=f"`fairlead {command} list` shows {what}",
    )


# What is held


def run_intercept(argv: Sequence[str]) -> int:
    """`fairlead intercept`: what a gateway holds, and what shall become of it."""
    options = _options(
        "intercept",
        "Show what a gateway holds at a breakpoint, and decide about it: let it go as it is, let\n"
        "it go with other params (or answer it yourself), or refuse it.",
        argv,
        option("action", choices=("list", "resume", "change", "block"), metavar="ACTION"),
        option("number", metavar="ID", nargs="?", type=int, help="as `list` shows it"),
        option("--params", metavar="JSON", help="all params of the request, anew"),
        option("--result", metavar="JSON", help="what the asker gets instead"),
        option("--reason", metavar="TEXT", help="what the asker is told"),
        usage="(list | resume ID | change ID | block ID) [options]",
        examples="  fairlead intercept list\n"
        "  fairlead intercept resume 3\n"
        '  fairlead intercept change 3 --params \'{"name": "add", "arguments": {"a": 1}}\'\n'
        "  fairlead intercept change 3 --result - < result.json\n"
        "  fairlead intercept block 3 --reason 'not on a Friday'",
    )
    if options.action == "list":
        return _list_held(options)
    if options.number is None:
        raise _which("intercept", options.action, "what is held")
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
        raise UsageError("To change one, give --params or --result", hint="JSON, or - for stdin")
    [(key, text)] = wanted.items()
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as exc:
        raise UsageError(f"--{key} is no JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise UsageError(f"--{key} is a JSON object")
    return {key: value}


def _list_held(options: Namespace) -> int:
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


# Servers


def run_reload(argv: Sequence[str]) -> int:
    options = _options(
        "mcp reload",
        "Have a running gateway read its files again, now, and list anew what its servers have.\n"
        "It follows its files anyway; this says at once what is wrong with them.",
        argv,
    )
    ask_admin(options, "POST", "/admin/reload")
    return _servers(options, ask_admin(options, "GET", "/admin/servers"))


def run_reconnect(argv: Sequence[str]) -> int:
    options = _options(
        "mcp reconnect",
        "Have a running gateway connect a server anew, also one that it has given up.",
        argv,
        option("name", metavar="NAME", help="as `fairlead up` shows it"),
    )
    if not options.name.strip("/"):
        raise UsageError("Which server? A name is missing")
    ask_admin(options, "POST", f"/admin/servers/{quote(options.name)}/reconnect", wait=30.0)
    found = ask_admin(options, "GET", "/admin/servers")
    return _servers(options, [one for one in found if one["name"] == options.name])


def run_resources(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_resources(argv)
    about = "List what the servers of a running gateway have to read; with SERVER, as\n"
    options = _options("mcp resources", f"{about}`fairlead resources SERVER` does.", argv)
    return _offers(options, "resource", ("uri", "uriTemplate"))


def run_prompts(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_prompts(argv)
    about = "List the prompts of all servers of a running gateway; with SERVER, as\n"
    options = _options("mcp prompts", f"{about}`fairlead prompts SERVER` does.", argv)
    return _offers(options, "prompt", ("name",))


def run_notifications(argv: Sequence[str]) -> int:
    options = _options(
        "mcp notifications",
        "Show what the servers of a running gateway told of late, of their own accord.",
        argv,
    )
    heard = ask_admin(options, "GET", "/admin/notifications")
    if as_json(options, heard):
        return 0
    for one in heard:
        at = time.strftime("%H:%M:%S", time.localtime(one["at"]))
        uri = f" {visible(one['uri'])}" if "uri" in one else ""
        write(f"{at}  {visible(one['server'])}: {visible(one['method'])}{uri}")
    if not heard:
        print_message("note", "no server has told anything yet")
    return 0


def _is_live(argv: Sequence[str]) -> bool:
    """Whether no server is named, so that it is about those of a gateway."""
    return set(argv) <= {"--json"} or any(word.partition("=")[0] in _LIVE for word in argv)


def _servers(options: Namespace, found: Sequence[Mapping[str, Any]]) -> int:
    """One line for each: how it is, and where it comes from."""

    def facts(one: Mapping[str, Any]) -> list[str | None]:
        return [one["status"], pluralize(one["tools"], "tool"), one["source"], one["path"]]

    simple_commands.show_list(options, found, "server", "name", facts)
    for one in found:
        if one["error"] and not options.json:
            print_message("warning", visible(f"{one['name']}: {one['error']}"))
    return 0


def _offers(options: Namespace, what: str, keys: Sequence[str]) -> int:
    found = ask_admin(options, "GET", f"/admin/{what}s")
    if as_json(options, found):
        return 0
    rows = [{"key": next(one[key] for key in keys if key in one), **one} for one in found]
    return simple_commands.show_list(
        options, rows, what, "key", lambda row: (row["server"], row["status"], row["source"])
    )
