"""The options of commands that put something on the network: who may come in."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import _ActionsContainer

__all__ = ["ACCESS", "add_access_options"]

ACCESS = ("token", "allow_host", "allow_origin", "tls_cert", "tls_key", "insecure", "sessions")


def add_access_options(parser: "_ActionsContainer") -> None:
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help="let in only who knows it (Authorization: Bearer); better in the environment, as "
        "FAIRLEAD_AUTH_TOKEN, where no list of processes shows it; `auto` makes one and shows it",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which clients know this machine; may be repeated",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let web pages from there in, such as https://example.com; may be repeated",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="serve https and wss with this chain")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, if that is another file")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="no token, although others can reach it: something in front checks who comes in",
    )
    parser.add_argument(
        "--sessions",
        metavar="FILE",
        help="keep sessions of clients with a handshake in this file (SQLite), so that they go on "
        "after a restart",
    )
