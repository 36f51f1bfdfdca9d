"""`fairlead record`: stand between a client and a server, and keep what they say."""

from collections.abc import Sequence

from . import proxy
from .failed import USAGE, Failed

__all__ = ["run"]

_HELP = """\
usage: fairlead record NAME [options] (SERVER | URL | -- COMMAND...)

Stand between clients and one server, and write all that passes to a tape. The
same as `fairlead proxy --record NAME`, with all of its options.

examples:
  fairlead record monday -- uvx some-server
  fairlead record monday --listen http://127.0.0.1:8080 notes
  fairlead tape show monday

`fairlead proxy --help` shows the options.
"""


def run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    if argv[0].startswith("-"):
        raise Failed(
            "The name of the tape comes first", hint="`fairlead record NAME ...`", code=USAGE
        )
    return proxy.run(["--record", *argv])
