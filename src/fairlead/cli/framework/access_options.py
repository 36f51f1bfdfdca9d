"""Options that control access to a server on the network."""

from argparse import Namespace

from .command_errors import UsageError
from .parser import flag, option, repeated, seconds

__all__ = ["ACCESS", "require_network"]

ACCESS = (
    option(
        "--token",
        metavar="TOKEN",
        help="require this token from clients (Authorization: Bearer); prefer the environment "
        "variable FAIRLEAD_AUTH_TOKEN, which process lists do not show; `auto` generates and "
        "prints a token",
    ),
    repeated("--allow-host", "NAME", "accept requests for this host name"),
    repeated(
        "--allow-origin",
        "ORIGIN",
        "accept requests from web pages of this origin (https://example.com)",
    ),
    option("--tls-cert", metavar="FILE", help="serve https and wss with this certificate chain"),
    option("--tls-key", metavar="FILE", help="the private key, if it is in a separate file"),
    flag(
        "--insecure",
        help="allow other machines to connect without a token, because a proxy checks the clients",
    ),
    option(
        "--sessions",
        metavar="FILE",
        help="store the sessions of handshake clients in this SQLite file, so that they survive a "
        "restart",
    ),
    option(
        "--session-idle",
        metavar="SECONDS",
        type=seconds,
        help="end sessions of handshake clients after this time without use (default: 1800)",
    ),
    option(
        "--drain",
        metavar="SECONDS",
        type=seconds,
        help="listen for this time after SIGTERM, although /ready returns 503, and let running "
        "requests finish (default: at most 3, or 1 for a gateway, and only while requests are "
        "running); Ctrl-C and a second signal end it earlier",
    ),
)


def require_network(options: Namespace, who: str, hint: str, *more: str) -> None:
    """Raise `UsageError` for an option that only applies to servers on the network."""
    for name in (*(names[0] for names, _ in ACCESS), *more):
        value = getattr(options, name.removeprefix("--").replace("-", "_"))
        if value not in (None, []) and value is not False:
            raise UsageError(f"{name} only applies to {who}", hint=hint)
