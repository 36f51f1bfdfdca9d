"""The options that put a conversation on a tape, for the commands that carry one."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ..framework.parser import Parser, flag, option, repeated

if TYPE_CHECKING:
    from ...client.server_entry import MCPServerEntry
    from ...interceptor import Interceptor

__all__ = ["add_record_options", "recording"]


def add_record_options(parser: Parser, *, named: bool = True) -> None:
    """`named`: whether a tape has to be given a name."""
    text = "write all that passes to a tape of this name, or path"
    more = "; without one, to a new tape, of which the last 20 are kept"
    facts = {"help": text} if named else {"help": text + more, "nargs": "?", "const": ""}
    parser.add_group(
        "on a tape",
        "`fairlead tape` lists and shows them, `fairlead replay` plays them.",
        option("--record", metavar="NAME", **facts),
        flag("--overwrite", help="even if there is one already"),
        repeated("--tag", "TAG", "to find it by"),
        flag("--keep-secrets", help="do not take out what looks like one"),
    )


@contextmanager
def recording(
    options: Namespace,
) -> "Iterator[Callable[[MCPServerEntry], list[Interceptor]]]":
    """What records, for the server that was found; the tape is closed at the end."""
    with ExitStack() as stack:

        def interceptors(entry: "MCPServerEntry") -> "list[Interceptor]":
            if options.record is None:
                return []
            from ...recording.tape.format import about_entry
            from ...recording.tape.known_secrets import secrets_of
            from ...recording.tape.tape_interceptor import Recorder
            from ..gateway.tape_options import record_while_running, tape_control_for, tape_place

            tapes = tape_control_for(about_entry(entry), secrets_of(entry))
            stack.enter_context(record_while_running(tapes, tape_place(options, "proxy"), options))
            assert tapes.last is not None
            return [Recorder(tapes.last)]

        yield interceptors
