"""Commands for a running gateway, which use its admin API: `fairlead status`, `session` and
`intercept`, and the subcommands `reload`, `reconnect`, `resources`, `prompts` and `notifications`
of `fairlead mcp`.
"""

import json
import math
import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from shlex import quote as quote_word
from typing import Any
from urllib.parse import quote

from ..client import simple_commands
from ..framework.admin_client import ADMIN_TOKEN, DEFAULT_URL, TOKEN, URL, ask_admin
from ..framework.command_errors import FAILED, CommandError, UsageError, print_message
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
    "run_status",
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
    """Parse the options of an admin command.

    If no examples are given, default examples are used.
    """
    named = " notes" if words else ""
    plain = f"  fairlead {command}{named}"
    shown = examples or f"{plain}\n{plain} --url http://127.0.0.1:9000 --json"
    parser = Parser(command, about, *words, JSON, URL, ADMIN_TOKEN, usage=usage, examples=shown)
    return parser.parse_args(argv)


# Sessions


def run_session(argv: Sequence[str]) -> int:
    """Run `fairlead session`: list a gateway's sessions, or end some of them."""
    options = _options(
        "session",
        "List the clients that are connected to a gateway, or end their sessions. A client can\n"
        "connect again with a new session.",
        argv,
        option("action", choices=("list", "end"), metavar="ACTION", help="list or end"),
        option("numbers", metavar="ID", nargs="*", type=int, help="session ids from `list`"),
        usage="(list | end ID ...) [options]",
        examples="  fairlead session list\n"
        "  fairlead session end 3\n"
        "  fairlead session list --url http://127.0.0.1:9000 --json",
    )
    if options.action == "end":
        if not options.numbers:
            raise _which("session", "end", "the sessions")
        ended = [ask_admin(options, "DELETE", f"/admin/sessions/{n}") for n in options.numbers]
        for one in () if as_json(options, ended) else ended:
            print_message("ended", str(one["ended"]), "32")
        return 0
    found = ask_admin(options, "GET", "/admin/sessions")
    if as_json(options, found):
        return 0
    for one in found:
        client = visible(one["client"] or "unnamed client")
        whom = f" as {visible(one['principal'])}" if one.get("principal") else ""
        watched = len(one["subscriptions"])
        watches = f", subscribed to {pluralize(watched, 'resource')}" if watched else ""
        write(
            f"#{one['id']} {client}{whom}: {one['protocol_version'] or 'no handshake'} over "
            f"{one['transport']}{watches}"
        )
    if not found:
        print_message("note", "no sessions; stateless clients do not have sessions")
    return 0


def _which(command: str, action: str, what: str) -> CommandError:
    return UsageError(
        f"Missing ID: `fairlead {command} {action} ID`",
        hint=f"`fairlead {command} list` shows {what}",
    )


# Held messages


def run_intercept(argv: Sequence[str]) -> int:
    """Run `fairlead intercept`: list held messages, or resume, change or block one of them."""
    options = _options(
        "intercept",
        "List the messages that a gateway holds at a breakpoint; resume a message unchanged,\n"
        "change its params, set its result, or block it.",
        argv,
        option("action", choices=("list", "resume", "change", "block"), metavar="ACTION"),
        option("number", metavar="ID", nargs="?", type=int, help="message id from `list`"),
        option("--params", metavar="JSON", help="new params of the request (- for stdin)"),
        option("--result", metavar="JSON", help="the result to return instead (- for stdin)"),
        option("--reason", metavar="TEXT", help="the error message for a blocked request"),
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
        raise _which("intercept", options.action, "the held messages")
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
        raise UsageError(
            "`change` requires either --params or --result", hint="pass JSON, or - for stdin"
        )
    [(key, text)] = wanted.items()
    try:
        value = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as exc:
        raise UsageError(f"Invalid JSON in --{key}: {exc}") from exc
    if not isinstance(value, dict):
        raise UsageError(f"--{key} must be a JSON object")
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
            f"#{one['id']} {way} {visible(one['method'])}{target}: {one['phase']}{whom} held; "
            f"default action `{one['otherwise']}` in {left:.0f} s"
        )
        for text in (one.get("reason"), _shown(one)):
            if text:
                print("".join(f"    {line}\n" for line in safe(text).splitlines()), end="")
    if not held:
        print_message("note", "no messages are held")
    return 0


def _shown(one: dict[str, Any]) -> str:
    if "message" in one:
        return pretty(one["message"])
    size = one.get("size", 0)
    return f"({size} bytes, too large to show)" if size else ""


# Servers


def run_reload(argv: Sequence[str]) -> int:
    options = _options(
        "mcp reload",
        "Make a running gateway read its files and the lists of its servers again. A gateway\n"
        "follows its files anyway; this command reports errors in them.",
        argv,
    )
    ask_admin(options, "POST", "/admin/reload")
    return _servers(options, ask_admin(options, "GET", "/admin/servers"))


def run_reconnect(argv: Sequence[str]) -> int:
    options = _options(
        "mcp reconnect",
        "Make a running gateway reconnect a server, even if the gateway no longer retries it.",
        argv,
        option("name", metavar="NAME", help="the name of the server in the gateway"),
    )
    if not options.name.strip("/"):
        raise UsageError("Missing the name of the server")
    ask_admin(options, "POST", f"/admin/servers/{quote(options.name)}/reconnect", wait=30.0)
    found = ask_admin(options, "GET", "/admin/servers")
    return _servers(options, [one for one in found if one["name"] == options.name])


def run_status(argv: Sequence[str]) -> int:
    """Run `fairlead status`: show the state of a gateway's servers."""
    options = _options(
        "status",
        "Show the servers of a running gateway, since when they are in their state, and how to\n"
        "connect servers that cannot be used; the exit code is then 1. With the admin token, the\n"
        "reasons are complete.",
        argv,
    )
    found = ask_admin(options, "GET", "/status")
    if options.admin_token or os.environ.get(TOKEN):
        found["servers"] = ask_admin(options, "GET", "/admin/servers")
    code = FAILED if any(one["remedy"] or one["error"] for one in found["servers"]) else 0
    if as_json(options, found):
        return code
    clients = pluralize(found["clients"], "client")
    about = f"{visible(found['name'])} {found['version']}: up {found['uptime']:.0f} s, {clients}"
    write(about + (f", short of {found['shortage']}" if found["shortage"] else ""))

    def facts(one: Mapping[str, Any]) -> list[str | None]:
        return [one["status"], f"since {one['since']}", pluralize(one["tools"], "tool")]

    simple_commands.show_list(options, found["servers"], "server", "name", facts)
    for one in found["servers"]:
        if one["error"]:
            print_message("warning", visible(f"{one['name']}: {one['error']}"))
        if one["remedy"]:
            where = "" if options.url == DEFAULT_URL else f" --url {quote_word(options.url)}"
            print_message("hint", visible(f"to connect {one['name']}: {one['remedy']}{where}"))
        if one["suspended"]:
            # Only a reconnect ends the suspension of the default connection.
            left = max(key["seconds"] or math.inf for key in one["suspended"])
            limit = "" if left == math.inf else f", for {left:.0f} s at most"
            text = f"{one['name']}: suspended for some clients{limit}"
            print_message("warning", visible(text))
    return code


def run_resources(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_resources(argv)
    about = "List the resources of all servers of a running gateway; with SERVER, the\n"
    options = _options("mcp resources", f"{about}same as `fairlead resources SERVER`.", argv)
    return _offers(options, "resource", ("uri", "uriTemplate"))


def run_prompts(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_prompts(argv)
    about = "List the prompts of all servers of a running gateway; with SERVER, the\n"
    options = _options("mcp prompts", f"{about}same as `fairlead prompts SERVER`.", argv)
    return _offers(options, "prompt", ("name",))


def run_notifications(argv: Sequence[str]) -> int:
    options = _options(
        "mcp notifications",
        "Show the latest notifications from the servers of a running gateway.",
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
        print_message("note", "no notifications yet")
    return 0


def _is_live(argv: Sequence[str]) -> bool:
    """Return True if the command line names no server, so that a running gateway is queried."""
    return set(argv) <= {"--json"} or any(word.partition("=")[0] in _LIVE for word in argv)


def _servers(options: Namespace, found: Sequence[Mapping[str, Any]]) -> int:
    """Print the state of each server and the file that configures it."""

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
