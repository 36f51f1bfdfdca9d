"""`fairlead replay`: serves a tape, or replays it to a server and compares."""

import asyncio
import sys
import threading
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from ..framework.command_errors import (
    FAILED,
    NO_CONNECTION,
    CommandError,
    UsageError,
    print_message,
)
from ..framework.connect_target import ConnectTarget, parse_with_server
from ..framework.output import as_json, safe, visible, write
from ..framework.parser import (
    IGNORE,
    INPUT,
    JSON,
    RELAY_ERA,
    TAPE,
    Parser,
    add_url_options,
    flag,
    option,
    wait_option,
)
from ..framework.suggested_commands import suggest
from ..gateway import proxy
from .places import open_tape, print_integrity_warnings, progress, reading

if TYPE_CHECKING:
    from ...errors import FairleadError
    from ...gateway import Relay
    from ...recording.replay import ComparedCall, Pace, TapeServer
    from ...recording.tape import TapeReader
    from ...upstream.server_target import ServerTarget

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    if "--against" in (argv[: argv.index("--")] if "--" in argv else argv):
        return _against(argv)
    options = _serving_parser().parse_args(argv)
    pace = _pace(options.timing)
    keyed = options.timing == "stepped"
    if keyed and proxy.ListenTarget.of(options.listen).kind == "stdio":
        raise UsageError(
            "--timing stepped reads keys from stdin, but stdin is used by the client",
            hint="add --listen http://HOST:PORT",
        )
    reader = open_tape(options.tape)
    player = _player(reader, options, pace)
    if keyed:
        _listen_to_keys(player)

    def make() -> "Relay":
        return player.for_both_eras(f"tape {visible(Path(reader.base).name)}")

    try:
        return proxy.serve(options, make)
    finally:
        for what, near in player.nearest.items():
            print_message("not on the tape", safe(f"{what}; {near}" if near else what), "33")


def _player(reader: "TapeReader", options: Namespace, pace: "Pace") -> "TapeServer":
    from ...recording.replay import TapeServer

    with reading(), progress(reader):
        player = TapeServer(reader, matching=options.match, pace=pace)
    print_integrity_warnings(reader)
    player.seek(options.seek)
    return player


def _pace(timing: str) -> "Pace":
    from ...recording.replay import Pace

    if timing in ("immediate", "stepped"):
        return Pace(stepped=timing == "stepped")
    try:
        return Pace(1.0 if timing == "original" else float(timing.removesuffix("x")))
    except ValueError:
        raise UsageError(
            f"Invalid timing {timing!r}",
            hint="expected original, immediate, stepped, or a speed: 2 is twice as fast",
        ) from None


def _listen_to_keys(player: "TapeServer") -> None:
    """Control the replay with keys: Enter steps, p pauses, r resumes, s N seeks."""
    keys = "Enter: one step, N: N steps, p: pause, r: resume, s N: go to message N"
    print_message("keys", keys, "36")

    def listen() -> None:
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word in ("p", "r"):
                player.soon(player.pace.pause if word == "p" else player.pace.resume)
            elif word == "s" and number.isdecimal():
                player.soon(partial(player.seek, int(number)))
            elif not word or word.isdecimal():
                player.soon(partial(player.pace.step, int(word or 1)))
            else:
                print_message("keys", keys, "36")

    threading.Thread(target=listen, daemon=True).start()


def _serving_parser() -> Parser:
    parser = Parser(
        "replay",
        "Serve a tape to clients of both protocol eras; or, with --against, replay it to a server\n"
        "and compare the responses (`fairlead replay TAPE --against --help`).",
        TAPE,
        option(
            "--match",
            choices=("tolerant", "strict"),
            default="tolerant",
            help="match requests by method, target and arguments in any order (default), or only "
            "in the order of the tape",
        ),
        option(
            "--timing",
            default="immediate",
            metavar="WHEN",
            help="immediate (default), original, stepped, or a speed: 2 is twice as fast",
        ),
        option("--seek", type=int, default=0, metavar="N", help="start at message N"),
        usage="TAPE [options]\n"
        "       fairlead replay TAPE --against [options] (SERVER | URL | -- COMMAND...)",
        examples="  fairlead replay monday\n"
        "  fairlead replay monday --listen http://127.0.0.1:8080 --timing original\n"
        "  fairlead replay monday --against -- python server.py",
    )
    proxy.add_listen_options(parser)
    return parser


# Replaying to a server


def _against(argv: Sequence[str]) -> int:
    from ...errors import FairleadError
    from ...recording.replay import replay_tape

    options, target = parse_with_server(_against_parser(), argv, "replay TAPE --against")
    reader = open_tape(options.tape)
    way = _way(options, target)
    try:
        with reading(), progress(reader):
            report = asyncio.run(
                replay_tape(
                    reader,
                    way,
                    ignore=options.ignore,
                    notifications=options.notifications,
                    timeout=options.timeout or 30.0,
                    on_compared=None if options.json else _show,
                )
            )
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    except FairleadError as exc:
        raise _nobody_there(exc, options, target) from exc
    print_integrity_warnings(reader)
    if not as_json(options, {"same": report.same, "compared": to_builtins(report.compared)}):
        wrong = sum(not each.same for each in report.compared)
        write(f"{len(report.compared)} compared, {wrong} differ")
    return 0 if report.same else FAILED


def _way(options: Namespace, target: ConnectTarget) -> "ServerTarget":
    """Return the destination for the requests: the server,
    or a relay that converts them to its era.
    """
    way, entry = proxy.target_of_options(options, target)
    era = entry.era if options.era == "auto" else options.era
    if era == "auto":
        return way
    from ...gateway import Relay, RelaySettings
    from ...upstream.server_target import target_for

    return target_for(Relay(way, settings=RelaySettings(era=era)), way.name)


def _nobody_there(exc: "FairleadError", options: Namespace, target: ConnectTarget) -> CommandError:
    """Build the error for a server that cannot be reached. Its stderr was already shown."""
    from ...errors import ChannelClosed, ConnectFailed, HttpError
    from ..framework.describe_failure import describe_failure

    failed = describe_failure(exc, target)
    sentence, hint = failed.sentence, failed.hint
    if isinstance(exc, ChannelClosed) and exc.reason:
        sentence = safe(exc.reason[:1].upper() + exc.reason[1:])
    if isinstance(exc, HttpError) and exc.status in (401, 403):
        hint = "set FAIRLEAD_TOKEN in the environment, or pass --header"
    elif target.name:
        hint = f"{suggest('doctor', operands=[target.name])} finds the reason"
    elif not hint and isinstance(exc, ChannelClosed | ConnectFailed) and exc.stderr:
        hint = "see its output above, or run its command by hand to see more"
    headers = target.headers(Namespace(header=options.header, token=None)) if target.url else {}
    return CommandError(
        sentence,
        hint=hint,
        details=failed.details if isinstance(exc, HttpError) else (),
        code=NO_CONNECTION,
    ).without(target.secrets(headers))


def _show(each: "ComparedCall") -> None:
    for line in () if each.same else each.lines:
        write(visible(line))


def _against_parser() -> Parser:
    parser = Parser(
        "replay",
        "Send the requests of a tape to a server, and compare its responses with the recorded\n"
        "ones. The exit code is 1 if they differ, and 3 if the server cannot be reached.",
        TAPE,
        option("server", nargs="*", help="a configured server, or a URL"),
        flag("--against", help="replay the tape to a server"),
        IGNORE,
        flag("--notifications", help="also compare the server's notifications"),
        wait_option("limit for each response"),
        RELAY_ERA,
        JSON,
        INPUT,
        usage="TAPE --against [options] (SERVER | URL | -- COMMAND...)",
        examples="  fairlead replay monday --against -- python server.py\n"
        "  fairlead replay monday --against --ignore 'result.content.*.text' notes",
    )
    add_url_options(parser)
    return parser
