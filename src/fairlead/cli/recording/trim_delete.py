"""`fairlead tape trim` and `fairlead tape delete`."""

from collections.abc import Sequence

from ...errors import ConfigError
from ...recording.tape.tape_files import files_of
from ...recording.tape.trim import trim
from ..framework.errors import CommandError
from ..framework.output import as_json, safe, write
from ..framework.parser import JSON, TAPE, Parser, option
from .list_show import CHOOSING, selected_entries
from .places import FORCE, already_exists, open_tape, print_integrity_warnings, progress, tape_path

__all__ = ["run_delete", "run_trim"]


def run_trim(argv: Sequence[str]) -> int:
    options = Parser(
        "tape trim",
        "Keep a part of a tape: some of its messages, with their answers. The first words of a\n"
        "session stay, so that it can be played.",
        TAPE,
        *CHOOSING,
        option("-o", "--output", metavar="TAPE", help="another one (default: itself)"),
        FORCE,
        JSON,
        usage="TAPE [options] [-o TAPE [--force]]",
        examples="  fairlead tape trim monday --from 120 --to 300 -o short\n"
        "  fairlead tape trim monday --session s2",
    ).parse_args(argv)
    reader = open_tape(options.tape, exactly=options.output is None)
    target = reader.base if options.output is None else tape_path(options.output)
    overwrite = options.force or options.output is None
    try:
        with progress(reader):
            count = trim(
                reader, selected_entries(options, opening=True), target, overwrite=overwrite
            )
    except FileExistsError as exc:
        raise already_exists(exc) from exc
    except (ConfigError, OSError) as exc:
        raise CommandError(safe(str(exc))) from exc
    print_integrity_warnings(reader)
    if not as_json(options, {"path": f"{target}.tape.jsonl", "entries": count}):
        write(safe(f"{count} messages are left on {target}.tape.jsonl"))
    return 0


def run_delete(argv: Sequence[str]) -> int:
    options = Parser(
        "tape delete",
        "Delete tapes, with everything that belongs to them.",
        option("tapes", metavar="TAPE", nargs="+", help="their names, or paths"),
        JSON,
        examples="  fairlead tape delete monday tuesday",
    ).parse_args(argv)
    deleted = []
    for name in options.tapes:
        reader = open_tape(name, exactly=True)
        if reader.info.status == "recording":
            raise CommandError(f"{name} is being recorded")
        for file in files_of(reader.base) or reader.parts:
            try:
                file.unlink()
            except OSError as exc:
                raise CommandError(f"{file} cannot be deleted: {exc.strerror}") from exc
            deleted.append(str(file))
    for path in () if as_json(options, deleted) else deleted:
        write(safe(f"deleted {path}"))
    return 0
