"""`fairlead mcp add`, `remove`, `enable` and `disable`: our own files, changed by a command."""

import os
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from ...config.edit.config_file import ConfigFile
from ...errors import ConfigError
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.connect_target import read_headers
from ..framework.output import safe, visible, write
from ..framework.parser import NAME, Parser, flag, milliseconds, option, read_pairs, repeated
from ..framework.server_lookup import every_server, places_of
from ..framework.suggested_commands import quoted, suggest

__all__ = [
    "OURS",
    "own_file",
    "report_edit_errors",
    "run_add",
    "run_disable",
    "run_enable",
    "run_remove",
]

OURS = flag("--project", help="change .fairlead/mcp.json of the project, not your own file")
_URL = re.compile(r"(?i)(https?|wss?|unix)://|\$\{")  # it may be a variable


def own_file(options: Namespace) -> ConfigFile:
    """The user's file, or the project's."""
    return ConfigFile.of_nearest_project() if options.project else ConfigFile.of_user()


@contextmanager
def report_edit_errors(file: ConfigFile) -> Iterator[None]:
    """Raises: Failed: if the file cannot be changed, saying why."""
    try:
        yield
    except ConfigError as exc:
        raise CommandError(safe(str(exc))) from exc
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise CommandError(f"{file.path} cannot be changed: {why}") from exc


# Adding


def run_add(argv: Sequence[str]) -> int:
    index = list(argv).index("--") if "--" in argv else len(argv)
    options = _parser().parse_intermixed_args(list(argv[:index]))
    entry = _entry(options, list(argv[index + 1 :]))
    file = own_file(options)
    with report_edit_errors(file):
        known = file.entries()
        if options.name in known and not options.force:
            raise CommandError(
                f"{visible(options.name)} is in {file.path} already",
                hint="--force puts the new one in its place",
            )
        (file.update if options.name in known else file.add)(options.name, entry)
    write(f"{options.name} is in {file.path}")
    _mention(options.name, str(file.path))
    if not options.project:
        _mention_folder(options, list(argv[index + 1 :]))
    return 0


def _parser() -> Parser:
    return Parser(
        "mcp add",
        "Add a server to your own file, or to the project's. Values may hold ${VARIABLE}, which is "
        "filled in when it is connected; a value of --env or --header that begins with ! is a "
        "command that prints it.",
        option("name", metavar="NAME", help="letters, digits, _ - . :"),
        option("url", metavar="URL", nargs="?", help="where it is, if it is elsewhere"),
        OURS,
        flag("--force", help="replace an entry of that name"),
        repeated("--env", "NAME=VALUE"),
        option("--cwd", metavar="FOLDER", help="where the command is run"),
        repeated("--header", "'NAME: VALUE'"),
        option(
            "--type", choices=("http", "sse", "ws"), help="how to talk to the URL (default: by it)"
        ),
        option("--timeout", type=milliseconds, metavar="MS", help="milliseconds for an answer"),
        flag("--lazy", help="start it when it is first used"),
        usage="NAME [options] (URL | -- COMMAND...)",
        examples="  fairlead mcp add time -- uvx mcp-server-time\n"
        "  fairlead mcp add files --env ROOT=/data -- python files.py\n"
        "  fairlead mcp add notes https://notes.example/mcp \\\n"
        "      --header 'Authorization: Bearer ${NOTES_TOKEN}'",
    )


def _entry(options: Namespace, command: list[str]) -> dict[str, Any]:
    if bool(command) == bool(options.url):
        raise UsageError(
            "A server has a URL, or a command after `--`"
            + (": both are given" if command else ", and there is neither"),
            hint=f"for example {_example(options.name, 'python', 'server.py')}",
        )
    entry: dict[str, Any] = {}
    if command:
        _refuse(options, "a server with a URL", header=options.header, type=options.type)
        entry = {"command": command[0], "args": command[1:]}
        entry["env"] = read_pairs(options.env, "--env")
        entry["cwd"] = options.cwd
    else:
        _refuse(options, "a command", env=options.env, cwd=options.cwd)
        if not _is_url(options.url):
            raise UsageError(
                f"{visible(options.url)!r} is no URL",
                hint="it begins like https://example.com/mcp"
                if _URL.match(options.url)
                else f"a command goes after `--`: {_example(options.name, options.url)}",
            )
        kind = options.type or ("ws" if options.url[:2].lower() == "ws" else "http")
        entry = {"type": kind, "url": options.url, "headers": read_headers(options.header)}
    entry["timeout"] = options.timeout
    entry["lazy"] = options.lazy or None
    return {key: value for key, value in entry.items() if value not in (None, {}, [])}


def _refuse(options: Namespace, whose: str, **given: Any) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} is for {whose}")


def _is_url(text: str) -> bool:
    if not _URL.match(text):
        return False
    if "${" in text:  # nobody knows what it will be
        return True
    try:
        parts = urlsplit(text)
        named = parts.path if parts.scheme.lower() == "unix" else parts.hostname
        return bool(named) and parts.port != 0 and not re.search(r"\s", text)
    except ValueError:
        return False


def _example(name: str, *command: str) -> str:
    return suggest("mcp", "add", name, "--", *command)


def _mention_folder(options: Namespace, command: list[str]) -> None:
    """Your own file counts everywhere, but a file named from here is found only from here."""
    here = [word for word in command if not os.path.isabs(word) and os.path.isfile(word)]
    if here and options.cwd is None:
        print_message(
            "note",
            f"{visible(here[0])} will be looked for in the folder where somebody uses it; to have "
            f"it found from everywhere, add `--cwd {quoted(os.getcwd())} --force`, or write its "
            "whole path",
        )


def _mention(name: str, path: str) -> None:
    """What else there is to know about that name now."""
    places = every_server().places.get(name, [])
    others = [found for found, _ in places if found.path != path]
    if places and places[0][0].path != path:
        print_message(
            "note", f"{visible(places[0][0].place)} has that name too, and comes first", "33"
        )
    elif others:
        print_message("note", f"it is used instead of the one in {visible(others[0].place)}")
    mine = next((found for found, _ in places if found.path == path), None)
    if mine is not None and mine.level == "project":
        approve = suggest("mcp", "approve", operands=[name])
        print_message("next", f"{approve}, as everybody who uses the project has to")
    else:
        print_message("next", suggest("mcp", "test", operands=[name]))


# Hiding and removing


def run_enable(argv: Sequence[str]) -> int:
    about = "Use a server again that was switched off, by its own entry or by a list of ours."
    return _switch(_options("enable", about, argv), on=True)


def run_disable(argv: Sequence[str]) -> int:
    about = (
        "Hide a server, wherever it is configured. Files of other programs are not changed: the "
        "name is put on a list in ours."
    )
    return _switch(_options("disable", about, argv), on=False)


def _options(command: str, about: str, argv: Sequence[str]) -> Namespace:
    examples = f"  fairlead mcp {command} notes"
    return Parser(f"mcp {command}", about, NAME, OURS, examples=examples).parse_args(argv)


def _switch(options: Namespace, *, on: bool) -> int:
    name = options.name
    places_of(name, every_server())
    file = own_file(options)
    with report_edit_errors(file):
        ours = name in file.entries()
        if on and options.project and not ours:
            raise UsageError(
                f"{visible(name)} is not in {file.path}, and a project cannot switch on "
                "what others have configured",
                hint=f"{suggest('mcp', 'enable', operands=[name])} does, for you",
            )
        (file.enable if on else file.disable)(name)
    write(f"{name} is {'used' if on else 'hidden'}; written to {file.path}")
    now = every_server()
    found, what = now.places[name][0]
    if not ours:
        key = "enabledServers" if on else "disabledServers"
        text = f"it comes from {found.host_title}, {found.place}, which is not changed"
        print_message("note", safe(f"{text}; `{key}` in our file says so"))
    if name in (now.disabled if on else now.found):
        why = f"{found.place}: {what.removeprefix('not used: ')}"
        print_message("warning", safe(f"it is still {'off' if on else 'used'}: {why}"))
    return 0


def run_remove(argv: Sequence[str]) -> int:
    about = (
        "Remove a server from your own file, or from the project's. Files of other programs are "
        "never changed; `fairlead mcp disable` hides what they have."
    )
    options = _options("remove", about, argv)
    file = own_file(options)
    with report_edit_errors(file):
        if options.name not in file.entries():
            raise _elsewhere(options.name, str(file.path))
        file.remove(options.name)
    write(f"{options.name} is no longer in {file.path}")
    return 0


def _elsewhere(name: str, path: str) -> CommandError:
    found = places_of(name, every_server())[0][0]
    if found.dialect == "fairlead":
        option = ["--project"] if found.level == "project" else []
        hint = (
            suggest("mcp", "remove", *option, operands=[name])
            if found.path.endswith("mcp.json")
            else f"remove it there by hand: {found.place}"
        )
    else:
        hint = f"we never change their files; {suggest('mcp', 'disable', operands=[name])} hides it"
    return CommandError(
        f"{visible(name)} is not in {path}: it comes from {visible(found.host_title)}, "
        f"{visible(found.place)}",
        hint=safe(hint),
    )
