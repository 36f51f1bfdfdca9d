"""`fairlead mcp add`, `remove`, `enable` and `disable`: changes to Fairlead's own files."""

import os
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...config.discovery import UNUSED
from ...config.edit.config_file import ConfigFile
from ...errors import ConfigError
from ...transport.address_hint import url_of_address
from ..framework.command_errors import CommandError, UsageError, print_message
from ..framework.connect_target import read_headers
from ..framework.output import safe, visible, write
from ..framework.parser import ERA, NAME, Parser, flag, milliseconds, option, read_pairs, repeated
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

OURS = flag("--project", help="change .fairlead/mcp.json of the project instead of your own file")
# The scheme of a URL may be given by a variable.
_URL = re.compile(r"(?i)(https?|wss?|unix)://|\$\{")


def own_file(options: Namespace) -> ConfigFile:
    """Return the user's or the project's file."""
    return ConfigFile.of_nearest_project() if options.project else ConfigFile.of_user()


@contextmanager
def report_edit_errors(path: Path) -> Iterator[None]:
    """Convert errors from editing a file to `CommandError`."""
    try:
        yield
    except ConfigError as exc:
        raise CommandError(safe(str(exc))) from exc
    except OSError as exc:
        raise CommandError(f"Cannot write {path}: {exc.strerror or exc}") from exc


# Adding servers


def run_add(argv: Sequence[str]) -> int:
    index = list(argv).index("--") if "--" in argv else len(argv)
    options = _parser().parse_intermixed_args(list(argv[:index]))
    entry = _entry(options, list(argv[index + 1 :]))
    file = own_file(options)
    with report_edit_errors(file.path):
        known = file.entries()
        if options.name in known and not options.force:
            raise CommandError(
                f"{visible(options.name)} already exists in {file.path}",
                hint="replace it with --force",
            )
        (file.update if options.name in known else file.add)(options.name, entry)
    write(f"added {options.name} to {file.path}")
    _mention(options.name, str(file.path))
    if not options.project:
        _mention_folder(options, list(argv[index + 1 :]))
    return 0


def _parser() -> Parser:
    return Parser(
        "mcp add",
        "Add a server to your own file, or to the project's file. Values may contain ${VARIABLE}, "
        "which is replaced when the server is connected. A value of --env or --header that begins "
        "with ! is a command that prints the value.",
        option("name", metavar="NAME", help="letters, digits, _ - . :"),
        option("url", metavar="URL", nargs="?", help="the URL of a remote server"),
        OURS,
        flag("--force", help="replace an existing entry"),
        repeated("--env", "NAME=VALUE"),
        option("--cwd", metavar="FOLDER", help="the working directory of the command"),
        repeated("--header", "'NAME: VALUE'"),
        option(
            "--type", choices=("http", "sse", "ws"), help="the transport (default: from the URL)"
        ),
        option("--timeout", type=milliseconds, metavar="MS", help="milliseconds for a response"),
        flag("--lazy", help="start the server on first use"),
        ERA,
        usage="NAME [options] (URL | -- COMMAND...)",
        examples="  fairlead mcp add time -- uvx mcp-server-time\n"
        "  fairlead mcp add files --env ROOT=/data -- python files.py\n"
        "  fairlead mcp add notes https://notes.example/mcp \\\n"
        "      --header 'Authorization: Bearer ${NOTES_TOKEN}'",
    )


def _entry(options: Namespace, command: list[str]) -> dict[str, Any]:
    if bool(command) == bool(options.url):
        raise UsageError(
            "Expected a URL, or a command after `--`"
            + (": both are given" if command else ": both are missing"),
            hint=f"for example {_example(options.name, 'python', 'server.py')}",
        )
    if command:
        _refuse("a server with a URL", header=options.header, type=options.type)
        entry: dict[str, Any] = {"command": command[0], "args": command[1:]}
        cwd = options.cwd
        # The user's file applies in every folder, so a relative `cwd` would be ambiguous.
        if cwd is not None and not options.project and "${" not in cwd:
            cwd = os.path.abspath(cwd)
        entry |= {"env": read_pairs(options.env, "--env"), "cwd": cwd}
    else:
        _refuse("a command", env=options.env, cwd=options.cwd)
        if not _is_url(options.url):
            hint = f"a command must follow `--`: {_example(options.name, options.url)}"
            if _URL.match(options.url):
                hint = "expected a URL like https://example.com/mcp"
            elif (url := url_of_address(options.url)) is not None:
                hint = f"an address needs its scheme: {visible(url)}"
            raise UsageError(f"Invalid URL {visible(options.url)!r}", hint=hint)
        kind = options.type or ("ws" if options.url[:2].lower() == "ws" else "http")
        entry = {"type": kind, "url": options.url, "headers": read_headers(options.header)}
    era = None if options.era == "auto" else options.era
    entry |= {"timeout": options.timeout, "lazy": options.lazy or None, "era": era}
    return {key: value for key, value in entry.items() if value not in (None, {}, [])}


def _refuse(whose: str, **given: Any) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} only applies to {whose}")


def _is_url(text: str) -> bool:
    if not _URL.match(text):
        return False
    # The variable's value is unknown here, so the URL is not checked further.
    if "${" in text:
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
    """Print a note if the command refers to a file in the current folder.

    Entries in the user's own file apply in every folder, but a relative path works only in this
    one.
    """
    here = [word for word in command if not os.path.isabs(word) and os.path.isfile(word)]
    if here and options.cwd is None:
        print_message(
            "note",
            f"{visible(here[0])} is relative to the folder in which the server is used; to find it "
            f"from every folder, add `--cwd {quoted(os.getcwd())} --force`, or use its absolute "
            "path",
        )


def _mention(name: str, path: str) -> None:
    """Print notes about other entries with the same name, and the next command to run."""
    places = every_server().places.get(name, [])
    others = [found for found, _ in places if found.path != path]
    if places and places[0][0].path != path:
        print_message(
            "note", f"{visible(places[0][0].place)} has the same name and takes precedence", "33"
        )
    elif others:
        print_message("note", f"takes precedence over the entry in {visible(others[0].place)}")
    mine = next((found for found, _ in places if found.path == path), None)
    if mine is not None and mine.level == "project":
        approve = suggest("mcp", "approve", operands=[name])
        print_message("next", f"{approve} (every user of the project must approve the server)")
    else:
        print_message("next", suggest("mcp", "test", operands=[name]))


# Enabling, disabling and removing servers


def run_enable(argv: Sequence[str]) -> int:
    about = "Enable a server that is disabled in its entry or in `disabledServers`."
    return _switch(_options("enable", about, argv), on=True)


def run_disable(argv: Sequence[str]) -> int:
    about = (
        "Disable a server, whichever file configures it. Other programs' files are not changed: "
        "the name is added to `disabledServers` in your own file."
    )
    return _switch(_options("disable", about, argv), on=False)


def _options(command: str, about: str, argv: Sequence[str]) -> Namespace:
    examples = f"  fairlead mcp {command} notes"
    return Parser(f"mcp {command}", about, NAME, OURS, examples=examples).parse_args(argv)


def _switch(options: Namespace, *, on: bool) -> int:
    name = options.name
    places_of(name, every_server())
    file = own_file(options)
    with report_edit_errors(file.path):
        ours = name in file.entries()
        if on and options.project and not ours:
            raise UsageError(
                f"{visible(name)} is not in {file.path}, and a project file cannot enable "
                "servers of other files",
                hint=f"{suggest('mcp', 'enable', operands=[name])} enables it in your own file",
            )
        (file.enable if on else file.disable)(name)
    write(f"{name} is {'enabled' if on else 'disabled'}; written to {file.path}")
    now = every_server()
    found, what = now.places[name][0]
    if not ours:
        key = "enabledServers" if on else "disabledServers"
        text = f"the entry in {found.place} ({found.host_title}) is not changed"
        print_message("note", safe(f"{text}; the name is in `{key}` of {file.path}"))
    if name in (now.disabled if on else now.found):
        why = f"{found.place}: {what.removeprefix(UNUSED)}"
        print_message("warning", safe(f"still {'disabled' if on else 'used'}: {why}"))
    return 0


def run_remove(argv: Sequence[str]) -> int:
    about = (
        "Remove a server from your own file, or from the project's file. Other programs' files "
        "are never changed; `fairlead mcp disable` disables their servers."
    )
    options = _options("remove", about, argv)
    file = own_file(options)
    with report_edit_errors(file.path):
        if options.name not in file.entries():
            raise _elsewhere(options.name, str(file.path))
        file.remove(options.name)
    write(f"removed {options.name} from {file.path}")
    return 0


def _elsewhere(name: str, path: str) -> CommandError:
    found = places_of(name, every_server())[0][0]
    if found.dialect == "fairlead":
        option = ["--project"] if found.level == "project" else []
        hint = (
            suggest("mcp", "remove", *option, operands=[name])
            if found.path.endswith("mcp.json")
            else f"edit the file by hand: {found.place}"
        )
    else:
        hint = f"{suggest('mcp', 'disable', operands=[name])} disables it without changing the file"
    return CommandError(
        f"{visible(name)} is not in {path}, but in {visible(found.place)} "
        f"({visible(found.host_title)})",
        hint=safe(hint),
    )
