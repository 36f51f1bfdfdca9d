"""The options of commands that put something on the network: who may come in."""

from argparse import Namespace

from .command_errors import UsageError
from .parser import flag, option, repeated, seconds

__all__ = ["ACCESS", "require_network"]

ACCESS = (
    option(
        "--token",
        metavar="TOKEN",
        help="let in only who knows it (Authorization: Bearer); better in the environment, as "
        "FAIRLEAD_AUTH_TOKEN, where no list of processes shows it; `auto` makes one and shows it",
    ),
    repeated("--allow-host", "NAME", "a name under which clients know this machine"),
    repeated("--allow-origin", "ORIGIN", "let web pages from there in (https://example.com)"),
    option("--tls-cert", metavar="FILE", help="serve https and wss with this chain"),
    option("--tls-key", metavar="FILE", help="its key, if that is another file"),
    flag(
        "--insecure",
        help="no token, although others can reach it: something in front checks who comes in",
    ),
    option(
        "--sessions",
        metavar="FILE",
        help="keep sessions of clients with a handshake in this file (SQLite), so that they go on "
        "after a restart",
    ),
    option(
        "--session-idle",
        metavar="SECONDS",
        type=seconds,
        help="end a session of a handshake client that was not used for so long (default: 1800)",
    ),
)


def require_network(options: Namespace, who: str, hint: str, *more: str) -> None:
    """Raise `CommandError` for an option that only makes sense on the network."""
    for name in (*(names[0] for names, _ in ACCESS), *more):
        value = getattr(options, name.removeprefix("--").replace("-", "_"))
        if value not in (None, []) and value is not False:
            raise UsageError(f"{name} is for {who}", hint=hint)
