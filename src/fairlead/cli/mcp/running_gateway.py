"""`fairlead mcp reload`, `reconnect`, `resources`, `prompts` and `notifications`: the servers of a
gateway that runs."""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ..client import simple_commands
from ..framework.admin_client import ADMIN_TOKEN, URL, ask_admin
from ..framework.errors import CommandError, print_message
from ..framework.output import as_json, pluralize, visible, write
from ..framework.parser import JSON, Parser, option

__all__ = ["run_notifications", "run_prompts", "run_reconnect", "run_reload", "run_resources"]

_LIVE = {"--url", "--admin-token", "-h", "--help"}


def run_reload(argv: Sequence[str]) -> int:
    options = _options(
        "reload",
        "Have a running gateway read its files again, now, and list anew what its servers have.\n"
        "It follows its files anyway; this says at once what is wrong with them.",
        argv,
    )
    ask_admin(options, "POST", "/admin/reload")
    return _servers(options, ask_admin(options, "GET", "/admin/servers"))


def run_reconnect(argv: Sequence[str]) -> int:
    options = _options(
        "reconnect",
        "Have a running gateway connect a server anew, also one that it has given up.",
        argv,
        name=True,
    )
    ask_admin(options, "POST", f"/admin/servers/{quote(options.name)}/reconnect", wait=30.0)
    found = ask_admin(options, "GET", "/admin/servers")
    return _servers(options, [one for one in found if one["name"] == options.name])


def run_resources(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_resources(argv)
    about = "List what the servers of a running gateway have to read; with SERVER, as\n"
    options = _options("resources", f"{about}`fairlead resources SERVER` does.", argv)
    return _offers(options, "resource", ("uri", "uriTemplate"))


def run_prompts(argv: Sequence[str]) -> int:
    if not _is_live(argv):
        return simple_commands.run_prompts(argv)
    about = "List the prompts of all servers of a running gateway; with SERVER, as\n"
    options = _options("prompts", f"{about}`fairlead prompts SERVER` does.", argv)
    return _offers(options, "prompt", ("name",))


def run_notifications(argv: Sequence[str]) -> int:
    options = _options(
        "notifications",
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
            print_message("warning", visible(f"{one['name']}: {one['error']}"), "33")
    return 0


def _offers(options: Namespace, what: str, keys: Sequence[str]) -> int:
    found = ask_admin(options, "GET", f"/admin/{what}s")
    if as_json(options, found):
        return 0
    rows = [{"key": next(one[key] for key in keys if key in one), **one} for one in found]
    return simple_commands.show_list(
        options, rows, what, "key", lambda row: (row["server"], row["status"], row["source"])
    )


def _options(command: str, about: str, argv: Sequence[str], *, name: bool = False) -> Namespace:
    words = f"  fairlead mcp {command}{' notes' if name else ''}"
    options = Parser(
        f"mcp {command}",
        about,
        *([option("name", metavar="NAME", help="as `fairlead up` shows it")] if name else []),
        JSON,
        URL,
        ADMIN_TOKEN,
        examples=f"{words}\n{words} --url http://127.0.0.1:9000 --json",
    ).parse_args(argv)
    if name and not options.name.strip("/"):
        raise CommandError("Which server? A name is missing", code=2)
    return options
