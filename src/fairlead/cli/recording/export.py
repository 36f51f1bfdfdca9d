"""`fairlead tape export`: converts a tape to HAR or a pytest test."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from ...recording.export.har_export import har_text
from ...recording.export.pytest_export import text_of_test
from ...recording.tape import TapeReader
from ...recording.tape.format import command_of
from ...recording.tape.output_file import open_output
from ...redaction.redact_text import REDACTED
from ..framework.command_errors import CommandError, print_message
from ..framework.output import for_stream
from ..framework.parser import TAPE, Parser
from .places import FORCE, already_exists, open_tape, print_integrity_warnings, progress

__all__ = ["run_export"]


def run_export(argv: Sequence[str]) -> int:
    parser = Parser(
        "tape export",
        "Convert a tape to an HTTP archive (HAR 1.2), or to a pytest test that replays it to the\n"
        "recorded server and compares the responses.",
        TAPE,
        FORCE,
        usage="TAPE (--har | --pytest) [-o FILE [--force]]",
        examples="  fairlead tape export monday --har -o monday.har\n"
        "  fairlead tape export monday --pytest -o tests/test_monday.py",
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--har", action="store_true", help="write an HTTP archive")
    kind.add_argument("--pytest", action="store_true", help="write a pytest test")
    parser.add_argument("-o", "--output", metavar="FILE", help="the output file (default: stdout)")
    options = parser.parse_args(argv)
    reader = open_tape(options.tape)
    pieces = har_text(reader.info, reader) if options.har else _test(reader, options.output)
    if options.output is None:
        with nullcontext() if sys.stdout.isatty() else progress(reader):
            _write(pieces)
        print_integrity_warnings(reader)
        return 0
    try:
        with _opened(Path(options.output), force=options.force) as stream, progress(reader):
            stream.writelines(pieces)
    except FileExistsError as exc:
        raise already_exists(exc) from exc
    except OSError as exc:
        raise CommandError(f"Cannot write {options.output}: {exc.strerror or exc}") from exc
    print_integrity_warnings(reader)
    print_message("written", options.output)
    return 0


def _opened(place: Path, *, force: bool) -> AbstractContextManager[BinaryIO]:
    # A pipe or device is written to directly, because it cannot be replaced like a file.
    if place.exists() and not place.is_file() and not place.is_dir():
        return place.open("wb")
    return open_output(place, overwrite=force)


def _write(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.write(for_stream(piece.decode(), sys.stdout))


def _test(reader: TapeReader, output: str | None) -> Iterator[bytes]:
    url = reader.info.about.get("url")
    if not command_of(reader.info) and not (url and isinstance(url, str)):
        raise CommandError("The tape does not contain the command or URL of its server")
    if any(REDACTED in word for word in (*command_of(reader.info), str(url))):
        print_message(
            "note", f"a secret was redacted on the tape: replace {REDACTED} in SERVER", "33"
        )
    place = reader.parts[0].resolve()
    folder = None if output is None else Path(output).resolve().parent
    yield text_of_test(reader.info, place, folder).encode()
