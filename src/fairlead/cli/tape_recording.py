"""The options that put a conversation on a tape, for the commands that carry one."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .failed import Failed, say
from .usage import Parser

if TYPE_CHECKING:
    from ..client.entries import MCPServerEntry
    from ..gateway.tape import TapeWriter
    from ..interceptor import Interceptor

__all__ = ["add_record_options", "recording"]


def add_record_options(parser: Parser, *, named: bool = True) -> None:
    """`named`: whether a tape has to be given a name."""
    group = parser.add_argument_group(
        "on a tape", "`fairlead tape` lists and shows them, `fairlead replay` plays them."
    )
    text = "write all that passes to a tape of this name, or path"
    if named:
        group.add_argument("--record", metavar="NAME", help=text)
    else:
        group.add_argument(
            "--record",
            metavar="NAME",
            nargs="?",
            const="",
            help=f"{text}; without one, to a new tape, of which the last 20 are kept",
        )
    group.add_argument("--overwrite", action="store_true", help="even if there is one already")
    group.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help="to find it by; may be repeated"
    )
    group.add_argument(
        "--keep-secrets", action="store_true", help="do not take out what looks like one"
    )


@contextmanager
def recording(
    options: Namespace,
) -> "Iterator[Callable[[MCPServerEntry], list[Interceptor]]]":
    """What records, for the server that was found; the tape is closed at the end."""
    tapes: list[TapeWriter] = []

    def interceptors(entry: "MCPServerEntry") -> "list[Interceptor]":
        if options.record is None:
            return []
        from ..gateway.interceptors.recording import Recorder

        tapes.append(_open(options, entry))
        return [Recorder(tapes[-1])]

    try:
        yield interceptors
    finally:
        for tape in tapes:
            tape.close()
            lost = f", {tape.info.lost} were lost" if tape.info.lost else ""
            say("recorded", f"{tape.info.entries} messages on {tape.path}{lost}")


def _open(options: Namespace, entry: "MCPServerEntry") -> "TapeWriter":
    from ..gateway.tape import TapeWriter
    from ..gateway.tape.format import about_entry
    from ..gateway.tape.secrets import secrets_of
    from ..observe.redactor import Redactor
    from .tape_places import place_of

    place = place_of(options.record)
    if place.with_name(f"{place.name}.tape.jsonl").exists() and not options.overwrite:
        raise Failed(
            f"There is a tape {options.record} already",
            hint="take another name, or write it anew with --overwrite",
        )
    redactor = Redactor(values=secrets_of(entry))
    try:
        return TapeWriter(
            place,
            redactor=redactor,
            redact=not options.keep_secrets,
            tags=options.tag,
            about=about_entry(entry),
        )
    except OSError as exc:
        raise Failed(f"{place} cannot be recorded: {exc.strerror or exc}") from exc
